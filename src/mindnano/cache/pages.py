"""Arrays on mappings of their own: they take memory only where they are written, and give it back when they go."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

Array = Any  # the dtype is the caller's choice
PAGE = mmap.PAGESIZE
_ALIGN = 64


def lazy_array(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Zeros whose pages take memory only once they are written."""
    return arena({"": (shape, dtype)})[""]


def arena(shapes: Mapping[str, tuple[tuple[int, ...], DTypeLike]]) -> dict[str, Array]:
    """Lazy zeros of several shapes and dtypes in one mapping of `arena_bytes`, given back with the last of them."""
    if not shapes:
        return {}
    # Private, so that it doesn't count as shared memory. The heap would keep what was freed.
    memory = mmap.mmap(-1, arena_bytes(shapes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    found, offset = {}, 0
    for name, (shape, dtype) in shapes.items():
        count = int(np.prod(shape, dtype=np.int64))
        found[name] = np.frombuffer(memory, dtype, count, offset).reshape(shape)
        offset += _aligned(count * np.dtype(dtype).itemsize)
    return found


def arena_bytes(shapes: Mapping[str, tuple[tuple[int, ...], DTypeLike]]) -> int:
    """Bytes of a mapping for these shapes: whole pages."""
    total = sum(
        _aligned(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
        for shape, dtype in shapes.values()
    )
    return max(PAGE, -(-total // PAGE) * PAGE)


def touch(array: Array) -> None:
    """Make a contiguous array's pages take memory now; what was in it is lost."""
    flat = array.reshape(-1).view(np.uint8)
    flat[::PAGE] = 0
    flat[-1:] = 0


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN
