"""safetensors files: a reader that trusts nothing, and the header for a writer.

Format (8-byte little-endian header length, JSON header, data): https://github.com/huggingface/safetensors.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mindnano.checkpoint import files
from mindnano.errors import MindNanoError, shorten

# The format allows headers of 100 MB. With these limits reading one takes less than 100 MB beyond the
# file's own size; 100,000 tensors need about 15 MB of header.
HEADER_LIMIT = 40_000_000
TENSOR_LIMIT = 100_000
ALIGNMENT = 64

# BF16 and the 8-bit floats have no NumPy type: their bits come as unsigned integers.
NUMPY_TYPES: dict[str, type[np.generic]] = {
    "BOOL": np.uint8,
    "U8": np.uint8,
    "I8": np.int8,
    "F8_E4M3": np.uint8,
    "F8_E5M2": np.uint8,
    "U16": np.uint16,
    "I16": np.int16,
    "F16": np.float16,
    "BF16": np.uint16,
    "U32": np.uint32,
    "I32": np.int32,
    "F32": np.float32,
    "U64": np.uint64,
    "I64": np.int64,
    "F64": np.float64,
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a header: `start` and `end` count bytes from the file's beginning."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class SafetensorsFile:
    """A safetensors file, mapped into memory, every claim of its header checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = files.check_regular(path, "safetensors file")
        try:
            with path.open("rb") as file:
                header = self._read_header(file)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            if isinstance(error, MindNanoError):
                raise
            raise MindNanoError(f"{path}: cannot be read ({error})") from None
        if len(self._map) != self.size:
            raise MindNanoError(f"{path}: changed while it was opened; try again when it is complete")
        self.digest = hashlib.blake2b(header, digest_size=32).digest()
        self.metadata: dict[str, str] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self._parse(header)

    def _read_header(self, file: Any) -> bytes:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise MindNanoError(
                f"{self.path}: {self.size} bytes, expected a safetensors file (8 bytes and more)"
            )
        (length,) = struct.unpack("<Q", prefix)
        if length > HEADER_LIMIT:
            raise MindNanoError(
                f"{self.path}: claims a header of {length} bytes, expected at most {HEADER_LIMIT}; "
                "no safetensors file, or damaged"
            )
        if length > self.size - 8:
            raise MindNanoError(
                f"{self.path}: claims a header of {length} bytes but has only {self.size - 8} "
                "behind the length; truncated or damaged"
            )
        header = file.read(length)
        if len(header) != length:
            raise MindNanoError(f"{self.path}: truncated while it was read")
        return bytes(header)

    def _parse(self, header: bytes) -> None:
        where = f"{self.path}: header"
        found = files.parse_object(header, where, values=6 * TENSOR_LIMIT, objects=2 * TENSOR_LIMIT + 8)
        metadata = found.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            raise MindNanoError(
                f"{where}: __metadata__ is {shorten(metadata)}, expected an object of strings"
            )
        self.metadata = metadata
        base = 8 + len(header)
        while found:
            name, entry = found.popitem()
            self.tensors[name] = self._entry(name, entry, base)
        position = base
        for info in sorted(self.tensors.values(), key=lambda info: (info.start, info.end)):
            if info.start != position:
                kind = "overlaps another tensor" if info.start < position else "leaves a gap before it"
                raise MindNanoError(
                    f"{self.path}: tensor {shorten(info.name)} {kind} (starts at byte "
                    f"{info.start - base} of the data, expected {position - base})"
                )
            position = info.end
        if position != self.size:
            raise MindNanoError(
                f"{self.path}: the header describes {position - base} bytes of data, the file has "
                f"{self.size - base}; truncated or damaged"
            )

    def _entry(self, name: str, entry: Any, base: int) -> TensorInfo:
        where = f"{self.path}: tensor {shorten(name)}"
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise MindNanoError(f"{where} is {shorten(entry)}, expected dtype, shape and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in NUMPY_TYPES:
            raise MindNanoError(f"{where} has dtype {shorten(dtype)}, known are {', '.join(NUMPY_TYPES)}")
        if not _natural(shape) or len(shape) > 8:
            raise MindNanoError(f"{where} has shape {shorten(shape)}, expected up to 8 natural numbers")
        if not _natural(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise MindNanoError(f"{where} has data_offsets {shorten(offsets)}, expected [start, end]")
        length = np.dtype(NUMPY_TYPES[dtype]).itemsize
        for dimension in shape:  # Python integers: the product cannot wrap around
            length *= dimension
        start, end = offsets
        if length != end - start:
            raise MindNanoError(
                f"{where} of dtype {dtype} and shape {shorten(shape)} needs {length} bytes, its data_offsets "
                f"give {end - start}"
            )
        if base + end > self.size:
            raise MindNanoError(
                f"{where} ends at byte {base + end}, the file has {self.size}; truncated or damaged"
            )
        return TensorInfo(name, dtype, tuple(shape), base + start, base + end)

    def array(self, info: TensorInfo) -> np.ndarray:
        """The tensor as a read-only view of the mapping; nothing is read yet. Unaligned where the file
        leaves it so, which NumPy's operations can take and kernels cannot."""
        dtype = np.dtype(NUMPY_TYPES[info.dtype])
        count = (info.end - info.start) // dtype.itemsize
        if count == 0:
            return np.zeros(info.shape, dtype)
        return np.frombuffer(self._map, dtype, count, info.start).reshape(info.shape)

    def fingerprint(self) -> bytes:
        """A digest of the header and of 64 stretches of 4 KiB spread over the data: cheap at any size."""
        state = hashlib.blake2b(self.digest, digest_size=32)
        for step in range(64):
            offset = max(0, self.size - 4096) * step // 63
            state.update(self._map[offset : offset + 4096])
        return state.digest()

    def release(self) -> None:
        """Gives the pages read so far back to the system, so that streaming through a file stays small."""
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)


def _natural(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 63 for v in values
    )


@dataclass(frozen=True)
class TensorSpec:
    """A tensor to be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        size = np.dtype(NUMPY_TYPES[self.dtype]).itemsize
        for dimension in self.shape:
            size *= dimension
        return size


def padding(nbytes: int) -> int:
    """Bytes from a tensor's end to the next aligned start."""
    return -nbytes % ALIGNMENT


def build_header(specs: Iterable[TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """Length and header for tensors written one behind the other, each followed by `padding` bytes.

    The format forbids gaps, so the padding becomes tensors of its own, `pad.0`, `pad.1`, ...; the header
    is padded with spaces. Every tensor then starts at a multiple of 64 bytes in the file.
    """
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    position = pads = 0

    def add(spec: TensorSpec) -> None:
        nonlocal position
        end = position + spec.nbytes
        entries[spec.name] = {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            "data_offsets": [position, end],
        }
        position = end

    for spec in specs:
        add(spec)
        if padding(spec.nbytes):
            add(TensorSpec(f"pad.{pads}", "U8", (padding(spec.nbytes),)))
            pads += 1
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * padding(8 + len(text))
    return struct.pack("<Q", len(text)) + text
