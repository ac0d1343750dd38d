"""Products with weights, one row and many, and the routed experts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mindnano import kernels
from mindnano.bench.operations.base import (
    F32,
    Compared,
    Operation,
    Timed,
    copies,
    normal,
    quantize,
    random_matrix,
    turns,
)
from mindnano.kernels import Matrix, packing
from mindnano.kernels.reference import linear as twin

HIDDEN = 1536
KDA_IN = 10240  # q, k, v, f, g: 16 heads of 128 each
VOCABULARY = 157_184
EXPERTS, CHOSEN, INNER = 128, 8, 512
SMALL_ROWS = (1, 5, 23)  # below, at and past the kernels' tiles


def _packed(bits: int, w: F32) -> tuple[Matrix, tuple[NDArray[np.int8], np.ndarray]]:  # type: ignore[type-arg]
    """w in W4 or W8, and what the twin takes: integers and scales."""
    if bits == 4:
        values, scale_bits = twin.quantize_w4(w)
        return Matrix.w4(packing.pack_w4(values, scale_bits), *w.shape), (values, twin.from_bf16(scale_bits))
    values, scales = twin.quantize_w8(w)
    return Matrix.w8(*packing.pack_w8(values, scales), *w.shape), (values, scales)


def linear(bits: int, rows: int, n: int, k: int, target: float | None = None) -> Operation:
    """y [rows, n] = x W^T. One row: bound by reading W; many: by arithmetic."""

    def timed(rng: np.random.Generator) -> Timed:
        first = random_matrix(rng, bits, n, k)
        count = copies(first.nbytes) if rows == 1 else 1
        matrices = [first] + [random_matrix(rng, bits, n, k) for _ in range(count - 1)]
        x, out, order = quantize(normal(rng, rows, k)), np.empty((rows, n), np.float32), turns(count)
        return Timed(
            lambda: kernels.linear_quantized(*x, matrices[next(order)], out), 2.0 * rows * n * k, first.nbytes
        )

    def compared(rng: np.random.Generator) -> list[Compared]:
        w = normal(rng, 100, k)
        matrix, parts = _packed(bits, w)
        results = []
        for t in SMALL_ROWS if rows > 1 else (1,):
            x, out = normal(rng, t, k), np.full((t, 100), np.nan, np.float32)
            kernels.linear_quantized(*quantize(x), matrix, out)
            want = (twin.linear_w4 if bits == 4 else twin.linear_w8)(twin.quantize_rows(x), *parts)
            results.append(Compared(f"{t} rows", out, want, 1e-6))
        return results

    limit = "read" if rows == 1 else f"int{bits}"
    return Operation(f"linear w{bits} {rows} x {n} x {k}", limit, timed, compared, target)


def dense(rows: int, n: int, k: int) -> Operation:
    """The fp32 yardstick and the router's product."""

    def timed(rng: np.random.Generator) -> Timed:
        arrays = [normal(rng, n, k) for _ in range(copies(4 * n * k) if rows == 1 else 1)]
        matrices = [Matrix.dense(a, "fp32") for a in arrays]
        x, out, order = normal(rng, rows, k), np.empty((rows, n), np.float32), turns(len(matrices))
        return Timed(
            lambda: kernels.linear_dense(x, matrices[next(order)], out), 2.0 * rows * n * k, 4.0 * n * k
        )

    def compared(rng: np.random.Generator) -> list[Compared]:
        w, results = normal(rng, 70, k), []
        for t in SMALL_ROWS if rows > 1 else (1,):
            x, out = normal(rng, t, k), np.full((t, 70), np.nan, np.float32)
            kernels.linear_dense(x, Matrix.dense(w, "fp32"), out)
            results.append(Compared(f"{t} rows", out, twin.linear_dense(x, w), 2e-6))
        return results

    return Operation(f"dense fp32 {rows} x {n} x {k}", "read" if rows == 1 else "fma", timed, compared)


def heads(tokens: int, count: int, n: int, k: int) -> Operation:
    """out[t, h] = x[t, h] W[h]^T in W8: the absorbed products of decode."""

    def timed(rng: np.random.Generator) -> Timed:
        first = random_matrix(rng, 8, n, k, count)
        matrices = [first] + [random_matrix(rng, 8, n, k, count) for _ in range(copies(first.nbytes) - 1)]
        x, out = quantize(normal(rng, tokens * count, k)), np.empty((tokens, count, n), np.float32)
        order = turns(len(matrices))
        return Timed(
            lambda: kernels.linear_heads(*x, matrices[next(order)], out),
            2.0 * tokens * count * n * k, first.nbytes,
        )  # fmt: skip

    def compared(rng: np.random.Generator) -> list[Compared]:
        packed = [twin.quantize_w8(normal(rng, n, k)) for _ in range(3)]
        arrays = [np.stack(a) for a in zip(*(packing.pack_w8(*p) for p in packed), strict=True)]
        x, out = normal(rng, 2, 3, k), np.full((2, 3, n), np.nan, np.float32)
        kernels.linear_heads(*quantize(x.reshape(6, k)), Matrix.w8(*arrays, n, k), out)
        want = [twin.linear_w8(twin.quantize_rows(x[:, h]), *packed[h]) for h in range(3)]
        return [Compared("2 tokens, 3 heads", out, np.stack(want, 1), 1e-6)]

    return Operation(f"heads w8 {tokens} x {count} x {n} x {k}", "read", timed, compared)


def routes(rng: np.random.Generator, tokens: int) -> tuple[NDArray[np.int32], F32]:
    """A random router's choice for random tokens: as uneven as chance makes it, never one expert for all."""
    x = normal(rng, tokens, 64) @ normal(rng, 64, EXPERTS) / 8
    ids, weights = np.empty((tokens, CHOSEN), np.int32), np.empty((tokens, CHOSEN), np.float32)
    bias = np.zeros(EXPERTS, np.float32)
    kernels.route(x, bias, 8, 4, CHOSEN, True, 2.5, "sigmoid", ids, weights)
    return ids, weights


def _compare_experts(rng: np.random.Generator, bits: int, hidden: int, inner: int) -> list[Compared]:
    count, results = 5, []
    gate, up = normal(rng, count, inner, hidden) / 8, normal(rng, count, inner, hidden) / 8
    down = normal(rng, count, hidden, inner)
    both = [packing.interleave_gate_up(gate[e], up[e]) for e in range(count)]
    stacks, parts = [], []
    for ws in (both, list(down)):
        packed = [_packed(bits, w) for w in ws]
        parts.append([p for _, p in packed])
        if bits == 4:
            data = np.stack([packing.pack_w4(*twin.quantize_w4(w)) for w in ws])
            stacks.append(Matrix.w4(data, *ws[0].shape))
        else:
            arrays = [
                np.stack(a) for a in zip(*(packing.pack_w8(*twin.quantize_w8(w)) for w in ws), strict=True)
            ]
            stacks.append(Matrix.w8(*arrays, *ws[0].shape))
    product = twin.linear_w4 if bits == 4 else twin.linear_w8
    for t in SMALL_ROWS:
        x = normal(rng, t, hidden)
        ids = np.argsort(rng.random((t, count)), axis=1)[:, :3].astype(np.int32)
        weights, out = rng.random((t, 3), np.float32), np.full((t, hidden), np.nan, np.float32)
        kernels.experts_quantized(*quantize(x), ids, weights, *stacks, out)
        want = np.zeros((t, hidden))
        for e in range(count):
            rows, slots = np.nonzero(ids == e)
            if not len(rows):
                continue
            y = product(twin.quantize_rows(x[rows]), *parts[0][e]).reshape(len(rows), -1, 2, 8)
            h = (twin.silu(y[:, :, 0]) * y[:, :, 1]).reshape(len(rows), -1)[:, :inner]
            want[rows] += weights[rows, slots, None] * product(twin.quantize_rows(h), *parts[1][e])
        # A hidden value near a rounding boundary may fall on its other side: one step of 127 in one input.
        results.append(Compared(f"{t} tokens", out, want, 2e-3))
    return results


def experts(bits: int, tokens: int, target: float | None = None, shared: bool = False) -> Operation:
    """gate, up, silu, down and the weighted sum: routed (8 of 128), or the one shared expert."""
    count, chosen = (1, 1) if shared else (EXPERTS, CHOSEN)

    def timed(rng: np.random.Generator) -> Timed:
        def stack(rows: int, cols: int) -> Matrix:
            return random_matrix(rng, bits, rows, cols, count)

        layers = copies(4.7e6 * bits / 8) if shared and tokens == 1 else 1
        stacks = [(stack(2 * INNER, HIDDEN), stack(HIDDEN, INNER)) for _ in range(layers)]
        one = (stacks[0][0].nbytes + stacks[0][1].nbytes) / count
        x, out = quantize(normal(rng, tokens, HIDDEN)), np.empty((tokens, HIDDEN), np.float32)
        if shared:
            ids, weights = np.zeros((1, tokens, 1), np.int32), np.ones((1, tokens, 1), np.float32)
        else:
            drawn = [routes(rng, tokens) for _ in range(64 if tokens == 1 else 1)]
            ids, weights = np.stack([i for i, _ in drawn]), np.stack([w for _, w in drawn])
        used = np.mean([len(np.unique(i)) for i in ids])
        order, layer = turns(len(ids)), turns(layers)

        def run() -> None:
            i = next(order)
            kernels.experts_quantized(*x, ids[i], weights[i], *stacks[next(layer)], out)

        return Timed(run, 2.0 * tokens * chosen * 3 * INNER * HIDDEN, float(used * one))

    limit = "read" if tokens == 1 else f"int{bits}"
    name = f"{'shared' if shared else 'routed'} experts w{bits}, {tokens} tokens"
    return Operation(name, limit, timed, lambda rng: _compare_experts(rng, bits, 192, 72), target)


OPERATIONS = [
    linear(4, 1, KDA_IN, HIDDEN, 0.85),
    linear(8, 1, KDA_IN, HIDDEN, 0.85),
    linear(4, 1, VOCABULARY, HIDDEN, 0.85),
    linear(8, 1, VOCABULARY, HIDDEN, 0.85),
    *(linear(4, rows, KDA_IN, HIDDEN, 0.55) for rows in (128, 512, 2048)),
    *(linear(8, rows, KDA_IN, HIDDEN, 0.70) for rows in (128, 512, 2048)),
    linear(8, 512, HIDDEN, 2048, 0.70),
    dense(1, EXPERTS, HIDDEN),
    dense(256, EXPERTS, HIDDEN),
    heads(1, 16, 512, 128),
    experts(4, 1),
    experts(4, 2048),
    experts(4, 4096, 0.50),
    experts(8, 1, shared=True),
    experts(8, 2048, shared=True),
]
