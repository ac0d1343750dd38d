"""Runs the application under uvicorn until a signal."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from mindnano.engine.llm import LLM
from mindnano.errors import MindNanoError
from mindnano.server import logs
from mindnano.server.app import create_app
from mindnano.server.settings import Settings


def bind(settings: Settings) -> socket.socket:
    """The listening socket. Raises MindNanoError where the address can't be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise MindNanoError(
            f"--host {settings.host} --port {settings.port}: can't listen there ({error}); choose another"
        ) from None
    listener.listen(128)
    return listener


def serve(llm: LLM, settings: Settings, log_level: str, ready: Callable[[str], None]) -> None:
    """Answer requests until SIGTERM or SIGINT. `ready` gets the address once it is listened on."""
    logs.configure(log_level)
    with bind(settings) as listener:
        host, port = listener.getsockname()[:2]
        config = uvicorn.Config(
            create_app(llm, settings), log_config=None, access_log=False, ws="none", loop="asyncio", http="h11",
            server_header=False, lifespan="on", timeout_graceful_shutdown=round(settings.grace),
        )  # fmt: skip
        server = uvicorn.Server(config)
        ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        server.run(sockets=[listener])
