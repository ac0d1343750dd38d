"""Which processors the kernels' threads run on: on big.LITTLE the big ones, found from /sys.

A thread on a little core would hold the others up: every kernel waits for its last task.
"""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from pathlib import Path

from mindnano import kernels
from mindnano.errors import MindNanoError

# A processor is big from these shares of the best one's figure on. An A55 beside an A76 has 0.4 of its capacity and
# 0.75 to 0.8 of its clock; processors of one kind differ by a few percent of the clock, as the maker tested them.
BIG_CAPACITY = 0.6
BIG_CLOCK = 0.85


@cache  # keeping threads to some changes what the system says
def usable() -> tuple[int, ...]:
    """Processors that this process may run on, as taskset or the container has it."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def speeds(cpus: tuple[int, ...], root: Path = Path("/")) -> dict[int, tuple[str, int]]:
    """What the kernel says of each: ("capacity", of 1024) or, on ARM only, ("clock", kHz at most); {} unless of all.

    x86's clocks say nothing: its boost clocks differ from core to core.
    """
    sources = [("capacity", "cpu_capacity")]
    if platform.machine().lower() in ("aarch64", "arm64"):
        sources.append(("clock", "cpufreq/cpuinfo_max_freq"))
    for kind, name in sources:
        found = {cpu: _number(root / f"sys/devices/system/cpu/cpu{cpu}" / name) for cpu in cpus}
        if all(found.values()):
            return {cpu: (kind, value) for cpu, value in found.items() if value}
    return {}


def big(cpus: tuple[int, ...], root: Path = Path("/")) -> tuple[int, ...]:
    """Those of `cpus` that are about as fast as the fastest; all of them where no difference is known."""
    known = speeds(cpus, root)
    if not known:
        return cpus
    best = max(value for _, value in known.values())
    share = {"capacity": BIG_CAPACITY, "clock": BIG_CLOCK}
    return tuple(cpu for cpu, (kind, value) in known.items() if value >= share[kind] * best)


def parse(text: str) -> tuple[int, ...]:
    """Processor numbers from a list as taskset has it: "4-7" or "0,2,4-5". Raises MindNanoError."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise MindNanoError(f"cpus: expected auto, all or numbers such as 4-7 or 0,2, got {text!r}")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def numbers(cpus: tuple[int, ...]) -> str:
    """The reverse of `parse`, ranges where there are some."""
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and parts[-1][-1] == cpu - 1:
            parts[-1][1:] = [cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(str(end) for end in part) for part in parts)


def choose(threads: int | None, cpus: str, root: Path = Path("/")) -> tuple[int | None, tuple[int, ...]]:
    """(threads, processors that they keep to) of the options; no processors: any, and then threads may stay None.

    cpus: "auto" for the big ones where others are slower and hold no more threads than asked for; "all" for any; else a
    list. Raises MindNanoError.
    """
    here = usable()
    if cpus == "all":
        return threads, ()
    if cpus == "auto":
        chosen = big(here, root)
        if chosen == here or (threads is not None and threads > len(chosen)):
            return threads, ()
        return threads or len(chosen), chosen
    chosen = parse(cpus)
    if missing := sorted(set(chosen) - set(here)):
        raise MindNanoError(
            f"cpus: {numbers(tuple(missing))} can't be used here; usable are {numbers(here)}, which taskset, the "
            "container or the machine decides"
        )
    if threads is not None and threads > len(chosen):
        raise MindNanoError(
            f"threads: expected at most {len(chosen)}, as many as cpus {numbers(chosen)} are, got {threads}"
        )
    return threads or len(chosen), chosen


def use(threads: int | None = None, cpus: str = "auto") -> None:
    """Give the thread pool its size and its processors."""
    if threads is not None and not 1 <= threads <= 256:
        raise MindNanoError(f"threads: expected 1 to 256, got {threads}")
    count, chosen = choose(threads, cpus)
    if count is not None or chosen != tuple(kernels.cpus()):
        kernels.set_threads(count or len(usable()), list(chosen))


def count(threads: int | None = None, cpus: str = "auto") -> int:
    """Threads that `use` would give the pool."""
    return choose(threads, cpus)[0] or kernels.threads()


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
