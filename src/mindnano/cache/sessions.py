"""Named sessions in a folder: list, save, load, rename, delete. Names come from outside and never become paths."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from mindnano.cache import snapshot
from mindnano.cache.atomic import sync_folder
from mindnano.cache.prefix import Piece
from mindnano.cache.saved import SavedPieces
from mindnano.cache.slots import SlotPool
from mindnano.cache.snapshot import Binding, Header, SessionFile
from mindnano.errors import MindNanoError, SessionNotFoundError, SessionStorageError

SUFFIX = ".mnsession"
_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f/\\\ud800-\udfff\u2028\u2029]{1,100}")


@dataclass(frozen=True)
class SessionInfo:
    """A session in a folder, from its header.

    created: seconds since 1970. tokens: of the prompt that were computed and kept. model: for people; the binding
    has its digest. messages: how many. problem: why it can't be loaded, else empty (the other fields are then
    empty too, and the name is the file's).
    """

    name: str
    created: float = 0.0
    tokens: int = 0
    nbytes: int = 0
    model: str = ""
    kv_layout: str = ""
    kv_format: str = ""
    messages: int = 0
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the time in ISO 8601, UTC."""
        return vars(self) | {
            "created": datetime.fromtimestamp(self.created, UTC).isoformat(timespec="seconds")
        }


@dataclass(frozen=True)
class Saved:
    """A session's conversation as it was saved."""

    info: SessionInfo
    messages: list[dict[str, Any]]
    settings: dict[str, Any]


def check_name(name: object) -> str:
    """The name if it can be one: 1 to 100 printable characters without / and \\."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name != name.strip() or name in (".", ".."):
        raise MindNanoError(
            f"session name: expected 1 to 100 printable characters without / or \\, got {str(name)[:120]!r}"
        )
    return name


class SessionStore:
    """The sessions of one folder, which is made when the first one is saved.

    Any number of processes can use a folder: a file appears whole or not at all, and the last save of a name wins.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def list(self) -> list[SessionInfo]:
        """All sessions by name; unreadable ones with the problem."""
        try:
            paths = sorted(self.folder.glob("*" + SUFFIX)) if self.folder.is_dir() else []
        except OSError as error:
            raise SessionStorageError(f"sessions: {self.folder} can't be read ({error.strerror})") from error
        return sorted((self._listed(path) for path in paths), key=lambda info: info.name)

    def info(self, name: str) -> SessionInfo:
        """One session's entry. Raises SessionNotFoundError, or MindNanoError where its header is damaged."""
        return self.read(name).info

    def read(self, name: str) -> Saved:
        """A session's messages and settings, without its checkpoints: enough to show the conversation."""
        with self._open(name) as file:
            return _saved(file)

    def save(
        self,
        name: str,
        pieces: Sequence[Piece],
        messages: Sequence[Mapping[str, Any]],
        binding: Binding,
        settings: Mapping[str, Any] | None = None,
        replace: bool = True,
    ) -> SessionInfo:
        """Write a chain of checkpoints, the beginning first, as session `name`.

        `messages` and `settings` come back as they are given (JSON values). Raises SessionExistsError where it
        is there and `replace` is false, SessionStorageError where the folder can't be written; an older session
        of that name is then still whole.
        """
        path = self._path(name)
        header = snapshot.describe(name, pieces, messages, binding, settings or {})
        nbytes = snapshot.write(path, header, pieces, _what(name), replace=replace)
        return _info(header, nbytes)

    def load(self, name: str, pool: SlotPool, binding: Binding) -> tuple[Saved, SavedPieces]:
        """A session and its checkpoints, wholly verified but not in memory yet; `pool` is only looked at.

        The second is to be used in a `with` block. Raises SessionNotFoundError, SessionMismatchError, MindNanoError
        where it is damaged.
        """
        file = self._open(name)
        try:
            snapshot.check_binding(file.header.binding, binding, file.what)
            return _saved(file), SavedPieces(file, pool)
        except BaseException:
            file.close()
            raise

    def rename(self, name: str, new: str, replace: bool = False) -> SessionInfo:
        """Give session `name` another name. Raises SessionNotFoundError, SessionExistsError, SessionStorageError."""
        target = self._path(new)
        with self._open(name) as file:
            if new == name:
                return _saved(file).info
            header = msgspec.structs.replace(file.header, name=new)
            nbytes = snapshot.copy(file, target, header, replace=replace)
        self.delete(name)
        return _info(header, nbytes)

    def delete(self, name: str) -> None:
        """Remove session `name`. Raises SessionNotFoundError where there is none."""
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            raise SessionNotFoundError(
                f"{_what(name)}: there is none of that name in {self.folder}"
            ) from None
        except OSError as error:
            raise SessionStorageError(f"{_what(name)}: can't be removed ({error.strerror})") from error
        with contextlib.suppress(
            OSError
        ):  # it is gone; that it stays so after a power failure is all this adds
            sync_folder(self.folder)

    def _path(self, name: str) -> Path:
        digest = hashlib.blake2b(check_name(name).encode(), digest_size=16).hexdigest()
        return self.folder / (digest + SUFFIX)

    def _open(self, name: str) -> SessionFile:
        file = SessionFile(self._path(name), _what(name))
        if file.header.name != name:
            file.close()
            raise MindNanoError(f"{_what(name)}: the file holds session {file.header.name!r}")
        return file

    def _listed(self, path: Path) -> SessionInfo:
        try:
            with SessionFile(path, path.name) as file:
                if self._path(file.header.name) != path:
                    raise MindNanoError(f"{path.name}: the file holds session {file.header.name!r}")
                return _saved(file).info
        except MindNanoError as error:
            return SessionInfo(path.name, problem=str(error))


def _saved(file: SessionFile) -> Saved:
    header = file.header
    return Saved(_info(header, file.nbytes), header.messages, header.settings)


def _what(name: str) -> str:
    return f"session {name!r}"


def _info(header: Header, nbytes: int) -> SessionInfo:
    return SessionInfo(
        name=header.name,
        created=header.created,
        tokens=header.tokens,
        nbytes=nbytes,
        model=header.binding.model_name,
        kv_layout=header.binding.kv_layout,
        kv_format=header.binding.kv_format,
        messages=len(header.messages),
    )
