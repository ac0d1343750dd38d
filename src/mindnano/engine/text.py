"""Tokens into text as they come: whole characters only, stop strings held back."""

from __future__ import annotations

from collections.abc import Sequence

from mindnano.engine.stop import StopMatcher
from mindnano.tokenizer import IncrementalDecoder, Tokenizer


class TextStream:
    """Text of one answer. `push` adds a token; `take` gives what may be shown and wasn't taken yet."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._decoder = IncrementalDecoder(tokenizer)
        self._matcher = StopMatcher(stop)
        self._parts: list[str] = []
        self._taken = 0
        self._finished = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; text from it on is dropped."""
        return bool(self._matcher.stopped)

    def push(self, token: int) -> None:
        self._parts.append(self._matcher.push(self._decoder.push(token)))

    def finish(self) -> None:
        """Release what was held back for a longer character or stop string that didn't come."""
        if self._finished:
            return
        self._finished = True
        if not self.stopped:
            self._parts.append(self._matcher.push(self._decoder.finish()))
            self._parts.append(self._matcher.finish())

    def take(self) -> str:
        new = "".join(self._parts[self._taken :])
        self._taken = len(self._parts)
        return new

    @property
    def text(self) -> str:
        return "".join(self._parts)
