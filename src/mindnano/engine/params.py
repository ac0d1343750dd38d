"""What a caller may say about sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from mindnano.errors import MindNanoError


@dataclass(frozen=True)
class SamplingParams:
    """How an answer is chosen and when it ends.

    max_tokens: None for as many as the context holds. temperature 0 is greedy. top_k 0, top_p 1 and min_p 0 are
    off. repetition_penalty divides (or multiplies, below zero) the logits of tokens in prompt and answer
    (CTRL, arXiv 1909.05858); presence and frequency penalties are subtracted for tokens of the answer, as in
    OpenAI's API. logit_bias is added. stop: strings that end the answer and are cut off. logprobs: None, or how
    many alternatives to report a token (0: the chosen one only); they are of the model's own distribution,
    before penalties, bias and temperature.

    Raises MindNanoError naming the field and what was expected.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _whole("max_tokens", self.max_tokens, 1, 1 << 31)
        _real("temperature", self.temperature, 0.0, 100.0)
        _whole("top_k", self.top_k, 0, 1 << 31)
        _real("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise MindNanoError("top_p: expected a number above 0 and at most 1, got 0; for greedy use temperature 0")
        _real("min_p", self.min_p, 0.0, 1.0)
        _real("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _real("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _real("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        if self.seed is not None:
            _whole("seed", self.seed, 0, (1 << 64) - 1)
        for token, bias in self.logit_bias.items():
            _whole("logit_bias token", token, 0, 1 << 31)
            _real(f"logit_bias of token {token}", bias, -1000.0, 1000.0)
        if isinstance(self.stop, str):
            raise MindNanoError("stop: expected a sequence of strings, got one string; put it in a tuple")
        for stop in self.stop:
            if not isinstance(stop, str) or not stop:
                raise MindNanoError(f"stop: expected strings that aren't empty, got {stop!r}")
        for token in self.stop_token_ids:
            _whole("stop_token_ids", token, 0, 1 << 31)
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, 100)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


def _whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MindNanoError(f"{name}: expected a whole number from {low} to {high}, got {value!r}")


def _real(name: str, value: object, low: float, high: float) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not low <= value <= high:  # type: ignore[operator]
        raise MindNanoError(f"{name}: expected a number from {low:g} to {high:g}, got {value!r}")
