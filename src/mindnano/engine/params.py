"""How an answer's tokens are chosen and where it ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from mindnano.errors import MindNanoError, shorten

MAX_STOPS = 64
MAX_STOP_CHARACTERS = 1024
MAX_LOGPROBS = 128
MAX_BIASES = 4096

_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_p": (1e-6, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}
_COUNTS: dict[str, tuple[int, int]] = {
    "max_tokens": (1, 1 << 30),
    "top_k": (0, 1 << 30),
    "seed": (0, (1 << 64) - 1),
    "logprobs": (0, MAX_LOGPROBS),
}


@dataclass(frozen=True)
class SamplingParams:
    """Sampling and stopping of one request. Checked when made: MindNanoError names the option and its range.

    max_tokens: None for as many as the context holds. temperature: 0 is greedy (the filters then change
    nothing). top_k: 0 for all. repetition_penalty (HF): tokens of prompt and answer, 1 for none.
    presence_penalty, frequency_penalty (OpenAI): tokens of the answer. logit_bias: token id to -100..100,
    added to its logit. seed: None for a fresh one. stop: strings that end the answer and aren't part of it.
    logprobs: None, or how many of the likeliest tokens to report beside the chosen one.
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
        for name, (low, high) in _RANGES.items():
            object.__setattr__(self, name, _number(name, getattr(self, name), low, high))
        for name, (least, most) in _COUNTS.items():
            value = getattr(self, name)
            if value is not None or name == "top_k":
                _whole(name, value, least, most)
        if not isinstance(self.ignore_eos, bool):
            raise MindNanoError(f"ignore_eos: expected true or false, got {shorten(self.ignore_eos)}")
        object.__setattr__(self, "stop", _stops(self.stop))
        object.__setattr__(self, "stop_token_ids", _token_ids(self.stop_token_ids))
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @classmethod
    def for_model(cls, generation: Mapping[str, Any], **given: Any) -> Self:
        """What `given` says, and for the rest what the model's generation_config.json recommends.

        A value of None in `given` counts as not given. `do_sample: false` means greedy.
        """
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
        settings = {name: generation[name] for name in names if name in generation}
        if generation.get("do_sample") is False:
            settings["temperature"] = 0.0
        return cls(**(settings | {name: value for name, value in given.items() if value is not None}))


def _number(name: str, value: object, low: float, high: float) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not low <= value <= high
    ):
        raise MindNanoError(f"{name}: expected a number from {low:g} to {high:g}, got {shorten(value)}")
    return float(value)


def _whole(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MindNanoError(f"{name}: expected a whole number from {low} to {high}, got {shorten(value)}")
    return value


def _stops(value: Any) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else value
    if not isinstance(stops, tuple | list) or len(stops) > MAX_STOPS:
        raise MindNanoError(f"stop: expected at most {MAX_STOPS} strings, got {shorten(value)}")
    for stop in stops:
        if not isinstance(stop, str) or not 0 < len(stop) <= MAX_STOP_CHARACTERS:
            raise MindNanoError(
                f"stop: expected strings of 1 to {MAX_STOP_CHARACTERS} characters, got {shorten(stop)}"
            )
    return tuple(stops)


def _token_ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple | list):
        raise MindNanoError(f"stop_token_ids: expected a list of token ids, got {shorten(value)}")
    return tuple(_whole("stop_token_ids", token, 0, 1 << 30) for token in value)


def _biases(value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping) or len(value) > MAX_BIASES:
        raise MindNanoError(
            f"logit_bias: expected a map of at most {MAX_BIASES} token ids to numbers, got {shorten(value)}"
        )
    return {
        _whole("logit_bias: token id", token, 0, 1 << 30): _number("logit_bias", bias, -100.0, 100.0)
        for token, bias in value.items()
    }
