"""What this machine can do at most: bytes from memory, products and multiply-adds in registers.

Each limit has a loop of its own (native/kernels/peaks.cpp) that does nothing else. A kernel can't be faster than the
limit that binds it, whatever its code; its share of that limit says how much is left.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import perf_counter

import numpy as np

from mindnano import kernels

LIMITS = ("read", "int8", "int4", "fma")
UNITS = {"read": "GB/s", "int8": "GOP/s", "int4": "GOP/s", "fma": "GFLOP/s"}
_BUFFER_BYTES = 256 << 20  # several times a last-level cache


@dataclass
class Limits:
    """The best rates seen, in 1e9 bytes or operations a second; a multiply-add counts as two operations.

    read: memory read once, in order. int8: 8-bit products summed in 32 bits. int4: nibbles times bytes, summed
    in 16 bits. fma: fp32 multiply-adds.
    """

    threads: int
    read: float = 0.0
    int8: float = 0.0
    int4: float = 0.0
    fma: float = 0.0

    def rate(self, name: str) -> float:
        return float(getattr(self, name))

    def as_dict(self) -> dict[str, float]:
        return {name: round(value, 2) for name, value in asdict(self).items()}


class Meter:
    """Measures the limits of the pool as it is. Further looks can only raise a limit; they show what varies."""

    def __init__(self) -> None:
        self.limits = Limits(kernels.threads())
        self._buffer = np.ones(_BUFFER_BYTES, np.uint8)
        self._steps = 100_000
        self.seen: dict[str, list[float]] = {name: [] for name in LIMITS}

    def look(self, name: str, rounds: int = 3) -> float:
        """Measure one limit a few times; returns the best of these rounds."""
        best = 0.0
        for _ in range(rounds):
            begin = perf_counter()
            if name == "read":
                amount = kernels.peak_read(self._buffer)
            else:
                amount = kernels.peak_compute(name, 4 * kernels.threads(), self._steps)
            best = max(best, amount / (perf_counter() - begin) / 1e9)
        self.seen[name].append(best)
        setattr(self.limits, name, max(self.limits.rate(name), best))
        return best

    def spread(self) -> float:
        """The largest drop between two looks at a limit, as a share of the limit: how disturbed the run was."""
        return max((1 - min(seen) / max(seen) for seen in self.seen.values() if seen), default=0.0)


def measure(threads: int, rounds: int = 5) -> Limits:
    """Limits with that many threads; the pool has its old size afterwards."""
    before = kernels.threads()
    kernels.set_threads(threads)
    try:
        meter = Meter()
        for name in LIMITS:
            meter.look(name, rounds)
    finally:
        kernels.set_threads(before)
    return meter.limits
