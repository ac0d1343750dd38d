"""Errors as the clients of each interface expect them."""

from __future__ import annotations

import msgspec

from mindnano.errors import (
    ContextLengthError,
    EngineError,
    MindNanoError,
    OutOfMemoryError,
    SessionExistsError,
    SessionMismatchError,
    SessionNotFoundError,
    SessionStorageError,
)
from mindnano.server import logs


class ApiError(Exception):
    """A refusal: HTTP status and the fields of OpenAI's error object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
        needed_tokens: int | None = None,
        context_tokens: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.code, self.param = status, message, kind, code, param
        self.needed_tokens, self.context_tokens = needed_tokens, context_tokens
        self.headers = headers or {}


class ErrorObject(msgspec.Struct, omit_defaults=True):
    """The last two, of this server, come with `context_length_exceeded`."""

    message: str
    type: str
    param: str | None
    code: str | None
    needed_tokens: int | None = None
    context_tokens: int | None = None


class ErrorBody(msgspec.Struct):
    """OpenAI's error object."""

    error: ErrorObject


class AnthropicErrorObject(msgspec.Struct):
    type: str
    message: str


class AnthropicErrorBody(msgspec.Struct):
    """Anthropic's error object."""

    type: str
    error: AnthropicErrorObject


_ANTHROPIC_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def openai_body(error: ApiError) -> ErrorBody:
    return ErrorBody(
        ErrorObject(
            error.message, error.kind, error.param, error.code, error.needed_tokens, error.context_tokens
        )
    )


def anthropic_body(error: ApiError) -> AnthropicErrorBody:
    kind = _ANTHROPIC_KINDS.get(error.status)
    if kind is None:
        kind = "invalid_request_error" if error.status < 500 else "api_error"
    return AnthropicErrorBody("error", AnthropicErrorObject(kind, error.message))


def invalid(param: str | None, message: str, code: str | None = "invalid_value") -> ApiError:
    """400 for one parameter; `message` says what was expected."""
    return ApiError(400, f"{param}: {message}" if param else message, param=param, code=code)


def unsupported(param: str, message: str) -> ApiError:
    return invalid(param, message, "unsupported_parameter")


_STATUS = (
    (SessionNotFoundError, 404, "session_not_found"),
    (SessionExistsError, 409, "session_exists"),
    (SessionMismatchError, 409, "session_mismatch"),
    (SessionStorageError, 507, "session_storage"),
)


def from_exception(error: BaseException) -> ApiError:
    """Only our own exceptions' words are passed on."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ContextLengthError):
        return ApiError(
            400,
            str(error),
            code="context_length_exceeded",
            needed_tokens=error.needed,
            context_tokens=error.context,
        )
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return ApiError(status, str(error), code=code)
    if isinstance(error, OutOfMemoryError):
        return ApiError(
            503, str(error), kind="server_error", code="out_of_memory", headers={"retry-after": "30"}
        )
    if isinstance(error, EngineError):
        return ApiError(500, str(error), kind="server_error", code="engine_error")
    if isinstance(error, MindNanoError):
        return ApiError(400, str(error), code="invalid_value")
    if isinstance(error, MemoryError):
        return ApiError(503, "out of memory", kind="server_error", code="out_of_memory")
    return ApiError(
        500, "internal error; the server's log has it", kind="server_error", code="internal_error"
    )


def told(error: BaseException) -> ApiError:
    """What the client is told about an exception; what nobody foresaw is logged."""
    found = from_exception(error)
    if found.code == "internal_error":
        logs.trouble("an answer failed", error)
    return found
