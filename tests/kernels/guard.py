"""Arrays that end where readable memory ends."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_keep: list[mmap.mmap] = []  # never unmapped: arrays may outlive the test


def at_page_end(array: np.ndarray) -> np.ndarray:
    """A copy whose last byte is the last one before a page that can be neither read nor written."""
    room = -(-array.nbytes // PAGE) * PAGE
    area = mmap.mmap(-1, room + PAGE)
    _keep.append(area)
    base = np.frombuffer(area, np.uint8)
    if _libc.mprotect(ctypes.c_void_p(base.ctypes.data + room), ctypes.c_size_t(PAGE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    copy = base[room - array.nbytes : room].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
