"""A save that is stopped at one of its system calls: the process is killed there, or the call fails."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

STEPS = ("mkdir", "open", "write", "fsync", "replace", "link", "unlink")


@contextlib.contextmanager
def interrupted(at: int, what: Callable[[str, tuple], None]) -> Iterator[list[str]]:
    """Call `what(name, arguments)` instead of the system call number `at` (from 0) of those that save a file.

    What `what` does before it kills or raises happens; nothing else of that call does. Yields the calls so far.
    """
    seen: list[str] = []
    real = {name: getattr(os, name) for name in STEPS}

    def patched(name: str) -> Callable:
        def call(*arguments, **named):
            seen.append(name)
            if len(seen) == at + 1:
                for other, function in real.items():
                    setattr(os, other, function)
                what(name, arguments)
            return real[name](*arguments, **named)

        return call

    for name in STEPS:
        setattr(os, name, patched(name))
    try:
        yield seen
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def failing(number: int) -> Callable[[str, tuple], None]:
    """Every call fails with this errno; a write has written half of its bytes by then."""

    def fail(name: str, arguments: tuple) -> None:
        _half(name, arguments)
        raise OSError(number, os.strerror(number))

    return fail


def kill(name: str, arguments: tuple) -> None:
    """The process is gone before the call, or in the middle of a write."""
    _half(name, arguments)
    os.kill(os.getpid(), signal.SIGKILL)


def _half(name: str, arguments: tuple) -> None:
    if name == "write":
        fd, data = arguments
        os.write(fd, data[: len(data) // 2])


def in_child(
    *works: Callable[[], None], beside: Callable[[], None] = lambda: None, limit: float = 60
) -> list[int]:
    """Run each in a forked process, `beside` over and over in this one; their exit codes, negative for a signal."""
    children = [_forked(work) for work in works]
    codes: dict[int, int] = {}
    until = time.monotonic() + limit
    try:
        while len(codes) < len(children):
            assert time.monotonic() < until, "a child didn't end"
            beside()
            for child in set(children) - set(codes):
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    codes[child] = os.waitstatus_to_exitcode(status)
            time.sleep(0.001)
    finally:
        for child in set(children) - set(codes):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return [codes[child] for child in children]


def _forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return child
