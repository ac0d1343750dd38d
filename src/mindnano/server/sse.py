"""Server-sent events: headers at once, comments while nothing happens, the source closed when the client goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mindnano.server.settings import KEEP_ALIVE_SECONDS

T = TypeVar("T")
COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


def event(data: Any, name: str | None = None) -> bytes:
    """One event whose data is JSON."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


class EventStream(Response):
    """Sends what `events` yields. When it ends or fails, or the client disconnects, the iterator is closed and
    `after` called: a generator that was never begun doesn't notice its end.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], after: Callable[[], None]) -> None:
        super().__init__(None, 200)
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"  # proxies must not collect events
        self._events, self._after = events, after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            pump = asyncio.ensure_future(self._pump(send))
            gone = asyncio.ensure_future(disconnected(receive))
            try:
                await asyncio.wait((pump, gone), return_when=asyncio.FIRST_COMPLETED)
                if pump.done():
                    pump.result()
            finally:
                await cancelled(pump, gone)
                await self._events.aclose()
        finally:
            self._after()

    async def _pump(self, send: Send) -> None:
        following: asyncio.Task[bytes] | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(anext(self._events))
                done, _ = await asyncio.wait((following,), timeout=KEEP_ALIVE_SECONDS)
                if done:
                    try:
                        data = following.result()
                    except StopAsyncIteration:
                        break
                    following = None
                else:
                    data = COMMENT
                await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if following is not None:
                await cancelled(following)


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancelled(*tasks: asyncio.Task[Any] | asyncio.Future[Any]) -> None:
    """Cancel, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)


class ClientGone(Exception):
    """Nobody is there to answer."""


async def while_connected(request: Request, work: Awaitable[T], after: Callable[[], None] | None = None) -> T:
    """The result of `work`; ClientGone where the client disconnects first, and `work` is cancelled. At last `after`."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        await cancelled(task, gone)
        if after is not None:
            after()
