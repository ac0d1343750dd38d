"""POST /v1/completions."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from mindnano.engine.timings import Timings
from mindnano.server.schemas import common
from mindnano.server.schemas.chat import ResponseFormat
from mindnano.server.schemas.common import Body, Request
from mindnano.server.settings import MAX_CHOICES, MAX_TOP_LOGPROBS

TokenId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
# A text, a text's token ids, or a list of either.
Prompt = str | list[TokenId | str | list[TokenId]]


class CompletionRequest(Request):
    """OpenAI's text completion, with top_k, min_p, repetition_penalty, ignore_eos, response_format and progress of
    this server. prompt: a text, token ids, or a list of texts or of lists of token ids."""

    prompt: Prompt
    model: str | None = None
    stream: bool | None = None
    stream_options: common.StreamOptions | None = None
    max_tokens: common.MaxTokens | None = None
    temperature: common.Temperature | None = None
    top_p: common.TopP | None = None
    top_k: common.TopK | None = None
    min_p: common.MinP | None = None
    presence_penalty: common.Penalty | None = None
    frequency_penalty: common.Penalty | None = None
    repetition_penalty: common.RepetitionPenalty | None = None
    seed: common.Seed | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: common.Stop | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    echo: bool | None = None
    response_format: ResponseFormat | None = None
    progress: bool | None = None
    user: Annotated[str, Meta(max_length=512)] | None = None


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
