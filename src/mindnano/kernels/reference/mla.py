"""What rope_inplace, the cache writers, HeadHistory and the decode kernels compute.

Formats of a cache: "fp32", "bf16", "fp16" and "int8". A float is kept as its nearest value in the format;
int8 keeps q = x / scale to nearest even with scale = max |x| / 127.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mindnano.kernels.reference.linear import F32, bf16_bits, from_bf16

TILE_KEYS = 512  # prefill: P is quantized per row and per tile of so many keys, counted from position 0
DECODE_TILE_KEYS = 128  # absorbed decode: the same
CHUNK_KEYS = 512  # decode: keys of a task; partial results are combined at the end
LEAST_P = np.float32(1e-30)  # a tile whose largest P is below adds nothing

I8 = NDArray[np.int8]


def quantize(x: F32) -> tuple[I8, F32]:
    """int8 and one scale for each row of the last axis."""
    largest = np.abs(x).max(-1)
    with np.errstate(all="ignore"):
        scales = np.asarray(largest / np.float32(127), np.float32)
        scales[~np.isfinite(largest)] = np.nan
        scales[scales < np.finfo(np.float32).tiny] = 0
        q = np.rint(x / scales[..., None])
    return np.where(scales[..., None] > 0, q, 0).astype(np.int8), scales


def quantize_latent(x: F32) -> tuple[I8, F32]:
    """int8 [..., R] and scales [..., ceil(R/128)]: one for 128 values."""
    parts = [quantize(x[..., g : g + 128]) for g in range(0, x.shape[-1], 128)]
    return np.concatenate([q for q, _ in parts], -1), np.stack([s for _, s in parts], -1)


def dequantize_latent(q: I8, scales: F32) -> F32:
    return np.asarray(q * np.repeat(scales, 128, -1)[..., : q.shape[-1]], np.float32)


def store(format: str, x: F32) -> np.ndarray:
    """x as the cache keeps it (not int8): float32, or uint16 holding BF16 or FP16 bits."""
    if format == "bf16":
        return bf16_bits(x)
    with np.errstate(over="ignore"):
        return x.astype(np.float16).view(np.uint16) if format == "fp16" else x


def load(format: str, x: np.ndarray) -> F32:
    if format == "bf16":
        return from_bf16(x)
    return np.asarray(x.view(np.float16) if format == "fp16" else x, np.float32)


def rope(x: F32, positions: NDArray[np.int64], rope_dims: int, theta: float) -> F32:
    """x [T, heads, width] with the last rope_dims of each head rotated in adjacent pairs (2i, 2i + 1) by
    position * theta^(-2i / rope_dims) (Su et al. 2021, RoFormer, 3.4.2); theta 0 leaves them."""
    out = x.copy()
    if rope_dims == 0 or theta == 0:
        return out
    angles = positions[:, None, None] * theta ** (-np.arange(0, rope_dims, 2) / rope_dims)
    c, s = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    a, b = x[..., -rope_dims::2], x[..., -rope_dims + 1 :: 2]
    out[..., -rope_dims::2] = a * c - b * s
    out[..., -rope_dims + 1 :: 2] = a * s + b * c
    return out


def latent_rows(
    kv_a: F32, norm_weight: F32, eps: float, theta: float, positions: NDArray[np.int64]
) -> tuple[F32, F32]:
    """The normed latent [T, R] and rotated rope key [T, Dr] of kv_a [T, R + Dr], before they are stored."""
    rank = len(norm_weight)
    c = kv_a[:, :rank].astype(np.float64)
    c = c / np.sqrt((c * c).mean(-1, keepdims=True) + eps) * norm_weight
    rotated = rope(kv_a[:, None, rank:], positions, kv_a.shape[1] - rank, theta)[:, 0]
    return c.astype(np.float32), rotated


def expanded_rows(kv: F32, k_rope: F32, heads: int, v_dims: int) -> tuple[F32, F32]:
    """K [H, T, Dk], V [H, T, Dv] of kv [T, H*Dn + H*Dv] (K part first) and the rotated rope key [T, Dr]."""
    tokens = len(kv)
    v = kv[:, kv.shape[1] - heads * v_dims :].reshape(tokens, heads, v_dims)
    k = kv[:, : kv.shape[1] - heads * v_dims].reshape(tokens, heads, -1)
    shared = np.broadcast_to(k_rope[:, None], (tokens, heads, k_rope.shape[1]))
    k = np.concatenate([k, shared], -1)
    return np.ascontiguousarray(k.swapaxes(0, 1)), np.ascontiguousarray(v.swapaxes(0, 1))


def attend(q: F32, k: F32, v: F32, start: int, scale: float) -> F32:
    """Causal softmax(scale q k^T) v of q [T, H, Dk], k [H, L, Dk], v [H, L, Dv]: row t
    sees start + t + 1 keys."""
    scores = np.einsum("thd,hld->htl", q.astype(np.float64), k) * scale
    hidden = np.arange(k.shape[1]) > start + np.arange(len(q))[:, None]
    scores = np.where(hidden, -np.inf, scores)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(np.einsum("htl,hld->thd", p / p.sum(-1, keepdims=True), v), np.float32)


def _quantized_p(w: F32) -> tuple[NDArray[np.int64], F32]:
    """P = round(w * (127 / max w)) in 0..127 and max w / 127 for each row; 0 where max w < LEAST_P."""
    largest = w.max(-1, keepdims=True)
    counts = largest >= LEAST_P
    inverse = np.float32(127) / np.where(counts, largest, np.float32(1))
    p = np.where(counts, np.rint(w * inverse), 0).astype(np.int64)
    return p, np.where(counts, largest / np.float32(127), 0)[..., 0].astype(np.float32)


def attend_int8(q: F32, k: tuple[I8, F32], v: tuple[I8, F32], start: int, scale: float) -> F32:
    """The exact definition of INT8 prefill attention: what any device must compute, but for the rounding of
    its fp32 sums and of e^x. k is int8 [H, L, Dk] with scales [H, L], v int8 [H, L, Dv] with scales [H, L].

    q is quantized per row and head. score = (float(q . k) * key scale) * (query scale * softmax scale), the
    products summed exactly. For each tile of TILE_KEYS keys counted from position 0, hidden keys left out:

        m' = max(m, scores),  p = e^(score - m'),  w = p * value scale
        P = round(w * (127 / max w)), ties to even, 0..127           (nothing is added where max w < LEAST_P)
        l' = l e^(m - m') + sum p
        o' = o e^(m - m') + (max w / 127) * float(P . v)              (P . v summed exactly)

    and o / l at the end. A row's result does not depend on the rows beside it.
    """
    (kq, ks), (vq, vs) = k, v
    tokens, heads, _ = q.shape
    qq, qs = quantize(q)
    o = np.zeros((heads, tokens, vq.shape[-1]), np.float32)
    m = np.full((heads, tokens), -np.inf, np.float32)
    l = np.zeros((heads, tokens), np.float32)
    row_scale = (qs * np.float32(scale)).T[..., None]
    for first in range(0, start + tokens, TILE_KEYS):
        end = min(first + TILE_KEYS, start + tokens)
        rows = np.arange(max(0, first - start), tokens)
        sums = np.einsum("thd,hld->htl", qq[rows].astype(np.int64), kq[:, first:end].astype(np.int64))
        s = sums.astype(np.float32) * ks[:, None, first:end] * row_scale[:, rows]
        hidden = np.arange(first, end) > start + rows[:, None]
        s = np.where(hidden, -np.inf, s).astype(np.float32)
        top = np.maximum(m[:, rows], s.max(-1))
        p = np.exp(s - top[..., None])
        decay = np.exp(m[:, rows] - top)
        w = np.where(hidden, 0, p * vs[:, None, first:end]).astype(np.float32)
        pq, ps = _quantized_p(w)
        sums = np.einsum("htl,hld->htd", pq, vq[:, first:end].astype(np.int64))
        o[:, rows] = o[:, rows] * decay[..., None] + ps[..., None] * sums.astype(np.float32)
        l[:, rows] = l[:, rows] * decay + p.sum(-1)
        m[:, rows] = top
    return np.asarray((o / l[..., None]).swapaxes(0, 1), np.float32)


def expand(latent: F32, k_rope: F32, kv_b: F32, heads: int, v_dims: int) -> tuple[F32, F32]:
    """K [H, L, Dk] and V [H, L, Dv] of the latent [L, R]: K_nope[h] = Wk[h] c with the shared rope key,
    V[h] = Wv[h] c. kv_b [H*Dn + H*Dv, R], K part first."""
    kv = (latent.astype(np.float64) @ kv_b.T.astype(np.float64)).astype(np.float32)
    return expanded_rows(kv, k_rope, heads, v_dims)


def decode_latent(q_latent: F32, q_rope: F32, latent: F32, k_rope: F32, scale: float) -> F32:
    """Absorbed decode of one sequence, q_latent [H, R], q_rope [H, Dr]:
    softmax(scale (q_latent c + q_rope k_rope)) c (DeepSeek-V2, arXiv 2405.04434, 2.1.2)."""
    c = latent.astype(np.float64)
    s = (q_latent.astype(np.float64) @ c.T + q_rope.astype(np.float64) @ k_rope.T) * scale
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray(p / p.sum(-1, keepdims=True) @ c, np.float32)


def decode_latent_int8(q_latent: F32, q_rope: F32, latent: tuple[I8, F32], k_rope: F32, scale: float) -> F32:
    """The same over int8 [L, R] with scales [L, G]. q_latent is quantized per head and group of 128;
    score = fp32 rope product + sum over groups of float(q . c) * (query scale * softmax scale * key scale).
    Keys go in tiles of DECODE_TILE_KEYS with an online softmax; for each head, tile and group
    w = p * key scale is quantized like P of attend_int8. Chunks of CHUNK_KEYS start
    afresh and are combined at the end."""
    c, cs = latent
    heads, rank = q_latent.shape
    groups = cs.shape[1]
    qq, qs = quantize_latent(q_latent)
    partials = []
    for chunk in range(0, len(c), CHUNK_KEYS):
        o = np.zeros((heads, rank), np.float32)
        m = np.full(heads, -np.inf, np.float32)
        l = np.zeros(heads, np.float32)
        for first in range(chunk, min(chunk + CHUNK_KEYS, len(c)), DECODE_TILE_KEYS):
            part = slice(first, min(first + DECODE_TILE_KEYS, chunk + CHUNK_KEYS, len(c)))
            s = (q_rope * np.float32(scale)) @ k_rope[part].T
            for g in range(groups):
                dims = slice(128 * g, 128 * g + 128)
                sums = qq[:, dims].astype(np.int64) @ c[part, dims].T.astype(np.int64)
                s = s + sums.astype(np.float32) * ((qs[:, g, None] * np.float32(scale)) * cs[part, g])
            top = np.maximum(m, s.max(-1))
            p = np.exp(s - top[:, None])
            decay = np.exp(m - top)
            o *= decay[:, None]
            for g in range(groups):
                dims = slice(128 * g, 128 * g + 128)
                pq, ps = _quantized_p(p * cs[part, g])
                o[:, dims] += ps[:, None] * (pq @ c[part, dims].astype(np.int64)).astype(np.float32)
            l = l * decay + p.sum(-1)
            m = top
        partials.append((m, l, o))
    top = np.max([m for m, _, _ in partials], 0)
    total = sum(np.exp(m - top) * l for m, l, _ in partials)
    out = sum(np.exp(m - top)[:, None] * o for m, _, o in partials)
    return np.asarray(out / total[:, None], np.float32)
