"""Session files: the checkpoints of one conversation.

    magic "MNSESS02" | header length u64 | header digest 32 bytes | header JSON | sections, each 64-byte aligned

The header binds the file to model, tokenizer, chat template, KV layout and format, holds the conversation, and lists
the sections with offset, size, dtype, shape and BLAKE2b-256 digest (docs/formats.md).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np

from mindnano.cache.atomic import NotSyncedError, new_file, write_all
from mindnano.cache.prefix import Piece
from mindnano.errors import (
    MindNanoError,
    SessionExistsError,
    SessionMismatchError,
    SessionNotFoundError,
    SessionStorageError,
)

MAGIC = b"MNSESS02"
ALIGN = 64
HEADER_MOST = 16 << 20
_FIXED = len(MAGIC) + 8 + 32
_CHUNK = 1 << 20
DTYPES = {"float32": np.float32, "uint16": np.uint16, "int8": np.int8, "int64": np.int64}


class Section(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    dtype: str
    shape: list[int]
    offset: int
    nbytes: int
    digest: str


class Binding(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What rows and states are only valid with: digests of model, tokenizer and template, layout and format.
    `model_name` is for people and binds nothing."""

    model: str
    tokenizer: str
    template: str
    kv_layout: str
    kv_format: str
    model_name: str = ""


class Header(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    created: float
    binding: Binding
    tokens: int
    messages: list[dict[str, Any]]
    settings: dict[str, Any]
    sections: list[Section]


def check_binding(saved: Binding, wanted: Binding, what: str) -> None:
    """Raises SessionMismatchError that names what differs.

    Nothing is converted: rows in another format aren't what the engine would have computed in that format, so
    answers would differ from those without the session.
    """
    for key in ("model", "tokenizer", "template", "kv_layout", "kv_format"):
        there, here = getattr(saved, key), getattr(wanted, key)
        if there != here:
            if key == "model" and saved.model_name != wanted.model_name:
                there, here = saved.model_name, wanted.model_name
            raise SessionMismatchError(
                f"{what}: saved with {key} {there!r}, this engine has {here!r}; what was computed with one is not "
                "exact for the other, so open the model as it was or start a new session"
            )


def describe(
    name: str,
    pieces: Sequence[Piece],
    messages: Sequence[Mapping[str, Any]],
    binding: Binding,
    settings: Mapping[str, Any],
) -> Header:
    """The header of a chain of checkpoints."""
    sections, offset = [], 0
    for section, array in _sections(pieces):
        data = _bytes(array)
        shape = list(array.shape)
        sections.append(Section(section, array.dtype.name, shape, offset, data.nbytes, _digest(data)))
        offset += _aligned(data.nbytes)
    tokens = sum(len(piece.tokens) for piece in pieces)
    return Header(name, time.time(), binding, tokens, [dict(m) for m in messages], dict(settings), sections)


def write(path: Path, header: Header, pieces: Sequence[Piece], what: str, replace: bool) -> int:
    """The file's bytes. Raises SessionStorageError, SessionExistsError; what was at `path` is then still there."""
    return _write(path, header, (_bytes(array) for _, array in _sections(pieces)), what, replace)


def copy(source: SessionFile, path: Path, header: Header, replace: bool) -> int:
    """The sections of another file under a new header. Raises as `write`."""
    blobs = (blob for section in source.header.sections for blob in source.chunks(section))
    return _write(path, header, blobs, source.what, replace)


class SessionFile:
    """A session file, open for reading. Its header is checked against its digest; sections are when they are read."""

    def __init__(self, path: Path, what: str) -> None:
        self.what = what
        self._fd = _open(path, what)
        try:
            self.nbytes = os.fstat(self._fd).st_size
            self.header, self._start = self._parse()
        except OSError as error:
            self.close()
            raise SessionStorageError(f"{what}: can't be read ({error.strerror})") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SessionFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def verify(self, section: Section) -> None:
        """Raises MindNanoError where a section's bytes aren't those that were written."""
        digest = hashlib.blake2b(digest_size=32)
        for blob in self.chunks(section):
            digest.update(blob)
        if digest.hexdigest() != section.digest:
            raise self._damaged(f"section {section.name!r}")
        self._check_padding(self._start + section.offset + section.nbytes, f"section {section.name!r}")

    def read(self, section: Section, into: np.ndarray) -> None:
        """Fill an array of the section's shape and dtype, and verify it. Raises MindNanoError."""
        view = memoryview(into.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self._fd, [view[done:]], self._start + section.offset + done)
            except OSError as error:
                raise SessionStorageError(f"{self.what}: can't be read ({error.strerror})") from error
            if not count:
                raise self._cut(section)
            done += count
        if _digest(view) != section.digest:
            raise self._damaged(f"section {section.name!r}")

    def chunks(self, section: Section) -> Iterator[memoryview]:
        """A section's bytes, as they are, in pieces of 1 MiB."""
        for at in range(0, section.nbytes, _CHUNK):
            blob = self._read(self._start + section.offset + at, min(_CHUNK, section.nbytes - at))
            if len(blob) < min(_CHUNK, section.nbytes - at):
                raise self._cut(section)
            yield memoryview(blob)

    def _check_padding(self, end: int, part: str) -> None:
        if self._read(end, _aligned(end) - end).strip(b"\0"):
            raise self._damaged(part)

    def _damaged(self, part: str) -> MindNanoError:
        return MindNanoError(f"{self.what}: {part} is damaged (checksum)")

    def _cut(self, section: Section) -> MindNanoError:
        return MindNanoError(f"{self.what}: cut short in section {section.name!r}")

    def _read(self, offset: int, count: int) -> bytes:
        try:
            return os.pread(self._fd, count, offset)
        except OSError as error:
            raise SessionStorageError(f"{self.what}: can't be read ({error.strerror})") from error

    def _parse(self) -> tuple[Header, int]:
        """The header and where the sections start, every offset and size held against the file."""
        lead, what = self._read(0, _FIXED), self.what
        if len(lead) < _FIXED or lead[:6] != MAGIC[:6]:
            raise MindNanoError(f"{what}: not a session file, or cut short")
        if lead[: len(MAGIC)] != MAGIC:
            version = lead[6:8].decode("ascii", "replace")
            raise MindNanoError(
                f"{what}: file version {version!r}, this program reads {MAGIC[6:].decode()!r}"
            )
        length = int.from_bytes(lead[8:16], "little")
        if length > min(HEADER_MOST, self.nbytes - _FIXED):
            raise MindNanoError(
                f"{what}: its header claims {length} bytes, the file has {self.nbytes - _FIXED}; cut short or damaged"
            )
        raw = self._read(_FIXED, length)
        if hashlib.blake2b(raw, digest_size=32).digest() != lead[16:48]:
            raise self._damaged("its header")
        self._check_padding(_FIXED + length, "its header")
        try:
            header = msgspec.json.decode(raw, type=Header)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MindNanoError(f"{what}: its header is damaged ({error})") from None
        start = _aligned(_FIXED + length)
        self._check_layout(header, start)
        return header, start

    def _check_layout(self, header: Header, start: int) -> None:
        """Sections lie one behind the other and fill the file: no gap, no overlap, nothing behind them."""
        offset = 0
        for section in header.sections:
            dtype, count = DTYPES.get(section.dtype), 1
            for size in section.shape:  # Python integers: the product can't wrap around
                count *= max(size, 0)
            if (
                dtype is None
                or count * np.dtype(dtype).itemsize != section.nbytes
                or section.offset != offset
            ):
                raise MindNanoError(f"{self.what}: section {section.name!r} doesn't match its shape or place")
            offset += _aligned(section.nbytes)
        if start + offset != self.nbytes:
            raise MindNanoError(
                f"{self.what}: {self.nbytes} bytes, expected {start + offset}; cut short or damaged"
            )


def _open(path: Path, what: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise SessionNotFoundError(f"{what}: there is none of that name in {path.parent}") from None
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise SessionStorageError(f"{what}: can't be read ({reason})") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise MindNanoError(f"{what}: is no regular file")
    return fd


def _write(path: Path, header: Header, blobs: Iterator[memoryview], what: str, replace: bool) -> int:
    try:
        encoded = msgspec.json.encode(header)
    except (TypeError, ValueError, RecursionError) as error:
        raise MindNanoError(f"{what}: messages and settings must be JSON values ({error})") from None
    if len(encoded) > HEADER_MOST:
        raise MindNanoError(
            f"{what}: the conversation's text takes {len(encoded)} bytes, a session holds at most {HEADER_MOST}"
        )
    lead = MAGIC + len(encoded).to_bytes(8, "little") + hashlib.blake2b(encoded, digest_size=32).digest()

    def pieces() -> Iterator[bytes | memoryview]:
        yield lead + encoded + _padding(_FIXED + len(encoded))
        for blob in blobs:
            yield blob
            yield _padding(blob.nbytes)

    try:
        with new_file(path, replace) as fd:
            write_all(fd, pieces())
            nbytes = os.fstat(fd).st_size
    except FileExistsError:
        raise SessionExistsError(f"session {header.name!r}: there is one of that name already") from None
    except NotSyncedError as error:
        raise SessionStorageError(
            f"{what}: is saved, but {path.parent} can't be synced ({error.strerror}); a power failure may undo it"
        ) from error
    except OSError as error:
        raise SessionStorageError(
            f"{what}: could not be saved in {path.parent} ({error.strerror}); an older one is untouched"
        ) from error
    return nbytes


def _sections(pieces: Sequence[Piece]) -> Iterator[tuple[str, np.ndarray]]:
    for i, piece in enumerate(pieces):
        yield f"{i}.tokens", piece.tokens
        for name, array in piece.rows.arrays.items():
            yield f"{i}.rows.{name}", array
        if piece.states is not None:
            for name, array in piece.states.arrays.items():
                yield f"{i}.states.{name}", array


def _digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def _padding(nbytes: int) -> bytes:
    return bytes(_aligned(nbytes) - nbytes)
