"""The host's side of an NPU's attention and products: what lies between the products, at the model's shapes.

Counted as bytes read and written; the softmax is bound by its exponentials, not by them.
"""

from __future__ import annotations

import numpy as np

from mindnano import kernels
from mindnano.bench.operations.attention import HEADS, KEY, SCALE, VALUE
from mindnano.bench.operations.base import Compared, Operation, Timed, normal, quantize, random_matrix
from mindnano.kernels.reference import linear as linear_twin
from mindnano.kernels.reference import npu as twin

ROWS, TILE = 1024, twin.TILE_KEYS


def _bytes(array: np.ndarray) -> np.ndarray:
    """A copy as bytes, on a cache line's boundary."""
    raw = np.empty(array.nbytes + 64, np.uint8)
    data = raw[-raw.ctypes.data % 64 :][: array.nbytes]
    data[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    return data


def _scales(rng: np.random.Generator, n: int) -> np.ndarray:
    return (rng.random(n, np.float32) + np.float32(0.1)) / np.float32(100)


class _Tile:
    """One head's scores on a tile and the softmax's state."""

    def __init__(self, rng: np.random.Generator, fmt: str, rows: int, capacity: int) -> None:
        self.fmt, self.rows, self.capacity = fmt, rows, capacity
        if fmt == "int8":
            self.sums: np.ndarray = rng.integers(-30000, 30000, (rows, TILE)).astype(np.int32)
            self.scales: tuple[np.ndarray, ...] | None = tuple(_scales(rng, n) for n in (rows, TILE, TILE))
        else:
            self.sums, self.scales = normal(rng, rows, TILE), None
        self.m, self.l = np.full(rows, -np.inf, np.float32), np.zeros(rows, np.float32)
        self.decay, self.p_scale = np.ones(rows, np.float32), np.ones(rows, np.float32)
        self.c = _bytes(twin.c_operand(fmt, self.sums, capacity))
        self.p = _bytes(np.zeros((TILE, capacity), twin.OPERAND[fmt]))

    def softmax(self) -> None:
        kernels.npu_softmax(
            self.fmt, self.c, *(self.scales or (None,) * 3), TILE, self.rows, self.capacity, self.m, self.l,
            self.decay, self.p_scale, self.p,
        )  # fmt: skip


def softmax(fmt: str) -> Operation:
    def timed(rng: np.random.Generator) -> Timed:
        tile = _Tile(rng, fmt, ROWS, ROWS)
        return Timed(tile.softmax, 0.0, tile.c.nbytes + tile.p.nbytes)

    def compared(rng: np.random.Generator) -> list[Compared]:
        tile = _Tile(rng, fmt, 50, 64)
        want = twin.softmax(fmt, tile.sums, tile.scales, TILE, tile.m.copy(), tile.l.copy())  # type: ignore[arg-type]
        tile.softmax()
        got = twin.a_rows(tile.p.view(twin.OPERAND[fmt]).reshape(-1, 64, twin.PIECE[fmt]))[:50]
        # An e^x that rounds the other way may move a P across a tie: one step of 127.
        return [
            Compared(
                "P", got.astype(np.float32), want[0].astype(np.float32), 1.01 / 127 if fmt == "int8" else 1e-3
            ),
            Compared("sum", tile.l, want[2], 2e-6),
        ]

    return Operation(f"NPU host softmax {fmt}, {ROWS} x {TILE}", None, timed, compared)


def accumulate(fmt: str) -> Operation:
    def case(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        sums = rng.integers(-(2**20), 2**20, (rows, VALUE)).astype(twin.SUM[fmt])
        scale = rng.random(rows, np.float32) if fmt == "int8" else np.ones(rows, np.float32)
        return sums, rng.random(rows, np.float32), scale, normal(rng, rows, VALUE)

    def timed(rng: np.random.Generator) -> Timed:
        sums, decay, p_scale, o = case(rng, ROWS)
        c = _bytes(twin.c_operand(fmt, sums, ROWS))
        return Timed(
            lambda: kernels.npu_accumulate(fmt, c, decay, p_scale, 0, ROWS, o), 0.0, c.nbytes + 2.0 * o.nbytes
        )

    def compared(rng: np.random.Generator) -> list[Compared]:
        sums, decay, p_scale, o = case(rng, 50)
        want = twin.accumulate(sums, decay, p_scale, o)
        kernels.npu_accumulate(fmt, _bytes(twin.c_operand(fmt, sums, 64)), decay, p_scale, 0, 64, o)
        return [Compared("o", o, want, 1e-6)]

    return Operation(f"NPU host accumulate {fmt}, {ROWS} x {VALUE}", "read", timed, compared)


def queries() -> Operation:
    def timed(rng: np.random.Generator) -> Timed:
        q, a, scales = (
            normal(rng, ROWS, HEADS, KEY),
            _bytes(np.zeros((KEY, ROWS), np.int8)),
            np.empty(ROWS, np.float32),
        )
        return Timed(
            lambda: kernels.npu_queries("int8", q, 3, 0, ROWS, SCALE, KEY, ROWS, a, scales),
            0.0,
            5.0 * ROWS * KEY,
        )

    def compared(rng: np.random.Generator) -> list[Compared]:
        q, a, scales = normal(rng, 40, 2, KEY), _bytes(np.zeros((KEY, 64), np.int8)), np.empty(40, np.float32)
        kernels.npu_queries("int8", q, 1, 0, 40, SCALE, KEY, 64, a, scales)
        got = twin.a_rows(a.view(np.int8).reshape(-1, 64, 16))[:40] * scales[:, None]
        return [Compared("q", got, q[:, 1] * np.float32(SCALE), 0.51 / 127)]

    return Operation(f"NPU host queries int8, {ROWS} x {KEY}", "read", timed, compared)


def combine() -> Operation:
    """Four groups' sums of a projection tile into rows."""
    tokens, cols, groups = 256, 3424, 4

    def timed(rng: np.random.Generator) -> Timed:
        w, x = random_matrix(rng, 8, cols, 128 * groups), quantize(normal(rng, tokens, 128 * groups))
        sums = rng.integers(-(2**20), 2**20, groups * tokens * cols).astype(np.int32)
        c, c_bytes = _bytes(sums), tokens * cols * 4
        acc, out = np.empty(tokens * cols, np.float32), np.empty((tokens, cols), np.float32)
        return Timed(
            lambda: kernels.npu_combine(c, c_bytes, 0, groups, *x, w, 0, cols, cols, tokens, acc, out),
            0.0, c.nbytes + out.nbytes,
        )  # fmt: skip

    def compared(rng: np.random.Generator) -> list[Compared]:
        values, scales = linear_twin.quantize_w8(normal(rng, 64, 256))
        x = quantize(normal(rng, 30, 256))
        parts = [
            x[0][:, 128 * g :][:, :128].astype(np.int32) @ values[:, 128 * g :][:, :128].T for g in range(2)
        ]
        w = kernels.Matrix.w8(*kernels.packing.pack_w8(values, scales), 64, 256)
        c = _bytes(np.stack([twin.c_operand("int8", part, 32) for part in parts]))
        acc, out = np.empty(30 * 64, np.float32), np.empty((30, 64), np.float32)
        kernels.npu_combine(c, c.nbytes // 2, 0, 2, *x, w, 0, 64, 64, 32, acc, out)
        return [Compared("y", out, twin.combine(parts, x[1], scales), 1e-6)]

    return Operation(f"NPU host combine, {tokens} x {cols} x {128 * groups}", "read", timed, compared)


OPERATIONS = [
    *(softmax(fmt) for fmt in ("int8", "fp16")),
    *(accumulate(fmt) for fmt in ("int8", "fp16")),
    queries(),
    combine(),
]
