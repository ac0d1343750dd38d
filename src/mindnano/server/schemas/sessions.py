"""/v1/sessions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from mindnano.server.schemas.chat import Message, Tool
from mindnano.server.schemas.common import Body, Request
from mindnano.server.settings import MAX_MESSAGES, MAX_TOOLS

Name = Annotated[str, Meta(min_length=1, max_length=100)]


class SessionRequest(Request):
    """Save a conversation and what was computed of it. settings: any JSON, given back as it is. replace: false
    refuses a name that is taken."""

    name: Name
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    thinking: bool | None = None
    settings: dict[str, Any] | None = None
    replace: bool | None = None


class RenameRequest(Request):
    """replace: true takes the place of another session of that name."""

    name: Name
    replace: bool | None = None


class SessionEntry(Body, omit_defaults=False):
    """created: ISO 8601, UTC. tokens: of the prompt, computed and kept. messages: how many. problem: why it can't be
    loaded, else empty."""

    name: str
    created: str
    tokens: int
    bytes: int
    model: str
    kv_layout: str
    kv_format: str
    message_count: int
    problem: str


class SessionList(Body):
    data: list[SessionEntry]


class SessionContent(SessionEntry, kw_only=True, omit_defaults=False):
    messages: list[dict[str, Any]]
    settings: dict[str, Any]


class LoadedSession(SessionContent, kw_only=True, omit_defaults=False):
    """reusable_tokens: of the conversation's prompt, what won't be computed again."""

    reusable_tokens: int


class DeletedSession(Body):
    name: str
    deleted: Literal[True]
