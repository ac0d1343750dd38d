"""POST /v1/completions."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from mindnano.engine.timings import Timings
from mindnano.server.schemas import common
from mindnano.server.schemas.chat import AnswerRequest
from mindnano.server.schemas.common import Body
from mindnano.server.settings import MAX_TOP_LOGPROBS

TokenId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
# A text, a text's token ids, or a list of either.
Prompt = str | list[TokenId | str | list[TokenId]]


class CompletionRequest(AnswerRequest):
    """OpenAI's text completion, with top_k, min_p, repetition_penalty, ignore_eos, response_format and progress of
    this server. prompt: a text, token ids, or a list of texts or of lists of token ids."""

    prompt: Prompt
    logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: bool | None = None


class TextLogprobs(Body):
    """By token: its text, its log-probability, the likeliest ones by their text, and its place in the answer."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(Body):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class TextCompletion(Body):
    """Whole, or a chunk of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: common.Usage | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
