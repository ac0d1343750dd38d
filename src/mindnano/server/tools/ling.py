"""Ling's and GLM's form: `<tool_call>NAME<arg_key>k</arg_key>\\n<arg_value>v</arg_value>\\n</tool_call>`.

A value is JSON, except strings, which are written as they are.
"""

from __future__ import annotations

import json
from typing import Any

from mindnano.errors import MindNanoError, shorten
from mindnano.server.tools import schema as schemas
from mindnano.server.tools.form import Arguments, Called, Tool
from mindnano.server.tools.markers import JSON_SPACE, Markers

OPENING, CLOSING = "<tool_call>", "</tool_call>"
KEY, KEY_END, VALUE, VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
MARKERS = (OPENING, CLOSING, KEY, KEY_END, VALUE, VALUE_END)
_KNOWN = frozenset(  # of the arguments as a whole
    "type properties required additionalProperties title description $defs definitions $schema $id $comment".split()  # noqa: SIM905
)
_ENFORCED = frozenset(  # of a string that is written as it is
    "type enum const minLength maxLength title description default examples deprecated $comment".split()  # noqa: SIM905
)


class LingForm:
    opening = OPENING
    markers: tuple[str, ...] = MARKERS

    def call_rules(self, tools: list[Tool], markers: Markers, parallel: bool) -> str:
        rules = [f"call: {' | '.join(f'call_{index}' for index in range(len(tools)))}"]
        for index, tool in enumerate(tools):
            rules += _Rules(tool, index, markers).lines()
        rules.append(markers.until("raw", VALUE_END))
        return "\n".join(rules) + "\n"

    def reader(self, tools: list[Tool]) -> LingReader:
        return LingReader(tools)


class _Rules:
    """The rules of one tool."""

    def __init__(self, tool: Tool, index: int, markers: Markers) -> None:
        self.tool, self.index, self.root, self.markers = tool, index, tool.parameters, markers
        self._texts: list[str] = []  # rules of strings with a length

    def lines(self) -> list[str]:
        properties = self.root.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = self.root.get("required")
        required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        self._check(properties, required)
        lines, pairs = [], []
        for number, (name, schema) in enumerate(properties.items()):
            rule = f"pair_{self.index}_{number}"
            lines.append(f"{rule}: {self._pair(_text(name), schema)}")
            pairs.append(rule if name in required else f"{rule}?")
        for number, name in enumerate(name for name in required if name not in properties):
            rule = f"more_{self.index}_{number}"
            lines.append(f"{rule}: {self._pair(_text(name), True)}")
            pairs.append(rule)
        others = self.root.get("additionalProperties", "properties" not in self.root)
        if others is not False:
            rule = f"other_{self.index}"
            lines.append(f"{rule}: {self._pair('/[A-Za-z0-9_.$-]{1,64}/', others)}")
            pairs.append(f"{rule}*")
        body = " ".join((_text(self.tool.name), "BREAK", *pairs, self.markers.literal(CLOSING)))
        return [f"call_{self.index}: {body}", *lines, *self._texts]

    def _check(self, properties: dict[str, Any], required: list[str]) -> None:
        """A strict tool is refused where these rules would allow what its schema doesn't."""
        beyond = sorted(set(self.root) - _KNOWN)
        if self.tool.strict and beyond:
            raise MindNanoError(
                f"tool {self.tool.name}: {beyond[0]} can't be enforced on the arguments as a whole; leave it out or "
                "send strict: false"
            )
        for name in (*properties, *required):
            if not name or any(marker in name for marker in MARKERS):
                raise MindNanoError(f"tool {self.tool.name}: a parameter can't be named {shorten(name)}")
        if "object" not in schemas.kinds(self.root, self.root):
            raise MindNanoError(f"tool {self.tool.name}: parameters: expected the schema of an object")

    def _pair(self, key: str, schema: Any) -> str:
        literal = self.markers.literal
        return f"{literal(KEY)} {key} {literal(KEY_END)} BREAK {literal(VALUE)} {self._value(schema)} BREAK"

    def _value(self, schema: Any) -> str:
        """A value with its closing marker."""
        end, allowed = self.markers.literal(VALUE_END), schemas.kinds(schema, self.root)
        if not allowed:
            raise MindNanoError(f"tool {self.tool.name}: a parameter's schema allows no value at all")
        if "string" not in allowed:
            return f"{self._json(schema)} {end}"
        strings = schemas.choices(schema, self.root)
        if strings is not None:
            for value in strings:
                if VALUE_END in value:
                    raise MindNanoError(f"tool {self.tool.name}: no value can hold {VALUE_END}")
            return f"({' | '.join(map(_text, strings))}) {end}"
        resolved = schemas.resolve(schema, self.root)
        resolved = resolved if isinstance(resolved, dict) else {}
        beyond = sorted(set(resolved) - _ENFORCED) if allowed == {"string"} else ["a union of types"]
        if self.tool.strict and beyond:
            raise MindNanoError(
                f"tool {self.tool.name}: {beyond[0]} can't be enforced on a text in this model's form of calls; "
                "leave it out or send strict: false"
            )
        low, high = resolved.get("minLength", 0), resolved.get("maxLength")
        if allowed == {"string"} and (_count(low) or _count(high)):
            span = f"{low if _count(low) else 0},{high if _count(high) else ''}"
            name = f"text_{self.index}_{len(self._texts)}"
            self._texts.append(self.markers.until(name, VALUE_END, f"/(.|\\n){{{span}}}/"))
            return name
        return "raw"

    def _json(self, schema: Any) -> str:
        whole = dict(schema) if isinstance(schema, dict) else {}
        for definitions in ("$defs", "definitions"):
            if definitions in self.root:
                whole.setdefault(definitions, self.root[definitions])
        whole["x-guidance"] = {"lenient": not self.tool.strict, **JSON_SPACE}
        return f"%json {json.dumps(whole)}"


class LingReader:
    """Reads one call; arguments come as pieces of JSON text, strings while they are written."""

    def __init__(self, tools: list[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._tool: Tool | None = None
        self._text, self._step = "", self._name
        self._key, self._count, self._streams = "", 0, False
        self.done, self.rest = False, ""

    def push(self, text: str) -> list[Called | Arguments]:
        self._text += text
        made: list[Called | Arguments] = []
        while not self.done:
            before = self._step
            event = self._step()
            if event is not None:
                made.append(event)
            elif self._step == before:  # needs more text
                break
        return made

    def _name(self) -> Called | Arguments | None:
        ends = [at for marker in (KEY, CLOSING) if (at := self._text.find(marker)) >= 0]
        if not ends:
            return None
        name = self._text[: min(ends)].strip()
        self._text, self._step = self._text[min(ends) :], self._between
        self._tool = self._tools.get(name)
        return Called(name)

    def _between(self) -> Arguments | None:
        key, end = self._text.find(KEY), self._text.find(CLOSING)
        if end >= 0 and (key < 0 or end < key):
            self.done, self.rest = True, self._text[end + len(CLOSING) :]
            return Arguments("}" if self._count else "{}")
        if key >= 0:
            self._text, self._step = self._text[key + len(KEY) :], self._read_key
        return None

    def _read_key(self) -> Arguments | None:
        end = self._text.find(KEY_END)
        if end < 0:
            return None
        self._key, self._text, self._step = self._text[:end], self._text[end + len(KEY_END) :], self._open
        return None

    def _open(self) -> Arguments | None:
        at = self._text.find(VALUE)
        if at < 0:
            return None
        self._text, self._step = self._text[at + len(VALUE) :], self._value
        head = f"{', ' if self._count else '{'}{_json(self._key)}: "
        self._count += 1
        self._streams = self._kinds() == {"string"}
        return Arguments(head + ('"' if self._streams else ""))

    def _value(self) -> Arguments | None:
        end = self._text.find(VALUE_END)
        if end >= 0:
            value, self._text, self._step = (
                self._text[:end],
                self._text[end + len(VALUE_END) :],
                self._between,
            )
            return Arguments(_inside(value) + '"' if self._streams else _json(self._meant(value)))
        if not self._streams:
            return None
        sure = len(self._text) - len(VALUE_END) + 1
        if sure <= 0:
            return None
        value, self._text = self._text[:sure], self._text[sure:]
        return Arguments(_inside(value))

    def _kinds(self) -> frozenset[str]:
        """The types that the schema allows for the key at hand."""
        root = self._tool.parameters if self._tool is not None else {}
        properties = root.get("properties")
        known = properties.get(self._key) if isinstance(properties, dict) else None
        return schemas.kinds(root.get("additionalProperties", {}) if known is None else known, root)

    def _meant(self, text: str) -> Any:
        """A value that isn't surely a string: JSON of an allowed type, or else the text."""
        allowed = self._kinds()
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return value if "string" not in allowed or schemas.kind_of(value) in allowed - {"string"} else text


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0 and value != 0


def _text(literal: str) -> str:
    """A literal in a Lark rule."""
    return json.dumps(literal)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _inside(text: str) -> str:
    """Text as it stands between the quotes of a JSON string."""
    return _json(text)[1:-1]
