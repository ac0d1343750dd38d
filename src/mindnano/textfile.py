"""Text from files and standard input, of a size that is checked before it is used."""

from __future__ import annotations

import sys
from pathlib import Path

from mindnano.errors import MindNanoError


def read_text(path: Path | None, limit: int, option: str) -> str:
    """A file's UTF-8 text of at most `limit` bytes, or standard input's where there is no path.

    Raises MindNanoError, naming the option that asked for it, where it can't be read, is larger or no text.
    """
    name = f"{option} {path}" if path is not None else "standard input"
    try:
        if path is None:
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with path.open("rb") as handle:
                data = handle.read(limit + 1)
    except OSError as error:
        raise MindNanoError(f"{name}: {error.strerror}") from None
    if len(data) > limit:
        raise MindNanoError(f"{name}: more than {limit >> 20} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MindNanoError(f"{name}: not UTF-8 at byte {error.start}, expected text") from None
