"""Named scratch arrays that live as long as the model, so that a step allocates nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = Any  # the dtype is the caller's choice
_MAX_VIEWS = 1024  # half a megabyte of Python objects


class Workspace:
    """Scratch arrays by name. A name has one buffer, as large as its largest use; contents are not kept.

    Two steps that overlap in time (a decode step inside a prefill) need a workspace each.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.uint8]] = {}
        self._views: dict[tuple[str, tuple[int, ...], DTypeLike], Array] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> Array:
        """The array `name` as `shape` and `dtype`: uninitialised, C-contiguous, valid until its next use."""
        view = self._views.get((name, shape, dtype))
        if view is None:
            view = self._make(name, shape, np.dtype(dtype))
            self._views[name, shape, dtype] = view
        return view

    def _make(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.nbytes < nbytes:
            buffer = self._buffers[name] = np.empty(nbytes, np.uint8)
            self._views = {key: view for key, view in self._views.items() if key[0] != name}
        if len(self._views) >= _MAX_VIEWS:
            self._views.clear()
        return buffer[:nbytes].view(dtype).reshape(shape)

    @property
    def nbytes(self) -> int:
        """Bytes held by all buffers together."""
        return sum(buffer.nbytes for buffer in self._buffers.values())
