"""Runs the application under uvicorn until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import h11
import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from mindnano.engine.llm import LLM
from mindnano.errors import MindNanoError
from mindnano.server import logs
from mindnano.server.app import create_app
from mindnano.server.errors import ApiError, openai_body
from mindnano.server.safety import Guard
from mindnano.server.settings import STALLED_SECONDS, Settings

IDLE_SECONDS = 30  # for the next request's line and headers
MOST_CONNECTIONS = 512
FLUSH_SECONDS = 5  # for the last bytes of cancelled answers
HEADER_BUFFER = 256 << 10  # above the limit that is answered with 431; beyond this uvicorn says 400


class Protocol(H11Protocol):
    """HTTP/1.1 that doesn't wait for ever for a request to be complete."""

    _idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def send_400_response(self, msg: str) -> None:
        """What isn't HTTP, or is larger than the buffer: as an error object, like every other refusal."""
        body = msgspec.json.encode(openai_body(ApiError(400, msg, code="invalid_http")))
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for part in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(part))
        self.transport.close()

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._idle is None:
            self._idle = self.loop.call_later(IDLE_SECONDS, self.timeout_keep_alive_handler)

    def _unwatch(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


class Server(uvicorn.Server):
    """Stops in order: no new work, what runs is finished or cancelled in time, then the connections close."""

    def __init__(self, config: uvicorn.Config, app: Guard, grace: float) -> None:
        super().__init__(config)
        self.service, self.grace = app.service, grace
        self.engine = app.service.engine
        self.signal: int | None = None
        self._hurry = asyncio.Event()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        logs.log.info("stopping: %d requests are at hand", len(self.engine.jobs))
        drain = asyncio.ensure_future(self.engine.drain(self.grace))
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait((drain, hurry), return_when=asyncio.FIRST_COMPLETED)
        drain.cancel()
        hurry.cancel()
        await self.engine.drain(0)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, without raising the signal again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {one: signal.signal(one, self.handle_exit) for one in signals}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops the server, a second one doesn't wait for what runs."""
        if self.should_exit:
            self._hurry.set()
        self.should_exit = True
        self.signal = sig


def bind(settings: Settings) -> socket.socket:
    """The listening socket. Raises MindNanoError where the address can't be had."""
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise MindNanoError(
            f"--host {settings.host}: no address of this machine ({error.strerror})"
        ) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # a client that doesn't read is given up by the system
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * STALLED_SECONDS))
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise MindNanoError(
            f"--host {settings.host} --port {settings.port}: can't listen there ({error.strerror}); choose another"
        ) from None
    listener.listen(128)
    listener.setblocking(False)
    return listener


def make_server(llm: LLM, settings: Settings) -> Server:
    """A server that is ready to run on a listening socket."""
    logging.getLogger("uvicorn.access").disabled = True  # it would write paths
    app = create_app(llm, settings)
    options: dict[str, Any] = {"http": Protocol, "loop": "asyncio", "ws": "none", "lifespan": "on"}
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS, timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=FLUSH_SECONDS, h11_max_incomplete_event_size=HEADER_BUFFER, **options,
    )  # fmt: skip
    return Server(config, app, settings.grace)


def serve(llm: LLM, settings: Settings, log_level: str, ready: Callable[[str], None]) -> int:
    """Answer requests until a signal, which is returned. `ready` gets the address once it is listened on."""
    logs.configure(log_level)
    with bind(settings) as listener:
        server = make_server(llm, settings)
        ready(address_of(listener))
        server.run(sockets=[listener])
        return server.signal or 0


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
