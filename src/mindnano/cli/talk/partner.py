"""Who answers in a conversation, and what happens while an answer comes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mindnano.engine.timings import Timings

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Reading:
    """The prompt is being read: tokens done, in all, and seconds left if known."""

    done: int
    total: int
    seconds_left: float | None


@dataclass(frozen=True)
class Thought:
    """A piece of the reasoning."""

    text: str


@dataclass(frozen=True)
class Said:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class Ended:
    """The answer is complete; `reason` is OpenAI's finish reason."""

    reason: str
    timings: Timings


Event = Reading | Thought | Said | Ended


@dataclass(frozen=True)
class Entry:
    """A kept conversation; `problem` says why it can't be loaded, else empty."""

    name: str
    tokens: int
    nbytes: int
    problem: str = ""


class Partner(Protocol):
    """An engine of this process, or a server. Everything that can go wrong is a MindNanoError."""

    about: str  # one line
    synthetic: bool  # random weights

    def answer(self, messages: Messages, thinking: bool) -> Iterator[Event]:
        """Closing the iterator early, or Ctrl-C, stops the answer and leaves the partner usable."""

    def save(self, name: str, messages: Messages) -> int:
        """Keep a conversation and what was computed of it; tokens that are kept."""

    def load(self, name: str) -> tuple[Messages, int]:
        """A kept conversation, and how many tokens of it won't be computed again."""

    def sessions(self) -> list[Entry]: ...

    def delete(self, name: str) -> None: ...

    def close(self) -> None: ...
