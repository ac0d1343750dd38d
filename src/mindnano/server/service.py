"""What the routes share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from mindnano.engine.grammar import Grammars
from mindnano.engine.llm import LLM
from mindnano.server.answer import THINK_CLOSE, THINK_OPEN
from mindnano.server.counters import Metrics
from mindnano.server.engine_thread import EngineThread
from mindnano.server.errors import ApiError
from mindnano.server.settings import Settings
from mindnano.server.tools.forms import find_form
from mindnano.server.tools.markers import Markers

MAX_MARKED = 64  # conversations that are kept in mind for the end


@dataclass
class Service:
    """The model, its engine thread and the settings. `preparing` bounds how many prompts are encoded at once."""

    settings: Settings
    llm: LLM
    engine: EngineThread
    metrics: Metrics
    started: int = field(default_factory=lambda: int(time.time()))
    preparing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    # Conversations to save at the end, by session name: messages and settings.
    marked: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tokenizer = self.llm.tokenizer
        self.grammars = Grammars(tokenizer, self.llm.eos_token_ids)
        self.form = find_form(self.llm.chat_template.source)
        special = tokenizer.special_tokens
        self.markers = Markers(special)
        names = (THINK_OPEN, THINK_CLOSE, *(self.form.markers if self.form else ()))
        self.shown = frozenset(special[name] for name in names if name in special)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.settings.name, *self.settings.aliases)

    def mark(self, name: str, messages: list[dict[str, Any]], settings: dict[str, Any]) -> None:
        """Save a conversation under a session's name when the server stops; the last of a name counts."""
        self.marked.pop(name, None)
        while len(self.marked) >= MAX_MARKED:
            del self.marked[next(iter(self.marked))]
        self.marked[name] = messages, settings

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
