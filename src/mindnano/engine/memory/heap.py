"""Freed memory back to the system."""

from __future__ import annotations

import ctypes
import sys


def trim() -> None:
    """Give back what the allocator keeps of freed blocks; where it isn't glibc's, nothing.

    Engines that are opened and closed in turn leave holes of different sizes, which would add up.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
