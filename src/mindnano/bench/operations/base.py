"""What an operation of the table is, and random inputs for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from mindnano import kernels
from mindnano.kernels import Matrix, packing

F32 = NDArray[np.float32]
Quantized = tuple[NDArray[np.int8], F32, NDArray[np.int16]]

# Weights, caches and states are taken in turns from so many bytes: more than any cache holds.
COLD_BYTES = 192 << 20


@dataclass(frozen=True)
class Timed:
    """Real shapes, ready to run: `run` is one call, with the operations and bytes from memory that it needs."""

    run: Callable[[], object]
    ops: float
    nbytes: float


@dataclass(frozen=True)
class Compared:
    """A kernel's result at a small shape and its NumPy twin's. tolerance: of the largest wanted value."""

    what: str
    got: np.ndarray  # type: ignore[type-arg]
    want: np.ndarray  # type: ignore[type-arg]
    tolerance: float

    def error(self) -> float:
        """The largest difference over the largest wanted value; infinite where shapes differ or NaN is left."""
        if self.got.shape != self.want.shape or not np.isfinite(self.got).all():
            return float("inf")
        largest = float(np.abs(self.want).max(initial=0.0))
        worst = float(np.abs(self.got.astype(np.float64) - self.want).max(initial=0.0))
        return worst if largest == 0 else worst / largest


Timing = Callable[[np.random.Generator], Timed]
Comparison = Callable[[np.random.Generator], list[Compared]]


@dataclass(frozen=True)
class Operation:
    """One line of the table. `limit` is what binds it (None: neither memory nor arithmetic of one kind), `target` the
    share of it that is asked for; `timed` and `compared` call the same kernel."""

    name: str
    limit: str | None
    timed: Timing
    compared: Comparison
    target: float | None = None


def turns(count_of: int) -> Iterator[int]:
    """0, 1, .., count_of - 1, 0, 1, .."""
    return (i % count_of for i in count())


def copies(nbytes: float, at_most: int = 64) -> int:
    """How many different data sets of that size it takes to defeat the caches."""
    return int(max(1, min(at_most, -(-COLD_BYTES // max(1, int(nbytes))))))


def normal(rng: np.random.Generator, *shape: int) -> F32:
    return rng.standard_normal(shape, np.float32)


def quantize(x: F32) -> Quantized:
    """INT8 rows of x [T, K] with their scales and pair sums."""
    rows, groups = x.shape[0], -(-x.shape[1] // 32)
    q = np.empty((rows, groups * 32), np.int8)
    scales = np.empty((rows, -(-groups // 4)), np.float32)
    pairs = np.empty((rows, groups, 2), np.int16)
    kernels.quantize_rows(x, q, scales, pairs)
    return q, scales, pairs


def random_bytes(rng: np.random.Generator, *shape: int) -> NDArray[np.uint8]:
    return np.frombuffer(rng.bytes(int(np.prod(shape))), np.uint8).reshape(shape).copy()


def random_matrix(rng: np.random.Generator, bits: int, rows: int, cols: int, experts: int = 0) -> Matrix:
    """Random packed weights of about unit output; with `experts`, so many matrices."""
    lead = (experts,) if experts else ()
    scale = np.float32(1 / np.sqrt(cols))
    if bits == 4:
        data = random_bytes(rng, *lead, *packing.w4_shape(rows, cols))
        data[..., :32].view(np.uint16)[...] = (np.full(1, scale / 4).view(np.uint32) >> 16).astype(np.uint16)
        return Matrix.w4(data, rows, cols)
    w8 = random_bytes(rng, *lead, *packing.w8_shape(rows, cols)).view(np.int8)
    np.maximum(w8, -127, out=w8)
    scales = np.full((*lead, -(-rows // 16) * 16), scale / 64, np.float32)
    return Matrix.w8(w8, scales, rows, cols)
