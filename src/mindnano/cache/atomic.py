"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

TEMPORARY = ".saving-"


class NotSyncedError(OSError):
    """The file is in its place and whole, but its folder couldn't be synced: a power failure may undo that."""


@contextlib.contextmanager
def new_file(path: Path, replace: bool) -> Iterator[int]:
    """A descriptor to write; when the block ends without an exception the file is synced and takes `path`'s place.

    Raises FileExistsError at the end where `path` is there and `replace` is false, and OSError where the system
    refuses; `path` is then as it was, unless it is a NotSyncedError. What a killed process left is removed by the next.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    temporary, fd = _temporary(path.parent)
    try:
        try:
            yield fd
            os.fsync(fd)
            _place(temporary, path, replace)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    finally:
        os.close(fd)
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise NotSyncedError(error.errno, error.strerror) from error


def write_all(fd: int, parts: Iterable[bytes | memoryview]) -> None:
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            view = view[os.write(fd, view) :]


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder last; file systems that can't do that say EINVAL."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)


def sweep(folder: Path) -> None:
    """Remove temporary files whose writers are gone: a writer holds a lock on its own."""
    for path in folder.glob(TEMPORARY + "*"):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(fd)


def _temporary(folder: Path) -> tuple[Path, int]:
    """A new locked file. Between making and locking it another process may take it for abandoned: then again."""
    while True:
        path = folder / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            continue
        except OSError:  # no locks on this file system; nobody can take it for abandoned either
            return path, fd
        if os.fstat(fd).st_nlink:
            return path, fd
        os.close(fd)


def _place(temporary: Path, path: Path, replace: bool) -> None:
    if replace:
        temporary.replace(path)
        return
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links here
        if path.exists() or path.is_symlink():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.replace(path)
        return
    with contextlib.suppress(OSError):  # `path` is there: the next one sweeps
        temporary.unlink()
