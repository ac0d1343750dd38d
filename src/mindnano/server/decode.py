"""Bodies into types, with errors that name the parameter."""

from __future__ import annotations

import asyncio
import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from mindnano.server.errors import ApiError
from mindnano.server.settings import BODY_SECONDS, MAX_BODY_BYTES

T = TypeVar("T")
_WHERE = re.compile(r"(.*?) - at `(\$.*?)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)


async def read_body(request: Request) -> bytes:
    """The whole body. 413 beyond the limit, 408 where it comes too slowly."""
    data = bytearray()
    try:
        stream = request.stream()
        while True:
            piece = await asyncio.wait_for(anext(stream, None), BODY_SECONDS)
            if piece is None:
                return bytes(data)
            data += piece
            if len(data) > MAX_BODY_BYTES:
                raise ApiError(
                    413, f"the body is larger than the limit of {MAX_BODY_BYTES} bytes", code="body_too_large"
                )
    except TimeoutError:
        raise ApiError(408, f"no more of the body came for {BODY_SECONDS:g} s", code="timeout") from None


async def read(request: Request, kind: type[T]) -> T:
    """The body as `kind`. 400 names the parameter, what was expected and what came."""
    return decode(await read_body(request), kind)


def decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from None
    except UnicodeDecodeError:
        raise ApiError(400, "the body is not valid JSON: not UTF-8", code="invalid_json") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from None


def convert(value: Any, kind: type[T], where: str) -> T:
    """A part of a body as `kind`; `where` names it in errors."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), where) from None


def _refusal(text: str, where: str = "") -> ApiError:
    match = _WHERE.fullmatch(text)
    what, path = (match[1], match[2][1:].lstrip(".")) if match else (text, "")
    path = f"{where}.{path}".strip(".").replace(".[", "[")
    for pattern, say, code in (
        (_UNKNOWN, "unknown parameter", "unknown_parameter"),
        (_MISSING, "is required", "missing_required_parameter"),
    ):
        if found := pattern.fullmatch(what):
            param = f"{path}.{found[1]}".lstrip(".")[:200]
            return ApiError(400, f"{param}: {say}", code=code, param=param)
    return ApiError(400, f"{path}: {what}" if path else what, code="invalid_value", param=path or None)


__all__ = ["ClientDisconnect", "decode", "read", "read_body"]
