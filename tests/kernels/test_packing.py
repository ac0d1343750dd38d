"""Packed weights against their NumPy twins, bit for bit."""

import numpy as np
import pytest

from mindnano import _native
from mindnano.kernels import Matrix, packing
from mindnano.kernels.reference import linear as ref

from .products import ISAS, heavy, quantize, running

SHAPES = [(1, 1), (7, 31), (16, 32), (17, 33), (48, 130), (100, 511), (31, 1536)]


@pytest.fixture(params=ISAS, autouse=True)
def every_isa(request):
    with running(request.param):
        yield


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_quantize_w4_equals_twin(rows, cols):
    w = heavy(np.random.default_rng(rows * cols), rows, cols)
    values, scales = ref.quantize_w4(w)
    data = packing.quantize_w4(w, np.full(packing.w4_shape(rows, cols), 0xA5, np.uint8))
    np.testing.assert_array_equal(data, ref.pack_w4(values, scales))
    np.testing.assert_array_equal(data, packing.pack_w4(values, scales))
    back, back_scales = ref.unpack_w4(data, rows, cols)
    np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(ref.bf16_bits(back_scales), scales)
    wide = np.repeat(back_scales, 32, axis=1)[:, :cols]
    np.testing.assert_array_equal(packing.unpack_w4(data, rows, cols), back * wide)


@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_quantize_w8_equals_twin(rows, cols):
    w = heavy(np.random.default_rng(rows * cols), rows, cols)
    values, scales = ref.quantize_w8(w)
    poisoned = (
        np.full(packing.w8_shape(rows, cols), -128, np.int8),
        np.full(-(-rows // 16) * 16, np.nan, np.float32),
    )
    data, padded = packing.quantize_w8(w, poisoned)
    want, want_scales = ref.pack_w8(values, scales)
    np.testing.assert_array_equal(data, want)
    np.testing.assert_array_equal(padded, want_scales)
    again, again_scales = packing.pack_w8(values, scales)
    np.testing.assert_array_equal(again, want)
    np.testing.assert_array_equal(again_scales, want_scales)
    np.testing.assert_array_equal(packing.unpack_w8(data, padded, rows, cols), values * scales[:, None])


def test_error_of_w4_is_what_its_search_should_reach():
    """Gaussian weights: the search must be clearly better than a scale of max / 7."""
    w = np.random.default_rng(1).standard_normal((64, 1024)).astype(np.float32)
    back = packing.unpack_w4(packing.quantize_w4(w), 64, 1024)
    plain = ref.from_bf16(ref.bf16_bits(np.abs(w.reshape(64, 32, 32)).max(-1) / np.float32(7)))[..., None]
    plain = (np.clip(np.rint(w.reshape(64, 32, 32) / plain), -8, 7) * plain).reshape(64, 1024)
    searched, simple = (np.linalg.norm(b - w) / np.linalg.norm(w) for b in (back, plain))
    assert searched < 0.92 * simple


def test_degenerate_groups():
    w = np.zeros((4, 96), np.float32)
    w[1, 5] = 3.0
    w[2, :32] = 1e-42  # its scale would be no normal number: rounds to zero
    w[3, 40] = -9e17
    values, scales = ref.quantize_w4(w)
    data = packing.quantize_w4(w)
    np.testing.assert_array_equal(data, ref.pack_w4(values, scales))
    back = packing.unpack_w4(data, 4, 96)
    assert np.isfinite(back).all()
    assert back[1, 5] == 3.0 and not back[0].any() and not back[2].any()
    back8 = packing.unpack_w8(*packing.quantize_w8(w), 4, 96)
    np.testing.assert_allclose(back8[1, 5], 3.0, rtol=1e-6)
    assert not back8[0].any() and not back8[2].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2e18])
def test_unusable_weights_are_refused(bad):
    w = np.ones((20, 40), np.float32)
    w[17, 39] = bad
    with pytest.raises(ValueError, match="row 17"):
        packing.quantize_w4(w)
    with pytest.raises(ValueError, match="row 17"):
        packing.quantize_w8(w)


def test_out_of_range_values_are_refused():
    with pytest.raises(ValueError, match="-8 to 7, got 8"):
        packing.pack_w4(np.full((1, 32), 8, np.int8), np.zeros((1, 1), np.uint16))
    with pytest.raises(ValueError, match="-127 to 127, got -128"):
        packing.pack_w8(np.full((1, 32), -128, np.int8), np.ones(1, np.float32))


def test_interleave_gate_up():
    gate, up = np.arange(11)[:, None] + np.zeros((1, 3)), 100 + np.arange(11)[:, None] + np.zeros((1, 3))
    rows = packing.interleave_gate_up(gate, up)[:, 1]
    assert rows.tolist() == [*range(8), *range(100, 108), 8, 9, 10, *[0] * 5, 108, 109, 110, *[0] * 5]


@pytest.mark.parametrize("cols", [1, 31, 32, 100, 128, 129, 1536])
@pytest.mark.parametrize("rows", [1, 3, 50])
def test_quantize_rows_equals_twin(rows, cols):
    rng = np.random.default_rng(cols)
    x = heavy(rng, rows, cols) * 10 ** rng.uniform(-3, 3, (rows, 1)).astype(np.float32)
    x[0, : min(cols, 128)] = 0
    for got, want in zip(quantize(x), ref.quantize_rows(x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_quantize_rows_ties_go_to_even_and_extremes_to_127():
    x = np.zeros((1, 128), np.float32)
    x[0, :8] = [127, -127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]
    q, scales, _ = quantize(x)
    assert scales[0, 0] == 1
    assert q[0, :8].tolist() == [127, -127, 0, 2, 2, 0, -2, -2]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_activations_that_are_not_finite_stay_visible(bad):
    x = np.ones((2, 256), np.float32)
    x[1, 200] = bad
    q, scales, _ = quantize(x)
    assert np.isnan(scales[1, 1]) and np.isfinite(scales[0]).all() and np.isfinite(scales[1, 0])
    assert not q[1, 128:].any()


def test_matrix_describes_itself_and_refuses_wrong_shapes():
    m = Matrix.w4(np.zeros((3, 2, 2, 288), np.uint8), 20, 64)
    assert (m.rows, m.cols, m.count, m.format, m.nbytes) == (20, 64, 3, "w4", 3 * 2 * 2 * 288)
    m = Matrix.dense([np.zeros((5, 7), np.uint16)] * 2, "bf16")
    assert (m.rows, m.cols, m.count, m.format, m.nbytes) == (5, 7, 2, "bf16", 2 * 70)

    def u8(shape):
        return np.zeros(shape, np.uint8)

    def f32(shape):
        return np.zeros(shape, np.float32)

    for make, message in [
        (lambda: Matrix.w4(u8((2, 2, 287)), 20, 64), r"data: expected shape .*2, 2, 288\], got \[2, 2, 287"),
        (lambda: Matrix.w8(u8((2, 16, 64)).view(np.int8), f32(31), 20, 64), r"scales: expected shape \[32"),
        (lambda: Matrix.dense(np.zeros((5, 7), np.float64), "fp32"), "float32"),
        (lambda: Matrix.dense(f32((5, 7)), "fp8"), "'fp8'"),
        (lambda: Matrix.dense([f32((5, 7)), f32((5, 8))], "fp32"), r"\[5, 7\]"),
        (lambda: Matrix.dense([], "fp32"), "at least one"),
        (lambda: Matrix.w4(u8((0, 0, 288)), 0, 0), "at least 1"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            make()


def test_matrix_keeps_its_arrays():
    values = np.random.default_rng(0).integers(-127, 128, (16, 32), dtype=np.int8)
    m = Matrix.w8(*packing.pack_w8(values, np.ones(16, np.float32)), 16, 32)
    junk = [np.full((1, 8, 64), 99, np.int8) for _ in range(64)]
    x = np.eye(32, dtype=np.float32)
    out = np.empty((32, 16), np.float32)
    _native.linear_quantized(*quantize(x), m, out)
    np.testing.assert_allclose(out, values.T, rtol=1e-6)
    assert len(junk) == 64
