"""What stands before the routes: limits on headers, Host and Origin, keys, and the headers of every answer."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import socket
from time import perf_counter
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mindnano.server import errors
from mindnano.server.errors import ApiError
from mindnano.server.logs import log
from mindnano.server.service import Service
from mindnano.server.settings import MAX_BODY_BYTES, MAX_HEADER_BYTES, Settings, is_loopback

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

MOST_DRAINED = 4 * MAX_BODY_BYTES  # of a body that was refused
DRAIN_SECONDS = 5.0


class Guard:
    """The outermost ASGI application. Refuses what is too large or comes from a foreign page; completes and counts
    the answers, and lets no exception out."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service, self.settings = app, service, service.settings
        host = self.settings.host.lower()
        self.hosts = {"localhost", host, *(name.lower() for name in self.settings.hosts)}
        if not is_loopback(host):
            name = socket.gethostname().lower()
            self.hosts |= {name, f"{name}.local"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = perf_counter(), 0

        async def complete(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self.check(scope)
            await self.app(scope, receive, complete)
        except Exception as error:
            found = errors.told(error)
            if not status:
                if found.status == 413:
                    await _drain(receive)
                await error_response(found, scope["path"])(scope, receive, complete)
        finally:
            where = getattr(scope.get("endpoint"), "template", "page" if status < 400 else "none")
            self.service.metrics.requests.labels(where, str(status)).inc()
            log.debug("%s %s %d %.3f s", scope["method"], where, status, perf_counter() - begin)

    def check(self, scope: Scope) -> None:
        """Raises ApiError for a request that isn't looked at further."""
        size = sum(len(name) + len(value) for name, value in scope["headers"]) + len(scope["raw_path"])
        size += len(scope["query_string"])
        if size > MAX_HEADER_BYTES:
            raise ApiError(
                431,
                f"the request's line and headers take {size} bytes, the limit is {MAX_HEADER_BYTES}",
                code="headers_too_large",
            )
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._host_allowed(host):
            raise ApiError(
                403,
                "this name in the Host header isn't one of the server's; start it with --allow-host NAME",
                code="host_not_allowed",
            )
        self._check_origin(headers, host, scope["method"])
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > MAX_BODY_BYTES:
            raise ApiError(
                413,
                f"the body has {length} bytes, the limit is {MAX_BODY_BYTES}",
                code="body_too_large",
                headers={"connection": "close"},
            )

    def _host_allowed(self, host: str) -> bool:
        """An address, which no DNS server can point elsewhere, or one of the server's names."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
            return True
        except ValueError:
            return name.rstrip(".") in self.hosts

    def _check_origin(self, headers: Headers, host: str, method: str) -> None:
        """Pages of other sites may not ask, whether they could read the answer or not."""
        origin = headers.get("origin")
        if origin in self.settings.origins:
            return
        foreign = origin is not None and urlsplit(origin).netloc.lower() != host.lower()
        if origin is None and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            # A link to the page may be followed; an image or script of another site may not be had here.
            foreign = method != "GET" or headers.get("sec-fetch-mode") != "navigate"
        if foreign:
            raise ApiError(
                403,
                "requests of other web pages are refused; start the server with --allow-origin ORIGIN",
                code="origin_not_allowed",
            )


async def _drain(receive: Receive) -> None:
    """Read on for a while, and forget it: a connection that is closed while its client still sends may take the answer
    with it."""
    left = MOST_DRAINED
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
                left -= len(message.get("body", b""))


def check_key(request: Request, settings: Settings) -> None:
    """Raises ApiError 401 unless the request has one of the keys, as a bearer token or in x-api-key."""
    if not settings.api_keys:
        return
    given = request.headers.get("x-api-key", "")
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        given = token.strip()
    data = given.encode("utf-8", "replace")
    same = [
        hmac.compare_digest(data, key.encode()) for key in settings.api_keys
    ]  # all, each in constant time
    if not any(same):
        raise ApiError(
            401,
            "an API key is required: Authorization: Bearer KEY, or x-api-key: KEY",
            kind="authentication_error",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )


def error_response(error: ApiError, path: str) -> Response:
    """An error in the form of the interface that was asked."""
    anthropic = path.startswith("/v1/messages")
    body = errors.anthropic_body(error) if anthropic else errors.openai_body(error)
    return Response(msgspec.json.encode(body), error.status, error.headers, media_type="application/json")
