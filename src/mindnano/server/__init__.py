"""The HTTP server: OpenAI's and Anthropic's interfaces, sessions and metrics in front of one engine thread.

Imports starlette, uvicorn and the engine; nothing of `cli` or `bench`.
"""
