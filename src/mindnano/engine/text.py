"""Tokens into text as they come: whole characters only, stop strings held back."""

from __future__ import annotations

from collections.abc import Sequence

from mindnano.engine.stop import StopMatcher
from mindnano.tokenizer import IncrementalDecoder, Tokenizer


class TextStream:
    """Text of one answer. `push` adds a token; `take` gives what may be shown and wasn't taken yet.

    stop_after: stop strings count only after this text, e.g. the end of the reasoning; empty: from the start.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], stop_after: str = "") -> None:
        self._decoder = IncrementalDecoder(tokenizer)
        self._matcher = StopMatcher(stop)
        self._stop_after, self._tail = stop_after, ""
        self.decoded = 0  # characters of all tokens so far, also of those that are held back or cut off
        self._parts: list[str] = []
        self._taken = 0
        self._finished = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; text from it on is dropped."""
        return self.stop is not None

    @property
    def stop(self) -> str | None:
        """The stop string that was found."""
        return self._matcher.stopped

    def push(self, token: int) -> None:
        self._push(self._decoder.push(token))

    def _push(self, text: str) -> None:
        self.decoded += len(text)
        if self._stop_after:
            seen = self._tail + text
            at = seen.find(self._stop_after)
            if at < 0:
                self._tail = seen[max(0, len(seen) - len(self._stop_after) + 1) :]
                self._parts.append(text)
                return
            rest = seen[at + len(self._stop_after) :]
            self._stop_after = ""
            self._parts.append(text[: len(text) - len(rest)])
            text = rest
        self._parts.append(self._matcher.push(text))

    def finish(self) -> None:
        """Release what was held back for a longer character or stop string that didn't come."""
        if self._finished:
            return
        self._finished = True
        if not self.stopped:
            self._push(self._decoder.finish())
            self._parts.append(self._matcher.finish())

    def take(self) -> str:
        new = "".join(self._parts[self._taken :])
        self._taken = len(self._parts)
        return new

    @property
    def text(self) -> str:
        return "".join(self._parts)
