"""Session files: the checkpoints of one conversation.

    magic "MNSESS02" | header length u64 | header digest 32 bytes | header JSON | sections, each 64-byte aligned

The header binds the file to model, tokenizer, chat template, KV layout and format, holds the conversation, and lists
the sections with offset, size, dtype, shape and BLAKE2b-256 digest (docs/formats.md).
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mindnano.cache.atomic import new_file, write_all
from mindnano.cache.prefix import Array, Node, StateCopy, rows_of
from mindnano.cache.slots import SlotPool
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
_DTYPES = {"float32": np.float32, "uint16": np.uint16, "int8": np.int8, "int64": np.int64}


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


def describe(
    name: str,
    nodes: Sequence[Node],
    messages: Sequence[Mapping[str, Any]],
    binding: Binding,
    settings: Mapping[str, Any],
) -> Header:
    """The header of a chain of checkpoints."""
    sections, offset = [], 0
    for part, array in _parts(nodes):
        data = _bytes(array)
        shape = list(array.shape)
        sections.append(Section(part, array.dtype.name, shape, offset, data.nbytes, _digest(data)))
        offset += _aligned(data.nbytes)
    tokens = sum(len(node.tokens) for node in nodes)
    return Header(name, time.time(), binding, tokens, [dict(m) for m in messages], dict(settings), sections)


def write(path: Path, header: Header, nodes: Sequence[Node], what: str, replace: bool) -> int:
    """The file's bytes. Raises SessionStorageError, SessionExistsError; what was at `path` is then still there."""
    blobs = (_bytes(array) for _, array in _parts(nodes))
    return _write(path, header, blobs, what, replace)


def copy(source: Path, path: Path, header: Header, what: str, replace: bool) -> int:
    """The sections of file `source` under another header. Raises as `write`."""
    data = _open(source, what)
    _, start = _parse(data, what)
    blobs = (
        memoryview(data)[start + section.offset : start + section.offset + section.nbytes]
        for section in header.sections
    )
    return _write(path, header, blobs, what, replace)


def read_header(path: Path, what: str) -> tuple[Header, int]:
    """The header, checked against its digest, and the file's bytes. Raises MindNanoError."""
    data = _open(path, what)
    return _parse(data, what)[0], len(data)


def load(path: Path, pool: SlotPool, binding: Binding, what: str) -> tuple[Header, list[Node], int]:
    """The header, the checkpoints (each without a parent yet) and the file's bytes; wholly verified.

    Raises SessionMismatchError where it was made by another model, template, layout or format, MindNanoError where
    it is damaged.
    """
    data = _open(path, what)
    header, start = _parse(data, what)
    _check_binding(header.binding, binding, what)
    arrays: list[dict[str, Array]] = []
    for section in header.sections:
        index, _, part = section.name.partition(".")
        if index not in (str(len(arrays) - 1), str(len(arrays))):
            raise MindNanoError(f"{what}: section {section.name!r} is out of order")
        if index == str(len(arrays)):
            arrays.append({})
        arrays[-1][part] = _array(section, data, start, what)
    nodes: list[Node] = []
    for parts in arrays:
        nodes.append(_node(pool, parts, nodes[-1].end if nodes else 0, what))
    held = nodes[-1].end if nodes else 0
    if held != header.tokens:
        raise MindNanoError(f"{what}: holds {held} tokens, its header says {header.tokens}")
    return header, nodes, len(data)


def _check_binding(saved: Binding, wanted: Binding, what: str) -> None:
    for key in ("model", "tokenizer", "template", "kv_layout", "kv_format"):
        there, here = getattr(saved, key), getattr(wanted, key)
        if there != here:
            if key == "model":
                there, here = saved.model_name or there, wanted.model_name or here
            raise SessionMismatchError(
                f"{what}: saved with {key} {there!r}, this engine has {here!r}; rows and states of one are not those "
                "of the other, so open the model as it was or start a new session"
            )


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
        yield lead + encoded + bytes(_aligned(_FIXED + len(encoded)) - _FIXED - len(encoded))
        for blob in blobs:
            yield blob
            yield bytes(_aligned(blob.nbytes) - blob.nbytes)

    try:
        with new_file(path, replace) as fd:
            write_all(fd, pieces())
            nbytes = os.fstat(fd).st_size
    except FileExistsError:
        raise SessionExistsError(f"session {header.name!r}: there is one of that name already") from None
    except OSError as error:
        raise SessionStorageError(
            f"{what}: could not be saved in {path.parent} ({error.strerror}); an older one is untouched"
        ) from error
    return nbytes


def _open(path: Path, what: str) -> bytes | mmap.mmap:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise SessionNotFoundError(f"{what}: there is none of that name in {path.parent}") from None
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise SessionStorageError(f"{what}: can't be read ({reason})") from error
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise MindNanoError(f"{what}: is no regular file")
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ) if info.st_size else b""
    finally:
        os.close(fd)


def _parse(data: bytes | mmap.mmap, what: str) -> tuple[Header, int]:
    """The header and where the sections start."""
    if len(data) < _FIXED or data[:6] != MAGIC[:6]:
        raise MindNanoError(f"{what}: not a session file, or cut short")
    if data[: len(MAGIC)] != MAGIC:
        version = data[6:8].decode("ascii", "replace")
        raise MindNanoError(f"{what}: file version {version!r}, this program reads {MAGIC[6:].decode()!r}")
    length = int.from_bytes(data[8:16], "little")
    if length > min(HEADER_MOST, len(data) - _FIXED):
        raise MindNanoError(f"{what}: its header claims {length} bytes, the file has {len(data) - _FIXED}")
    raw = data[_FIXED : _FIXED + length]
    if hashlib.blake2b(raw, digest_size=32).digest() != data[16:48]:
        raise MindNanoError(f"{what}: its header is damaged (checksum)")
    try:
        header = msgspec.json.decode(raw, type=Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MindNanoError(f"{what}: its header is damaged ({error})") from None
    return header, _aligned(_FIXED + length)


def _array(section: Section, data: bytes | mmap.mmap, start: int, what: str) -> np.ndarray:
    dtype = _DTYPES.get(section.dtype)
    count = 1
    for size in section.shape:
        count *= size if size >= 0 else 1 << 62
    begin, end = start + section.offset, start + section.offset + section.nbytes
    if (
        dtype is None
        or section.offset < 0
        or count * np.dtype(dtype).itemsize != section.nbytes
        or end > len(data)
    ):
        raise MindNanoError(f"{what}: section {section.name!r} is cut short or doesn't match its shape")
    view = memoryview(data)[begin:end]
    if _digest(view) != section.digest:
        raise MindNanoError(f"{what}: section {section.name!r} is damaged (checksum)")
    return np.frombuffer(view, dtype).reshape(section.shape)


def _node(pool: SlotPool, parts: dict[str, Array], begin: int, what: str) -> Node:
    """One checkpoint from its arrays, every shape held against what this engine would have made."""
    tokens = parts.pop("tokens", np.empty(0, np.int64))
    logits = parts.pop("logits", None)
    states = StateCopy()
    rows: dict[int, dict[str, Array]] = {}
    wanted: dict[str, tuple[tuple[int, ...], str]] = {}
    for layer, state in pool.states.items():
        wanted[f"memory.{layer}"] = state.memory.shape[1:], "float32"
        wanted[f"conv.{layer}"] = state.conv.shape[1:], "float32"
    count = len(tokens)
    for layer, kv in pool.slots[0].kv.items():
        for name, array in kv.arrays().items():
            whole = rows_of(kv, array, 0, min(count, kv.capacity)).shape
            axis = 0 if array.shape[0] == kv.capacity and whole[0] == count else 1
            shape = tuple(count if i == axis else n for i, n in enumerate(whole))
            wanted[f"rows.{layer}.{name}"] = shape, array.dtype.name
    for part, (shape, dtype) in wanted.items():
        found = parts.get(part)
        if found is None or found.shape != shape or found.dtype.name != dtype:
            have = "nothing" if found is None else f"{found.dtype.name} {list(found.shape)}"
            raise MindNanoError(f"{what}: section {part!r} is {have}, expected {dtype} {list(shape)}")
        kind, layer_text, *rest = part.split(".")
        layer = int(layer_text)
        if kind == "rows":
            rows.setdefault(layer, {})[rest[0]] = found
        else:
            getattr(states, kind)[layer] = found
    vocabulary = pool.config.vocab_size
    if (
        tokens.ndim != 1
        or tokens.dtype != np.int64
        or not count
        or tokens.min() < 0
        or tokens.max() >= vocabulary
    ):
        raise MindNanoError(f"{what}: its tokens are not ids of this model's vocabulary")
    if logits is not None and (logits.shape != (vocabulary,) or logits.dtype != np.float32):
        raise MindNanoError(f"{what}: its logits are {list(logits.shape)}, expected [{vocabulary}]")
    return Node(None, tokens.astype(np.int64, copy=False), begin, rows, states, 0, logits)


def _parts(nodes: Sequence[Node]) -> Iterator[tuple[str, np.ndarray]]:
    for i, node in enumerate(nodes):
        yield f"{i}.tokens", node.tokens
        for layer, named in node.rows.items():
            for name, rows in named.items():
                yield f"{i}.rows.{layer}.{name}", rows
        assert node.states is not None
        for layer in node.states.memory:
            yield f"{i}.memory.{layer}", node.states.memory[layer]
            yield f"{i}.conv.{layer}", node.states.conv[layer]
        if node.logits is not None:
            yield f"{i}.logits", node.logits


def _digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN
