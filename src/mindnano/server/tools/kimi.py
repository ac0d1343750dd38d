"""Kimi's form: calls in a section of their own, each as
`<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{...}<|tool_call_end|>`.
"""

from __future__ import annotations

import json

from mindnano.engine.stop import open_end
from mindnano.server.tools.form import Arguments, Called, Tool
from mindnano.server.tools.markers import JSON_SPACE, Markers

OPENING, CLOSING = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENTS, CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"


class KimiForm:
    opening = OPENING
    markers: tuple[str, ...] = (OPENING, CLOSING, CALL, ARGUMENTS, CALL_END)

    def call_rules(self, tools: list[Tool], markers: Markers, parallel: bool) -> str:
        literal = markers.literal
        one = " | ".join(f"call_{index}" for index in range(len(tools)))
        rules = [f"call: ({one}){'+' if parallel else ''} {literal(CLOSING)}"]
        for index, tool in enumerate(tools):
            schema = tool.parameters | {"x-guidance": {"lenient": not tool.strict, **JSON_SPACE}}
            name = json.dumps(f"functions.{tool.name}:")
            body = f"{name} /[0-9]{{1,4}}/ {literal(ARGUMENTS)} %json {json.dumps(schema)}"
            rules.append(f"call_{index}: {literal(CALL)} {body} {literal(CALL_END)}")
        return "\n".join(rules) + "\n"

    def reader(self, tools: list[Tool]) -> KimiReader:
        return KimiReader()


class KimiReader:
    """Reads a section; the arguments are JSON already and passed on as they come."""

    def __init__(self) -> None:
        self._text, self._inside = "", False
        self.done, self.rest = False, ""

    def push(self, text: str) -> list[Called | Arguments]:
        self._text += text
        made: list[Called | Arguments] = []
        while (event := self._arguments() if self._inside else self._between()) is not None:
            made.append(event)
        return made

    def _between(self) -> Called | None:
        """The head of the next call, or the section's end."""
        end, call = self._text.find(CLOSING), self._text.find(CALL)
        if end >= 0 and (call < 0 or end < call):
            self.done, self.rest, self._text = True, self._text[end + len(CLOSING) :], ""
            return None
        head = self._text.find(ARGUMENTS)
        if call < 0 or head < 0:
            return None
        identity = self._text[call + len(CALL) : head].strip()
        self._text, self._inside = self._text[head + len(ARGUMENTS) :], True
        return Called(identity.removeprefix("functions.").rpartition(":")[0], identity)

    def _arguments(self) -> Arguments | None:
        end = self._text.find(CALL_END)
        if end >= 0:
            text, self._text, self._inside = self._text[:end], self._text[end + len(CALL_END) :], False
            return Arguments(text)
        sure = len(self._text) - open_end(self._text, CALL_END)
        text, self._text = self._text[:sure], self._text[sure:]
        return Arguments(text) if text else None
