"""What a form of tool calls has to offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from mindnano.server.tools.markers import Markers


@dataclass(frozen=True)
class Tool:
    """A function that the model may call. parameters: a JSON schema of its arguments, an object."""

    name: str
    description: str | None
    parameters: dict[str, Any]
    strict: bool = False

    def as_dict(self) -> dict[str, Any]:
        """In OpenAI's form, which chat templates print."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": function | {"parameters": self.parameters}}


class Called(msgspec.Struct, frozen=True):
    """A call begins. id: the model's own, where its form has one."""

    name: str
    id: str | None = None


class Arguments(msgspec.Struct, frozen=True):
    """A piece of the arguments' JSON text."""

    text: str


class CallReader(Protocol):
    """Reads one call from behind its opening marker."""

    done: bool
    rest: str  # what came after the call

    def push(self, text: str) -> list[Called | Arguments]: ...


class ToolForm(Protocol):
    """How a model writes calls. `opening` begins one, or several; no other text may contain it."""

    opening: str
    markers: tuple[str, ...]

    def call_rules(self, tools: list[Tool], markers: Markers, parallel: bool) -> str:
        """Lark rules: `call` is what follows the opening marker, one call to its end, or several in forms that put them
        between two markers. Uses BREAK, a line end or none.

        Raises MindNanoError for a schema that can't be enforced where the tool is strict.
        """

    def reader(self, tools: list[Tool]) -> CallReader: ...
