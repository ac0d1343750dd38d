"""Reading small files and JSON from folders nobody vouches for: bounded size, depth and object count."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from mindnano.errors import MindNanoError, shorten

MIB = 1 << 20


def check_regular(path: Path, what: str = "file") -> int:
    """The size of a regular file (symbolic links are followed, as model caches consist of them)."""
    try:
        info = path.stat()
    except FileNotFoundError:
        raise MindNanoError(f"{path}: no such {what}") from None
    except (OSError, ValueError) as error:
        raise MindNanoError(f"{path}: cannot be read ({_reason(error)})") from None
    if not stat.S_ISREG(info.st_mode):
        raise MindNanoError(f"{path}: is no regular file, expected a {what}")
    return info.st_size


def read_bytes(path: Path, limit: int, what: str = "file") -> bytes:
    """The whole file, refused above `limit` bytes before any of it is read."""
    size = check_regular(path, what)
    if size > limit:
        raise MindNanoError(f"{path}: {size} bytes, expected at most {limit}; this is no {what}")
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise MindNanoError(f"{path}: cannot be read ({_reason(error)})") from None
    if len(data) > limit:
        raise MindNanoError(f"{path}: more than {limit} bytes; this is no {what}")
    return data


def _reason(error: Exception) -> str:
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


def parse_json(data: bytes, where: str, *, values: int = 200_000, objects: int = 50_000) -> Any:
    """JSON without surprises: UTF-8, no duplicate keys, no NaN, no absurd numbers or nesting.

    `values` and `objects` bound the commas and the opening brackets, and so the memory of the result.
    """

    def refuse(text: str) -> NoReturn:
        raise MindNanoError(f"{where}: {text} is no JSON number")

    def number(text: str) -> float:
        value = float(text)
        return value if math.isfinite(value) else refuse(shorten(text))

    def whole(text: str) -> int:
        return int(text) if len(text) <= 20 else refuse(shorten(text))

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    raise MindNanoError(f"{where}: the key {shorten(name)} appears twice")
                seen.add(name)
        return found

    if data.count(b",") > values or data.count(b"[") > objects or data.count(b"{") > objects:
        raise MindNanoError(f"{where}: more entries than any file of this kind needs (limit {values})")
    # One wide character makes Python keep four bytes for each character of its string.
    if len(data) > 4 * MIB and not (data.isascii() and b"\\u" not in data):
        raise MindNanoError(
            f"{where}: {len(data)} bytes with characters beyond ASCII, expected less than 4 MiB"
        )
    try:
        text = data.decode("utf-8")
        return json.loads(
            text, object_pairs_hook=unique, parse_constant=refuse, parse_float=number, parse_int=whole
        )
    except UnicodeDecodeError as error:
        raise MindNanoError(f"{where}: not UTF-8 at byte {error.start}, expected JSON") from None
    except json.JSONDecodeError as error:
        raise MindNanoError(f"{where}: not valid JSON at byte {error.pos} ({error.msg})") from None
    except RecursionError:
        raise MindNanoError(f"{where}: JSON nested too deeply") from None


def parse_object(data: bytes, where: str, *, values: int = 200_000, objects: int = 50_000) -> dict[str, Any]:
    """`parse_json` of what must be an object."""
    found = parse_json(data, where, values=values, objects=objects)
    if not isinstance(found, dict):
        raise MindNanoError(f"{where}: holds {shorten(found)}, expected a JSON object")
    return found
