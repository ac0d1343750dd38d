"""What a request gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mindnano.engine.sampling import Sampled
from mindnano.engine.timings import Timings


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer: text that can be shown, and the tokens since the last piece.

    The two don't correspond: text may be held back for a character or stop string that isn't complete.
    """

    text: str
    token_ids: list[int]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of the prompt and of the answer, the one that ended it included."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def as_dict(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.total_tokens,
        }


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer.

    token_ids: everything that was sampled, also an EOS and what a stop string cut from the text.
    finish_reason: "stop" (EOS or a stop string), "length" (max_tokens or the context) or "cancelled".
    logprobs: one entry a token where SamplingParams.logprobs asked for it, of the model's own distribution.
    """

    text: str
    token_ids: list[int]
    finish_reason: str
    usage: Usage
    timings: Timings
    logprobs: list[Sampled] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values: dict[str, Any] = {
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "usage": self.usage.as_dict(),
            "timings": self.timings.as_dict(),
        }
        if self.logprobs is not None:
            values["logprobs"] = [
                {
                    "token": one.token,
                    "logprob": one.logprob,
                    "top": [{"token": token, "logprob": logprob} for token, logprob in one.top or []],
                }
                for one in self.logprobs
            ]
        return values
