"""The one exception that users see: what was wrong, what was expected, what to do, in one line."""

from __future__ import annotations

import reprlib

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 60


class MindNanoError(ValueError):
    """A user's mistake or a bad file. The command line prints one line, the server an error object."""

    def __init__(self, message: str) -> None:
        # Text from a file (a tensor's name, a JSON excerpt) must not break the promise of one line.
        super().__init__(" ".join(message.split()))


def shorten(value: object, limit: int = 80) -> str:
    """`repr` of a value found in a file, cut so that a message stays readable however large the value is."""
    text = _REPR.repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


class ContextLengthError(MindNanoError):
    """A prompt that doesn't fit: `needed` tokens, with those that must be generated, of `context`."""

    def __init__(self, message: str, needed: int, context: int) -> None:
        super().__init__(message)
        self.needed, self.context = needed, context


class OutOfMemoryError(MindNanoError):
    """More memory is needed than there is; `need` and `have` in bytes, `largest_context` that fits or 0."""

    def __init__(self, message: str, need: int, have: int, largest_context: int = 0) -> None:
        super().__init__(message)
        self.need, self.have, self.largest_context = need, have, largest_context


class SessionNotFoundError(MindNanoError):
    """There is no session of that name."""


class SessionExistsError(MindNanoError):
    """A session of that name is there already and wasn't to be replaced."""


class SessionMismatchError(MindNanoError):
    """A session of another model, tokenizer, template, KV layout or format."""


class SessionStorageError(MindNanoError):
    """The folder can't be read or written: full, read-only, no permission."""


class EngineError(MindNanoError):
    """The model or the engine failed on good input."""
