"""What the routes share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from starlette.requests import Request

from mindnano.engine.llm import LLM
from mindnano.server.engine_thread import EngineThread
from mindnano.server.errors import ApiError
from mindnano.server.settings import Settings


@dataclass
class Service:
    """The model, its engine thread and the settings. `preparing` bounds how many prompts are encoded at once."""

    settings: Settings
    llm: LLM
    engine: EngineThread
    started: int = field(default_factory=lambda: int(time.time()))
    preparing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))

    @property
    def names(self) -> tuple[str, ...]:
        return (self.settings.name, *self.settings.aliases)

    def check_model(self, name: str | None) -> str:
        """The name to answer under. 404 for a model that isn't served here."""
        if name is None:
            return self.settings.name
        if name not in self.names:
            raise ApiError(
                404,
                f"model {name[:100]!r} is not served here; available: {', '.join(self.names)}",
                code="model_not_found",
                param="model",
            )
        return name


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def client_of(request: Request, user: str | None) -> str:
    """Who asks, for turns in the queue: the user that is named, or the address."""
    address = request.client.host if request.client else ""
    return f"{address}/{user or ''}"
