"""KDA and convolution states: what a linear-attention layer keeps of a sequence, whatever its length."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mindnano.checkpoint.config import KDAConfig


def lazy_array(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
    """Zeros whose pages take memory only once they are written."""
    dtype = np.dtype(dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer(mmap.mmap(-1, max(nbytes, 1)), dtype, nbytes // dtype.itemsize).reshape(shape)


class KDAState:
    """One layer's states for all slots, fp32.

    memory [slots, heads, K, V]: the fast-weight matrix S.  conv [slots, kernel - 1, 3 * heads * K]: the last
    projected rows q | k | v before the convolution, oldest first.
    """

    def __init__(self, config: KDAConfig, slots: int) -> None:
        width = 3 * config.num_heads * config.head_dim
        self.memory: NDArray[np.float32] = lazy_array(
            (slots, config.num_heads, config.head_dim, config.head_dim), np.float32
        )  # type: ignore[assignment]
        self.conv: NDArray[np.float32] = lazy_array((slots, config.conv_kernel - 1, width), np.float32)  # type: ignore[assignment]

    def reset(self, slot: int) -> None:
        self.memory[slot] = 0.0
        self.conv[slot] = 0.0

    @staticmethod
    def slot_bytes(config: KDAConfig) -> int:
        """Bytes of one slot in one layer."""
        width = config.num_heads * config.head_dim
        return 4 * (width * config.head_dim + (config.conv_kernel - 1) * 3 * width)
