"""Caches in poisoned memory, for the tests of MLA."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mindnano.kernels import ExpandedKV, LatentKV
from mindnano.kernels.reference import mla as ref

FORMATS = ("fp32", "bf16", "fp16", "int8")
DTYPES = {"fp32": np.float32, "bf16": np.uint16, "fp16": np.uint16, "int8": np.int8}


def poisoned(format: str, *shape: int) -> np.ndarray:
    """NaN in every float format, -128 in int8."""
    if format == "int8":
        return np.full(shape, -128, np.int8)
    return np.full(shape, np.nan, np.float32) if format == "fp32" else np.full(shape, 0x7FFF, np.uint16)


@dataclass
class Latent:
    """A latent cache of `capacity` rows, the first len(latent) written, and what it holds as floats."""

    format: str
    arrays: tuple[np.ndarray, np.ndarray | None, np.ndarray]
    view: LatentKV
    latent: np.ndarray
    rope: np.ndarray

    @classmethod
    def of(cls, format: str, latent: np.ndarray, rope: np.ndarray, capacity: int) -> Latent:
        length, rank = latent.shape
        kept = "bf16" if format == "int8" else format
        c, r = poisoned(format, capacity, rank), poisoned(kept, capacity, rope.shape[1])
        r[:length] = ref.store(kept, rope)
        scales = None
        if format == "int8":
            scales = np.full((capacity, -(-rank // 128)), np.nan, np.float32)
            c[:length], scales[:length] = ref.quantize_latent(latent)
            latent = ref.dequantize_latent(c[:length], scales[:length])
        else:
            c[:length] = ref.store(format, latent)
            latent = ref.load(format, c[:length])
        view = LatentKV(format, c, scales, r)
        return cls(format, (c, scales, r), view, latent, ref.load(kept, r[:length]))


@dataclass
class Expanded:
    """The same for an expanded cache; k [H, L, Dk], v [H, L, Dv]."""

    format: str
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]
    view: ExpandedKV
    k: np.ndarray
    v: np.ndarray

    @classmethod
    def of(cls, format: str, k: np.ndarray, v: np.ndarray, capacity: int) -> Expanded:
        heads, length, _ = k.shape
        kept, scales, floats = [], [], []
        for x in (k, v):
            a = poisoned(format, heads, capacity, x.shape[2])
            if format == "int8":
                s = np.full((heads, capacity), np.nan, np.float32)
                a[:, :length], s[:, :length] = ref.quantize(x)
                floats.append((a[:, :length] * s[:, :length, None]).astype(np.float32))
                scales.append(s)
            else:
                a[:, :length] = ref.store(format, x)
                floats.append(ref.load(format, a[:, :length]))
            kept.append(a)
        ks, vs = scales or (None, None)
        view = ExpandedKV(format, kept[0], kept[1], ks, vs)
        return cls(format, (kept[0], kept[1], ks, vs), view, *floats)

    def quantized(self, length: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        k, v, ks, vs = self.arrays
        assert ks is not None and vs is not None
        return (k[:, :length], ks[:, :length]), (v[:, :length], vs[:, :length])
