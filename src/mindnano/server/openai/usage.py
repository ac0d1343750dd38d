"""Usage, and what a stream is asked to tell beside the answer."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import Request

from mindnano.server.reading import Ended
from mindnano.server.schemas.common import CompletionDetails, PromptDetails, StreamOptions, Usage


class _Streamed(Protocol):
    stream_options: StreamOptions | None


def usage_of(ended: list[Ended], per_prompt: int) -> Usage:
    """Of all choices together; `per_prompt` choices in a row share a prompt, which counts once."""
    ordered = sorted(ended, key=lambda one: one.choice)
    firsts = [one.completion for one in ordered[::per_prompt]]
    prompt = sum(first.usage.prompt_tokens for first in firsts)
    answer = sum(one.completion.usage.completion_tokens for one in ended)
    reasoning = sum(one.reasoning_tokens for one in ended)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=answer,
        total_tokens=prompt + answer,
        prompt_tokens_details=PromptDetails(sum(first.timings.cached_tokens for first in firsts)),
        completion_tokens_details=CompletionDetails(reasoning),
    )


def wants_progress(request: Request, asked: bool | None) -> bool:
    return bool(asked) or request.headers.get("x-mindnano-progress") == "1"


def wants_usage(body: _Streamed) -> bool:
    return body.stream_options is not None and bool(body.stream_options.include_usage)
