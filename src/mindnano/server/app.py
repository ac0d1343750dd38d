"""The ASGI application: routes, errors, start and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from mindnano.engine.llm import LLM
from mindnano.server import openapi
from mindnano.server.counters import Metrics
from mindnano.server.engine_thread import EngineThread
from mindnano.server.errors import ApiError
from mindnano.server.metrics import State
from mindnano.server.routes import APIS
from mindnano.server.safety import Guard, error_response
from mindnano.server.service import Service
from mindnano.server.sessions import save_marked
from mindnano.server.settings import Settings

_ALLOWED_HEADERS = ("authorization", "content-type", "x-api-key", "x-mindnano-progress", "anthropic-version")


def create_app(llm: LLM, settings: Settings) -> Guard:
    """The application for one model; the engine's thread lives as long as its lifespan."""
    counted = Metrics()
    service = Service(settings, llm, EngineThread(llm, settings.queue, counted), counted)
    counted.registry.register(State(service))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.engine.start()
        try:
            yield
        finally:
            service.engine.stop()
            await asyncio.to_thread(save_marked, service)

    apis = [api.route() for api in APIS]
    routes: list[Route | Mount] = [*apis]
    if (settings.page_dir / "index.html").is_file():
        routes.append(Mount("/", Page(apis, settings.page_dir)))
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[_cors(settings.origins)] if settings.origins else [],
        exception_handlers={HTTPException: _refused},
    )
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.openapi = msgspec.json.encode(openapi.build(APIS))
    return Guard(app, service)


class Page(StaticFiles):
    """The page's files, and the end of every path that no route takes. A browser asks whether a file has changed:
    after an update they must fit together."""

    def __init__(self, routes: Sequence[Route], directory: Path) -> None:
        super().__init__(directory=directory, html=True)
        self.routes = routes

    async def get_response(self, path: str, scope: Scope) -> Response:
        near = [route for route in self.routes if route.matches(scope)[0] is Match.PARTIAL]
        if near:
            allowed = sorted(set().union(*(route.methods or () for route in near)))
            raise HTTPException(405, headers={"Allow": ", ".join(allowed)})
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(404)
        return await super().get_response(path, scope)

    def file_response(self, *arguments: Any, **more: Any) -> Response:
        response = super().file_response(*arguments, **more)
        response.headers["cache-control"] = "no-cache"
        return response


def _cors(origins: tuple[str, ...]) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=("GET", "POST", "PATCH", "DELETE"),
        allow_headers=_ALLOWED_HEADERS,
        expose_headers=("retry-after",),
        max_age=600,
    )


async def _refused(request: Request, error: Exception) -> Response:
    """What starlette itself refuses."""
    assert isinstance(error, HTTPException)
    words = {404: "there is nothing at this path", 405: "this method is not for this path"}
    message = words.get(error.status_code, error.detail)
    found = ApiError(error.status_code, message, headers=dict(error.headers or {}))
    return error_response(found, request.url.path)
