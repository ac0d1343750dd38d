"""Requests into tokens: sequences, the scheduler, sampling, and the LLM class in front of them."""
