"""What a server was started with, and the limits of what it takes."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from mindnano.errors import MindNanoError

# What a request may hold; each refusal names its limit.
MAX_HEADER_BYTES = 32 << 10  # 431
MAX_BODY_BYTES = 16 << 20  # 413
MAX_MESSAGES = 4096
MAX_TOOLS = 256
MAX_SCHEMA_DEPTH = 32
MAX_SCHEMA_BYTES = 256 << 10  # of one schema or grammar
MAX_STOPS = 16
MAX_CHOICES = 16
MAX_TOP_LOGPROBS = 20
MAX_PROMPTS = 64  # of one /v1/completions request
MAX_ANSWERS = 64  # of one request: prompts times choices

KEEP_ALIVE_SECONDS = 10.0  # between two bytes of a stream
BODY_SECONDS = 60.0  # between two pieces of a request's body
STALLED_SECONDS = 120.0  # that a client may leave a full socket unread


@dataclass(frozen=True)
class Settings:
    """Checked when made: MindNanoError for what would be unsafe.

    api_keys: any of them opens the server; none: no key is asked for, which `open_access` must say where the
    host isn't a loopback address. hosts: further names in Host headers. origins: web pages elsewhere that may
    ask (CORS). queue: requests that wait at most. grace: seconds to finish what runs after SIGTERM. device: what was
    asked for. session_dir: None for no sessions. bench_results: results of `mindnano bench` that the page shows.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    name: str = "mindnano"
    aliases: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    open_access: bool = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    queue: int = 32
    grace: float = 30.0
    thinking: bool = False
    device: str = "auto"
    session_dir: Path | None = None
    bench_results: Path | None = None
    page_dir: Path = field(default=Path(__file__).parent / "page")

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise MindNanoError(f"--port: expected 0 to 65535, got {self.port}")
        if self.queue < 1:
            raise MindNanoError(f"--queue: expected at least 1, got {self.queue}")
        if self.grace < 0:
            raise MindNanoError(f"--grace: expected seconds from 0, got {self.grace:g}")
        if any(not key or not key.isascii() or not key.isprintable() for key in self.api_keys):
            raise MindNanoError("--api-key: expected printable ASCII characters, at least one")
        if not is_loopback(self.host) and not self.api_keys and not self.open_access:
            raise MindNanoError(
                f"--host {self.host}: others could use this server; give --api-key, or --no-api-key if anyone may"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
