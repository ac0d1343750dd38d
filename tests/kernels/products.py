"""What the tests of packing, linear and experts share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from mindnano import _native
from mindnano.kernels import Matrix, packing
from mindnano.kernels.reference import linear as ref

ISAS = _native.available_isas()
REST = _native.isa()


@contextmanager
def running(isa: str, threads: int = 2) -> Iterator[None]:
    """Kernels of one instruction set on a pool of that size."""
    before = _native.threads()
    _native.set_isa(isa)
    _native.set_threads(threads)
    try:
        yield
    finally:
        _native.set_isa(REST)
        _native.set_threads(before)


def heavy(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Heavy-tailed values, as activations of real models are."""
    return rng.standard_t(3, shape).astype(np.float32)


def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """quantize_rows into poisoned memory."""
    rows, groups = x.shape[0], -(-x.shape[1] // 32)
    q = np.full((rows, groups * 32), -128, np.int8)
    scales = np.full((rows, -(-groups // 4)), np.nan, np.float32)
    pairs = np.full((rows, groups, 2), 0x7A7A, np.int16)
    _native.quantize_rows(x, q, scales, pairs)
    return q, scales, pairs


class Weights:
    """A random matrix in W4 or W8: its integers, scales, packed form and the product's twin."""

    def __init__(self, bits: int, values: np.ndarray, scales: np.ndarray) -> None:
        self.bits, self.values = bits, values
        rows, cols = values.shape
        if bits == 4:
            self.scales = ref.from_bf16(scales)
            self.arrays: tuple[np.ndarray, ...] = (packing.pack_w4(values, scales),)
            self.matrix = Matrix.w4(*self.arrays, rows, cols)
        else:
            self.scales = scales
            self.arrays = packing.pack_w8(values, scales)
            self.matrix = Matrix.w8(*self.arrays, rows, cols)

    @classmethod
    def random(cls, bits: int, rows: int, cols: int, rng: np.random.Generator) -> Weights:
        w = heavy(rng, rows, cols) / np.float32(np.sqrt(cols))
        return cls(bits, *(ref.quantize_w4(w) if bits == 4 else ref.quantize_w8(w)))

    def product(self, x: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
        return (ref.linear_w4 if self.bits == 4 else ref.linear_w8)(x, self.values, self.scales)


def assert_near(got: np.ndarray, want: np.ndarray, tolerance: float = 1e-6) -> None:
    """Every difference within a tolerance relative to the largest wanted value."""
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    worst = np.abs(got - want).max() if got.size else 0.0
    assert worst <= tolerance * np.abs(want).max(), f"{worst} against {np.abs(want).max()}"
