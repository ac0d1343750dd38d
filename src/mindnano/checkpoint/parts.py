"""One stored matrix of a checkpoint: dense, or int4 of compressed-tensors' pack-quantized form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mindnano.checkpoint.layout import DENSE_DTYPES, Format
from mindnano.errors import MindNanoError

GROUP = 32
LARGEST = 1e16
_FORMATS: dict[str, Format] = {dtype: form for form, dtype in DENSE_DTYPES.items()}  # type: ignore[misc]


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """BF16 bits (uint16) as float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 rounded to BF16 bits (uint16), ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        rounded[nan] = 0x7FC0
    return rounded


def to_f32(array: np.ndarray, dtype: str) -> np.ndarray:
    """An array of a safetensors dtype as contiguous, aligned float32."""
    if dtype == "BF16":
        return bf16_to_f32(array)
    return np.require(array, np.float32, ("C", "A"))


def from_f32(values: np.ndarray, form: Format) -> np.ndarray:
    """float32 in a dense format of the kernels: float32, or bits of BF16 or F16."""
    if form == "bf16":
        return f32_to_bf16(values)
    if form == "fp16":
        return values.astype(np.float16).view(np.uint16)
    return np.ascontiguousarray(values, np.float32)


def check_values(values: np.ndarray, where: str) -> np.ndarray:
    """The values, or a MindNanoError where one is NaN, infinite, or so large that its square overflows."""
    if not (values.max() < LARGEST and values.min() > -LARGEST):
        raise MindNanoError(
            f"{where} holds NaN, infinity or values beyond {LARGEST:g}, expected weights; damaged"
        )
    return values


@dataclass(frozen=True)
class DensePart:
    """[rows, cols] in F32, F16 or BF16 (as bits), usually a view of a mapped file."""

    array: np.ndarray
    dtype: str
    where: str

    @property
    def rows(self) -> int:
        return int(self.array.shape[0])

    @property
    def form(self) -> Format:
        """The dense format that holds the values exactly."""
        return _FORMATS[self.dtype]

    def f32(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows as float32; raises where a value is no sane weight, as no product could be right."""
        return check_values(to_f32(self.array[start:stop], self.dtype), self.where)

    def dense(self, form: Format, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows in a dense format; bits are passed through where the format is the stored one."""
        if form == self.form:
            rows = np.require(self.array[start:stop], requirements=("C", "A"))
            return rows.view(np.uint16) if form == "fp16" else rows
        return from_f32(self.f32(start, stop), form)


@dataclass(frozen=True)
class Int4Part:
    """[rows, cols] as int32 words of eight nibbles along the input, least significant first, each q + 8, with
    one BF16 scale a group of 32."""

    packed: np.ndarray  # int32 [rows, ceil(cols / 8)]
    scales: np.ndarray  # uint16 [rows, ceil(cols / 32)]
    cols: int
    where: str

    form: Format = "fp32"  # q * scale has up to 11 significant bits: BF16 would round it

    @property
    def rows(self) -> int:
        return int(self.packed.shape[0])

    def values(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """The stored integers, int8 [rows, cols] in -8..7."""
        raw = np.ascontiguousarray(self.packed[start:stop]).view(np.uint8)
        both = np.stack((raw & 15, raw >> 4), axis=-1).reshape(len(raw), -1)
        return both[:, : self.cols].astype(np.int8) - np.int8(8)

    def scale_bits(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """The stored scales, BF16 bits [rows, groups]."""
        bits = np.ascontiguousarray(self.scales[start:stop])
        check_values(bf16_to_f32(bits), f"{self.where}_scale")
        return bits

    def f32(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        scales = np.repeat(bf16_to_f32(self.scale_bits(start, stop)), GROUP, axis=1)[:, : self.cols]
        product: np.ndarray = self.values(start, stop) * scales
        return check_values(product, self.where)

    def dense(self, form: Format, start: int = 0, stop: int | None = None) -> np.ndarray:
        return from_f32(self.f32(start, stop), form)


Part = DensePart | Int4Part
