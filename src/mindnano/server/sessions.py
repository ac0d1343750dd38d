"""/v1/sessions: conversations on disk, with what was computed of them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mindnano.cache.sessions import Saved, SessionInfo, SessionStore
from mindnano.server import logs
from mindnano.server.about import reply
from mindnano.server.decode import read
from mindnano.server.errors import ApiError, invalid
from mindnano.server.openai import params
from mindnano.server.schemas import sessions as s
from mindnano.server.service import Service, service_of

MAX_SETTINGS_BYTES = 64 << 10


def store_of(service: Service) -> SessionStore:
    if service.settings.session_dir is None:
        raise ApiError(
            404,
            "sessions are switched off; start the server with --session-dir",
            code="sessions_off",
        )
    return SessionStore(service.settings.session_dir)


async def index(request: Request) -> Response:
    store = store_of(service_of(request))
    infos = await asyncio.to_thread(store.list)
    return reply(s.SessionList(data=[s.SessionEntry(**_entry(info)) for info in infos]))


async def save(request: Request) -> Response:
    service = service_of(request)
    store, body = store_of(service), await read(request, s.SessionRequest)
    if body.settings and len(msgspec.json.encode(body.settings)) > MAX_SETTINGS_BYTES:
        raise invalid("settings", f"larger than the limit of {MAX_SETTINGS_BYTES} bytes")
    messages = params.chat_messages(body.messages)
    tools = [params.tool(one.function, f"tools[{at}].function") for at, one in enumerate(body.tools or [])]
    settings = dict(body.settings or {})
    if body.tools:
        settings["tools"] = [tool.as_dict() for tool in tools]
    if body.thinking is not None:
        settings["thinking"] = body.thinking
    info = await service.engine.aside(
        lambda: service.llm.save_session(
            store, body.name, messages, settings, body.replace is not False, tools=settings.get("tools")
        )
    )
    return reply(s.SessionEntry(**_entry(info)), 201)


async def show(request: Request) -> Response:
    store = store_of(service_of(request))
    saved = await asyncio.to_thread(store.read, request.path_params["name"])
    return reply(s.SessionContent(**_content(saved)))


async def load(request: Request) -> Response:
    service, name = service_of(request), request.path_params["name"]
    store = store_of(service)
    session = await service.engine.aside(lambda: service.llm.load_session(store, name))
    content = _entry(session.info) | {"messages": session.messages, "settings": session.settings}
    return reply(s.LoadedSession(**content, reusable_tokens=session.reusable))


async def rename(request: Request) -> Response:
    store, body = store_of(service_of(request)), await read(request, s.RenameRequest)
    name = request.path_params["name"]
    info = await asyncio.to_thread(store.rename, name, body.name, bool(body.replace))
    return reply(s.SessionEntry(**_entry(info)))


async def delete(request: Request) -> Response:
    store, name = store_of(service_of(request)), request.path_params["name"]
    await asyncio.to_thread(store.delete, name)
    return reply(s.DeletedSession(name=name, deleted=True))


def save_marked(service: Service) -> None:
    """At the end: what requests asked to be kept under a name."""
    for name, (messages, settings) in service.marked.items():
        try:
            service.llm.save_session(store_of(service), name, messages, settings, tools=settings.get("tools"))
        except Exception as error:
            logs.trouble("a session could not be saved", error)
    logs.log.info("%d sessions were to be saved", len(service.marked)) if service.marked else None


def _entry(info: SessionInfo) -> dict[str, Any]:
    values = info.as_dict()
    return values | {"bytes": values.pop("nbytes"), "message_count": values.pop("messages")}


def _content(saved: Saved) -> dict[str, Any]:
    return _entry(saved.info) | {"messages": saved.messages, "settings": saved.settings}
