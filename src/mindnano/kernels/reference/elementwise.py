"""What rms_norm, head_gate, apply, to_half, embed, top_logits and logsumexp compute, in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


def sigmoid(x: F64) -> F64:
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def silu(x: F64) -> F64:
    return np.asarray(x * sigmoid(x))


def softplus(x: F64) -> F64:
    return np.asarray(np.logaddexp(0, x))


def to_half(x: F32, dtype: str) -> NDArray[np.uint16]:
    """Bits of the nearest BF16 or FP16, ties to even; what is too large becomes infinity, NaN a quiet NaN."""
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).view(np.uint16)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16)


def rms_norm(x: F32, weight: F32, eps: float) -> F64:
    """x / sqrt(mean x^2 + eps) * weight over the last axis."""
    x64 = x.astype(np.float64)
    return np.asarray(x64 / np.sqrt((x64 * x64).mean(-1, keepdims=True) + np.float32(eps)) * weight)


def head_gate(o: F32, gate: F32) -> F64:
    """o [T, H, D] times sigmoid(gate [T, H])."""
    return np.asarray(o * sigmoid(gate.astype(np.float64))[..., None])


def embed(ids: NDArray[np.int64], table: np.ndarray, scales: F32 | None, dtype: str) -> F32:
    """Rows ids [T] of table [V, H]: fp32, BF16 or FP16 bits (uint16), or INT8 times scales [V]; exact."""
    rows = table[ids]
    if dtype == "bf16":
        return (rows.astype(np.uint32) << 16).view(np.float32)
    if dtype == "fp16":
        return np.asarray(rows.view(np.float16).astype(np.float32))
    if dtype == "int8":
        assert scales is not None
        return np.asarray(rows.astype(np.float32) * scales[ids][:, None])
    return np.asarray(rows)


def top_logits(logits: F32, n: int) -> tuple[NDArray[np.int64], F32]:
    """Ids and values of the n largest logits [V], descending; equal ones by ascending id; NaN is -inf."""
    values = np.where(np.isnan(logits), -np.inf, logits)
    ids = np.argsort(-values, kind="stable")[:n]
    return ids, values[ids].astype(np.float32)


def logsumexp(logits: F32) -> float:
    """log sum exp(logits)."""
    largest = float(logits.max())
    return largest + float(np.log(np.exp(logits.astype(np.float64) - largest).sum()))
