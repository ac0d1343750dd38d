"""Prefill attention over an expanded history, and the expansion, against their NumPy twins."""

from itertools import pairwise

import numpy as np
import pytest

from mindnano.kernels import HeadHistory, Matrix
from mindnano.kernels.reference import linear as linear_ref
from mindnano.kernels.reference import mla as ref

from .caches import FORMATS, Expanded, Latent
from .products import ISAS, Weights, assert_near, heavy, running

ROUNDING = {"fp32": 0.0, "bf16": 2.0**-8, "fp16": 2.0**-11}


def attend(
    history: HeadHistory, q: np.ndarray, start: int, scale: float, v_dims: int, parts: int = 1
) -> np.ndarray:
    out = np.full((*q.shape[:2], v_dims), np.nan, np.float32)
    cuts = np.linspace(0, len(q), parts + 1).astype(int)
    for begin, end in pairwise(cuts):
        seconds = history.attend(q, start, begin, end, scale, out)
        assert len(seconds) == 3 and min(seconds) >= 0
    return out


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("start", "tokens", "heads", "nope", "dims", "v_dims"),
    [
        (0, 1, 1, 8, 0, 8),
        (0, 70, 2, 16, 8, 24),
        (5, 3, 3, 24, 16, 8),
        (500, 100, 2, 56, 16, 40),
        (1000, 49, 1, 128, 64, 128),
        (0, 700, 1, 40, 8, 16),
    ],
)
def test_attend(
    isa: str, format: str, start: int, tokens: int, heads: int, nope: int, dims: int, v_dims: int
) -> None:
    rng = np.random.default_rng(8)
    length = start + tokens
    k, v = heavy(rng, heads, length, nope + dims), heavy(rng, heads, length, v_dims)
    cache = Expanded.of(format, k, v, length + 9)
    q = heavy(rng, tokens, heads, nope + dims)
    scale = 0.4 / np.sqrt(nope + dims)
    with running(isa):
        history = HeadHistory(format, heads, nope, dims, v_dims)
        history.load_expanded(cache.view, length, 0, heads)
        got = attend(history, q, start, scale, v_dims)
    exact = ref.attend(q, cache.k, cache.v, start, scale)
    if format == "int8":
        twin = ref.attend_int8(q, *cache.quantized(length), start, scale)
        # An e^x that rounds the other way may move a P by 1 of 127 at a tie.
        assert_near(got, twin, 2e-3)
        assert np.abs(got - twin).mean() <= 2e-5 * np.abs(twin).max()
        assert_near(got, exact, 0.05)
    else:
        assert_near(got, exact, 4e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
def test_attend_in_any_split(isa: str, format: str) -> None:
    """Bit-equal for 1, 2 and 3 threads, any split of rows and any grouping of heads."""
    rng = np.random.default_rng(9)
    start, tokens, heads, v_dims = 450, 230, 3, 24
    length = start + tokens
    cache = Expanded.of(format, heavy(rng, heads, length, 32), heavy(rng, heads, length, v_dims), length)
    q = heavy(rng, tokens, heads, 32)
    results = []
    for threads, parts, group in ((1, 1, 3), (2, 3, 1), (3, 7, 2)):
        with running(isa, threads):
            history = HeadHistory(format, heads, 24, 8, v_dims)
            out = np.full((tokens, heads, v_dims), np.nan, np.float32)
            for head in range(0, heads, group):
                count = min(group, heads - head)
                history.load_expanded(cache.view, length, head, count)
                mine = slice(head, head + count)
                out[:, mine] = attend(history, q, start, 0.1, v_dims, parts)[:, mine]
        results.append(out)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("sign", [1, -1])
def test_attend_extremes(isa: str, sign: int) -> None:
    """+-127 everywhere: no sum saturates or wraps, and P of 127 for every key is averaged exactly."""
    length, tokens, dims = 600, 50, 192
    k = np.where(np.arange(length)[:, None] % 2, -127.0, 127.0) * np.ones(dims)
    v = np.broadcast_to(np.where(np.arange(128) % 2, -127.0, 127.0), (length, 128))
    cache = Expanded.of("int8", k[None].astype(np.float32), v[None].astype(np.float32), length)
    q = np.full((tokens, 1, dims), 127.0 * sign, np.float32)
    with running(isa):
        history = HeadHistory("int8", 1, 128, 64, 128)
        history.load_expanded(cache.view, length, 0, 1)
        flat = attend(history, q, length - tokens, 0.0, 128)
        sharp = attend(history, q, length - tokens, 1e-6, 128)
    assert_near(flat[:, 0], np.broadcast_to(cache.v[0, 0], (tokens, 128)), 1e-5)
    twin = ref.attend_int8(q, *cache.quantized(length), length - tokens, 1e-6)
    assert_near(sharp, twin, 1e-5)


def test_attend_far_scores() -> None:
    """Scores hundreds apart between tiles: no NaN, the far keys vanish."""
    rng = np.random.default_rng(10)
    length = 1100
    k = np.zeros((1, length, 8), np.float32)
    k[0, :512, 0], k[0, 512:1024, 0], k[0, 1024:, 0] = -400, 300, -50
    v = heavy(rng, 1, length, 16)
    q = np.zeros((20, 1, 8), np.float32)
    q[..., 0] = 1
    for isa in ISAS:
        for format in FORMATS:
            cache = Expanded.of(format, k, v, length)
            with running(isa):
                history = HeadHistory(format, 1, 8, 0, 16)
                history.load_expanded(cache.view, length, 0, 1)
                got = attend(history, q, length - 20, 1.0, 16)
            want = ref.attend(q, cache.k, cache.v, length - 20, 1.0)
            assert_near(got, want, 0.03 if format == "int8" else 4e-6)


def kv_b_of(kind: str, rng: np.random.Generator, rows: int, rank: int) -> tuple[Matrix, np.ndarray]:
    """A projection in one form, and its values."""
    if kind == "w8":
        w = Weights.random(8, rows, rank, rng)
        return w.matrix, (w.values * w.scales[:, None]).astype(np.float32)
    values = ref.store(kind, heavy(rng, rows, rank) / np.float32(np.sqrt(rank)))
    return Matrix.dense(values, kind), ref.load(kind, values)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["w8", "fp32", "bf16", "fp16"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("length", "heads", "rank", "nope", "dims", "v_dims"),
    [(1, 1, 32, 8, 8, 8), (70, 3, 48, 24, 16, 8), (530, 2, 144, 16, 0, 40), (100, 2, 512, 128, 64, 128)],
)
def test_expansion(
    isa: str, kind: str, format: str, length: int, heads: int, rank: int, nope: int, dims: int, v_dims: int
) -> None:
    """Attention over a history expanded from the latent, read through queries that single out K and V."""
    rng = np.random.default_rng(11)
    cache = Latent.of(format, heavy(rng, length, rank), heavy(rng, length, dims), length + 3)
    kv_b, weights = kv_b_of(kind, rng, heads * (nope + v_dims), rank)
    latent = cache.latent
    if kind == "w8" and format != "int8":  # rows are quantized on the way into the product
        latent = ref.dequantize_latent(*ref.quantize_latent(latent))
    k, v = ref.expand(latent, cache.rope, weights, heads, v_dims)
    q = heavy(rng, min(length, 60), heads, nope + dims)
    start, scale = length - len(q), 0.4 / np.sqrt(nope + dims)
    with running(isa):
        history = HeadHistory(format, heads, nope, dims, v_dims)
        got = np.full((len(q), heads, v_dims), np.nan, np.float32)
        for head in range(heads):
            history.load_latent(cache.view, length, head, 1, kv_b)
            history.attend(q, start, 0, len(q), scale, got)
    if format == "int8":
        # A K or V on the border of two integers may fall either way: one step of one value, rarely.
        twin = ref.attend_int8(q, ref.quantize(k), ref.quantize(v), start, scale)
        assert_near(got, twin, 8e-3)
        assert np.abs(got - twin).mean() <= 1e-4 * np.abs(twin).max()
    kept = [ref.load(format, ref.store(format, x)) if format in ("bf16", "fp16") else x for x in (k, v)]
    exact = ref.attend(q, *kept, start, scale)
    assert_near(got, exact, {"fp32": 1e-5, "bf16": 2e-3, "fp16": 3e-4, "int8": 0.06}[format])


@pytest.mark.parametrize("isa", ISAS)
def test_formats_may_differ(isa: str) -> None:
    """A history in one format from a cache in another."""
    rng = np.random.default_rng(12)
    k, v, q = heavy(rng, 2, 90, 24), heavy(rng, 2, 90, 16), heavy(rng, 30, 2, 24)
    for cache_format in FORMATS:
        cache = Expanded.of(cache_format, k, v, 90)
        for format in FORMATS:
            with running(isa):
                history = HeadHistory(format, 2, 24, 0, 16)
                history.load_expanded(cache.view, 90, 0, 2)
                got = attend(history, q, 60, 0.1, 16)
            want = ref.attend(q, cache.k, cache.v, 60, 0.1)
            assert_near(got, want, {"fp32": 4e-6, "bf16": 1e-2, "fp16": 1e-3, "int8": 0.05}[format])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["fp32", "w8"])
@pytest.mark.parametrize("format", FORMATS)
def test_expansion_threads(isa: str, kind: str, format: str) -> None:
    rng = np.random.default_rng(13)
    cache = Latent.of(format, heavy(rng, 200, 48), heavy(rng, 200, 8), 200)
    kv_b, _ = kv_b_of(kind, rng, 3 * 40, 48)
    q = heavy(rng, 60, 3, 32)
    results = []
    for threads, group in ((1, 3), (2, 1), (3, 2)):
        with running(isa, threads):
            history = HeadHistory(format, 3, 24, 8, 16)
            out = np.full((60, 3, 16), np.nan, np.float32)
            for head in range(0, 3, group):
                history.load_latent(cache.view, 200, head, min(group, 3 - head), kv_b)
                history.attend(q, 140, 0, 60, 0.1, out)
        results.append(out)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_int8_error_on_heavy_tails() -> None:
    """What 8 bits cost, on values with outliers: printed, and bounded so that a wrong scale would show."""
    rng = np.random.default_rng(14)
    heads, length, tokens = 4, 2000, 100
    k, v, q = heavy(rng, heads, length, 192), heavy(rng, heads, length, 128), heavy(rng, tokens, heads, 192)
    scale = 0.5 / np.sqrt(192)
    exact = ref.attend(q, k, v, length - tokens, scale)
    for format, bound in (("bf16", 0.006), ("fp16", 0.0008), ("int8", 0.08)):
        cache = Expanded.of(format, k, v, length)
        history = HeadHistory(format, heads, 128, 64, 128)
        history.load_expanded(cache.view, length, 0, heads)
        got = attend(history, q, length - tokens, scale, 128)
        error = np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2))
        print(f"prefill attention, {format}: relative error {error:.5f}")
        assert bound / 20 < error < bound


def test_refusals() -> None:
    rng = np.random.default_rng(15)
    cache = Expanded.of("fp32", heavy(rng, 2, 10, 24), heavy(rng, 2, 10, 16), 10)
    with pytest.raises(ValueError, match="nope_dims: expected a multiple of 8"):
        HeadHistory("fp32", 2, 20, 8, 16)
    history = HeadHistory("fp32", 2, 16, 8, 16)
    q, out = heavy(rng, 5, 2, 24), np.zeros((5, 2, 16), np.float32)
    with pytest.raises(ValueError, match="need a history of as many tokens, loaded are 0"):
        history.attend(q, 0, 0, 5, 1.0, out)
    with pytest.raises(ValueError, match="length: expected 1 to 10, got 11"):
        history.load_expanded(cache.view, 11, 0, 2)
    with pytest.raises(ValueError, match="head, count: expected a range inside 0 to 2"):
        history.load_expanded(cache.view, 10, 1, 2)
    history.load_expanded(cache.view, 10, 0, 2)
    with pytest.raises(ValueError, match="rows up to 11"):
        history.attend(q, 6, 0, 5, 1.0, out)
    latent = Latent.of("fp32", heavy(rng, 4, 32), heavy(rng, 4, 8), 4)
    w4 = Weights(4, *linear_ref.quantize_w4(heavy(rng, 64, 32)))
    with pytest.raises(ValueError, match="kv_b: expected one W8 or dense"):
        history.load_latent(latent.view, 4, 0, 1, w4.matrix)
    assert history.bytes_for(513, 2) == 2 * 2 * 512 * (24 + 16) * 4
    history.release()
    assert history.nbytes == 0 == history.length
