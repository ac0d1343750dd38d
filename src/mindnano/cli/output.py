"""Printing: text as it comes, progress on stderr, JSON on the last line, what a synthetic model is."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from mindnano.engine.timings import Timings

SYNTHETIC = "synthetic model: random weights, so its text means nothing; for speed, memory and tests only"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def note(text: str) -> None:
    print(f"mindnano: {text}", file=sys.stderr, flush=True)


def print_json(values: dict[str, Any]) -> None:
    print(json.dumps(values, ensure_ascii=False), flush=True)


def printable(text: str, stream: TextIO) -> str:
    """On a terminal, a model's control characters as symbols: they could move the cursor or set the title."""
    return _CONTROL.sub(_symbol, text) if stream.isatty() else text


def one_line(text: str) -> str:
    """Text for a table or a sample: no line ends, no control characters."""
    return _CONTROL.sub("\u00b7", text.replace("\n", "\u00b7").replace("\t", "\u00b7"))


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def speeds(timings: Timings) -> str:
    """One line about a request's speed."""
    prefill, decode = timings.prefill_tok_s, timings.decode_tok_s
    cached = f" ({timings.cached_tokens} cached)" if timings.cached_tokens else ""
    parts = [
        f"prompt {timings.prompt_tokens} tokens{cached}" + (f" at {prefill:.1f} tok/s" if prefill else ""),
        f"answer {timings.completion_tokens} tokens" + (f" at {decode:.1f} tok/s" if decode else ""),
        f"first token after {timings.ttft_s:.2f} s",
        f"peak memory {timings.peak_rss_mib:,.0f} MiB",
    ]
    if timings.device != "cpu":
        parts.append(f"{timings.device}: {timings.mla_calls.get('rknpu', 0)} attention calls")
    if timings.fallbacks:
        parts.append(f"{timings.fallbacks} fallbacks to the CPU")
    return ", ".join(parts)


class PromptProgress:
    """A bar on stderr while a long prompt is read, with the time left: from the second second on, gone with the first
    token. Nothing where stderr is no terminal.
    """

    AFTER = 1.0  # seconds

    def __init__(self) -> None:
        self._begin, self._wanted = perf_counter(), sys.stderr.isatty()
        self._progress: Progress | None = None

    def __call__(self, done: int, total: int, seconds_left: float | None) -> None:
        if not self._wanted or perf_counter() - self._begin < self.AFTER:
            return
        if self._progress is None:
            self._progress = self._started()
        left = "" if seconds_left is None else f"{duration(seconds_left)} left"
        self._progress.update(self._progress.task_ids[0], completed=done, total=total, left=left)

    def close(self) -> None:
        self._wanted = False
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _started(self) -> Progress:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TextColumn("tokens"))
        progress = Progress(
            *columns, TextColumn("{task.fields[left]}"), console=console(stderr=True), transient=True
        )
        progress.add_task("reading", total=None, left="")
        progress.start()
        return progress


def duration(seconds: float) -> str:
    """Such as 8 s, 2 min 05 s, 1 h 12 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


@contextmanager
def byte_progress(label: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr for (bytes done, bytes in all, what); nothing where stderr is no terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn(label),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}"),
        console=console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task(label, total=None, what="")
        yield lambda done, total, what: progress.update(task, completed=done, total=total, what=what[-40:])
