"""A jinja2 environment for templates that nobody vouches for.

jinja2's sandbox keeps a template away from Python's insides, but not from looping forever or from a string of
terabytes. Here whatever repeats or grows is paid from a budget, and what pads or formats isn't there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from time import monotonic
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

TEXT_LIMIT = 16 << 20  # characters of a value
WORK_LIMIT = 512 << 20  # characters that are made in all
STEP_LIMIT = 1_000_000  # loop rounds, calls and elements of the containers that are made
SECONDS = 5.0
INDENT_LIMIT = 64

# What chat templates use. The others pad, repeat or format.
FILTERS = (
    *("abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float"),
    *("groupby", "indent", "int", "items", "join", "last", "length", "list", "lower", "map", "max", "min"),
    *(
        "reject",
        "rejectattr",
        "replace",
        "reverse",
        "round",
        "safe",
        "select",
        "selectattr",
        "sort",
        "string",
    ),
    *("sum", "title", "tojson", "trim", "unique", "upper"),
)
_REFUSED_METHODS = frozenset(
    ("center", "expandtabs", "format", "format_map", "ljust", "rjust", "zfill", "translate", "encode")
)


class Budget:
    """What one rendering may still do."""

    def __init__(self) -> None:
        self.steps, self.work = STEP_LIMIT, WORK_LIMIT
        self.until = monotonic() + SECONDS

    def step(self, count: int = 1) -> None:
        self.steps -= count
        if self.steps < 0:
            raise SecurityError(f"more than {STEP_LIMIT:,} steps")
        if monotonic() > self.until:
            raise SecurityError(f"more than {SECONDS:g} seconds")

    def pay(self, characters: int) -> None:
        """Before a text of that many characters is made."""
        self.work -= characters
        if characters > TEXT_LIMIT or self.work < 0:
            raise SecurityError(f"a text of more than {TEXT_LIMIT:,} characters, or {WORK_LIMIT:,} in all")

    def size(self, value: Any) -> int:
        """Characters that `value` has or prints as, about; containers pay a step an element on the way."""
        if isinstance(value, str):
            return len(value)
        if isinstance(value, int) and abs(value) > 1 << 64:
            raise SecurityError("a number beyond 64 bits")
        if not isinstance(value, dict | list | tuple):
            return 24
        self.step(1 + len(value))
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        total = 2
        for part in parts:
            total += self.size(part) + 2
            if total > TEXT_LIMIT:
                raise SecurityError(f"a value of more than {TEXT_LIMIT:,} characters")
        return total


class Sandbox(ImmutableSandboxedEnvironment):
    """Renders with the names that transformers gives to chat templates. One rendering at a time."""

    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], cache_size=0,
            finalize=self._printed,
        )  # fmt: skip
        self.budget = Budget()
        known = self.filters
        self.filters = {name: known[name] for name in FILTERS}
        self.filters |= {
            "tojson": self._to_json,
            "join": self._join,
            "replace": self._replace,
            "indent": self._indent,
            "string": self._string,
            "_rounds": self._rounds,
            "_concat": self._concat,
            "_made": self._made,
        }
        self.globals = {
            "range": range,  # the sandbox's call() bounds it
            "dict": dict,
            "namespace": self.globals["namespace"],
            "raise_exception": _raise_exception,
            "strftime_now": lambda form: datetime.now().strftime(str(form)[:200]),
        }

    def compiled(self, source: str) -> Template:
        """Raises what jinja2 and Python's compiler raise for a template that they can't read."""
        self.budget = Budget()
        return self.from_string(source)

    def render(self, template: Template, values: dict[str, Any]) -> str:
        """The text of a template. Raises TemplateError, and whatever a wrong template makes Python raise."""
        self.budget = Budget()
        text, total = [], 0
        for piece in template.generate(values):
            total += len(piece)
            self.budget.step()
            if total > TEXT_LIMIT:
                raise SecurityError(f"a text of more than {TEXT_LIMIT:,} characters")
            text.append(piece)
        return "".join(text)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Metered().visit(Parser(self, source, name, filename).parse())  # type: ignore[no-any-return]

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr in _REFUSED_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        size = self.budget.size
        if operator == "**" and (abs(left) > 1 << 16 or abs(right) > 4):
            raise SecurityError("a power that large")
        if operator == "%" and isinstance(left, str):
            raise SecurityError("string formatting; use ~ or replace")
        if operator == "*":
            for many, count in ((left, right), (right, left)):
                if isinstance(many, str | list | tuple) and isinstance(count, int):
                    self.budget.pay(size(many) * max(count, 0))
        if operator == "+" and isinstance(left, str | list | tuple):
            self.budget.pay(size(left) + size(right))
        return self._made(super().call_binop(context, operator, left, right))

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        self.budget.step()
        if obj is range:
            return _checked_range(*args)
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str) and name == "join" and len(args) == 1:
            return self._join(args[0], owner)
        if isinstance(owner, str) and name == "replace" and len(args) >= 2:
            return self._replace(owner, *args)
        return self._made(super().call(context, obj, *args, **kwargs))

    def _made(self, value: Any) -> Any:
        """A value after its size was checked, so that containers of themselves don't grow without end."""
        self.budget.size(value)
        return value

    def _printed(self, value: Any) -> Any:
        self.budget.pay(self.budget.size(value))
        return value

    def _string(self, value: Any) -> str:
        self.budget.pay(self.budget.size(value))
        return str(value)

    def _concat(self, parts: list[Any]) -> str:
        self.budget.pay(sum(map(self.budget.size, parts)))
        return "".join(map(str, parts))

    def _join(self, items: Iterable[Any], glue: str = "", attribute: str | int | None = None) -> str:
        parts = [p if attribute is None else self.getitem(p, attribute) for p in self._rounds(items)]
        glue = self._string(glue)
        self.budget.pay(sum(map(self.budget.size, parts)) + len(parts) * len(glue))
        return glue.join(map(str, parts))

    def _replace(self, text: Any, old: str, new: str, count: int = -1) -> str:
        whole, old, new = self._string(text), str(old), str(new)
        self.budget.pay(len(whole) + whole.count(old) * len(new))
        return whole.replace(old, new, -1 if count is None else count)

    def _indent(self, text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        fill = " " * min(width, INDENT_LIMIT) if isinstance(width, int) else str(width)[:INDENT_LIMIT]
        self.budget.pay(len(text) + (text.count("\n") + 1) * len(fill))
        lines = text.split("\n")
        done = [fill + line if (line or blank) and (first or at) else line for at, line in enumerate(lines)]
        return "\n".join(done)

    def _rounds(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.budget.step()
            yield item

    def _to_json(
        self, value: Any, ensure_ascii: bool = False, indent: int | None = None,
        separators: tuple[str, str] | None = None, sort_keys: bool = False,
    ) -> str:  # fmt: skip
        """As transformers': characters as they are, no HTML escapes."""
        self.budget.pay(self.budget.size(value))
        indent = min(indent, INDENT_LIMIT) if isinstance(indent, int) else None
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )


class _Metered(NodeTransformer):
    """Puts the budget's filters where a template loops, concatenates or makes a container."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = _filter("_rounds", node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return _filter("_concat", nodes.List(node.nodes, lineno=node.lineno, environment=node.environment))

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        self.generic_visit(node)
        return _filter("_made", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        return _filter("_made", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return _filter("_made", node) if node.ctx == "load" else node


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks an answer for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _filter(name: str, node: Any) -> nodes.Filter:
    made = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
    assert node.environment is not None
    made.set_environment(node.environment)
    return made


def _checked_range(*args: int) -> range:
    made = range(*args)
    if len(made) > 100_000:
        raise SecurityError(f"a range of {len(made):,}, expected at most 100,000")
    return made


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateError(str(message)[:500])
