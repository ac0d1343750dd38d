"""What the system says about an RK3588's NPU: read from /proc, /sys and /dev. Missing facts are None."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NpuSystem:
    """Frequencies in MHz, temperatures in degrees Celsius. devices: nodes that the library opens; readable: of these,
    those that this user may open. load: what the driver says of its cores."""

    devices: tuple[str, ...]
    readable: tuple[str, ...]
    driver: str | None
    npu_mhz: float | None
    npu_largest_mhz: float | None
    npu_governor: str | None
    dmc_mhz: float | None
    dmc_largest_mhz: float | None
    dmc_governor: str | None
    temperatures: dict[str, float]
    load: str | None


def read(root: Path = Path("/")) -> NpuSystem:
    """The NPU as it is now. `root` is where /proc, /sys and /dev are looked for."""
    devices = tuple(_devices(root))
    npu, dmc = _devfreq(root, "npu"), _devfreq(root, "dmc")
    return NpuSystem(
        devices=devices,
        readable=tuple(node for node in devices if _openable(root / node.lstrip("/"))),
        driver=_driver(root),
        npu_mhz=npu[0], npu_largest_mhz=npu[1], npu_governor=npu[2],
        dmc_mhz=dmc[0], dmc_largest_mhz=dmc[1], dmc_governor=dmc[2],
        temperatures=dict(_temperatures(root)),
        load=_first(root, "proc/rknpu/load", "sys/kernel/debug/rknpu/load"),
    )  # fmt: skip


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    except OSError:
        return None


def _first(root: Path, *names: str) -> str | None:
    return next((text for name in names if (text := _text(root / name))), None)


def _devices(root: Path) -> Iterator[str]:
    """/dev/rknpu, and render nodes whose driver is the NPU's."""
    if (root / "dev/rknpu").exists():
        yield "/dev/rknpu"
    for node in sorted((root / "sys/class/drm").glob("renderD*")):
        driver = node / "device/driver"
        if driver.exists() and driver.resolve().name.lower() == "rknpu":
            yield f"/dev/dri/{node.name}"


def _openable(path: Path) -> bool:
    try:
        path.open("rb").close()
    except OSError:
        return False
    return True


def _driver(root: Path) -> str | None:
    """0.9.8 of "RKNPU driver: v0.9.8"."""
    text = _first(root, "sys/module/rknpu/version", "proc/rknpu/version", "sys/kernel/debug/rknpu/version")
    match = re.search(r"\d+(?:\.\d+)+", text or "")
    return match[0] if match else None


def _devfreq(root: Path, name: str) -> tuple[float | None, float | None, str | None]:
    """Current and largest MHz and the governor of a device such as fdab0000.npu or dmc."""
    for folder in sorted((root / "sys/class/devfreq").glob(f"*{name}")):
        now, most = (_text(folder / file) for file in ("cur_freq", "max_freq"))
        current, largest = (int(text) / 1e6 if text and text.isdigit() else None for text in (now, most))
        return current, largest, _text(folder / "governor")
    return None, None, None


def _temperatures(root: Path) -> Iterator[tuple[str, float]]:
    for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*")):
        name, value = _text(zone / "type"), _text(zone / "temp")
        if name and value and value.lstrip("-").isdigit():
            yield name, int(value) / 1000
