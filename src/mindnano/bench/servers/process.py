"""Starting a server, waiting until it answers, stopping it; and never anything that wasn't started here."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from urllib.parse import urlsplit

import psutil

from mindnano.bench.servers import facts as told
from mindnano.bench.servers.client import Client
from mindnano.bench.servers.facts import Facts
from mindnano.bench.servers.presets import HOST, command
from mindnano.bench.servers.setting import Setting
from mindnano.errors import MindNanoError

STOP_SECONDS = 20.0  # after SIGTERM, before SIGKILL
# Ends the server's process group when this process is gone, however it went: its standard input closes then.
_KEEPER = 'read -r _; kill -TERM "-$1" 2>/dev/null; sleep 5; kill -KILL "-$1" 2>/dev/null'


# What a refusal for memory or context speaks of, unlike one for a wrong option or file.
_TOO_MUCH = ("fit", "memory", "tight", "beyond")


class StartError(MindNanoError):
    """The server ended before it was ready. `refused`: it said itself that it can't be started like this."""

    def __init__(self, message: str, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


class Server:
    """A server that answers. `pids`: its process, where it is known; `start_s`: seconds until it was ready."""

    def __init__(
        self,
        setting: Setting,
        client: Client,
        pids: list[int] | None,
        start_s: float | None,
        log: Path | None,
    ) -> None:
        self.setting, self.client, self.pids, self.start_s, self.log = setting, client, pids, start_s, log
        self.facts: Facts = client.facts()

    @property
    def kv_mib(self) -> float | None:
        """MiB of its KV cache, by its own word."""
        if self.facts.kv_mib is not None or self.log is None:
            return self.facts.kv_mib
        return told.kv_from_log(self.log)


@contextmanager
def open_server(setting: Setting, logs: Path, timeout: float = 600.0) -> Iterator[Server]:
    """A server at that setting: a fresh one that ends with the block, or the one at the setting's url.

    Raises StartError where it doesn't become ready, MindNanoError where there is nothing to start.
    """
    if setting.url is not None:
        client = Client(setting.url, setting.api_key)
        if not client.ready():
            raise MindNanoError(f"{setting.url}: no server answers there (asked /health and /v1/models)")
        yield Server(setting, client, _listening(setting), None, None)
        return
    port = _free_port()
    words = command(setting, port)
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"server-{os.getpid()}-{port}.log"
    with log.open("wb") as output, _process(words, output) as child:
        client = Client(f"http://{HOST}:{port}", setting.api_key)
        begin = perf_counter()
        while not client.ready():
            if child.poll() is not None:
                raise _start_error(setting, child.returncode, log)
            if perf_counter() - begin > timeout:
                raise StartError(
                    f"{setting.label}: not ready after {timeout:.0f} s; see {log.name}", refused=False
                )
            sleep(0.02)
        yield Server(setting, client, [child.pid], perf_counter() - begin, log)


@contextmanager
def _process(words: list[str], output: object) -> Iterator[subprocess.Popen[bytes]]:
    """A child in a session of its own, which Ctrl-C doesn't reach, and beside it a keeper."""
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # type: ignore[call-overload]
    )
    keeper = None
    try:
        keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, "keeper", str(child.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        yield child
    finally:
        _stop(child)
        if keeper is not None:
            keeper.kill()
            if keeper.stdin is not None:
                keeper.stdin.close()
            keeper.wait()


def _stop(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the child's group, SIGKILL if it stays."""
    for number, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # what the child itself had started


def _start_error(setting: Setting, status: int, log: Path) -> StartError:
    """With the last words of the server; MindNano's status 2 is a refusal of what was asked for."""
    lines = [line for line in log.read_bytes().decode("utf-8", "replace").splitlines() if line.strip()] or [
        ""
    ]
    refused = setting.preset == "mindnano" and status == 2 and any(word in lines[-1] for word in _TOO_MUCH)
    last = lines[-1].removeprefix("mindnano: ") or "it said nothing"
    if refused:
        return StartError(last, refused=True)
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return StartError(f"{setting.label}: ended with {how} before it was ready: {last}", refused=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _listening(setting: Setting) -> list[int] | None:
    """The process behind a url on this machine; None where it is elsewhere or can't be seen."""
    if setting.pid is not None:
        if not psutil.pid_exists(setting.pid):
            raise MindNanoError(f"--pid {setting.pid}: no such process")
        return [setting.pid]
    parts = urlsplit(setting.url or "")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        return None
    with contextlib.suppress(psutil.AccessDenied):
        for one in psutil.net_connections("tcp"):
            if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid:
                return [one.pid]
    return None
