"""Gated MLPs, routed and dense, against their NumPy twins."""

import numpy as np
import pytest

from mindnano import _native
from mindnano.kernels import Matrix, packing
from mindnano.kernels.reference import linear as ref

from .products import ISAS, Weights, assert_near, heavy, quantize, running


class MLPs:
    """E random gated MLPs in W4 or W8 and the twin of what they compute."""

    def __init__(self, bits: int, count: int, hidden: int, inner: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.inner = inner
        make = ref.quantize_w4 if bits == 4 else ref.quantize_w8
        self.gate_up, self.down = [], []
        for _ in range(count):
            gate, up = (make(heavy(rng, inner, hidden) / np.float32(np.sqrt(hidden))) for _ in range(2))
            self.gate_up.append(
                Weights(bits, *(packing.interleave_gate_up(g, u) for g, u in zip(gate, up, strict=True)))
            )
            self.down.append(Weights.random(bits, hidden, inner, rng))
        stacks = []
        for parts in (self.gate_up, self.down):
            arrays = [np.stack(a) for a in zip(*(p.arrays for p in parts), strict=True)]
            matrix = parts[0].matrix
            stacks.append((Matrix.w4 if bits == 4 else Matrix.w8)(*arrays, matrix.rows, matrix.cols))
        self.stacks = stacks

    def twin(self, x: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
        out = np.zeros(x.shape, np.float64)
        order = ref.expert_order(ids)
        for e in np.unique(ids):
            tokens = np.flatnonzero((ids == e).any(1))
            both = self.gate_up[e].product(ref.quantize_rows(x[tokens])).reshape(len(tokens), -1, 2, 8)
            hidden = (ref.silu(both[:, :, 0]) * both[:, :, 1]).reshape(len(tokens), -1)[:, : self.inner]
            y = self.down[e].product(ref.quantize_rows(hidden))
            for row, t in enumerate(tokens):
                for k in order[t][ids[t, order[t]] == e]:
                    out[t] += weights[t, k] * y[row]
        return out.astype(np.float32)

    def __call__(self, x, ids, weights, out=None):
        y = np.full(x.shape, np.nan, np.float32) if out is None else out
        _native.experts_quantized(*quantize(x), ids, weights, *self.stacks, y, out is not None)
        return y


def routes(rng: np.random.Generator, tokens: int, slots: int, experts: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.argsort(rng.random((tokens, experts)), axis=1)[:, :slots].astype(np.int32)
    return np.ascontiguousarray(ids), rng.random((tokens, slots), np.float32)


# A hidden activation near a rounding boundary may fall on its other side: one step of 1/127 in one input.
NEAR = 2e-3


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("experts", "slots", "hidden", "inner"),
    [(7, 3, 96, 40), (16, 4, 130, 130), (1, 1, 64, 300), (5, 5, 33, 7)],
)
def test_experts_equal_twin(bits, experts, slots, hidden, inner):
    rng = np.random.default_rng(bits)
    mlps = MLPs(bits, experts, hidden, inner)
    x = heavy(rng, 70, hidden)
    ids, weights = routes(rng, 70, slots, experts)
    want = mlps.twin(x, ids, weights)
    for isa in ISAS:
        with running(isa):
            for rows in (1, 2, 5, 8, 29, 70):
                got = mlps(x[:rows], ids[:rows], weights[:rows])
                assert_near(got, want[:rows], NEAR)
                assert np.median(np.abs(got - want[:rows])) <= 1e-6 * np.abs(want).max()
                more = mlps(x[:rows], ids[:rows], weights[:rows], got.copy())
                assert_near(more, 2 * got)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_do_not_depend_on_their_company_nor_on_threads(isa, bits):
    rng = np.random.default_rng(bits)
    mlps = MLPs(bits, 6, 160, 136)
    x = heavy(rng, 1100, 160)
    ids, weights = routes(rng, 1100, 2, 6)
    with running(isa, 1):
        whole = mlps(x, ids, weights)
        for t in range(0, 1100, 97):
            np.testing.assert_array_equal(mlps(x[t : t + 1], ids[t : t + 1], weights[t : t + 1])[0], whole[t])
    for threads in (2, 3):
        with running(isa, threads):
            np.testing.assert_array_equal(mlps(x, ids, weights), whole)
            np.testing.assert_array_equal(mlps(x[:9], ids[:9], weights[:9]), whole[:9])


@pytest.mark.parametrize("isa", ISAS)
def test_skewed_routes(isa):
    """All tokens to the same experts, the others empty; an expert named twice by a token counts twice."""
    rng = np.random.default_rng(2)
    mlps = MLPs(4, 12, 64, 64)
    x = heavy(rng, 300, 64)
    weights = rng.random((300, 2), np.float32)
    for pair in ([3, 8], [11, 11]):
        ids = np.tile(np.array(pair, np.int32), (300, 1))
        with running(isa):
            assert_near(mlps(x, ids, weights), mlps.twin(x, ids, weights), NEAR)


def dense_matrix(w: np.ndarray, dtype: str) -> tuple[Matrix, np.ndarray]:
    """A list of matrices in a dense type, and what they hold."""
    if dtype == "fp32":
        return Matrix.dense(list(w), dtype), w
    bits = ref.bf16_bits(w) if dtype == "bf16" else w.astype(np.float16).view(np.uint16)
    held = ref.from_bf16(bits) if dtype == "bf16" else bits.view(np.float16).astype(np.float32)
    return Matrix.dense(list(bits), dtype), held


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(("hidden", "inner"), [(33, 7), (64, 40), (300, 130)])
def test_experts_dense_equal_twin(isa, dtype, hidden, inner):
    rng = np.random.default_rng(inner)
    gate, up = (
        rng.standard_normal((5, inner, hidden)).astype(np.float32) / np.sqrt(hidden) for _ in range(2)
    )
    down = rng.standard_normal((5, hidden, inner)).astype(np.float32)
    x = heavy(rng, 70, hidden)
    ids, weights = routes(rng, 70, 2, 5)
    (g, gate), (u, up), (d, down) = (dense_matrix(w.astype(np.float32), dtype) for w in (gate, up, down))
    want = ref.experts_dense(x, ids, weights, gate, up, down)
    with running(isa):
        for rows in (1, 7, 70):
            out = np.full((rows, hidden), np.nan, np.float32)
            _native.experts_dense(x[:rows], ids[:rows], weights[:rows], g, u, d, out)
            assert_near(out, want[:rows], 2e-6)
            _native.experts_dense(x[:rows], ids[:rows], weights[:rows], g, u, d, out, True)
            assert_near(out, 2 * want[:rows], 2e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 33), (16, 256), (40, 257), (100, 700)])
def test_linear_dense_equals_twin(isa, dtype, n, k):
    rng = np.random.default_rng(n * k)
    matrix, w = dense_matrix(rng.standard_normal((1, n, k)).astype(np.float32), dtype)
    x = heavy(rng, 100, k)
    want = ref.linear_dense(x, w[0])
    with running(isa, 1):
        out = np.full((100, n + 3), np.nan, np.float32)
        _native.linear_dense(x, matrix, out, 2)
        assert_near(out[:, 2 : 2 + n], want, 2e-6)
        assert np.isnan(out[:, :2]).all() and np.isnan(out[:, 2 + n :]).all()
        whole = out[:, 2 : 2 + n].copy()
    for threads in (2, 3):
        with running(isa, threads):
            for rows in (1, 2, 5, 13, 100):
                out = np.zeros((rows, n), np.float32)
                _native.linear_dense(x[:rows], matrix, out)
                np.testing.assert_array_equal(out, whole[:rows])
                _native.linear_dense(x[:rows], matrix, out, accumulate=True)
                assert_near(out, 2 * want[:rows], 2e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_linear_heads_dense(isa, dtype):
    rng = np.random.default_rng(4)
    matrix, w = dense_matrix(rng.standard_normal((3, 20, 45)).astype(np.float32), dtype)
    x = heavy(rng, 9, 3, 45)
    with running(isa):
        out = np.full((9, 3, 20), np.nan, np.float32)
        _native.linear_heads_dense(x, matrix, out)
        for h in range(3):
            assert_near(out[:, h], ref.linear_dense(x[:, h], w[h]), 2e-6)


def test_wrong_routes_and_shapes_are_refused():
    mlps = MLPs(4, 3, 32, 32)
    x = np.ones((2, 32), np.float32)
    ids, weights = np.zeros((2, 1), np.int32), np.ones((2, 1), np.float32)
    for bad in (-1, 3):
        ids[1, 0] = bad
        with pytest.raises(ValueError, match=f"ids: expected 0 to 2, got {bad}"):
            mlps(x, ids, weights)
    ids[1, 0] = 0
    for args, message in [
        ((x, ids[:1].copy(), weights), r"ids: expected \[2, k\]"),
        ((x, ids, np.ones((2, 2), np.float32)), r"weights: expected shape \[2, 1\]"),
        ((x, ids, weights, np.zeros((2, 31), np.float32)), r"out: expected shape \[2, 32\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            mlps(*args)
    narrow = Weights.random(4, 32, 20, np.random.default_rng(0)).matrix
    with pytest.raises(ValueError, match="48 rows"):
        _native.experts_quantized(
            *quantize(x), ids, weights, mlps.stacks[0], narrow, np.zeros((2, 32), np.float32)
        )
