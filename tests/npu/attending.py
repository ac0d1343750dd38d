"""Random caches and queries, and one block's attention by a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mindnano.cache.kv import KVCache, make_kv_cache
from mindnano.checkpoint.config import MLAConfig
from mindnano.device.choice import Attention, Devices
from mindnano.device.cpu import CpuAttention
from mindnano.kernels import Matrix, packing
from mindnano.kernels.reference import mla as ref
from mindnano.model.stages import StageClock


def shape(heads: int, nope: int, rope: int, v_dims: int, rank: int) -> MLAConfig:
    return MLAConfig(
        num_heads=heads, q_lora_rank=None, kv_lora_rank=rank, qk_nope_head_dim=nope, qk_rope_head_dim=rope,
        v_head_dim=v_dims, rope_theta=1e4, head_gate=False,
    )  # fmt: skip


LING = shape(16, 128, 64, 128, 512)
SMALL = shape(4, 24, 8, 16, 32)


def filled(rng: np.random.Generator, config: MLAConfig, layout: str, fmt: str, capacity: int) -> KVCache:
    """A cache all of whose rows hold heavy-tailed values."""
    cache = make_kv_cache(config, layout, fmt, capacity)
    for array in cache.arrays().values():
        values = rng.standard_t(3, array.shape).astype(np.float32)
        if array.dtype == np.int8:
            array[:] = np.clip(np.rint(values * 20), -127, 127)
        elif array.dtype == np.float32 and fmt == "int8":
            array[:] = np.abs(values) / 60
        else:
            array[:] = ref.store("bf16" if fmt == "int8" else fmt, values)
    return cache


@dataclass
class Case:
    """A block of `rows` queries on `start` earlier tokens."""

    config: MLAConfig
    layout: str
    fmt: str
    start: int
    rows: int
    seed: int = 0

    def __post_init__(self) -> None:
        c, rng = self.config, np.random.default_rng(self.seed)
        self.kv = filled(rng, c, self.layout, self.fmt, self.start + self.rows + 3)
        width = c.qk_nope_head_dim + c.qk_rope_head_dim
        self.q = rng.standard_t(3, (self.rows, c.num_heads, width)).astype(np.float32)
        kv_b = rng.standard_normal((c.num_heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank))
        self.weights = (kv_b / np.sqrt(c.kv_lora_rank)).astype(np.float32)
        if self.fmt == "int8":
            self.kv_b = Matrix.w8(*packing.quantize_w8(self.weights), *kv_b.shape)
        else:
            self.kv_b = Matrix.dense(self.weights, "fp32")
        self.scale = width**-0.5

    def exact(self) -> np.ndarray:
        """Of a float cache, in double precision."""
        n, arrays = self.start + self.rows, {k: ref.load(self.fmt, v) for k, v in self.kv.arrays().items()}
        if self.layout == "expanded":
            k, v = arrays["k"][:, :n], arrays["v"][:, :n]
        else:
            c = self.config
            k, v = ref.expand(
                arrays["latent"][:n], arrays["rope"][:n], self.weights, c.num_heads, c.v_head_dim
            )
        return ref.attend(self.q, k, v, self.start, self.scale)

    def run(self, device: CpuAttention | Attention, clock: StageClock | None = None) -> np.ndarray:
        c = self.config
        out = np.full((self.rows, c.num_heads, c.v_head_dim), np.nan, np.float32)
        for _ in device.attend(
            self.q, self.kv, self.kv_b, self.start, self.scale, out, clock or StageClock()
        ):
            pass
        return out

    def on_cpu(self) -> np.ndarray:
        return self.run(CpuAttention(self.config, self.fmt))

    def on_npu(self, devices: Devices, clock: StageClock | None = None) -> np.ndarray:
        return self.run(Attention(self.config, self.fmt, devices), clock)
