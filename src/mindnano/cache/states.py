"""KDA and convolution states: what a linear-attention layer keeps of a sequence, whatever its length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mindnano.cache.pages import lazy_array
from mindnano.checkpoint.config import KDAConfig


class KDAState:
    """One layer's states for all slots, fp32.

    memory [slots, heads, K, V]: the fast-weight matrix S.  conv [slots, kernel - 1, 3 * heads * K]: the last
    projected rows q | k | v before the convolution, oldest first.
    """

    def __init__(self, config: KDAConfig, slots: int) -> None:
        width = 3 * config.num_heads * config.head_dim
        self.memory: NDArray[np.float32] = lazy_array(
            (slots, config.num_heads, config.head_dim, config.head_dim), np.float32
        )
        self.conv: NDArray[np.float32] = lazy_array((slots, config.conv_kernel - 1, width), np.float32)

    def reset(self, slot: int) -> None:
        self.memory[slot] = 0.0
        self.conv[slot] = 0.0

    @staticmethod
    def slot_bytes(config: KDAConfig) -> int:
        """Bytes of one slot in one layer."""
        width = config.num_heads * config.head_dim
        return 4 * (width * config.head_dim + (config.conv_kernel - 1) * 3 * width)
