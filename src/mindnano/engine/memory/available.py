"""Memory that can be had now: what the system has, or what a control group leaves of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

_UNLIMITED = 1 << 60  # version 1 writes "no limit" as a number near 2^63


@dataclass(frozen=True)
class Available:
    """`nbytes` can be had; `source` is what says so: "MemAvailable", "cgroup" or "given"."""

    nbytes: int
    source: str


@dataclass(frozen=True)
class Limit:
    """A control group's limit and what it leaves, in bytes."""

    nbytes: int
    left: int


def available(root: Path = Path("/")) -> Available:
    """MemAvailable, or what the tightest control group of this process leaves if that is less."""
    system, limit = int(psutil.virtual_memory().available), cgroup_limit(root)
    if limit is not None and limit.left < system:
        return Available(limit.left, "cgroup")
    return Available(system, "MemAvailable")


def cgroup_limit(root: Path = Path("/")) -> Limit | None:
    """The control group (this process's or one above it, version 2 or 1) that leaves least; None without a limit.

    File pages that the group could drop count as left, as they do in MemAvailable: a model file that was
    read once would otherwise look like memory in use.
    """
    limits = [limit for folder in _folders(root) if (limit := _limit(folder)) is not None]
    return min(limits, key=lambda limit: limit.left, default=None)


def _folders(root: Path) -> Iterator[Path]:
    """The folders of this process's memory groups, innermost first."""
    groups = _groups(root)
    for inside, point, kind in _mounts(root):
        own = groups.get(kind)
        if own is None:
            continue
        try:
            relative = PurePosixPath(own).relative_to(inside)
        except ValueError:  # seen from inside a namespace: what is mounted is the group
            relative = PurePosixPath()
        if ".." in relative.parts:
            relative = PurePosixPath()
        for part in (relative, *relative.parents):
            yield root / point.lstrip("/") / part
    yield root / "sys/fs/cgroup"
    yield root / "sys/fs/cgroup/memory"


def _groups(root: Path) -> dict[str, str]:
    """This process's path in the unified hierarchy ("cgroup2") and in the memory controller's ("cgroup")."""
    found = {}
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found["cgroup2"] = path
        elif "memory" in controllers.split(","):
            found["cgroup"] = path
    return found


def _mounts(root: Path) -> Iterator[tuple[str, str, str]]:
    """(path inside the hierarchy, mount point, type) of what may hold memory groups."""
    for line in (_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, types = before.split(), after.split()
        if len(fields) < 5 or len(types) < 3:
            continue
        if types[0] == "cgroup2" or (types[0] == "cgroup" and "memory" in types[2].split(",")):
            yield fields[3], fields[4], types[0]


def _limit(folder: Path) -> Limit | None:
    for limits, used, names in (
        (("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file")),
        (("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
    ):
        taken = _number(folder / used)
        most = [value for name in limits if (value := _number(folder / name)) is not None]
        if taken is None or not most or min(most) >= _UNLIMITED:
            continue
        stat = dict(
            line.split()[:2] for line in (_text(folder / "memory.stat") or "").splitlines() if " " in line
        )
        droppable = sum(int(stat.get(name, 0)) for name in names)
        return Limit(min(most), max(0, min(most) - max(0, taken - droppable)))
    return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdigit() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
