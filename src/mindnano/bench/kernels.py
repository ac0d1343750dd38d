"""Every kernel at the model's shapes, as a share of the limit that binds it on this machine.

First the gate: each operation of the table, on every instruction set that this machine has, against its NumPy twin.
Only if all agree, speed: each operation in turns with the loop of its limit. Machines are shared, and what memory or
the clock give changes within seconds; so a share compares a round's median call with the limit's loop right before
and right after it, and the share that counts is the median of the rounds'. Best and median times are of all calls.

Weights, caches and states that come from memory in a real step are taken in turns from more data than any cache holds.
Experts see the choices of a random router over random tokens.
"""

from __future__ import annotations

import json as json_module
import os
import zlib
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from mindnano import kernels
from mindnano.bench.limits import LIMITS, UNITS, Limits, Meter, measure
from mindnano.bench.operations import TABLE, Operation
from mindnano.engine import cores
from mindnano.errors import MindNanoError

if TYPE_CHECKING:
    from rich.console import Console

# A run whose limits themselves moved by more than this is marked as disturbed.
DISTURBED = 0.10
ROUNDS = 7


@dataclass(frozen=True)
class Failure:
    """A comparison that the gate did not pass."""

    operation: str
    isa: str
    what: str
    error: float
    tolerance: float


@dataclass
class Result:
    """best_ms, median_ms: of one call. ops, nbytes: of one call, in units. share: of the limit, median of rounds."""

    name: str
    limit: str | None
    best_ms: float
    median_ms: float
    calls: int
    ops: float
    nbytes: float
    target: float | None
    share: float | None = None

    @property
    def met(self) -> bool | None:
        return None if self.target is None or self.share is None else self.share >= self.target

    def rate(self) -> float:
        """1e9 operations or, where reading binds, bytes a second at the best time."""
        return (self.nbytes if self.limit in ("read", None) else self.ops) / self.best_ms / 1e6


def select(filter: str | None) -> list[Operation]:
    """Operations whose name holds the text; all without one. Raises MindNanoError where there is none."""
    chosen = [op for op in TABLE if filter is None or filter.lower() in op.name.lower()]
    if not chosen:
        raise MindNanoError(
            f"filter: expected a part of an operation's name, got {filter!r}; without it all run"
        )
    return chosen


def check(operation: Operation, seed: int = 0) -> list[tuple[str, float, float]]:
    """(what, error, tolerance) of every comparison, on the instruction set in use."""
    rng = np.random.default_rng([seed, zlib.crc32(operation.name.encode())])
    return [(c.what, c.error(), c.tolerance) for c in operation.compared(rng)]


def gate(operations: list[Operation]) -> list[Failure]:
    """All comparisons that fail, on all instruction sets."""
    before, failures = kernels.isa(), []
    try:
        for isa in kernels.available_isas():
            kernels.set_isa(isa)
            for op in operations:
                for what, error, tolerance in check(op):
                    if not error <= tolerance:
                        failures.append(Failure(op.name, isa, what, error, tolerance))
    finally:
        kernels.set_isa(before)
    return failures


def time_operation(operation: Operation, meter: Meter, seconds: float) -> Result:
    """Time calls for about that long (one call a round at least), between looks at the limit."""
    timed = operation.timed(np.random.default_rng(zlib.crc32(operation.name.encode())))
    timed.run()
    times: list[float] = []
    shares: list[float] = []
    amount = timed.nbytes if operation.limit == "read" else timed.ops
    before = meter.look(operation.limit, rounds=1) if operation.limit else 0.0
    for _ in range(ROUNDS):
        end = perf_counter() + seconds / ROUNDS
        calls: list[float] = []
        while not calls or perf_counter() < end:
            begin = perf_counter()
            timed.run()
            calls.append(perf_counter() - begin)
        times += calls
        if operation.limit:
            after = meter.look(operation.limit, rounds=1)
            shares.append(amount / median(calls) / 1e9 / ((before + after) / 2))
            before = after
    return Result(
        operation.name, operation.limit, 1e3 * min(times), 1e3 * median(times), len(times), timed.ops,
        timed.nbytes, operation.target, median(shares) if shares else None,
    )  # fmt: skip


def measure_all(operations: list[Operation], seconds: float) -> tuple[list[Result], Meter]:
    """Results, and the meter that holds the limits."""
    meter = Meter()
    for name in LIMITS:
        meter.look(name, rounds=5)
    return [time_operation(op, meter, seconds) for op in operations], meter


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        return names[0] if names else "unknown"
    except OSError:
        return "unknown"


def _console() -> Console:
    from rich.console import Console

    # Where there is no terminal rich assumes 80 columns, too few for the table.
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=110)


def print_limits(one: Limits, all_threads: Limits) -> None:
    from rich.table import Table

    table = Table(title=f"Limits of this machine ({processor()}, {kernels.isa()})")
    table.add_column("limit")
    table.add_column("1 thread", justify="right")
    table.add_column(f"{all_threads.threads} threads", justify="right")
    table.add_column("")
    for name in LIMITS:
        table.add_row(name, f"{one.rate(name):.1f}", f"{all_threads.rate(name):.1f}", UNITS[name])
    _console().print(table)


def print_results(results: list[Result]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title=f"Kernels, {kernels.threads()} threads", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("operation", no_wrap=True)
    for column in ("best ms", "median ms", "rate", "share of", "limit", "asked"):
        table.add_column(column, justify="right", no_wrap=True)
    for r in results:
        unit = "GB/s" if r.limit in ("read", None) else UNITS[r.limit]
        verdict = "" if r.met is None else f"{r.target:.0%} {'yes' if r.met else 'no'}"
        table.add_row(
            r.name, f"{r.best_ms:.3f}", f"{r.median_ms:.3f}", f"{r.rate():.1f} {unit}", r.limit or "-",
            "" if r.share is None else f"{r.share:.0%}", verdict,
        )  # fmt: skip
    _console().print(table)


def run(
    json: bool = False, filter: str | None = None, quick: bool = False, threads: int | None = None,
    cpus: str = "auto",
) -> int:  # fmt: skip
    """Gate, limits, speed; prints tables, and with `json` one JSON object as the last line instead.

    filter: only operations whose name holds it. quick: about a fifth of the time. Returns the exit status: 1 where
    the gate failed, and then no speed is measured.
    """
    operations = select(filter)
    before = kernels.threads(), kernels.cpus()
    cores.use(threads, cpus)
    try:
        return _run(operations, json, quick)
    finally:
        kernels.set_threads(*before)


def _run(operations: list[Operation], json: bool, quick: bool) -> int:
    failures = gate(operations)
    report: dict[str, Any] = {
        "processor": processor(), "isa": kernels.isa(), "isas": kernels.available_isas(),
        "threads": kernels.threads(), "cpus": cores.numbers(tuple(kernels.cpus())) or "any",
        "gate": [asdict(f) for f in failures],
    }  # fmt: skip
    if failures:
        for f in failures:
            print(f"{f.operation} on {f.isa}, {f.what}: error {f.error:.2e}, allowed {f.tolerance:.2e}")
        print(f"{len(failures)} comparisons with the NumPy twins failed: no speed is measured")
        if json:
            print(json_module.dumps(report))
        return 1
    if not json:
        print(
            f"{len(operations)} operations agree with their NumPy twins on {', '.join(kernels.available_isas())}"
        )
    one = measure(1)
    load = os.getloadavg()[0]
    results, meter = measure_all(operations, 0.25 if quick else 1.2)
    disturbed = meter.spread() > DISTURBED
    if json:
        report |= {
            "limits": {"1": one.as_dict(), str(meter.limits.threads): meter.limits.as_dict()},
            "limit_spread": round(meter.spread(), 3), "disturbed": disturbed, "load_before": round(load, 2),
            "results": [asdict(r) | {"met": r.met} for r in results],
        }  # fmt: skip
        print(json_module.dumps(report))
        return 0
    print_limits(one, meter.limits)
    print_results(results)
    if disturbed:
        print(
            f"disturbed: the limits themselves varied by {meter.spread():.0%} during the run (load {load:.1f} before)"
        )
    return 0
