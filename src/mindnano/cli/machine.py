"""What this machine is: read from /proc, /sys and the kernels' own detection. Missing facts are None."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mindnano.device.rknpu.system import NpuSystem

CPU_FLAGS = ("avx2", "fma", "f16c", "avx_vnni", "avx512_vnni", "asimd", "asimddp", "asimdhp", "i8mm")


@dataclass(frozen=True)
class Machine:
    """Sizes in bytes, frequencies in MHz, load as the kernel gives it (processes that want to run)."""

    system: str
    architecture: str
    cpu: str
    cores: int
    usable_cores: int
    little_cores: int  # of the usable ones
    cpu_flags: tuple[str, ...]
    isas: tuple[str, ...]
    isa: str
    memory: int
    available: int
    cgroup_limit: int | None
    cgroup_left: int | None
    page_cache: int
    swap: int
    swap_used: int
    huge_pages: str | None
    governors: tuple[str, ...]
    frequency: float | None
    largest_frequency: float | None
    load: float | None
    librknnrt: str | None
    npu: NpuSystem

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read(root: Path = Path("/")) -> Machine:
    """The machine as it is now. `root` is where /proc and /sys are looked for."""
    import psutil

    from mindnano import kernels
    from mindnano.device.rknpu import binding, system
    from mindnano.engine import cores
    from mindnano.engine.memory.available import cgroup_limit

    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    limit = cgroup_limit(root)
    cpus = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq"))
    frequencies = [float(value) / 1000 for cpu in cpus if (value := _text(cpu / "scaling_cur_freq"))]
    largest = [float(value) / 1000 for cpu in cpus if (value := _text(cpu / "cpuinfo_max_freq"))]
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        cpu=_cpu_name(root),
        cores=os.cpu_count() or 1,
        usable_cores=len(cores.usable()),
        little_cores=len(cores.usable()) - len(cores.big(cores.usable(), root)),
        cpu_flags=_cpu_flags(root),
        isas=tuple(kernels.available_isas()),
        isa=kernels.isa(),
        memory=memory.total,
        available=memory.available,
        cgroup_limit=None if limit is None else limit.nbytes,
        cgroup_left=None if limit is None else limit.left,
        page_cache=int(getattr(memory, "cached", 0)),
        swap=swap.total,
        swap_used=swap.used,
        huge_pages=_chosen(_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        governors=tuple(sorted({text for cpu in cpus if (text := _text(cpu / "scaling_governor"))})),
        frequency=max(frequencies, default=None),
        largest_frequency=max(largest, default=None),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        librknnrt=binding.find_library(root),
        npu=system.read(root),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _cpu_lines(root: Path) -> list[tuple[str, str]]:
    lines = (_text(root / "proc/cpuinfo") or "").splitlines()
    return [
        (key.strip().lower(), value.strip())
        for key, colon, value in (line.partition(":") for line in lines)
        if colon
    ]


def _cpu_name(root: Path) -> str:
    """The processor's name on x86; on ARM the board's, as the kernel knows no other."""
    names = [value for key, value in _cpu_lines(root) if key == "model name"]
    board = _text(root / "proc/device-tree/model")
    return names[0] if names else (board or platform.processor() or "unknown").rstrip("\0")


def _cpu_flags(root: Path) -> tuple[str, ...]:
    flags = {
        flag for key, value in _cpu_lines(root) if key in ("flags", "features") for flag in value.split()
    }
    return tuple(flag for flag in CPU_FLAGS if flag in flags)


def _chosen(text: str | None) -> str | None:
    """The bracketed word of a kernel setting such as `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0] or text if text else None
