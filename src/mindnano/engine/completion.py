"""What a request gives back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mindnano.engine.sampling import Sampled
from mindnano.engine.timings import Timings


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Delta:
    """What came since the last one: text that may be shown, and the tokens behind it and behind what is held back."""

    text: str
    token_ids: list[int]


@dataclass(frozen=True)
class Completion:
    """An answer. finish_reason: "stop" (end token or stop string), "length" or "cancelled"."""

    text: str
    token_ids: list[int]
    finish_reason: str
    usage: Usage
    timings: Timings
    logprobs: list[Sampled] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        data = asdict(self)
        data["timings"] = self.timings.as_dict()
        data["usage"]["total_tokens"] = self.usage.total_tokens
        if self.logprobs is None:
            del data["logprobs"]
        return data
