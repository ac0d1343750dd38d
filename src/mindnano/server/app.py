"""The ASGI application: routes, errors, start and end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from mindnano.engine.llm import LLM
from mindnano.errors import MindNanoError
from mindnano.server import about, errors, logs
from mindnano.server.about import reply
from mindnano.server.engine_thread import EngineThread
from mindnano.server.openai import chat
from mindnano.server.service import Service
from mindnano.server.settings import Settings
from mindnano.server.sse import ClientGone


def create_app(llm: LLM, settings: Settings) -> Starlette:
    """The application for one model; the engine's thread lives as long as the application."""
    service = Service(settings, llm, EngineThread(llm, settings.queue))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.engine.start()
        try:
            yield
        finally:
            service.engine.stop()

    routes: list[Route | Mount] = [
        Route("/v1/chat/completions", chat.create, methods=["POST"]),
        Route("/v1/models", about.models),
        Route("/v1/models/{model:path}", about.model),
        Route("/health", about.health),
        Route("/props", about.props),
    ]
    if (settings.page_dir / "index.html").is_file():
        routes.append(Mount("/", StaticFiles(directory=settings.page_dir, html=True)))
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            errors.ApiError: _refused, MindNanoError: _refused, HTTPException: _http, ClientGone: _gone,
            ClientDisconnect: _gone, Exception: _failed,
        },
    )  # fmt: skip
    app.state.service = service
    return app


async def _refused(request: Request, error: Exception) -> Response:
    found = errors.from_exception(error)
    return reply(errors.openai_body(found), found.status, found.headers)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "there is nothing at this path", 405: f"{request.method} is not for this path"}
    found = errors.ApiError(error.status_code, words.get(error.status_code, error.detail), code=None)
    return reply(errors.openai_body(found), found.status, dict(error.headers or {}))


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)


async def _failed(request: Request, error: Exception) -> Response:
    logs.trouble("a request failed", error)
    found = errors.from_exception(error)
    return reply(errors.openai_body(found), found.status)
