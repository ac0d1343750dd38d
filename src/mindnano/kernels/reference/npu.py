"""What the npu_* kernels compute, and the operand layouts of the RK3588's matmul library for C = A B (docs/rk3588.md).

Formats: "int8" (int32 sums) and "fp16" (fp32 sums). `capacity` is a product's M; A's rows beyond the given are 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mindnano.kernels.reference.linear import F32
from mindnano.kernels.reference.mla import I8, LEAST_P, TILE_KEYS

PIECE = {"int8": 16, "fp16": 8}  # values of a row of A that lie together
WIDTH = {"int8": 32, "fp16": 16}  # columns of B that do
DEPTH = 32  # K goes in blocks of 32
OPERAND: dict[str, np.dtype] = {"int8": np.dtype(np.int8), "fp16": np.dtype(np.float16)}
SUM: dict[str, np.dtype] = {"int8": np.dtype(np.int32), "fp16": np.dtype(np.float32)}
GROUP = 128  # inputs that share an activation scale


def a_operand(format: str, x: np.ndarray, capacity: int, depth: int) -> np.ndarray:
    """x [rows, <= depth] as A [depth / s, capacity, s]."""
    padded = np.zeros((capacity, depth), OPERAND[format])
    padded[: x.shape[0], : x.shape[1]] = x
    return np.ascontiguousarray(padded.reshape(capacity, -1, PIECE[format]).swapaxes(0, 1))


def b_operand(format: str, x: np.ndarray) -> np.ndarray:
    """x [K, N] as B [N / w, K / 32, w, 32]."""
    depth, cols = x.shape
    blocks = x.astype(OPERAND[format]).reshape(depth // DEPTH, DEPTH, cols // WIDTH[format], WIDTH[format])
    return np.ascontiguousarray(blocks.transpose(2, 0, 3, 1))


def c_operand(format: str, x: np.ndarray, capacity: int) -> np.ndarray:
    """x [rows, N] as C [N / 4, capacity, 4]; rows beyond hold what sums never are."""
    padded = np.full((capacity, x.shape[1]), -(2**31) if format == "int8" else np.nan, SUM[format])
    padded[: len(x)] = x
    return np.ascontiguousarray(padded.reshape(capacity, -1, 4).swapaxes(0, 1))


def c_rows(c: np.ndarray) -> np.ndarray:
    """[capacity, N] of C [N / 4, capacity, 4]."""
    return np.ascontiguousarray(c.swapaxes(0, 1)).reshape(c.shape[1], -1)


def a_rows(a: np.ndarray) -> np.ndarray:
    """[capacity, K] of A [K / s, capacity, s]."""
    return c_rows(a)


def softmax(
    format: str, sums: np.ndarray, scales: tuple[F32, F32, F32] | None, seen: int, m: F32, l: F32
) -> tuple[np.ndarray, F32, F32, F32, F32]:
    """A tile's sums [rows, TILE_KEYS] -> (P, m', l', decay, p_scale); row r sees the first seen + r keys.

    int8 as attend_int8 defines it, with scales (row scales, key scales, value scales).
    fp16: P = e^(sum - m') in FP16, l from the floats before.
    """
    visible = np.arange(TILE_KEYS) < seen + np.arange(len(sums))[:, None]
    s = sums.astype(np.float32)
    if scales is not None:
        s = s * scales[1] * scales[0][:, None]
    s = np.where(visible, s, -np.inf).astype(np.float32)
    top = np.maximum(m, s.max(-1))
    some = visible.any(-1)
    with np.errstate(invalid="ignore"):
        p = np.where(visible, np.exp(s - top[:, None]), 0).astype(np.float32)
        decay = np.where(some, np.exp(m - top), 1).astype(np.float32)
    total = np.asarray(l * decay + p.sum(-1), np.float32)
    if scales is None:
        return p.astype(np.float16), top, total, decay, np.ones(len(sums), np.float32)
    w = p * np.where(visible, scales[2], 0)
    largest = w.max(-1, keepdims=True)
    counts = largest >= LEAST_P
    inverse = np.float32(127) / np.where(counts, largest, np.float32(1))
    quantized = np.where(counts, np.rint(w * inverse), 0).astype(np.int8)
    p_scale = np.where(counts, largest / np.float32(127), 0)[:, 0].astype(np.float32)
    return quantized, top, total, decay, p_scale


def accumulate(sums: np.ndarray, decay: F32, p_scale: F32, o: F32) -> F32:
    """o [rows, dims] * decay + p_scale * sums."""
    return np.asarray(
        o.astype(np.float64) * decay[:, None] + p_scale[:, None].astype(np.float64) * sums[:, : o.shape[1]],
        np.float32,
    )


def weights(values: I8, first: int, outputs: int, cols: int) -> list[NDArray[np.int8]]:
    """Rows first .. first + outputs of W8 integers [N, K] as B of each group of GROUP inputs."""
    padded = np.zeros((cols, -(-values.shape[1] // DEPTH) * DEPTH), np.int8)
    padded[:outputs, : values.shape[1]] = values[first : first + outputs]
    return [b_operand("int8", padded[:, g : g + GROUP].T) for g in range(0, padded.shape[1], GROUP)]


def combine(sums: list[np.ndarray], scales: F32, row_scales: F32) -> F32:
    """A W8 product from its groups' sums [rows, N]: (sum over groups of scale * sum) * row scale."""
    total = sum(s.astype(np.float64) * scales[:, g, None] for g, s in enumerate(sums))
    return np.asarray(total * row_scales, np.float32)
