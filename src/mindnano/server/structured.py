"""The grammar of an answer: reasoning, then what the response format or the tools ask for."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import llguidance

from mindnano.server.answer import THINK_CLOSE, THINK_OPEN
from mindnano.server.tools.form import Tool, ToolForm
from mindnano.server.tools.markers import JSON_SPACE, Markers


@dataclass(frozen=True)
class JsonFormat:
    """JSON that fits a schema. strict: what can't be enforced is an error; otherwise it is left to the model."""

    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    strict: bool = True

    def rule(self) -> str:
        return f"%json {json.dumps(self.schema | {'x-guidance': {'lenient': not self.strict, **JSON_SPACE}})}"


@dataclass(frozen=True)
class LarkFormat:
    """A grammar in llguidance's Lark dialect."""

    grammar: str

    def lark(self) -> str:
        return self.grammar


@dataclass(frozen=True)
class RegexFormat:
    """A regular expression for the whole content."""

    regex: str

    def lark(self) -> str:
        return f"start: /{llguidance.regex_to_lark(self.regex, use_ascii='')}/"


Format = JsonFormat | LarkFormat | RegexFormat


@dataclass(frozen=True)
class ToolUse:
    """Tools and how they are to be used. required: at least one call. parallel: more than one may come."""

    form: ToolForm
    tools: list[Tool]
    required: bool = False
    parallel: bool = True


def grammar(form: Format | None, use: ToolUse | None, thinks: bool, markers: Markers) -> str | None:
    """Everything that the model may write, for engine.grammar; None where it is free."""
    if form is None and use is None:
        return None
    lines = [f"start: {_start(form, use, thinks, markers)}", r"BREAK: /\n?/", r"SPACE: /\n{0,3}/"]
    if thinks:
        lines.append(markers.until("think", THINK_CLOSE))
    others = []
    if isinstance(form, JsonFormat):
        lines.append(f"content: {form.rule()}")
    elif form is not None:
        lines.append("content: @content")
        others.append({"name": "content", "lark_grammar": form.lark()})
    if use is not None:
        lines.append(markers.until("open", use.form.opening))
        lines.append(markers.free("free", (THINK_OPEN, THINK_CLOSE), forbidden=use.form.opening))
        lines.append(use.form.call_rules(use.tools, markers, use.parallel))
    main = {"name": "main", "lark_grammar": "\n".join(lines) + "\n"}
    return json.dumps({"grammars": [main, *others]})


def _start(form: Format | None, use: ToolUse | None, thinks: bool, markers: Markers) -> str:
    before = "think SPACE" if thinks else ""
    if use is None:
        return f"{before} content"
    marker = markers.literal(use.form.opening)
    more = f"(SPACE {marker} call)*" if use.parallel else ""
    # Calls may come before the reasoning ends.
    calls = f"(think SPACE {marker} | open) call {more}" if thinks else f"{marker} call {more}"
    if use.required:
        return calls
    if form is not None:
        return f"{calls} | {before} content"
    return f"{'(open call)*' if use.parallel else '(open call)?'} free"
