"""How long it will still take: guessed from what was measured so far, shown on stderr."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from types import TracebackType

from mindnano.bench.load import Load

# Until something was measured: the full-size model on two desktop cores.
START_S = 10.0  # of a server, its warm-up included
PREFILL_TOK_S = 150.0  # at the beginning of a prompt; at DEPTH tokens half of it
DEPTH = 22_000
DECODE_TOK_S = 15.0
FIRST_S = 0.3  # of any request, however short


class Estimate:
    """Seconds of loads, by the nearest length measured of the same kind of server."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, float]] = {}
        self._decode: dict[str, float] = {}
        self.start = START_S

    def learn(self, kind: str, load: Load, ttft: float, decode_tok_s: float | None) -> None:
        if load.concurrency == 1 and ttft > 0:
            self._seen.setdefault(kind, {})[load.input_tokens] = ttft
            if decode_tok_s:
                self._decode[kind] = decode_tok_s

    def seconds(self, kind: str, load: Load) -> float:
        """Of one load of that kind, its answer included."""
        tokens = load.input_tokens
        seen = self._seen.get(kind) or next(iter(self._seen.values()), {})
        if seen:
            nearest = min(seen, key=lambda known: abs(math.log(known / tokens)))
            prefill: float = seen[nearest] * _usual(tokens) / _usual(nearest)
        else:
            prefill = _usual(tokens)
        decode = load.output_tokens / (self._decode.get(kind) or DECODE_TOK_S)
        return load.concurrency * prefill + decode


def _usual(tokens: int) -> float:
    """Seconds to the first token where nothing was measured: only its growth with the length is used otherwise."""
    return FIRST_S + tokens / PREFILL_TOK_S * (1 + tokens / (2 * DEPTH))


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


class Progress:
    """A bar on a terminal, a line a run elsewhere."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal and not quiet
        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"),
            console=self._console, transient=True, disable=not self._live,
        )  # fmt: skip
        self._task = self._bar.add_task("starting", total=1.0, left="")
        self._spent = 0.0

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def doing(self, what: str, left: float) -> None:
        """About to do `what`; `left` seconds are left with it."""
        self._bar.update(self._task, description=what, left=f"{duration(left)} left", total=self._spent + left,
                         completed=self._spent)  # fmt: skip

    def did(self, what: str, seconds: float, left: float) -> None:
        """`what` happened in `seconds`."""
        self._spent += seconds
        if self._live:
            self._console.print(what, markup=False)
        elif not self._quiet:
            print(f"{what} ({duration(left)} left)", file=sys.stderr, flush=True)


def total(estimate: Estimate, loads: Sequence[tuple[str, Load]], starts: int) -> float:
    """Seconds of all those loads on that many fresh servers."""
    return starts * estimate.start + sum(estimate.seconds(kind, load) for kind, load in loads)
