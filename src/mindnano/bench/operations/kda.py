"""KDA: what lies between its projections, for a tile of prefill and for decode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mindnano import kernels
from mindnano.bench.operations.base import F32, Compared, Operation, Timed, copies, normal, turns
from mindnano.kernels.reference import kda as twin

HEADS, DIM = 16, 128
TILE = 256  # rows that the model takes through a layer's attention at once
STATE_BYTES = 4 * HEADS * DIM * DIM


@dataclass
class Inputs:
    """Projected rows y (q | k | v | f | g), and room for what is made of them."""

    y: F32
    b: F32
    conv: F32
    a_log: F32
    dt_bias: F32
    slots: np.ndarray
    outs: list[F32]  # q, k, v, decay
    beta: F32
    o: F32

    @classmethod
    def random(cls, rng: np.random.Generator, rows: int, heads: int, dim: int, sequences: int = 1) -> Inputs:
        width = heads * dim
        return cls(
            normal(rng, rows, 5 * width), normal(rng, rows, heads), normal(rng, 3, 4, width) / np.float32(2),
            normal(rng, heads) / np.float32(2), normal(rng, width), np.arange(sequences, dtype=np.int32),
            [np.full((rows, width), np.nan, np.float32) for _ in range(4)],
            np.full((rows, heads), np.nan, np.float32), np.full((rows, width), np.nan, np.float32),
        )  # fmt: skip

    @property
    def columns(self) -> tuple[int, int, int, int]:
        width = self.dt_bias.size
        return 0, width, 2 * width, 3 * width

    def prepare(self, conv_states: F32, gate: str) -> None:
        kernels.kda_prepare(
            self.y, self.columns, self.y, self.b, self.conv, conv_states, self.slots, self.a_log, self.dt_bias,
            gate, -5.0, *self.outs, self.beta,
        )  # fmt: skip

    def recur(self, states: F32) -> None:
        kernels.kda_recurrence(*self.outs, self.beta, states, self.slots, self.o)

    def output(self, weight: F32, y: F32) -> None:
        kernels.kda_output(self.o, self.y, 4 * self.dt_bias.size, weight, 1e-6, y)


SMALL = [(1, 3, 40), (2, 1, 128), (2, 37, 64)]  # sequences, tokens of each, width of a head


def prepare(rows: int, gate: str = "sigmoid") -> Operation:
    """Convolution, SiLU, norms and gates: 5 rows of 2048 read, 4 written."""

    def timed(rng: np.random.Generator) -> Timed:
        inputs, states = Inputs.random(rng, rows, HEADS, DIM), np.zeros((1, 3, 3 * HEADS * DIM), np.float32)
        return Timed(lambda: inputs.prepare(states, gate), 0, 4.0 * rows * HEADS * DIM * 8)

    def compared(rng: np.random.Generator) -> list[Compared]:
        results = []
        for sequences, n, dim in SMALL:
            inputs = Inputs.random(rng, sequences * n, 3, dim, sequences)
            states = normal(rng, sequences, 3, 9 * dim)
            want = twin.kda_prepare(
                inputs.y, inputs.columns, inputs.y, inputs.b, inputs.conv, states, inputs.slots, inputs.a_log,
                inputs.dt_bias, gate, -5.0,
            )  # fmt: skip
            inputs.prepare(states, gate)
            got = (*inputs.outs, inputs.beta, states)
            for name, a, b in zip(("q", "k", "v", "decay", "beta", "states"), got, want, strict=True):
                results.append(Compared(f"{name}, {sequences} x {n}", a, b, 2e-6))
        return results

    suffix = "" if gate == "sigmoid" else f" {gate}"
    return Operation(f"KDA prepare{suffix}, {rows} tokens", None, timed, compared)


def recurrence(rows: int) -> Operation:
    """The state's update. Prefill: four operations an element and token, a multiplication alone counted as two
    because it takes a multiply-add's slot. Decode: the states of many layers, read and written."""

    def timed(rng: np.random.Generator) -> Timed:
        inputs = Inputs.random(rng, rows, HEADS, DIM)
        inputs.prepare(np.zeros((1, 3, 3 * HEADS * DIM), np.float32), "sigmoid")
        count = copies(STATE_BYTES, at_most=256) if rows == 1 else 18
        states, order = normal(rng, count, 1, HEADS, DIM, DIM), turns(count)
        return Timed(
            lambda: inputs.recur(states[next(order)]), 8.0 * rows * HEADS * DIM * DIM, 2.0 * STATE_BYTES
        )

    def compared(rng: np.random.Generator) -> list[Compared]:
        results = []
        for sequences, n, dim in SMALL:
            inputs = Inputs.random(rng, sequences * n, 3, dim, sequences)
            inputs.prepare(np.zeros((sequences, 3, 9 * dim), np.float32), "sigmoid")
            states = normal(rng, sequences, 3, dim, dim)
            q, k, v, decay = inputs.outs
            want, want_states = twin.kda_recurrence(q, k, v, decay, inputs.beta, states, inputs.slots)
            inputs.recur(states)
            results.append(Compared(f"o, {sequences} x {n}", inputs.o, want, 2e-6))
            results.append(Compared(f"states, {sequences} x {n}", states, want_states, 2e-6))
        return results

    limit = "read" if rows == 1 else "fma"
    return Operation(f"KDA recurrence, {rows} tokens", limit, timed, compared)


def output(rows: int) -> Operation:
    """RMSNorm of each head and the gate."""

    def timed(rng: np.random.Generator) -> Timed:
        inputs, weight = Inputs.random(rng, rows, HEADS, DIM), normal(rng, DIM)
        y = np.empty((rows, HEADS * DIM), np.float32)
        inputs.o[:] = 1
        return Timed(lambda: inputs.output(weight, y), 0, 4.0 * rows * HEADS * DIM * 3)

    def compared(rng: np.random.Generator) -> list[Compared]:
        inputs = Inputs.random(rng, 19, 3, 40)
        inputs.o[:] = normal(rng, *inputs.o.shape)
        weight, y = normal(rng, 40), np.full_like(inputs.o, np.nan)
        inputs.output(weight, y)
        return [Compared("19 rows", y, twin.kda_output(inputs.o, inputs.y, 480, weight, 1e-6), 2e-6)]

    return Operation(f"KDA output, {rows} tokens", None, timed, compared)


OPERATIONS = [
    prepare(TILE),
    prepare(TILE, "softplus"),
    recurrence(TILE),
    output(TILE),
    prepare(1),
    recurrence(1),
    output(1),
]
