"""OpenAI's parameters as the engine's."""

from __future__ import annotations

from typing import Any

import msgspec

from mindnano.server.errors import invalid
from mindnano.server.schemas import chat as c


def chat_messages(messages: list[c.Message]) -> list[dict[str, Any]]:
    """Messages as chat templates expect them: only the fields that were given."""
    made = []
    for message in messages:
        values = msgspec.to_builtins(message)
        made.append({name: value for name, value in values.items() if value is not None})
    return made


def sampling(body: c.ChatRequest) -> dict[str, Any]:
    """SamplingParams' fields."""
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        raise invalid("max_tokens", "differs from max_completion_tokens, its newer name; give one of them")
    return {
        "max_tokens": body.max_completion_tokens if body.max_tokens is None else body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "min_p": body.min_p,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "repetition_penalty": body.repetition_penalty,
        "seed": None if body.seed is None else body.seed % (1 << 64),
        "stop": stops(body.stop),
        "ignore_eos": body.ignore_eos,
        "logit_bias": biases(body.logit_bias),
    }


def stops(stop: str | list[str] | None) -> tuple[str, ...]:
    return () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)


def biases(given: dict[str, float] | None) -> dict[int, float] | None:
    if not given:
        return None
    found = {}
    for token, bias in given.items():
        if not token.isascii() or not token.isdigit() or len(token) > 9:
            raise invalid("logit_bias", f"expected token ids as keys, got {token[:40]!r}")
        found[int(token)] = bias
    return found


def thinks(body: c.ChatRequest, default: bool) -> bool:
    """Whether to think first: as enable_thinking or reasoning_effort say, or the server's default."""
    wanted = body.chat_template_kwargs.enable_thinking if body.chat_template_kwargs else None
    if body.reasoning_effort is None:
        return default if wanted is None else wanted
    effort = body.reasoning_effort != "none"
    if wanted not in (None, effort):
        raise invalid("reasoning_effort", f"{body.reasoning_effort} contradicts enable_thinking")
    return effort
