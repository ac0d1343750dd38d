"""Types that several interfaces share."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mindnano.server.settings import MAX_STOPS


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A parameter that isn't known is refused, never ignored. null counts as left out."""


class Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A part of a request."""


class Body(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A response; fields left at their default aren't sent."""


Schema = dict[str, Any]
Temperature = Annotated[float, Meta(ge=0, le=100)]
TopP = Annotated[float, Meta(gt=0, le=1)]
MinP = Annotated[float, Meta(ge=0, le=1)]
TopK = Annotated[int, Meta(ge=0, le=1 << 30)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
RepetitionPenalty = Annotated[float, Meta(ge=0.01, le=100)]
Seed = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
MaxTokens = Annotated[int, Meta(ge=1, le=1 << 30)]
StopString = Annotated[str, Meta(min_length=1, max_length=1024)]
Stop = StopString | Annotated[list[StopString], Meta(max_length=MAX_STOPS)]


class StreamOptions(Part):
    """include_usage: a last chunk with the usage and no choices."""

    include_usage: bool | None = None


class PromptDetails(Body, kw_only=False):
    cached_tokens: int


class CompletionDetails(Body, kw_only=False):
    reasoning_tokens: int


class Usage(Body):
    """Tokens of the prompt, how many of them were reused, and of the answer with its end token."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails
