"""Norms, gates, the embedding, and what sampling asks of the logits, against their NumPy twins."""

import numpy as np
import pytest

from mindnano import _native, kernels
from mindnano.kernels.reference import elementwise as ref

from .products import ISAS, assert_near, heavy, running


@pytest.fixture(params=ISAS, autouse=True)
def every_isa(request):
    with running(request.param):
        yield


@pytest.mark.parametrize("rows", [1, 3, 65])
@pytest.mark.parametrize("width", [1, 7, 8, 31, 128, 1536])
def test_rms_norm(rows, width):
    rng = np.random.default_rng(width)
    x, weight = heavy(rng, rows, width), heavy(rng, width)
    y = np.full_like(x, np.nan)
    _native.rms_norm(x, weight, y, 1e-6)
    assert_near(y, ref.rms_norm(x, weight, 1e-6))
    _native.rms_norm(x, weight, x, 1e-6)
    np.testing.assert_array_equal(x, y)


def test_rms_norm_of_tiny_rows_depends_on_eps():
    x = np.full((2, 16), 1e-4, np.float32)
    weight = np.ones(16, np.float32)
    for eps in (1e-5, 1e-6):
        y = np.empty_like(x)
        _native.rms_norm(x, weight, y, eps)
        np.testing.assert_allclose(y, ref.rms_norm(x, weight, eps), rtol=1e-6)


@pytest.mark.parametrize(("heads", "dim"), [(1, 1), (3, 20), (16, 128)])
def test_head_gate(heads, dim):
    rng = np.random.default_rng(dim)
    o, gate = heavy(rng, 5, heads, dim), 4 * heavy(rng, 5, heads)
    want = ref.head_gate(o, gate)
    _native.head_gate(o, gate)
    assert_near(o, want)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "int8"])
@pytest.mark.parametrize("width", [1, 9, 64])
def test_embed(dtype, width):
    rng = np.random.default_rng(width)
    scales = None
    if dtype == "fp32":
        table = heavy(rng, 50, width)
    elif dtype == "int8":
        table, scales = rng.integers(-128, 128, (50, width), dtype=np.int8), rng.random(50, np.float32)
    else:
        table = ref.to_half(heavy(rng, 50, width), dtype)
    ids = np.array([0, 49, 7, 7])
    out = np.full((4, width), np.nan, np.float32)
    _native.embed(ids, table, scales, dtype, out)
    np.testing.assert_array_equal(out, ref.embed(ids, table, scales, dtype))


def test_embed_refuses_what_is_outside():
    table, out = np.zeros((5, 8), np.float32), np.zeros((1, 8), np.float32)
    for bad in (-1, 5, 2**40):
        with pytest.raises(ValueError, match=f"ids: {bad} is outside 0..4"):
            _native.embed(np.array([bad]), table, None, "fp32", out)
    for args, message in [
        ((np.array([0]), table, None, "bf16", out), "element type"),
        ((np.array([0]), table, None, "int4", out), "dtype: expected"),
        ((np.array([0]), table.astype(np.int8), None, "int8", out), "scales"),
        (
            (np.array([0]), table.astype(np.int8), np.ones(4, np.float32), "int8", out),
            r"scales: expected shape \[5\]",
        ),
        ((np.array([0, 1]), table, None, "fp32", out), r"out: expected shape \[2, 8\]"),
    ]:
        with pytest.raises(ValueError, match=message):
            _native.embed(*args)


@pytest.mark.parametrize(
    ("count", "n"), [(1, 1), (1, 0), (70, 70), (1000, 20), (157184, 1), (157184, 20), (40000, 3000)]
)
def test_top_logits(count, n):
    logits = heavy(np.random.default_rng(count + n), count)
    ids, values = kernels.top_logits(logits, n)
    want_ids, want = ref.top_logits(logits, n)
    np.testing.assert_array_equal(ids, want_ids)
    np.testing.assert_array_equal(values, want)


def test_top_logits_orders_ties_by_id_and_puts_nan_last():
    rng = np.random.default_rng(0)
    logits = rng.integers(0, 4, 50_000).astype(np.float32)
    logits[rng.random(50_000) < 0.1] = np.nan
    logits[rng.random(50_000) < 0.1] = -np.inf
    for n in (1, 7, 500, 50_000):
        ids, values = kernels.top_logits(logits, n)
        want_ids, want = ref.top_logits(logits, n)
        np.testing.assert_array_equal(ids, want_ids)
        np.testing.assert_array_equal(values, want)
    with pytest.raises(ValueError, match="at most 3"):
        kernels.top_logits(np.zeros(3, np.float32), 4)


@pytest.mark.parametrize("count", [1, 9, 16384, 16385, 157184])
def test_logsumexp(count):
    rng = np.random.default_rng(count)
    for shift in (0, 1000, -1000):
        logits = 5 * heavy(rng, count) + np.float32(shift)
        want = ref.logsumexp(logits)
        assert abs(kernels.logsumexp(logits) - want) < 1e-6 * max(1, abs(want))


def test_logsumexp_at_the_ends():
    x = np.zeros(20_000, np.float32)
    x[:] = -np.inf
    assert kernels.logsumexp(x) == -np.inf
    x[3] = 2
    assert abs(kernels.logsumexp(x) - 2) < 1e-6
    x[19_999] = np.inf
    assert kernels.logsumexp(x) == np.inf
    x[5] = np.nan
    assert np.isnan(kernels.logsumexp(x))
