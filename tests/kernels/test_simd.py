"""The vector operations that all kernels are made of."""

import numpy as np
import pytest

from mindnano import _native
from mindnano.kernels.reference import elementwise as ref

from .guard import at_page_end
from .products import ISAS, running


@pytest.fixture(params=ISAS, autouse=True)
def every_isa(request):
    with running(request.param):
        yield


def apply(name: str, x: np.ndarray) -> np.ndarray:
    y = np.full(x.shape, np.nan, np.float32)
    _native.apply(name, x, y)
    return y


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float((np.abs(got - want) / np.abs(want)).max())


GRID = np.linspace(-87.3, 88.3, 2_000_003).astype(np.float32)


def test_exp():
    error = relative(apply("exp", GRID), np.exp(GRID.astype(np.float64)))
    print(f"exp: {error:.2e}")
    assert error < 2e-7


def test_exp_outside_its_range():
    x = np.array([-np.inf, -1e30, -90, 90, 1e30, np.inf, np.nan, 0, -0.0], np.float32)
    y = apply("exp", x)
    assert (y[:3] < 1.2e-38).all() and (y[:3] >= 0).all()
    assert np.isfinite(y[3:6]).all() and (y[3:6] > 2e38).all()
    assert np.isnan(y[6]) and (y[7:] == 1).all()


@pytest.mark.parametrize(("name", "limit"), [("sigmoid", 4e-7), ("silu", 4e-7), ("softplus", 4e-7)])
def test_functions_of_exp(name, limit):
    x = np.concatenate([GRID[np.abs(GRID) > 1e-30], [1e-6, -1e-6, 1e-20]]).astype(np.float32)
    error = relative(apply(name, x), getattr(ref, name)(x.astype(np.float64)))
    print(f"{name}: {error:.2e}")
    assert error < limit
    assert np.isnan(apply(name, np.array([np.nan], np.float32))[0])


def test_from_half_over_all_patterns():
    bits = np.arange(65536, dtype=np.uint16).reshape(-1, 8)
    out = np.empty(bits.shape, np.float32)
    for dtype in ("bf16", "fp16"):
        _native.embed(np.arange(len(bits)), bits, None, dtype, out)
        want = ref.embed(np.arange(len(bits)), bits, None, dtype)
        nan = np.isnan(want)
        np.testing.assert_array_equal(np.isnan(out), nan)
        np.testing.assert_array_equal(out.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_to_half(dtype):
    """All values that have a half, all midpoints between two, their neighbours, and the ends."""
    bits = np.arange(65536, dtype=np.uint16)
    exact = ref.embed(np.zeros(1, np.int64), bits[None], None, dtype)[0]
    exact = exact[np.isfinite(exact)]
    middle = (exact.astype(np.float64) + np.roll(exact, -1)) / 2
    x = np.concatenate(
        [exact, middle.astype(np.float32), [np.inf, -np.inf, 65519.99, 65520, 65536, 3e38, 1e-45]]
    )
    x = x.astype(np.float32)
    with np.errstate(over="ignore"):
        x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    got = np.full(x.shape, 0x7A7A, np.uint16)
    for start in (0, 3):  # vectors, and a tail of scalars
        _native.to_half(x[start:], dtype, got[start:])
        np.testing.assert_array_equal(got[start:], ref.to_half(x[start:], dtype))
    nan = np.array([np.nan, -np.nan] * 9, np.float32)
    out = np.zeros(18, np.uint16)
    _native.to_half(nan, dtype, out)
    assert np.isnan(ref.embed(np.zeros(1, np.int64), out[None], None, dtype)).all()


@pytest.mark.parametrize("n", range(1, 18))
def test_partial_vectors_stop_at_the_end(n):
    """Loads and stores of a vector's first lanes, in memory that ends there; nothing before is written."""
    x = at_page_end(np.arange(n, dtype=np.float32))
    y = at_page_end(np.full(n + 5, 7, np.float32))
    _native.apply("silu", x, y[5:])
    np.testing.assert_allclose(y[5:], ref.silu(x.astype(np.float64)), rtol=1e-6)
    assert (y[:5] == 7).all()
    for dtype in ("bf16", "fp16", "int8", "fp32"):
        table = at_page_end(np.ones((3, n), {"int8": np.int8, "fp32": np.float32}.get(dtype, np.uint16)))
        out = at_page_end(np.zeros((1, n), np.float32))
        scales = np.full(3, 2, np.float32) if dtype == "int8" else None
        _native.embed(np.array([2]), table, scales, dtype, out)
        np.testing.assert_array_equal(out, ref.embed(np.array([2]), table, scales, dtype))
