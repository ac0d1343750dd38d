"""Products with W4 and W8 weights against their NumPy twins."""

import numpy as np
import pytest

from mindnano import _native
from mindnano.kernels import Matrix
from mindnano.kernels.reference import linear as ref

from .products import ISAS, Weights, assert_near, heavy, quantize, running

SHAPES = [(1, 1), (5, 33), (16, 128), (17, 160), (40, 96), (100, 513), (66, 1536)]  # N, K
ROWS = [1, 2, 3, 4, 5, 6, 7, 12, 13, 23, 64, 70]


def product(x: np.ndarray, w: Weights) -> np.ndarray:
    out = np.full((len(x), w.matrix.rows), np.nan, np.float32)
    _native.linear_quantized(*quantize(x), w.matrix, out)
    return out


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_product_equals_twin(bits, n, k):
    rng = np.random.default_rng(n * k + bits)
    w = Weights.random(bits, n, k, rng)
    x = heavy(rng, max(ROWS), k)
    want = w.product(ref.quantize_rows(x))
    for isa in ISAS:
        with running(isa):
            for rows in ROWS:
                assert_near(product(x[:rows], w), want[:rows])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_do_not_depend_on_their_company_nor_on_threads(isa, bits):
    rng = np.random.default_rng(bits)
    w = Weights.random(bits, 200, 700, rng)
    x = heavy(rng, 300, 700)
    with running(isa, 1):
        alone = np.concatenate([product(x[t : t + 1], w) for t in range(0, 300, 29)])
        whole = product(x, w)
    np.testing.assert_array_equal(alone, whole[::29])
    for threads in (2, 3):
        with running(isa, threads):
            for rows in (1, 4, 300):
                np.testing.assert_array_equal(product(x[:rows], w), whole[:rows])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 4, 5, 6, 17])
@pytest.mark.parametrize("sign", [1, -1, 0])
def test_integer_sums_are_exact_at_the_extremes(isa, rows, sign):
    """+-127 against the ends of both weight ranges everywhere (0: signs in turns): no sum may saturate."""
    k, n = 512, 32
    turns = np.where(np.arange(k) % 3 == 0, -1, 1).astype(np.float32)
    x = np.full((rows, k), 127.0, np.float32) * (turns if sign == 0 else sign)
    with running(isa):
        for low, high in [(-8, 7), (7, -8), (-8, -8), (7, 7)]:
            values = np.where(turns > 0, high, low)[None].repeat(n, 0).astype(np.int8)
            w4 = Weights(4, values, np.full((n, k // 32), 0x3F80, np.uint16))
            np.testing.assert_array_equal(product(x, w4), (x @ values.T.astype(np.float32)))
        for low, high in [(-127, 127), (127, -127), (-127, -127), (127, 127)]:
            values = np.where(turns > 0, high, low)[None].repeat(n, 0).astype(np.int8)
            w8 = Weights(8, values, np.ones(n, np.float32))
            np.testing.assert_array_equal(product(x, w8), (x @ values.T.astype(np.float32)))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, 33])
def test_column_and_accumulate(bits, rows):
    rng = np.random.default_rng(3)
    w = Weights.random(bits, 37, 64, rng)
    x = heavy(rng, rows, 64)
    want = w.product(ref.quantize_rows(x))
    for isa in ISAS:
        with running(isa):
            out = np.full((rows, 50), 7.0, np.float32)
            _native.linear_quantized(*quantize(x), w.matrix, out, 9)
            assert_near(out[:, 9:46], want)
            assert (out[:, :9] == 7).all() and (out[:, 46:] == 7).all()
            _native.linear_quantized(*quantize(x), w.matrix, out, column=9, accumulate=True)
            assert_near(out[:, 9:46], 2 * want)
            assert (out[:, :9] == 7).all() and (out[:, 46:] == 7).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("tokens", [1, 3, 9])
def test_heads(bits, tokens):
    rng = np.random.default_rng(5)
    heads, n, k = 3, 50, 70
    parts = [Weights.random(bits, n, k, rng) for _ in range(heads)]
    arrays = [np.stack(a) for a in zip(*(p.arrays for p in parts), strict=True)]
    matrix = (Matrix.w4 if bits == 4 else Matrix.w8)(*arrays, n, k)
    x = heavy(rng, tokens, heads, k)
    for isa in ISAS:
        with running(isa):
            out = np.full((tokens, heads, n), np.nan, np.float32)
            _native.linear_heads(*quantize(x.reshape(-1, k)), matrix, out)
            for h in range(heads):
                assert_near(out[:, h], parts[h].product(ref.quantize_rows(x[:, h])))


def test_relative_error_of_each_format():
    """Bounds that a wrong scale, a dropped group or a swapped layout would break."""
    rng = np.random.default_rng(11)
    w = rng.standard_normal((256, 1536)).astype(np.float32)
    for x, limits in [
        (rng.standard_normal((64, 1536)).astype(np.float32), {4: 0.115, 8: 0.016}),
        (heavy(rng, 64, 1536), {4: 0.115, 8: 0.03}),
    ]:
        want = ref.linear_dense(x, w)
        for bits, limit in limits.items():
            q = Weights(bits, *(ref.quantize_w4(w) if bits == 4 else ref.quantize_w8(w)))
            error = np.linalg.norm(product(x, q) - want) / np.linalg.norm(want)
            print(f"W{bits}: {error:.4f}")
            assert limit / 3 < error < limit


def test_wrong_shapes_are_refused():
    w = Weights.random(4, 20, 64, np.random.default_rng(0))
    q, scales, pairs = quantize(np.ones((2, 64), np.float32))
    out = np.zeros((2, 20), np.float32)
    for args, message in [
        ((q[:, :32].copy(), scales, pairs, w.matrix, out), r"q: expected \[T, 64\]"),
        ((q, scales[:1].copy(), pairs, w.matrix, out), r"scales: expected shape \[2, 1\]"),
        ((q, scales, pairs[:, :1].copy(), w.matrix, out), r"pairs: expected shape \[2, 2, 2\]"),
        ((q, scales, pairs, w.matrix, out[:1].copy()), r"out: expected \[2, W\]"),
        ((q, scales, pairs, w.matrix, out, 1), "column"),
        ((q, scales, pairs, w.matrix, out, -1), "column"),
        ((q, scales, pairs, Matrix.dense(np.zeros((20, 64), np.float32), "fp32"), out), "W4 or W8"),
    ]:
        with pytest.raises(ValueError, match=message):
            _native.linear_quantized(*args)
    with pytest.raises(TypeError):
        _native.linear_quantized(q, scales, pairs, w.matrix, out.astype(np.float64))
