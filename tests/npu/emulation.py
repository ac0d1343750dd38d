"""Builds the emulated library with the system's C compiler, once for each state of its sources, and controls it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent / "emulator"
COMPILER = os.environ.get("CC") or next(name for name in ("cc", "gcc", "clang") if shutil.which(name))
FLAGS = (
    "-std=c11",
    "-O3",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-pthread",
)


@cache
def build() -> Path:
    """The library's path."""
    files = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.blake2b(repr((COMPILER, FLAGS)).encode(), digest_size=8)
    for file in files:
        digest.update(file.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"mindnano-rknn-{os.getuid()}-{digest.hexdigest()}"
    target = folder / "librknnrt.so"
    if not target.exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        made = folder / f"{os.getpid()}.so"
        sources = [str(file) for file in files if file.suffix == ".c"]
        subprocess.run([COMPILER, *FLAGS, *sources, "-lm", "-o", str(made)], check=True)
        made.rename(target)
    return target


class Emulator:
    """The loaded emulation: faults, counts and broken rules."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.dll = ctypes.CDLL(self.path)
        self.dll.rknn_emu_violations.restype = self.dll.rknn_emu_count.restype = ctypes.c_long
        self.expected = False  # whether the test breaks rules on purpose

    def fault(self, spec: str) -> None:
        """KIND@N: see faults.c. Counted from now on; "" for none."""
        assert self.dll.rknn_emu_fault(spec.encode()) == 0, spec

    def cost(self, spec: str) -> None:
        assert self.dll.rknn_emu_cost(spec.encode()) == 0, spec

    def count(self, what: str) -> int:
        found = self.dll.rknn_emu_count(what.encode())
        assert found >= 0, what
        return found

    def violations(self) -> tuple[int, str]:
        """How many rules were broken, and the last one."""
        text = ctypes.create_string_buffer(256)
        return self.dll.rknn_emu_violations(text, len(text)), text.value.decode()

    def reset(self) -> None:
        self.fault("")
        self.cost("")
        self.dll.rknn_emu_reset()
        self.expected = False
