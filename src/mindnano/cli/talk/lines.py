"""The user's messages: lines with editing, history and completion, several lines where they say so."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from mindnano.cli import output

QUOTES = '"""'
MOST_HISTORY = 1000


def messages(interactive: bool, complete: Callable[[str], list[str]]) -> Iterator[str]:
    """Until the end of the input. Ctrl-C empties the line. `complete`: ways to end the line so far."""
    with _editing(complete) if interactive else contextlib.nullcontext():
        while True:
            try:
                yield _message(interactive)
            except EOFError:
                if interactive:
                    print(file=sys.stderr)
                return
            except KeyboardInterrupt:
                if not interactive:
                    raise
                output.note("Ctrl-D or /quit leaves")


def _message(interactive: bool) -> str:
    first, more = (">>> ", "... ") if interactive else ("", "")
    line = input(first)
    if line.startswith(QUOTES):
        lines = [line[len(QUOTES) :]]
        while not lines[-1].endswith(QUOTES):
            lines.append(input(more))
        return "\n".join(lines)[: -len(QUOTES)]
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input(more))
    return "\n".join(lines)


@contextlib.contextmanager
def _editing(complete: Callable[[str], list[str]]) -> Iterator[None]:
    """readline around input(), where Python has it: editing, history across runs, completion, Alt-Enter."""
    try:
        import readline
    except ImportError:
        yield
        return
    file = history_file()
    readline.set_history_length(MOST_HISTORY)
    readline.set_completer_delims("")
    readline.set_completer(lambda text, state: [*complete(text), None][state])
    readline.parse_and_bind("tab: complete")
    readline.parse_and_bind(r'"\e\C-m": "\C-v\C-j"')
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_CREAT | os.O_RDONLY, 0o600))  # what was typed is the user's own
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            readline.write_history_file(file)


def history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "mindnano" / "history"
