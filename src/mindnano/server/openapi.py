"""The OpenAPI document, made from the table of routes and the types it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from mindnano import __version__
from mindnano.server.errors import AnthropicErrorBody, ErrorBody
from mindnano.server.routes import Api
from mindnano.server.schemas.chat import ChatChunk, ProgressEvent
from mindnano.server.schemas.responses import ITEMS

TEXTS = {
    200: "Done.",
    201: "Made.",
    400: "The request can't be served as it is; the message says why.",
    401: "An API key is required.",
    403: "The Host or Origin isn't allowed.",
    404: "No such model, session or path.",
    408: "The body came too slowly.",
    409: "It is there already, or doesn't fit this model.",
    413: "The body is too large.",
    429: "Too many requests wait; Retry-After says when to try again.",
    431: "Request line and headers are too large.",
    500: "The engine failed.",
    503: "The server is stopping.",
    507: "Sessions can't be read or written.",
}
EVENTS = (
    "Server-sent events, where the request says `stream: true`. Comments keep the connection alive; with the header "
    "`X-MindNano-Progress: 1` or `progress: true`, events `mindnano.progress` tell how far a prompt is."
)


def build(apis: Sequence[Api]) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    bodies = [
        t for api in apis for t in (api.request, api.response) if t is not None and not isinstance(t, str)
    ]
    types = list(
        dict.fromkeys((*bodies, ChatChunk, ProgressEvent, ErrorBody, AnthropicErrorBody, *ITEMS.values()))
    )
    found, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    references = dict(zip(types, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for api in apis:
        paths.setdefault(api.path, {})[api.method.lower()] = _operation(api, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "MindNano",
            "version": __version__,
            "description": "A local language model over HTTP.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(api: Api, references: dict[Any, Any]) -> dict[str, Any]:
    error = references[AnthropicErrorBody if api.anthropic else ErrorBody]
    content = (
        {api.response: {"schema": {"type": "string" if api.response.startswith("text/") else "object"}}}
        if isinstance(api.response, str)
        else {"application/json": {"schema": references[api.response]}}
    )
    if api.events is not None:
        data = [references.get(kind, {"type": "object"}) for kind in (api.events, ProgressEvent)]
        content["text/event-stream"] = {"schema": _event([*data, error])}
    responses: dict[str, Any] = {str(api.status): {"description": TEXTS[api.status], "content": content}}
    for status in sorted({400, 403, 431, *api.errors, *(() if api.keyless else (401,))}):
        responses[str(status)] = {
            "description": TEXTS[status],
            "content": {"application/json": {"schema": error}},
        }
    operation: dict[str, Any] = {
        "operationId": api.endpoint.__module__.rpartition(".")[2] + "_" + api.endpoint.__name__,
        "summary": api.summary,
        "responses": responses,
        "security": [] if api.keyless else [{}, {"bearer": []}, {"key": []}],
    }
    names = re.findall(r"{(\w+)}", api.path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in names
        ]
    if api.request is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": references[api.request]}},
        }
    return operation


def _event(data: list[Any]) -> dict[str, Any]:
    """The schema of one event."""
    text = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"anyOf": data}}
    return {
        "type": "object",
        "description": EVENTS,
        "properties": {"event": {"type": "string"}, "data": {"anyOf": [{"const": "[DONE]"}, text]}},
    }
