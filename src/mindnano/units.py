"""Sizes as people write them: `8K` tokens, `16GiB` bytes."""

from __future__ import annotations

import re

from mindnano.errors import MindNanoError, shorten

_NUMBER = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z]*)\s*")
_COUNT = {"": 1, "k": 2**10, "m": 2**20}
_BYTES = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", start=1):
    _BYTES[_prefix] = _BYTES[_prefix + "ib"] = 1024**_power
    _BYTES[_prefix + "b"] = 1000**_power


def _parse(text: str | int, units: dict[str, int], what: str, example: str) -> int:
    if isinstance(text, bool):
        raise MindNanoError(f"{text!r} is no {what}; expected something like {example}")
    if isinstance(text, int):
        text = str(text)
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise MindNanoError(f"{shorten(text)} is no {what}; expected something like {example}")
    value = float(match[1]) * factor if "." in match[1] else int(match[1]) * factor
    if value != int(value):
        raise MindNanoError(f"{shorten(text)} is no whole {what}; expected something like {example}")
    return int(value)


def parse_size(text: str | int) -> int:
    """A number of tokens: `8192`, `8K` (= 8192), `1.5K`, `1M`. Raises MindNanoError."""
    return _parse(text, _COUNT, "number of tokens", "4096 or 8K")


def parse_bytes(text: str | int) -> int:
    """A number of bytes: `16GiB`, `512M` and `512MiB` (powers of 1024), `16GB` (powers of 1000)."""
    return _parse(text, _BYTES, "number of bytes", "512MiB or 16GiB")


def format_bytes(count: int) -> str:
    """Bytes for people: `5.4 GiB`, `512.0 MiB`, `17 B`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
