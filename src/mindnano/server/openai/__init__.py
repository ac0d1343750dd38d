"""OpenAI's interface: chat, completions, responses, models."""
