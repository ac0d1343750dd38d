"""Session snapshots: the checkpoints of one conversation as one file.

    magic "MNSESS01" | header length u64 | header digest 32 bytes | header JSON | sections, each 64-byte aligned

The header binds the file to the model (identity), tokenizer, chat template, KV layout and format, and lists the
sections with offset, size, dtype, shape and BLAKE2b-256 digest. A file is written under a temporary name in the
same folder, synced and renamed, and the folder synced; it is verified as a whole before anything live is touched.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from mindnano.cache.prefix import Array, Node, StateCopy, rows_of
from mindnano.cache.slots import SlotPool
from mindnano.errors import MindNanoError

MAGIC = b"MNSESS01"
SUFFIX = ".mnsession"
ALIGN = 64
_HEADER_MOST = 16 << 20
_NAME = re.compile(r"[^\x00-\x1f\x7f/\\]{1,100}")
_DTYPES = {"float32": np.float32, "uint16": np.uint16, "int8": np.int8, "int64": np.int64}


class Section(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    dtype: str
    shape: list[int]
    offset: int
    nbytes: int
    digest: str


class Header(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    binding: dict[str, str]
    tokens: int
    messages: list[dict[str, Any]]
    sections: list[Section]


@dataclass(frozen=True)
class SessionInfo:
    """A snapshot in a folder: its name, tokens and bytes; `problem` says why it can't be loaded, else empty."""

    name: str
    tokens: int
    nbytes: int
    problem: str = ""


def check_name(name: str) -> str:
    """The name if it can be one. It never becomes a path: the file is named by its digest."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise MindNanoError(
            f"session name: expected 1 to 100 printable characters without / or \\, got {name!r}"
        )
    return name


def session_path(folder: Path, name: str) -> Path:
    digest = hashlib.blake2b(check_name(name).encode(), digest_size=16).hexdigest()
    return folder / (digest + SUFFIX)


def _digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _parts(nodes: list[Node]) -> Iterator[tuple[str, np.ndarray]]:
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


def save(
    folder: Path, name: str, nodes: list[Node], messages: list[dict[str, Any]], binding: dict[str, str]
) -> SessionInfo:
    """Write the chain of `nodes`, root's child first, as session `name`, replacing what had that name.

    `messages` is the conversation as the caller wants it back.

    Raises MindNanoError where the folder can't be written; an older snapshot is then still there.
    """
    path = session_path(folder, name)
    parts = list(_parts(nodes))
    sections, offset = [], 0
    for part, array in parts:
        data = _bytes(array)
        sections.append(
            Section(part, array.dtype.name, list(array.shape), offset, data.nbytes, _digest(data))
        )
        offset += -(-data.nbytes // ALIGN) * ALIGN
    header = msgspec.json.encode(Header(name, binding, sum(len(n.tokens) for n in nodes), messages, sections))
    start = -(-(len(MAGIC) + 8 + 32 + len(header)) // ALIGN) * ALIGN
    temporary = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(prefix=".saving-", suffix=SUFFIX + ".tmp", dir=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(
                MAGIC + len(header).to_bytes(8, "little") + hashlib.blake2b(header, digest_size=32).digest()
            )
            file.write(header)
            for (_, array), section in zip(parts, sections, strict=True):
                file.seek(start + section.offset)
                file.write(_bytes(array))
            file.truncate(start + offset)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        temporary = None
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise MindNanoError(
            f"session {name!r}: could not be saved in {folder} ({error.strerror}); an older one is untouched"
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    return SessionInfo(name, sum(len(n.tokens) for n in nodes), start + offset)


def _open(path: Path) -> bytes | memoryview:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size == 0:
            return b""
        return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(fd)


def _header(data: bytes | memoryview, what: str) -> tuple[Header, int]:
    fixed = len(MAGIC) + 8 + 32
    if len(data) < fixed or bytes(data[:6]) != MAGIC[:6]:
        raise MindNanoError(f"{what}: not a session snapshot, or cut short")
    if bytes(data[: len(MAGIC)]) != MAGIC:
        version = bytes(data[6:8]).decode("ascii", "replace")
        raise MindNanoError(
            f"{what}: snapshot version {version!r}, this program reads {MAGIC[6:].decode()!r}"
        )
    length = int.from_bytes(data[8:16], "little")
    if length > min(_HEADER_MOST, len(data) - fixed):
        raise MindNanoError(f"{what}: its header claims {length} bytes, the file has {len(data) - fixed}")
    raw = bytes(data[fixed : fixed + length])
    if hashlib.blake2b(raw, digest_size=32).digest() != bytes(data[16:48]):
        raise MindNanoError(f"{what}: its header is damaged (checksum)")
    try:
        header = msgspec.json.decode(raw, type=Header)
    except msgspec.MsgspecError as error:
        raise MindNanoError(f"{what}: its header is damaged ({error})") from None
    return header, -(-(fixed + length) // ALIGN) * ALIGN


def _array(section: Section, data: bytes | memoryview, start: int, what: str) -> np.ndarray:
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
    if _digest(data[begin:end]) != section.digest:
        raise MindNanoError(f"{what}: section {section.name!r} is damaged (checksum)")
    return np.frombuffer(data[begin:end], dtype).reshape(section.shape)


def load(
    pool: SlotPool, folder: Path, name: str, binding: dict[str, str]
) -> tuple[list[Node], list[dict[str, Any]]]:
    """The checkpoints of session `name`, each without a parent yet, and its messages; wholly verified.

    Raises MindNanoError: no such session, damaged, or made by another model, template, layout or format.
    """
    what = f"session {check_name(name)!r}"
    try:
        data = _open(session_path(folder, name))
    except FileNotFoundError:
        raise MindNanoError(f"{what}: there is none of that name in {folder}") from None
    except OSError as error:
        raise MindNanoError(f"{what}: can't be read ({error.strerror})") from error
    header, start = _header(data, what)
    if header.name != name:
        raise MindNanoError(f"{what}: the file holds session {header.name!r}")
    for key, value in binding.items():
        if header.binding.get(key) != value:
            raise MindNanoError(
                f"{what}: saved with {key} {header.binding.get(key)!r}, this engine has {value!r}; open the model with "
                "the same or start a new session"
            )
    arrays: list[dict[str, Array]] = []
    for section in header.sections:
        index, _, part = section.name.partition(".")
        if index not in (str(len(arrays) - 1), str(len(arrays))):
            raise MindNanoError(f"{what}: section {section.name!r} is out of order")
        if index == str(len(arrays)):
            arrays.append({})
        arrays[-1][part] = _array(section, data, start, what)
    nodes, begin = [], 0
    for parts in arrays:
        nodes.append(_node(pool, parts, begin, what))
        begin = nodes[-1].end
    if begin != header.tokens:
        raise MindNanoError(f"{what}: holds {begin} tokens, its header says {header.tokens}")
    return nodes, header.messages


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


def list_sessions(folder: Path) -> list[SessionInfo]:
    """The snapshots in a folder, by name; unreadable ones with the problem."""
    found = []
    for path in sorted(folder.glob("*" + SUFFIX)) if folder.is_dir() else []:
        try:
            data = _open(path)
            header, _ = _header(data, path.name)
            found.append(SessionInfo(header.name, header.tokens, len(data)))
        except (OSError, MindNanoError) as error:
            found.append(SessionInfo(path.name, 0, 0, str(error)))
    return sorted(found, key=lambda info: info.name)


def delete(folder: Path, name: str) -> None:
    """Remove session `name`. Raises MindNanoError where there is none."""
    try:
        session_path(folder, name).unlink()
    except FileNotFoundError:
        raise MindNanoError(f"session {name!r}: there is none of that name in {folder}") from None
