"""Where packed tensors go: a file that appears whole or not at all, or memory."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol

import numpy as np

from mindnano.checkpoint.safetensors import NUMPY_TYPES, TensorSpec, build_header, padding
from mindnano.errors import MindNanoError
from mindnano.units import format_bytes


class Sink(Protocol):
    """Takes the bytes of the announced tensors, in order; a chunk never reaches over a tensor's end."""

    def write(self, chunk: np.ndarray) -> None: ...


class _Cursor:
    """Keeps the place in a list of tensors while their bytes arrive."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self.specs = specs
        self.index = 0
        self.done = 0

    def advance(self, nbytes: int) -> tuple[int, int, int]:
        """(tensor, offset of this chunk, padding due behind it)."""
        if self.index >= len(self.specs):
            raise AssertionError("more data than the announced tensors hold")
        index, offset, spec = self.index, self.done, self.specs[self.index]
        if offset + nbytes > spec.nbytes:
            raise AssertionError(
                f"{spec.name}: {offset + nbytes} bytes written, its shape needs {spec.nbytes}"
            )
        self.done += nbytes
        if self.done < spec.nbytes:
            return index, offset, 0
        self.index, self.done = self.index + 1, 0
        return index, offset, padding(spec.nbytes)

    def finish(self) -> None:
        if self.index != len(self.specs):
            raise AssertionError(f"{self.specs[self.index].name} was not written")


class MemorySink:
    """Collects the tensors as arrays, which become read-only at the end."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._cursor = _Cursor(specs)
        self.arrays = {s.name: aligned_empty(s.shape, np.dtype(NUMPY_TYPES[s.dtype])) for s in specs}
        self._bytes = [self.arrays[s.name].reshape(-1).view(np.uint8) for s in specs]

    def write(self, chunk: np.ndarray) -> None:
        data = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
        index, offset, _ = self._cursor.advance(data.nbytes)
        self._bytes[index][offset : offset + data.nbytes] = data

    def finish(self) -> dict[str, np.ndarray]:
        self._cursor.finish()
        for array in self.arrays.values():
            array.flags.writeable = False
        return self.arrays


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Uninitialised memory that starts at a multiple of 64 bytes, as tensors of a packed file do."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes].view(dtype).reshape(shape)


class FileSink:
    """Writes a safetensors file under a temporary name in the target's folder and renames it when it is whole
    and on the disk. Used as a context: leaving it by any exception, Ctrl-C included, removes the file."""

    def __init__(
        self, target: Path, specs: Sequence[TensorSpec], metadata: Mapping[str, str], *, force: bool = False
    ) -> None:
        self.target = target
        self._cursor = _Cursor(specs)
        self._header = build_header(specs, metadata)
        self.nbytes = len(self._header) + sum(s.nbytes + padding(s.nbytes) for s in specs)
        self._temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        self._force = force
        self._file: BinaryIO | None = None

    def __enter__(self) -> FileSink:
        check_target(self.target, self._force)
        check_space(self.target, self.nbytes)
        with self._disk_errors():
            self._file = self._temporary.open("xb")
        try:
            with self._disk_errors():
                self._file.write(self._header)
        except BaseException:
            self._discard()
            raise
        return self

    def write(self, chunk: np.ndarray) -> None:
        assert self._file is not None
        data = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
        _, _, pad = self._cursor.advance(data.nbytes)
        with self._disk_errors():
            self._file.write(data.data)
            if pad:
                self._file.write(bytes(pad))

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._commit()
        finally:
            self._discard()

    def _commit(self) -> None:
        assert self._file is not None
        self._cursor.finish()
        with self._disk_errors():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        check_target(self.target, self._force)
        with self._disk_errors():
            self._temporary.replace(self.target)
            folder = os.open(self.target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _discard(self) -> None:
        if self._file is not None:
            # Closing flushes what is buffered, which on a full disk fails once more.
            with contextlib.suppress(OSError):
                self._file.close()
            self._temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise MindNanoError(
                    f"{self.target}: the disk is full, {format_bytes(self.nbytes)} are needed"
                ) from None
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise MindNanoError(f"{self.target}: cannot be written ({reason})") from None


def check_target(target: Path, force: bool) -> None:
    """That a file may be written under this name."""
    if not target.parent.is_dir():
        raise MindNanoError(f"{target.parent}: no such folder; create it first")
    if target.is_dir():
        raise MindNanoError(f"{target}: is a folder, expected the name of a file to write")
    if (target.exists() or target.is_symlink()) and not force:
        raise MindNanoError(f"{target}: exists already; choose another name or pass --force")


def check_space(target: Path, nbytes: int) -> None:
    """That the target's disk has room for the whole file, told with the sum."""
    free = shutil.disk_usage(target.parent).free
    if free < nbytes:
        raise MindNanoError(
            f"{target}: needs {format_bytes(nbytes)}, the disk has {format_bytes(free)} free; "
            f"free {format_bytes(nbytes - free)} or choose another folder"
        )
