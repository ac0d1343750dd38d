"""Anthropic's interface: messages and their token count."""
