"""A table as data, and as text in a terminal, in Markdown and in HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mindnano.bench.quality.summary import Quality
from mindnano.bench.records import Point
from mindnano.bench.statistics import Estimate, Ratio

if TYPE_CHECKING:
    from rich.console import Console

EMPTY = "\u2013"


@dataclass
class Table:
    """title; columns; rows of texts. marks: what has to be said of every figure in it ("synthetic weights"). notes:
    lines below it."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]]
    marks: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)
    left: int = 1  # columns that are text

    @property
    def heading(self) -> str:
        return f"{self.title} ({', '.join(self.marks)})" if self.marks else self.title

    def markdown(self) -> str:
        rule = [":--" if at < self.left else "--:" for at in range(len(self.columns))]
        lines = [_row(self.columns), _row(rule), *(_row(row) for row in self.rows)]
        return "\n".join([f"**{self.heading}**", "", *lines, *([""] if self.notes else []), *self.notes])

    def print(self, console: Console) -> None:
        from rich import box
        from rich.table import Table as Rich

        table = Rich(title=self.heading, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for at, column in enumerate(self.columns):
            table.add_column(column, justify="left" if at < self.left else "right", no_wrap=at == 0)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)
        for note in self.notes:
            console.print(note, markup=False, style="dim")

    def show(self, markdown: bool) -> None:
        """On stdout: as Markdown, or drawn, on a pipe as wide as its rows."""
        from rich.console import Console

        if markdown:
            print(self.markdown())
            return
        console = Console(highlight=False)
        self.print(console if console.is_terminal else Console(highlight=False, width=160))


def engine_marks(synthetic: bool, emulated: bool) -> list[str]:
    """What a table of one engine's figures must carry."""
    return ["synthetic weights"] * synthetic + ["emulated device"] * emulated


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def marks(records: Iterable[Point | Quality]) -> list[str]:
    """What a table of those records must carry."""
    known = list(records)
    found = []
    if any(one.synthetic for one in known):
        found.append("synthetic weights" if all(one.synthetic for one in known) else "some weights synthetic")
    if any(getattr(one, "emulated", None) for one in known):
        found.append("emulated device")
    return found


def number(value: float | None, digits: int = 3) -> str:
    """Rounded to significant digits, thousands set apart."""
    if value is None:
        return EMPTY
    if value == 0 or math.isinf(value):
        return "0" if value == 0 else "never"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}" if abs(value) < 1e-3 else f"{value:#.{digits}g}".rstrip(".")


def mib(value: float | None) -> str:
    """Whole MiB; more digits of a few."""
    return f"{value:,.0f}" if value is not None and abs(value) >= 10 else number(value)


def tokens(count: int | None) -> str:
    """128, 8K, 128K, 1M."""
    if count is None:
        return EMPTY
    if count >= 1 << 20 and count % (1 << 20) == 0:
        return f"{count >> 20}M"
    return f"{count >> 10}K" if count >= 1024 and count % 1024 == 0 else str(count)


def estimate(found: Estimate | None, digits: int = 3) -> str:
    """A value and its interval; the value alone where the runs are too few for one."""
    if found is None:
        return EMPTY
    if found.low is None or found.high is None:
        return number(found.value, digits)
    return f"{number(found.value, digits)} [{number(found.low, digits)}, {number(found.high, digits)}]"


def percent(found: Ratio | None) -> str:
    """A change with its interval, never without: -12.3 % [-13.0, -11.5]."""
    if found is None:
        return EMPTY
    if found.low is None or found.high is None:
        return f"no interval ({_count(found)})"
    value, low, high = (100 * (ratio - 1) for ratio in (found.ratio, found.low, found.high))
    return f"{value:+.1f} % [{low:+.1f}, {high:+.1f}]"


def times(found: Ratio | None) -> str:
    """A factor with its interval: 4.21 [4.15, 4.27]."""
    if found is None:
        return EMPTY
    if found.low is None or found.high is None:
        return f"{number(found.ratio)} ({_count(found)})"
    return f"{number(found.ratio)} [{number(found.low)}, {number(found.high)}]"


def _count(found: Ratio) -> str:
    return f"{found.n} {'pair' if found.paired else 'run'}{'' if found.n == 1 else 's'}"
