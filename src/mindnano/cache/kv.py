"""KV cache of one sequence in one MLA layer: layout (latent, expanded) x format (fp32, bf16, fp16, int8).

Latent: R normed values and the rotated rope key, shared by all heads (DeepSeek-V2, arXiv 2405.04434, section 2.1).
Expanded: K and V of every head, the reference system's layout.
"""

from __future__ import annotations

import numpy as np

from mindnano.cache.pages import lazy_array
from mindnano.checkpoint.config import MLAConfig
from mindnano.errors import MindNanoError
from mindnano.kernels import ExpandedKV, LatentKV

LAYOUTS = ("latent", "expanded")
FORMATS = ("bf16", "int8", "fp16", "fp32")  # fp32 is the yardstick: exact, twice the size of bf16
LATENT_GROUP = 128  # latent values that share one scale in int8

_DTYPES = {"fp32": np.float32, "bf16": np.uint16, "fp16": np.uint16, "int8": np.int8}


def check_kind(layout: str, fmt: str) -> None:
    if layout not in LAYOUTS:
        raise MindNanoError(f"kv-layout: expected one of {', '.join(LAYOUTS)}, got {layout!r}")
    if fmt not in FORMATS:
        raise MindNanoError(f"kv: expected one of {', '.join(FORMATS)}, got {fmt!r}")


def kv_bytes_per_token(config: MLAConfig, layout: str, fmt: str) -> int:
    """Bytes that one token takes in one MLA layer."""
    size = np.dtype(_DTYPES[fmt]).itemsize
    if layout == "expanded":
        width = config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim
        return config.num_heads * (width * size + (8 if fmt == "int8" else 0))
    if fmt == "int8":
        return config.kv_lora_rank + 4 * -(-config.kv_lora_rank // LATENT_GROUP) + 2 * config.qk_rope_head_dim
    return (config.kv_lora_rank + config.qk_rope_head_dim) * size


class LatentCache:
    """latent [C, R] and rope [C, Dr]; int8 has scales [C, R / 128] and keeps rope in bf16."""

    axis = 0  # of the tokens

    def __init__(self, config: MLAConfig, fmt: str, capacity: int) -> None:
        rank = config.kv_lora_rank
        self.capacity = capacity
        self.latent = lazy_array((capacity, rank), _DTYPES[fmt])
        self.rope = lazy_array((capacity, config.qk_rope_head_dim), _DTYPES["bf16" if fmt == "int8" else fmt])
        self.scales = lazy_array((capacity, -(-rank // LATENT_GROUP)), np.float32) if fmt == "int8" else None
        self.view = LatentKV(fmt, self.latent, self.scales, self.rope)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name."""
        named = {"latent": self.latent, "rope": self.rope}
        return named if self.scales is None else named | {"scales": self.scales}


class ExpandedCache:
    """k [H, C, Dk] and v [H, C, Dv]; int8 has k_scales and v_scales [H, C]."""

    axis = 1  # of the tokens

    def __init__(self, config: MLAConfig, fmt: str, capacity: int) -> None:
        heads, dtype = config.num_heads, _DTYPES[fmt]
        self.capacity = capacity
        self.k = lazy_array((heads, capacity, config.qk_nope_head_dim + config.qk_rope_head_dim), dtype)
        self.v = lazy_array((heads, capacity, config.v_head_dim), dtype)
        int8 = fmt == "int8"
        self.k_scales = lazy_array((heads, capacity), np.float32) if int8 else None
        self.v_scales = lazy_array((heads, capacity), np.float32) if int8 else None
        self.view = ExpandedKV(fmt, self.k, self.v, self.k_scales, self.v_scales)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name."""
        named = {"k": self.k, "v": self.v}
        if self.k_scales is not None and self.v_scales is not None:
            named |= {"k_scales": self.k_scales, "v_scales": self.v_scales}
        return named


KVCache = LatentCache | ExpandedCache


def make_kv_cache(config: MLAConfig, layout: str, fmt: str, capacity: int) -> KVCache:
    check_kind(layout, fmt)
    return (LatentCache if layout == "latent" else ExpandedCache)(config, fmt, capacity)
