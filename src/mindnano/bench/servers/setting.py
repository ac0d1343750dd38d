"""What a server is asked to be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mindnano.errors import MindNanoError


@dataclass(frozen=True)
class Setting:
    """One server: how it is started (or where it is), and with which cache.

    binary: the program of the preset; None: this MindNano, or the preset's name looked up in PATH. command: the
    template of preset "custom". url: a server that runs already; it isn't started, stopped or changed. pid: its
    process, where it can't be found by its port. context: tokens a request can hold; slots: requests at once.
    """

    preset: str = "mindnano"
    model: str | None = None
    binary: str | None = None
    command: str | None = None
    url: str | None = None
    pid: int | None = None
    api_key: str | None = None
    kv: str | None = None
    kv_layout: str | None = None
    context: int = 8192
    slots: int = 1
    threads: int | None = None
    device: str | None = None
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.url is not None:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise MindNanoError(f"--url: expected something like http://127.0.0.1:8080, got {self.url!r}")

    @property
    def name(self) -> str:
        """The model's name without its folder: results are passed on."""
        return Path(self.model).name if self.model else "built-in"

    @property
    def label(self) -> str:
        """The setting as one text without any path; equal settings have equal texts."""
        if self.url is not None:
            return f"{self.url.rstrip('/')}"
        parts = [self.preset, self.name, self.kv_layout, self.kv, f"ctx {self.context}"]
        if self.slots != 1:
            parts.append(f"slots {self.slots}")
        if self.threads is not None:
            parts.append(f"threads {self.threads}")
        if self.device not in (None, "auto"):
            parts.append(f"device {self.device}")
        if self.preset == "custom" and self.command:
            parts.insert(1, Path(self.command.split()[0]).name)
        return " ".join([part for part in parts if part] + list(self.extra))
