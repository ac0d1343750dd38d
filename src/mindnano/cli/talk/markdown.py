"""Markdown on a terminal while it comes: finished blocks are printed for good, the last one is redrawn."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from rich.console import Console, Group
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment, Segments

if TYPE_CHECKING:
    from rich.console import RenderableType

REDRAW_SECONDS = 0.08
# rich's own choice but for HTML, which it would drop: a model's <tag> is text.
PARSER = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")


class MarkdownStream:
    """`push` text as it comes, `finish` at its end. `console` is a terminal that can move its cursor."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = ""  # of blocks that aren't finished
        self._drawn = 0.0
        self._live: Live | None = None
        self._printed = False

    def push(self, text: str) -> None:
        self._text += text
        now = perf_counter()
        if now - self._drawn < REDRAW_SECONDS:
            return
        self._drawn = now
        *finished, self._text = blocks(self._text)
        for block in finished:
            self._print(block)
        self._draw(self._text)

    def finish(self) -> None:
        """Print what is left. Also after an interrupt."""
        for block in blocks(self._text):
            self._print(block)
        self._erase()
        self._text = ""

    def _print(self, text: str) -> None:
        self._erase()
        if text.strip():
            if self._printed:
                self._console.print()
            self._console.print(rendered(text))
            self._printed = True

    def _draw(self, text: str) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        body: RenderableType = rendered(text)
        self._live.update(
            self._tail(Group("", body) if self._printed and text.strip() else body), refresh=True
        )

    def _tail(self, body: RenderableType) -> RenderableType:
        """The last lines that the screen has room for: what scrolled out couldn't be redrawn."""
        room = max(1, self._console.height - 1)
        lines = self._console.render_lines(body, pad=False)
        if len(lines) <= room:
            return body
        return Segments([segment for line in lines[-room:] for segment in (*line, Segment.line())][:-1])

    def _erase(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def rendered(text: str) -> Markdown:
    markdown = Markdown(text, hyperlinks=False)  # an address that is seen can be judged
    markdown.parsed = PARSER.parse(text)
    return markdown


def blocks(text: str) -> list[str]:
    """The top-level blocks of a text, at least one. What comes later can only change the last."""
    begins = [token.map[0] for token in PARSER.parse(text) if token.level == 0 and token.map]
    lines, bounds = [line + "\n" for line in text.split("\n")], sorted({0, *begins[1:]})
    lines[-1] = lines[-1][:-1]
    return ["".join(lines[a:b]) for a, b in zip(bounds, [*bounds[1:], None], strict=True)]
