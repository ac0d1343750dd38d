"""What packing, quantize_rows, linear_* and experts_* compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Quantized = tuple[NDArray[np.int8], F32, NDArray[np.int16]]

# The integer that a group's largest element becomes before rounding; the scale with the least error is kept.
W4_TARGETS = (-8.0, -7.4, -7.7, -8.3, -8.6, -8.9, -9.2, 7.0, 7.4, 7.8, -6.8, -9.6)


def bf16_bits(x: F32) -> NDArray[np.uint16]:
    """Nearest BF16, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> F32:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def pad(x: np.ndarray, multiple: int) -> np.ndarray:
    """Zeros at the end of the last axis, up to a multiple."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % multiple)])


def quantize_rows(x: F32) -> Quantized:
    """INT8 of x [T, K]: q [T, Kp], scales [T, ceil(Kp/128)], pairs [T, Kp/32, 2].

    scale = max |x| / 127 over 128 inputs, 0 where that is below the smallest normal number, NaN (and q = 0)
    where an input is not finite. pairs = -8 sum(q) of a group of 32 over i % 4 in {0, 1} and in {2, 3}: where
    the W4 accumulators start, since nibbles are stored as w + 8.
    """
    x = pad(x, 32)
    rows, width = x.shape
    groups = pad(x, 128).reshape(rows, -1, 128)
    largest = np.abs(groups).max(-1)
    with np.errstate(all="ignore"):
        scales = (largest / np.float32(127)).astype(np.float32)
        scales[~np.isfinite(largest)] = np.nan
        scales[scales < np.finfo(np.float32).tiny] = 0
        q = np.rint(groups / scales[..., None])
    q = np.where(scales[..., None] > 0, q, 0).astype(np.int8).reshape(rows, -1)[:, :width]
    pairs = -8 * q.astype(np.int32).reshape(rows, width // 32, 8, 2, 2).sum((2, 4))
    return np.ascontiguousarray(q), scales, pairs.astype(np.int16)


def _lane_sum(x: F32) -> F32:
    """Sum of [..., 4, 8] in the kernels' order: the four vectors, then halves, then pairs."""
    v = x[..., 0, :]
    for i in (1, 2, 3):
        v = np.asarray(v + x[..., i, :], np.float32)
    q = v[..., :4] + v[..., 4:]
    return np.asarray((q[..., 0] + q[..., 2]) + (q[..., 1] + q[..., 3]), np.float32)


def quantize_w4(w: F32) -> tuple[NDArray[np.int8], NDArray[np.uint16]]:
    """Values [N, K] and BF16 scales [N, ceil(K/32)]. Candidates: the largest element over each of W4_TARGETS,
    then the least-squares scale sum(w v) / sum(v v) for the best one's integers v; the least error wins."""
    g = pad(w, 32).reshape(w.shape[0], -1, 4, 8)
    high, low = g.max((-1, -2)), -g.min((-1, -2))
    largest = np.where(np.maximum(high, 0) >= np.maximum(low, 0), np.maximum(high, 0), -np.maximum(low, 0))
    best, scale = _lane_sum(g * g), np.zeros_like(largest)

    def rounded(s: F32) -> F32:
        v = np.rint(g * (np.float32(1) / s)[..., None, None])
        return np.asarray(np.clip(v, np.float32(-8), np.float32(7)), np.float32)

    def offer(s: F32) -> None:
        s = from_bf16(bf16_bits(np.nan_to_num(s)))
        d = g - rounded(s) * s[..., None, None]
        error = _lane_sum(d * d)
        better = (error < best) & (np.abs(s) >= np.finfo(np.float32).tiny)
        best[better], scale[better] = error[better], s[better]

    with np.errstate(all="ignore"):
        for target in W4_TARGETS:
            offer(largest / np.float32(target))
        v = rounded(scale)
        offer(_lane_sum(g * v) / _lane_sum(v * v))
        values = np.where((scale != 0)[..., None, None], rounded(scale), 0)
    values = values.astype(np.int8).reshape(w.shape[0], -1)[:, : w.shape[1]]
    return np.ascontiguousarray(values), bf16_bits(scale)


def quantize_w8(w: F32) -> tuple[NDArray[np.int8], F32]:
    """Values [N, K] and scales [N] = max |row| / 127."""
    scales = np.abs(w).max(1) / np.float32(127)
    scales[scales < np.finfo(np.float32).tiny] = 0
    with np.errstate(all="ignore"):
        q = np.rint(w / scales[:, None])
    return np.where(scales[:, None] > 0, q, 0).astype(np.int8), scales


def pack_w4(values: NDArray[np.int8], scales: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """uint8 [P, Kp/32, 288] from values [N, K] and BF16 bits [N, ceil(K/32)]."""
    rows, groups = -values.shape[0] % 16, scales.shape[1]
    u = np.pad(pad(values, 32), ((0, rows), (0, 0))).reshape(-1, 2, 8, groups, 8, 4).astype(np.int16) + 8
    u = u.transpose(0, 3, 4, 1, 2, 5).astype(np.uint8)  # [P, G, 8 steps, 2 halves, 8 rows, 4 inputs]
    nibbles = (u[:, :, :, 0] | u[:, :, :, 1] << 4).reshape(*u.shape[:2], 256)
    s = np.pad(scales, ((0, rows), (0, 0))).reshape(-1, 16, groups).transpose(0, 2, 1)
    return np.concatenate([np.ascontiguousarray(s).view(np.uint8), nibbles], -1)


def unpack_w4(data: NDArray[np.uint8], rows: int, cols: int) -> tuple[NDArray[np.int8], F32]:
    """Values [N, K] and scales [N, ceil(K/32)] of packed W4."""
    panels, groups, _ = data.shape
    scales = from_bf16(np.ascontiguousarray(data[:, :, :32]).view(np.uint16)).transpose(0, 2, 1)
    n = data[:, :, 32:].reshape(panels, groups, 8, 8, 4)
    u = np.stack([n & 15, n >> 4]).astype(np.int8) - 8  # [2, P, G, 8 steps, 8 rows, 4]
    values = u.transpose(1, 0, 4, 2, 3, 5).reshape(panels * 16, groups * 32)
    return values[:rows, :cols], scales.reshape(panels * 16, groups)[:rows]


def pack_w8(values: NDArray[np.int8], scales: F32) -> tuple[NDArray[np.int8], F32]:
    """int8 [P, Kp/4, 64] and scales [P * 16]."""
    rows = -values.shape[0] % 16
    v = np.pad(pad(values, 32), ((0, rows), (0, 0)))
    v = v.reshape(-1, 16, v.shape[1] // 4, 4).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(v).reshape(v.shape[0], -1, 64), np.pad(scales, (0, rows))


def linear_w4(x: Quantized, values: NDArray[np.int8], scales: F32) -> F32:
    """x W^T: exact integer sums of 32 by the group's scale, summed over 128, by the activation's scale."""
    q, xs, _ = x
    w = pad(values, 32).astype(np.int64).reshape(len(values), -1, 32)
    sums = np.einsum("tgi,ngi->tng", q.astype(np.int64).reshape(len(q), -1, 32), w)
    parts = pad(sums * scales[None].astype(np.float64), 4)
    parts = parts.reshape(*sums.shape[:2], -1, 4).sum(-1)
    return np.asarray((parts * xs[:, None]).sum(-1), np.float32)


def linear_w8(x: Quantized, values: NDArray[np.int8], scales: F32) -> F32:
    """x W^T: exact integer sums of 128, times the activation's scale, summed, times the row's scale."""
    q, xs, _ = x
    w = pad(pad(values, 32), 128).astype(np.int64).reshape(len(values), -1, 128)
    sums = np.einsum("tgi,ngi->tng", pad(q, 128).astype(np.int64).reshape(len(q), -1, 128), w)
    return np.asarray((sums * xs[:, None].astype(np.float64)).sum(-1) * scales, np.float32)


def linear_dense(x: F32, w: F32) -> F32:
    return np.asarray(x.astype(np.float64) @ w.astype(np.float64).T, np.float32)


def silu(x: F32) -> F32:
    with np.errstate(over="ignore"):
        return np.asarray(x / (1 + np.exp(-x.astype(np.float64))), np.float32)


def expert_order(ids: NDArray[np.int32]) -> NDArray[np.int64]:
    """Slots [T, k] in the order in which they are summed: by expert, equal ones by slot."""
    return np.argsort(ids, axis=1, kind="stable")


def experts_dense(x: F32, ids: NDArray[np.int32], weights: F32, gate: F32, up: F32, down: F32) -> F32:
    """sum over slots of weights[t, k] down_e (silu(gate_e x) * up_e x), e = ids[t, k]; gate, up [E, I, H]."""
    out = np.zeros((len(x), down.shape[1]), np.float64)
    for t in range(len(x)):
        for k in expert_order(ids)[t]:
            e = ids[t, k]
            hidden = silu(linear_dense(x[t : t + 1], gate[e])) * linear_dense(x[t : t + 1], up[e])
            out[t] += weights[t, k] * linear_dense(hidden, down[e])[0]
    return out.astype(np.float32)
