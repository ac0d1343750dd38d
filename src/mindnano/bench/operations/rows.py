"""Kernels that touch each element of a row a few times: norms, quantizing, rotary, routing, embedding, logits."""

from __future__ import annotations

import numpy as np

from mindnano import kernels
from mindnano.bench.operations.base import Compared, Operation, Timed, copies, normal, turns
from mindnano.kernels.reference import elementwise, linear, mla, router

HIDDEN, VOCABULARY, EXPERTS = 1536, 157_184, 128


def rms_norm(rows: int) -> Operation:
    def timed(rng: np.random.Generator) -> Timed:
        x, weight = normal(rng, rows, HIDDEN), normal(rng, HIDDEN)
        y = np.empty_like(x)
        return Timed(lambda: kernels.rms_norm(x, weight, y, 1e-6), 0, 2.0 * x.nbytes)

    def compared(rng: np.random.Generator) -> list[Compared]:
        x, weight = normal(rng, 9, 100), normal(rng, 100)
        y = np.full_like(x, np.nan)
        kernels.rms_norm(x, weight, y, 1e-6)
        return [Compared("9 x 100", y, elementwise.rms_norm(x, weight, 1e-6), 1e-6)]

    return Operation(f"RMSNorm {rows} x {HIDDEN}", None, timed, compared)


def quantize_rows(rows: int) -> Operation:
    def buffers(x: np.ndarray) -> tuple[np.ndarray, ...]:  # type: ignore[type-arg]
        groups = -(-x.shape[1] // 32)
        return (
            np.full((len(x), groups * 32), -128, np.int8),
            np.full((len(x), -(-groups // 4)), np.nan, np.float32),
            np.full((len(x), groups, 2), 0x7A7A, np.int16),
        )

    def timed(rng: np.random.Generator) -> Timed:
        x = normal(rng, rows, HIDDEN)
        outs = buffers(x)
        return Timed(lambda: kernels.quantize_rows(x, *outs), 0, x.nbytes * 1.3)

    def compared(rng: np.random.Generator) -> list[Compared]:
        x = normal(rng, 7, 200)
        outs = buffers(x)
        kernels.quantize_rows(x, *outs)
        names = ("q", "scales", "pairs")
        wanted = linear.quantize_rows(x)
        return [Compared(n, a, b, 0.0) for n, a, b in zip(names, outs, wanted, strict=True)]

    return Operation(f"quantize {rows} x {HIDDEN}", None, timed, compared)


def rope(rows: int) -> Operation:
    def timed(rng: np.random.Generator) -> Timed:
        x, positions = normal(rng, rows, 16, 192), np.arange(rows) + 1000
        return Timed(lambda: kernels.rope_inplace(x, positions, 64, 6e6), 0, 2.0 * rows * 16 * 64 * 4)

    def compared(rng: np.random.Generator) -> list[Compared]:
        x, positions = normal(rng, 5, 3, 40), np.array([0, 7, 4096, 131071, 3])
        want = mla.rope(x, positions, 16, 6e6)
        kernels.rope_inplace(x, positions, 16, 6e6)
        return [Compared("5 x 3 x 40", x, want, 2e-6)]

    return Operation(f"rope {rows} x 16 x 64", None, timed, compared)


def route(rows: int) -> Operation:
    args = (8, 4, 8, True, 2.5, "sigmoid")

    def timed(rng: np.random.Generator) -> Timed:
        logits, bias = normal(rng, rows, EXPERTS), normal(rng, EXPERTS) / 10
        ids, weights = np.empty((rows, 8), np.int32), np.empty((rows, 8), np.float32)
        return Timed(lambda: kernels.route(logits, bias, *args, ids, weights), 0, logits.nbytes)

    def compared(rng: np.random.Generator) -> list[Compared]:
        # Logits in steps, so that rounding can't exchange two of them; ties go to the lower index in both.
        logits = rng.integers(-30, 30, (40, EXPERTS)).astype(np.float32) / 8
        bias = rng.integers(0, 4, EXPERTS).astype(np.float32) / 16
        ids, weights = np.full((40, 8), -1, np.int32), np.full((40, 8), np.nan, np.float32)
        kernels.route(logits, bias, *args, ids, weights)
        want_ids, want = router.route(logits, bias, *args)
        return [Compared("ids", ids, want_ids, 0.0), Compared("weights", weights, want, 1e-6)]

    return Operation(f"route {rows} x {EXPERTS}", None, timed, compared)


def embed(rows: int) -> Operation:
    def timed(rng: np.random.Generator) -> Timed:
        table = np.zeros((VOCABULARY, HIDDEN), np.int8)
        scales, out = np.ones(VOCABULARY, np.float32), np.empty((rows, HIDDEN), np.float32)
        drawn = [rng.integers(0, VOCABULARY, rows) for _ in range(copies(rows * HIDDEN))]
        order = turns(len(drawn))
        return Timed(
            lambda: kernels.embed(drawn[next(order)], table, scales, "int8", out), 0, 5.0 * rows * HIDDEN
        )

    def compared(rng: np.random.Generator) -> list[Compared]:
        table, scales = rng.integers(-127, 128, (30, 50), dtype=np.int8), rng.random(30, np.float32)
        ids, out = rng.integers(0, 30, 9), np.full((9, 50), np.nan, np.float32)
        kernels.embed(ids, table, scales, "int8", out)
        return [Compared("9 x 50", out, elementwise.embed(ids, table, scales, "int8"), 0.0)]

    return Operation(f"embed int8 {rows} x {HIDDEN}", None, timed, compared)


def top_logits() -> Operation:
    def timed(rng: np.random.Generator) -> Timed:
        logits = normal(rng, VOCABULARY)
        return Timed(lambda: kernels.top_logits(logits, 20), 0, logits.nbytes)

    def compared(rng: np.random.Generator) -> list[Compared]:
        logits = normal(rng, 40_000)
        ids, values = kernels.top_logits(logits, 50)
        want_ids, want = elementwise.top_logits(logits, 50)
        return [Compared("ids", ids, want_ids, 0.0), Compared("values", values, want, 0.0)]

    return Operation(f"top 20 of {VOCABULARY}", None, timed, compared)


def logsumexp() -> Operation:
    def timed(rng: np.random.Generator) -> Timed:
        logits = normal(rng, VOCABULARY)
        return Timed(lambda: kernels.logsumexp(logits), 0, logits.nbytes)

    def compared(rng: np.random.Generator) -> list[Compared]:
        logits = normal(rng, 40_000)
        got, want = (np.array([f(logits)]) for f in (kernels.logsumexp, elementwise.logsumexp))
        return [Compared("40000", got, want, 1e-6)]

    return Operation(f"logsumexp {VOCABULARY}", None, timed, compared)


OPERATIONS = [
    rms_norm(256),
    rms_norm(1),
    quantize_rows(256),
    quantize_rows(1),
    rope(256),
    route(256),
    route(1),
    embed(256),
    embed(1),
    top_logits(),
    logsumexp(),
]
