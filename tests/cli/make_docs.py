"""Writes docs/cli.md from the program's own help: `python tests/cli/make_docs.py`."""

import io
from pathlib import Path

from rich.console import Console

from mindnano.cli.app import build

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
COMMANDS = (
    "demo", "chat", "generate", "serve", "plan", "convert", "synth", "bench", "bench capacity", "bench perf",
    "bench compare", "bench quality", "bench report", "bench all", "bench kernels", "bench depth", "bench memory",
    "bench serving", "bench reuse", "calibrate", "doctor",
)  # fmt: skip
HEAD = """\
# Command line

Made from `--help` by `tests/cli/make_docs.py`; a test checks that it is current.

Every command exits with 0 when it did its work, 2 after a user's error (one line on stderr, beginning with
`mindnano:`), 130 after Ctrl-C. `demo` exits with 1 where its checks fail, `bench kernels`
where a kernel disagrees with its twin, `bench memory` and `bench reuse` where a target is missed. With `--json`,
the last line of stdout is one JSON object; everything that a synthetic model made
says so, there as `"synthetic": true`.
"""


def help_of(command: str) -> str:
    screen = io.StringIO()
    build().help_print(command.split(), console=Console(file=screen, width=80))
    return screen.getvalue().strip()


def markdown() -> str:
    parts = [HEAD, f"```text\n{help_of('')}\n```\n"]
    parts += [f"## mindnano {command}\n\n```text\n{help_of(command)}\n```\n" for command in COMMANDS]
    return "\n".join(parts)


if __name__ == "__main__":
    DOCS.write_text(markdown())
