"""The W4 and W8 layouts of docs/formats.md written a second time, naively, to check the real ones."""

import numpy as np


def bf16_bits(values):
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def pack_w4(values, scales):
    """int8 [N, K] in -8..7 and BF16 bits [N, ceil(K / 32)] -> uint8 [P, ceil(K / 32), 288]."""
    rows, cols = values.shape
    panels, groups = -(-rows // 16), -(-cols // 32)
    out = np.zeros((panels, groups, 288), np.uint8)
    out[:, :, 32:] = 0x88
    for panel in range(panels):
        for group in range(groups):
            for row in range(min(16, rows - panel * 16)):
                bits = int(scales[panel * 16 + row, group])
                out[panel, group, 2 * row] = bits & 255
                out[panel, group, 2 * row + 1] = bits >> 8
                for k in range(min(32, cols - group * 32)):
                    nibble = int(values[panel * 16 + row, group * 32 + k]) + 8
                    place = 32 + (k // 4) * 32 + (row % 8) * 4 + k % 4
                    old = int(out[panel, group, place])
                    shift = 4 * (row // 8)
                    out[panel, group, place] = (old & ~(15 << shift)) | nibble << shift
    return out


def unpack_w4(data, rows, cols):
    """(int8 [N, K], float32 scales [N, groups])."""
    panels, groups = data.shape[:2]
    scales = np.ascontiguousarray(data[..., :32]).view(np.uint16).transpose(0, 2, 1)  # [P, 16, G]
    codes = data[..., 32:].reshape(panels, groups, 8, 8, 4)  # vector, row, input
    halves = (
        np.stack((codes & 15, codes >> 4), axis=2).astype(np.int8) - 8
    )  # [P, G, half, vector, row, input]
    values = halves.transpose(0, 2, 4, 1, 3, 5).reshape(panels * 16, groups * 32)
    return values[:rows, :cols], from_bf16(scales).reshape(panels * 16, groups)[:rows]


def dequantize_w4(data, rows, cols):
    values, scales = unpack_w4(data, rows, cols)
    return values * np.repeat(scales, 32, axis=1)[:, :cols]


def pack_w8(values, scales):
    """int8 [N, K] and float32 [N] -> (int8 [P, Kp / 4, 64], float32 [P * 16])."""
    rows, cols = values.shape
    panels, padded = -(-rows // 16), -(-cols // 32) * 32
    whole = np.zeros((panels * 16, padded), np.int8)
    whole[:rows, :cols] = values
    data = whole.reshape(panels, 16, padded // 4, 4).transpose(0, 2, 1, 3).reshape(panels, padded // 4, 64)
    all_scales = np.zeros(panels * 16, np.float32)
    all_scales[:rows] = scales
    return np.ascontiguousarray(data), all_scales


def unpack_w8(data, rows, cols):
    panels, steps = data.shape[:2]
    whole = data.reshape(panels, steps, 16, 4).transpose(0, 2, 1, 3).reshape(panels * 16, steps * 4)
    return whole[:rows, :cols]


def dequantize_w8(data, scales, rows, cols):
    return unpack_w8(data, rows, cols) * scales[:rows, None]
