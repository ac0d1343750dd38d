"""Weights in the kernels' packed forms.

W4: uint8 [P, Kp/32, 288], P = ceil(N/16), Kp = K rounded up to 32. A panel's group of 32 inputs holds 16 BF16
scales, then 8 vectors of 32 bytes; vector s has inputs 4s..4s+3, byte r*4+i: low nibble row r, high nibble
row 8+r, each w + 8. W8: int8 [P, Kp/4, 64], byte r*4+i of 16 rows x 4 inputs, and float32 scales [P*16].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mindnano import _native

F32 = NDArray[np.float32]

W4_GROUP_BYTES = 288


def w4_shape(rows: int, cols: int) -> tuple[int, int, int]:
    """Shape of the packed W4 array of an [rows, cols] matrix."""
    return -(-rows // 16), -(-cols // 32), W4_GROUP_BYTES


def w8_shape(rows: int, cols: int) -> tuple[int, int, int]:
    """Shape of the packed W8 array of an [rows, cols] matrix; its scales are [16 * ceil(rows / 16)]."""
    return -(-rows // 16), -(-cols // 32) * 8, 64


def _array(shape: tuple[int, ...], dtype: type, out: np.ndarray | None) -> np.ndarray:
    return np.empty(shape, dtype) if out is None else out


def quantize_w4(w: F32, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """W4 of w [N, K]: the BF16 scale of each row and group of 32 is the one of a few with the least error.

    Raises ValueError where w holds a NaN or a magnitude above 1e18, whose square overflows.
    """
    data = _array(w4_shape(*w.shape), np.uint8, out)
    _native.quantize_w4(np.ascontiguousarray(w), data)
    return data


def pack_w4(
    values: NDArray[np.int8], scales: NDArray[np.uint16], out: NDArray[np.uint8] | None = None
) -> NDArray[np.uint8]:
    """Pack values [N, K] in [-8, 7] and BF16 scales (bits) [N, ceil(K/32)], bit for bit."""
    data = _array(w4_shape(*values.shape), np.uint8, out)
    _native.pack_w4(np.ascontiguousarray(values), np.ascontiguousarray(scales), data)
    return data


def quantize_w8(w: F32, out: tuple[NDArray[np.int8], F32] | None = None) -> tuple[NDArray[np.int8], F32]:
    """W8 of w [N, K]: scale = max |row| / 127. Returns (data, scales). Raises as quantize_w4 does."""
    shape = w8_shape(*w.shape)
    data, scales = out if out is not None else (np.empty(shape, np.int8), np.empty(shape[0] * 16, np.float32))
    _native.quantize_w8(np.ascontiguousarray(w), data, scales)
    return data, scales


def pack_w8(
    values: NDArray[np.int8], scales: F32, out: tuple[NDArray[np.int8], F32] | None = None
) -> tuple[NDArray[np.int8], F32]:
    """Pack values [N, K] in [-127, 127] and scales [N]. Returns (data, scales), the scales padded with 0."""
    shape = w8_shape(*values.shape)
    data, padded = out if out is not None else (np.empty(shape, np.int8), np.empty(shape[0] * 16, np.float32))
    padded[:] = 0
    padded[: len(scales)] = scales
    _native.pack_w8(np.ascontiguousarray(values), data)
    return data, padded


def unpack_w4(data: NDArray[np.uint8], rows: int, cols: int) -> F32:
    """The [rows, cols] matrix that packed W4 data stands for."""
    out = np.empty((rows, cols), np.float32)
    _native.unpack_w4(data, out)
    return out


def unpack_w8(data: NDArray[np.int8], scales: F32, rows: int, cols: int) -> F32:
    """The [rows, cols] matrix that packed W8 data stands for."""
    out = np.empty((rows, cols), np.float32)
    _native.unpack_w8(data, scales, out)
    return out


def interleave_gate_up(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Rows of gate and up [I, ...] in turns of eight, I padded with zeros to a multiple of 8: [2 * I8, ...].

    A panel of 16 rows then yields eight gate values and the eight up values that belong to them.
    """
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError(
            f"up: expected {gate.dtype} {list(gate.shape)} like gate, got {up.dtype} {list(up.shape)}"
        )
    eights = -(-gate.shape[0] // 8)
    out = np.zeros((eights, 2, 8, *gate.shape[1:]), gate.dtype)
    for part, rows in ((0, gate), (1, up)):
        whole = rows.shape[0] // 8
        out[:whole, part] = rows[: whole * 8].reshape(whole, 8, *rows.shape[1:])
        if whole < eights:
            out[whole, part, : rows.shape[0] - whole * 8] = rows[whole * 8 :]
    return out.reshape(eights * 16, *gate.shape[1:])
