"""Rope and the cache writers against their NumPy twins."""

import numpy as np
import pytest

from mindnano import _native
from mindnano.kernels import ExpandedKV, LatentKV, expanded_write, latent_write, rope_inplace
from mindnano.kernels.reference import mla as ref

from .caches import FORMATS, Expanded, Latent
from .products import ISAS, assert_near, heavy, running

THETA = 6e6


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("tokens", "heads", "width", "dims"), [(1, 1, 8, 8), (33, 3, 24, 16), (17, 16, 192, 64)]
)
def test_rope(isa: str, tokens: int, heads: int, width: int, dims: int) -> None:
    rng = np.random.default_rng(1)
    x = heavy(rng, tokens, heads, width)
    positions = rng.integers(0, 200_000, tokens)
    want = ref.rope(x, positions, dims, THETA)
    kept = x[..., : width - dims].copy()
    with running(isa):
        rope_inplace(x, positions, dims, THETA)
    assert (x[..., : width - dims] == kept).all()
    assert_near(x, want, 2e-7)


@pytest.mark.parametrize("isa", ISAS)
def test_rope_rounds_each_product(isa: str) -> None:
    """No product is fused with a sum, whatever the compiler finds: the bits are the same on every instruction set."""
    rng = np.random.default_rng(4)
    positions = rng.integers(0, 200_000, 50)
    x, unit = heavy(rng, 50, 3, 40), np.zeros((50, 3, 40), np.float32)
    unit[..., -24::2] = 1  # (1, 0) turns into (cosine, sine)
    a, b = x[..., -24::2].copy(), x[..., -23::2].copy()
    with running(isa):
        rope_inplace(unit, positions, 24, THETA)
        rope_inplace(x, positions, 24, THETA)
    c, s = unit[..., -24::2], unit[..., -23::2]
    np.testing.assert_array_equal(x[..., -24::2], a * c - b * s)
    np.testing.assert_array_equal(x[..., -23::2], a * s + b * c)


def test_rope_without_rotation() -> None:
    x = heavy(np.random.default_rng(1), 5, 2, 16)
    before = x.copy()
    rope_inplace(x, np.arange(5), 8, 0.0)
    rope_inplace(x, np.arange(5), 0, THETA)
    assert (x == before).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("tokens", "rank", "dims", "theta"),
    [(1, 32, 8, THETA), (37, 48, 16, THETA), (20, 512, 64, THETA), (9, 512, 64, 0.0), (5, 144, 0, 0.0)],
)
def test_latent_write(isa: str, format: str, tokens: int, rank: int, dims: int, theta: float) -> None:
    rng = np.random.default_rng(2)
    column, start, capacity = 24, 7, tokens + 11
    kv_a = heavy(rng, tokens, column + rank + dims + 3)
    weight = rng.uniform(0.5, 2, rank).astype(np.float32)
    positions = np.arange(start, start + tokens) + 70_000
    cache = Latent.of(format, np.zeros((0, rank), np.float32), np.zeros((0, dims), np.float32), capacity)
    with running(isa):
        latent_write(kv_a, column, weight, 1e-6, theta, positions, cache.view, start)
    c, rope = ref.latent_rows(kv_a[:, column : column + rank + dims], weight, 1e-6, theta, positions)
    latents, scales, ropes = cache.arrays
    rows = slice(start, start + tokens)
    if dims:
        got = ref.load("bf16" if format == "int8" else format, ropes[rows])
        assert_near(got, rope, {"fp32": 2e-7, "fp16": 6e-4}.get(format, 5e-3))
    if format == "int8":
        assert scales is not None
        q, s = ref.quantize_latent(c)
        np.testing.assert_allclose(scales[rows], s, rtol=1e-6)
        assert np.abs(latents[rows].astype(int) - q).max() <= 1  # a sum's rounding may move a tie
        assert (latents[rows] == q).mean() > 0.999
        assert np.isnan(np.delete(scales, np.r_[rows], 0)).all()
        assert (np.delete(latents, np.r_[rows], 0) == -128).all()
    else:
        assert_near(ref.load(format, latents[rows]), c, {"fp32": 1e-6, "fp16": 6e-4, "bf16": 5e-3}[format])
        assert np.isnan(ref.load(format, np.delete(latents, np.r_[rows], 0))).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("tokens", "heads", "nope", "dims", "v_dims"),
    [(1, 1, 8, 0, 8), (19, 3, 16, 8, 24), (9, 16, 128, 64, 128)],
)
def test_expanded_write(
    isa: str, format: str, tokens: int, heads: int, nope: int, dims: int, v_dims: int
) -> None:
    rng = np.random.default_rng(3)
    start = 5
    kv, rope = heavy(rng, tokens, heads * (nope + v_dims)), heavy(rng, tokens, dims)
    empty = np.zeros((heads, 0, 1), np.float32)
    cache = Expanded.of(format, np.repeat(empty, nope + dims, 2), np.repeat(empty, v_dims, 2), tokens + 9)
    with running(isa):
        expanded_write(kv, rope, cache.view, start)
    k, v = ref.expanded_rows(kv, rope, heads, v_dims)
    got_k, got_v, ks, vs = cache.arrays
    rows = slice(start, start + tokens)
    for got, scales, want in ((got_k, ks, k), (got_v, vs, v)):
        if format == "int8":
            assert scales is not None
            q, s = ref.quantize(want)
            np.testing.assert_array_equal(got[:, rows], q)
            np.testing.assert_array_equal(scales[:, rows], s)
            assert (np.delete(got, np.r_[rows], 1) == -128).all()
        else:
            np.testing.assert_array_equal(got[:, rows], ref.store(format, want))
            assert np.isnan(ref.load(format, np.delete(got, np.r_[rows], 1))).all()


def test_rows_that_cannot_be_quantized() -> None:
    """A zero row has scale 0, a row with an infinity or NaN scale NaN: a wrong number is never silent."""
    kv = np.ones((4, 32), np.float32)
    kv[0], kv[1, 3], kv[2, 20], kv[3] = 0, np.inf, np.nan, 1e-44
    for isa in ISAS:
        cache = Expanded.of("int8", np.zeros((1, 0, 16), np.float32), np.zeros((1, 0, 16), np.float32), 4)
        with running(isa):
            expanded_write(kv, np.zeros((4, 0), np.float32), cache.view, 0)
        _, _, ks, vs = cache.arrays
        assert ks is not None and vs is not None
        assert ks[0, 0] == vs[0, 0] == 0 == ks[0, 3] == vs[0, 3]
        assert np.isnan(ks[0, 1]) and np.isnan(vs[0, 2])
        assert ks[0, 2] > 0 and vs[0, 1] > 0


def test_refusals() -> None:
    f = np.zeros
    c, r = f((4, 32), np.float32), f((4, 8), np.float32)
    with pytest.raises(ValueError, match="int8, got 'q4'"):
        LatentKV("q4", c, None, r)
    with pytest.raises(ValueError, match="latent: expected a writable C-contiguous uint16"):
        LatentKV("bf16", c, None, r)
    with pytest.raises(ValueError, match="scales: only int8"):
        LatentKV("fp32", c, f((4, 1), np.float32), r)
    with pytest.raises(ValueError, match=r"scales: expected float32 \[4, 1\]"):
        LatentKV("int8", f((4, 32), np.int8), f((4, 2), np.float32), f((4, 8), np.uint16))
    with pytest.raises(ValueError, match="multiple of 16, got 40"):
        LatentKV("fp32", f((4, 40), np.float32), None, r)
    with pytest.raises(ValueError, match="rope: expected 4 rows"):
        LatentKV("fp32", c, None, f((5, 8), np.float32))
    readonly = c.copy()
    readonly.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        LatentKV("fp32", readonly, None, r)
    with pytest.raises(ValueError, match="v: expected"):
        ExpandedKV("fp32", f((2, 4, 16), np.float32), f((2, 5, 16), np.float32))
    view = LatentKV("fp32", c, None, r)
    with pytest.raises(ValueError, match="rows 3 to 5 do not fit a cache of 4"):
        latent_write(f((2, 40), np.float32), 0, f(32, np.float32), 1e-6, 0.0, np.arange(2), view, 3)
    with pytest.raises(ValueError, match="column: expected 0 to 0"):
        latent_write(f((2, 40), np.float32), 1, f(32, np.float32), 1e-6, 0.0, np.arange(2), view, 0)
    with pytest.raises(ValueError, match="rope_dims: expected an even number"):
        rope_inplace(f((1, 1, 8), np.float32), np.arange(1), 10, 1.0)
    assert _native.isa() in ISAS
