"""The look of `--help`: two columns of plain text, the same in a terminal, a pipe and docs/cli.md."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

WIDTH = 80
COLUMN = 26  # where descriptions begin; a longer name has a line of its own


class Formatter:
    """See cyclopts.help.protocols.HelpFormatter."""

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        _print(console, f"Usage: {_plain(console, usage).replace('[ARGS]', '[MODEL]')}\n")

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        paragraphs = _plain(console, description).split("\n")
        _print(console, "\n".join(textwrap.fill(" ".join(p.split()), WIDTH) for p in paragraphs) + "\n")

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one group of commands or options."""
        if not panel.entries:
            return
        lines = [f"{_plain(console, panel.title)}:"]
        for entry in panel.entries:
            name = "  " + " ".join(entry.display_labels_with_metavar)
            text = textwrap.wrap(_described(console, entry), WIDTH - COLUMN, break_on_hyphens=False) or [""]
            if len(name) > COLUMN - 2:
                lines.append(name)
                name = ""
            lines.append(f"{name:{COLUMN}}{text[0]}".rstrip())
            lines += [" " * COLUMN + line for line in text[1:]]
        _print(console, "\n".join(lines) + "\n")


def _described(console: Console, entry: HelpEntry) -> str:
    parts = [_plain(console, entry.description)]
    if entry.choices:
        parts.append(f"[{', '.join(entry.choices)}]")
    if entry.default not in (None, "False", "()"):
        parts.append(f"(default: {entry.default})")
    return " ".join(part for part in parts if part)


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _plain(console: Console, text: Any) -> str:
    if text is None:
        return ""
    wide = console.options.update(width=10_000)
    return "".join(segment.text for segment in console.render(text, wide)).strip()
