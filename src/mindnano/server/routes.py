"""The table of routes: what is served, and what the OpenAPI document says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from mindnano.server import about, benchmark, errors, metrics, openapi_route, sessions, tokens
from mindnano.server.anthropic import messages
from mindnano.server.openai import chat, completions, responses
from mindnano.server.safety import check_key, error_response
from mindnano.server.schemas import about as a
from mindnano.server.schemas.chat import ChatChunk, ChatCompletion, ChatRequest
from mindnano.server.schemas.completions import CompletionRequest, TextCompletion
from mindnano.server.schemas.messages import CountRequest, MessageBody, MessageRequest, TokenCount
from mindnano.server.schemas.responses import ResponseBody, ResponseRequest
from mindnano.server.schemas.sessions import (
    DeletedSession,
    LoadedSession,
    RenameRequest,
    SessionContent,
    SessionEntry,
    SessionList,
    SessionRequest,
)
from mindnano.server.schemas.tokens import DetokenizeRequest, Text, TokenizeRequest, Tokens
from mindnano.server.service import service_of
from mindnano.server.sse import ClientGone

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Api:
    """One operation. request, response: types of the bodies; response may be a media type instead. events: where
    the request says `stream: true` the answer is server-sent events, with data of this type. errors: statuses beside
    400, 401, 403, 431. keyless: answered without an API key."""

    method: str
    path: str
    endpoint: Endpoint
    summary: str
    response: Any
    request: Any = None
    events: Any = None
    status: int = 200
    errors: tuple[int, ...] = ()
    keyless: bool = False
    anthropic: bool = False

    @property
    def pattern(self) -> str:
        """The path as starlette writes it; a model's name may have slashes."""
        return self.path.replace("{model}", "{model:path}")

    def route(self) -> Route:
        return Route(self.pattern, self._checked(), methods=[self.method])

    def _checked(self) -> Endpoint:
        @wraps(self.endpoint)
        async def endpoint(request: Request) -> Response:
            try:
                if not self.keyless:
                    check_key(request, service_of(request).settings)
                return await self.endpoint(request)
            except (ClientGone, ClientDisconnect):
                return Response(status_code=499)
            except Exception as error:
                return error_response(errors.told(error), self.path)

        endpoint.template = self.path  # type: ignore[attr-defined]
        return endpoint


_RUN = (404, 408, 413, 429, 500, 503)
_SESSION = (404, 409, 500, 507)

APIS = (
    Api("POST", "/v1/chat/completions", chat.create, "Answer a conversation (OpenAI).", ChatCompletion,
        ChatRequest, events=ChatChunk, errors=_RUN),
    Api("POST", "/v1/completions", completions.create, "Complete a text (OpenAI).", TextCompletion,
        CompletionRequest, events=TextCompletion, errors=_RUN),
    Api("POST", "/v1/responses", responses.create, "Answer, in OpenAI's newer form; nothing is stored.", ResponseBody,
        ResponseRequest, events=dict[str, Any], errors=_RUN),
    Api("POST", "/v1/messages", messages.create, "Answer a conversation (Anthropic).", MessageBody,
        MessageRequest, events=dict[str, Any], errors=_RUN, anthropic=True),
    Api("POST", "/v1/messages/count_tokens", messages.count, "Tokens of a conversation's prompt (Anthropic).",
        TokenCount, CountRequest, errors=(404, 408, 413), anthropic=True),
    Api("GET", "/v1/models", about.models, "The model, under each of its names.", a.ModelList),
    Api("GET", "/v1/models/{model}", about.model, "One model.", a.Model, errors=(404,)),
    Api("POST", "/tokenize", tokens.tokenize, "Token ids of a text or of a conversation's prompt.", Tokens,
        TokenizeRequest, errors=(404, 408, 413)),
    Api("POST", "/detokenize", tokens.detokenize, "The text of token ids.", Text, DetokenizeRequest,
        errors=(404, 408, 413)),
    Api("GET", "/v1/sessions", sessions.index, "Saved conversations.", SessionList, errors=_SESSION),
    Api("POST", "/v1/sessions", sessions.save, "Save a conversation and what was computed of it.", SessionEntry,
        SessionRequest, status=201, errors=(*_SESSION, 408, 413)),
    Api("GET", "/v1/sessions/{name}", sessions.show, "A saved conversation.", SessionContent, errors=_SESSION),
    Api("POST", "/v1/sessions/{name}/load", sessions.load, "Bring back what was computed of a conversation.",
        LoadedSession, errors=_SESSION),
    Api("PATCH", "/v1/sessions/{name}", sessions.rename, "Give a saved conversation another name.", SessionEntry,
        RenameRequest, errors=(*_SESSION, 408, 413)),
    Api("DELETE", "/v1/sessions/{name}", sessions.delete, "Remove a saved conversation.", DeletedSession,
        errors=_SESSION),
    Api("GET", "/health", about.health, "Whether requests are answered.", a.Health, errors=(503,), keyless=True),
    Api("GET", "/props", about.props, "Model, context, KV cache, device and memory plan.", a.Props),
    Api("GET", "/v1/benchmark", benchmark.benchmark, "Curves of the benchmark whose results were given.", a.Benchmark),
    Api("GET", "/metrics", metrics.metrics, "Counters and gauges for Prometheus.", "text/plain"),
    Api("GET", "/openapi.json", openapi_route.document, "This document.", "application/json"),
)  # fmt: skip
