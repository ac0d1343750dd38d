"""Decode attention, absorbed and expanded, against its NumPy twins."""

import numpy as np
import pytest

from mindnano.kernels import mla_decode_expanded, mla_decode_latent
from mindnano.kernels.reference import mla as ref

from .caches import FORMATS, Expanded, Latent
from .products import ISAS, assert_near, heavy, running


def latents(rng: np.random.Generator, format: str, lengths: list[int], rank: int, dims: int) -> list[Latent]:
    return [Latent.of(format, heavy(rng, n, rank), heavy(rng, n, dims), n + 13) for n in lengths]


def decode(
    caches: list[Latent], q: np.ndarray, q_rope: np.ndarray, scale: float, isa: str, threads: int = 2
) -> np.ndarray:
    out = np.full_like(q, np.nan)
    lengths = np.array([len(c.latent) for c in caches])
    with running(isa, threads):
        seconds = mla_decode_latent(q, q_rope, [c.view for c in caches], lengths, scale, out)
    assert len(seconds) == 3 and min(seconds) >= 0
    return out


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("lengths", "heads", "rank", "dims"),
    [
        ([1], 1, 32, 8),
        ([3, 65], 2, 48, 16),
        ([700, 1, 513], 5, 144, 0),
        ([129, 512], 16, 512, 64),
        ([1030], 17, 128, 64),
    ],
)
def test_latent(isa: str, format: str, lengths: list[int], heads: int, rank: int, dims: int) -> None:
    rng = np.random.default_rng(4)
    caches = latents(rng, format, lengths, rank, dims)
    q, q_rope = heavy(rng, len(lengths), heads, rank), heavy(rng, len(lengths), heads, dims)
    scale = 0.3 / np.sqrt(rank + dims)
    got = decode(caches, q, q_rope, scale, isa)
    for i, c in enumerate(caches):
        exact = ref.decode_latent(q[i], q_rope[i], c.latent, c.rope, scale)
        if format != "int8":
            assert_near(got[i], exact, 4e-6)
            continue
        k, scales, _ = c.arrays
        assert scales is not None
        n = lengths[i]
        twin = ref.decode_latent_int8(q[i], q_rope[i], (k[:n], scales[:n]), c.rope, scale)
        # An e^x that rounds the other way may move a P by 1 of 127 at a tie.
        assert_near(got[i], twin, 2e-3)
        assert np.abs(got[i] - twin).mean() <= 2e-5 * np.abs(twin).max()
        assert_near(got[i], exact, 0.05)


@pytest.mark.parametrize("isa", ISAS)
def test_latent_extremes(isa: str) -> None:
    """+-127 everywhere: no sum saturates or wraps."""
    n, heads, rank = 700, 16, 512
    sign = np.where(np.arange(n) % 3 == 0, -1, 1).astype(np.float32)[:, None]
    latent = np.broadcast_to(sign, (n, rank)) * np.where(np.arange(rank) % 2, -127, 127)
    caches = [Latent.of("int8", latent.astype(np.float32), np.zeros((n, 8), np.float32), n)]
    q = np.broadcast_to(np.where(np.arange(rank) % 2, -127, 127), (1, heads, rank)).astype(np.float32).copy()
    q[:, 1::2] *= -1
    q_rope = np.zeros((1, heads, 8), np.float32)
    scale = 1e-8
    got = decode(caches, q, q_rope, scale, isa)
    want = ref.decode_latent(q[0], q_rope[0], caches[0].latent, caches[0].rope, scale)
    assert_near(got[0], want, 5e-3)
    flat = decode(caches, q, q_rope, 0.0, isa)
    assert_near(flat[0], np.broadcast_to(caches[0].latent.mean(0), (heads, rank)), 1e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
def test_latent_threads_and_company(isa: str, format: str) -> None:
    """Bit-equal for 1, 2 and 3 threads, and alone or beside other sequences."""
    rng = np.random.default_rng(5)
    caches = latents(rng, format, [1500, 40, 513], 128, 16)
    q, q_rope = heavy(rng, 3, 4, 128), heavy(rng, 3, 4, 16)
    one = decode(caches, q, q_rope, 0.05, isa, 1)
    for threads in (2, 3):
        np.testing.assert_array_equal(decode(caches, q, q_rope, 0.05, isa, threads), one)
    for i in range(3):
        alone = decode(caches[i : i + 1], q[i : i + 1], q_rope[i : i + 1], 0.05, isa)
        np.testing.assert_array_equal(alone[0], one[i])


def expanded(caches: list[Expanded], q: np.ndarray, scale: float, isa: str, threads: int = 2) -> np.ndarray:
    out = np.full((*q.shape[:2], caches[0].v.shape[2]), np.nan, np.float32)
    lengths = np.array([c.k.shape[1] for c in caches])
    with running(isa, threads):
        seconds = mla_decode_expanded(q, [c.view for c in caches], lengths, scale, out)
    assert len(seconds) == 3 and min(seconds) >= 0
    return out


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("lengths", "heads", "k_dims", "v_dims"),
    [([1], 1, 8, 8), ([5, 700], 3, 24, 40), ([513, 64], 2, 136, 72), ([90], 16, 192, 128)],
)
def test_expanded(isa: str, format: str, lengths: list[int], heads: int, k_dims: int, v_dims: int) -> None:
    rng = np.random.default_rng(6)
    caches = [
        Expanded.of(format, heavy(rng, heads, n, k_dims), heavy(rng, heads, n, v_dims), n + 5)
        for n in lengths
    ]
    q = heavy(rng, len(lengths), heads, k_dims)
    scale = 0.5 / np.sqrt(k_dims)
    one = expanded(caches, q, scale, isa, 1)
    for i, c in enumerate(caches):
        assert_near(one[i], ref.attend(q[i : i + 1], c.k, c.v, lengths[i] - 1, scale)[0], 4e-6)
    for threads in (2, 3):
        np.testing.assert_array_equal(expanded(caches, q, scale, isa, threads), one)


def test_refusals() -> None:
    rng = np.random.default_rng(7)
    (cache,) = latents(rng, "fp32", [4], 32, 8)
    q, q_rope, out = heavy(rng, 1, 2, 32), heavy(rng, 1, 2, 8), np.zeros((1, 2, 32), np.float32)
    with pytest.raises(ValueError, match="lengths: expected 1 to 17, got 0"):
        mla_decode_latent(q, q_rope, [cache.view], np.array([0]), 1.0, out)
    with pytest.raises(ValueError, match="lengths: expected 1 to 17, got 18"):
        mla_decode_latent(q, q_rope, [cache.view], np.array([18]), 1.0, out)
    with pytest.raises(ValueError, match="views: expected 1, got 2"):
        mla_decode_latent(q, q_rope, [cache.view] * 2, np.array([1]), 1.0, out)
    with pytest.raises(ValueError, match="views: expected rank 48"):
        mla_decode_latent(heavy(rng, 1, 2, 48), q_rope, [cache.view], np.array([1]), 1.0, out)
