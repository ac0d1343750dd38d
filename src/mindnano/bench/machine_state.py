"""What the machine does while something is measured, and whether that spoils the measurement.

Read from /proc and /sys; what a system doesn't have is None. Nothing is changed: neither clocks nor other programs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

import psutil

MIB = 1 << 20
INTERVAL = 0.5  # seconds between two looks
OTHER_CORES = 0.10  # of a core: another process that takes more disturbs
CLOCK_DROP = 0.90  # of the largest clock, under a governor that asks for the largest
SWAP_MIB = 1.0


@dataclass
class State:
    """Over a run: the lowest and highest clock in MHz of the fastest core, other clocks by device, the highest
    temperature in degrees Celsius, load when it began, memory in MiB; of other processes the busiest one in cores,
    and what the hypervisor gave to others in cores."""

    seconds: float = 0.0
    governors: list[str] = field(default_factory=list)
    cpu_mhz_low: float | None = None
    cpu_mhz_high: float | None = None
    device_mhz: dict[str, float] = field(default_factory=dict)
    temperature_c: float | None = None
    load: float | None = None
    mem_available_low_mib: float | None = None
    swap_used_mib: float | None = None
    swapped_out_mib: float | None = None
    swap_grew_mib: float | None = None
    busiest: str | None = None
    busiest_cores: float | None = None
    gone_cores: float | None = None  # of processes that began or ended meanwhile
    stolen_cores: float | None = None
    throttled: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, [], {})}

    def disturbances(self) -> list[str]:
        """Why a measurement meanwhile isn't to be trusted; empty if nothing speaks against it."""
        found = []
        if (grew := max(self.swap_grew_mib or 0, self.swapped_out_mib or 0)) > SWAP_MIB:
            found.append(f"swap grew by {grew:.0f} MiB")
        if self.throttled:
            found.append(f"throttled: {self.throttled}")
        for name, cores in (
            (f"process {self.busiest}", self.busiest_cores),
            ("short-lived processes", self.gone_cores),
            ("the hypervisor's other guests", self.stolen_cores),
        ):
            if cores is not None and cores > OTHER_CORES:
                found.append(f"{name} took {cores:.0%} of a core")
        return found


class Watch:
    """Looks at the machine from entering to leaving; `state` and `peak_rss_mib` are there afterwards.

    ours: ids of processes that are measured or measure; they and their children are no disturbance. None: the
    measured process isn't known, so nobody can be blamed. root: where /proc and /sys are.
    """

    def __init__(self, ours: Iterable[int] | None, root: Path = Path("/")) -> None:
        self._ours = None if ours is None else [*ours, os.getpid()]
        self._root = root
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self.state = State()
        self.peak_rss_mib: float | None = None

    def __enter__(self) -> Watch:
        self._begin = perf_counter()
        self.state.load = os.getloadavg()[0]
        self.state.governors = governors(self._root)
        self._throttles = _throttle_counts(self._root)
        self._swapped = _swapped_out(self._root)
        self._swap = self._ours_swap()
        self._times, self._total = _process_times(), _busy_seconds(self._root)
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._look()
        state, seconds = self.state, perf_counter() - self._begin
        state.seconds = seconds
        state.swapped_out_mib = _difference(_swapped_out(self._root), self._swapped)
        state.swap_grew_mib = _difference(self._ours_swap(), self._swap)
        state.throttled = self._throttled()
        if self._ours is not None and seconds > 0:
            self._blame(seconds)

    def _blame(self, seconds: float) -> None:
        """Who else used the processor: the busiest process, and the rest of what was used."""
        state, after, total = self.state, _process_times(), _busy_seconds(self._root)
        mine = set(family(self._ours or []))
        used = {
            pid: (name, max(0.0, time - (self._times[pid][1] if pid in self._times else 0.0)))
            for pid, (name, time) in after.items()
        }
        others = {pid: one for pid, one in used.items() if pid not in mine}
        if others:
            name, time = max(others.values(), key=lambda one: one[1])
            state.busiest, state.busiest_cores = name, time / seconds
        if total is not None and self._total is not None:
            seen = sum(time for _, time in used.values())
            # Both sides count in ticks of 10 ms, so a difference of some ticks is nothing.
            gone = total[0] - self._total[0] - seen
            state.gone_cores = max(0.0, gone - 0.05) / seconds
            state.stolen_cores = (total[1] - self._total[1]) / seconds

    def _look_on(self) -> None:
        while not self._ended.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        state = self.state
        if clocks := cpu_mhz(self._root):
            state.cpu_mhz_low = min(max(clocks), state.cpu_mhz_low or max(clocks))
            state.cpu_mhz_high = max(max(clocks), state.cpu_mhz_high or 0.0)
        for name, mhz in device_mhz(self._root).items():
            state.device_mhz[name] = max(mhz, state.device_mhz.get(name, 0.0))
        if (degrees := temperature(self._root)) is not None:
            state.temperature_c = max(degrees, state.temperature_c or degrees)
        free = psutil.virtual_memory().available / MIB
        state.mem_available_low_mib = min(free, state.mem_available_low_mib or free)
        state.swap_used_mib = psutil.swap_memory().used / MIB
        if self._ours is not None and (rss := self._rss()) is not None:
            self.peak_rss_mib = max(rss, self.peak_rss_mib or 0.0)

    def _rss(self) -> float | None:
        measured = [pid for pid in self._ours or [] if pid != os.getpid()]
        return rss_mib(measured) if measured else None

    def _ours_swap(self) -> float | None:
        measured = [pid for pid in self._ours or [] if pid != os.getpid()]
        return vm_swap_mib(measured) if measured else None

    def _throttled(self) -> str | None:
        counts = _throttle_counts(self._root)
        if sum(counts.values()) > sum(self._throttles.values()):
            return "the processor's throttle counter rose"
        if cooling := _cooling(self._root):
            return f"cooling device {cooling} is on"
        largest = [float(text) / 1000 for text in _texts(self._root, _CPUFREQ + "/cpuinfo_max_freq")]
        low = self.state.cpu_mhz_low
        if self.state.governors == ["performance"] and largest and low and low < CLOCK_DROP * max(largest):
            return f"the clock fell to {low:.0f} of {max(largest):.0f} MHz"
        return None


def family(pids: Iterable[int]) -> list[int]:
    """Those processes and all their descendants that are there."""
    found: list[int] = []
    for pid in pids:
        try:
            process = psutil.Process(pid)
            found += [pid, *(child.pid for child in process.children(recursive=True))]
        except psutil.Error:
            continue
    return list(dict.fromkeys(found))


def rss_mib(pids: Iterable[int]) -> float | None:
    """Resident memory of processes and their children in MiB; pages that they share count in each."""
    return _sum_of(pids, "VmRSS")


def rss_file_mib(pids: Iterable[int]) -> float | None:
    """The part of it that is pages of mapped files, which the system could drop and read again."""
    return _sum_of(pids, "RssFile")


def peak_rss_mib(pids: Iterable[int]) -> float | None:
    """The largest resident memory that they ever had."""
    return _sum_of(pids, "VmHWM")


def vm_swap_mib(pids: Iterable[int]) -> float | None:
    return _sum_of(pids, "VmSwap")


def _sum_of(pids: Iterable[int], name: str) -> float | None:
    values = [value for pid in family(pids) if (value := _status(pid, name)) is not None]
    return sum(values) if values else None


def _status(pid: int, name: str) -> float | None:
    for line in (_text(Path(f"/proc/{pid}/status")) or "").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024  # kB
    return None


_CPUFREQ = "sys/devices/system/cpu/cpu[0-9]*/cpufreq"


def governors(root: Path = Path("/")) -> list[str]:
    return sorted(set(_texts(root, _CPUFREQ + "/scaling_governor")))


def cpu_mhz(root: Path = Path("/")) -> list[float]:
    """Clock of each core as the system has it now."""
    return [float(text) / 1000 for text in _texts(root, _CPUFREQ + "/scaling_cur_freq") if text.isdigit()]


def device_mhz(root: Path = Path("/")) -> dict[str, float]:
    """Clocks of other units (memory, NPU) by name, where the system has devfreq."""
    found = {}
    for path in sorted(root.glob("sys/class/devfreq/*/cur_freq")):
        text = _text(path)
        if text and text.isdigit():
            found[path.parent.name] = int(text) / 1e6
    return found


def temperature(root: Path = Path("/")) -> float | None:
    """The hottest sensor's degrees Celsius."""
    texts = [
        *_texts(root, "sys/class/thermal/thermal_zone*/temp"),
        *_texts(root, "sys/class/hwmon/hwmon*/temp*_input"),
    ]
    degrees = [int(text) / 1000 for text in texts if text.lstrip("-").isdigit()]
    return max((one for one in degrees if -50 < one < 150), default=None)


def _throttle_counts(root: Path) -> dict[str, int]:
    return {
        str(path): int(text)
        for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count")
        if (text := _text(path)) and text.isdigit()
    }


def _cooling(root: Path) -> str | None:
    """A cooling device that slows processors and is in use."""
    for path in sorted(root.glob("sys/class/thermal/cooling_device*")):
        kind, level = _text(path / "type") or "", _text(path / "cur_state") or "0"
        if ("cpufreq" in kind or "devfreq" in kind or kind == "Processor") and level.isdigit() and int(level):
            return kind
    return None


def _swapped_out(root: Path) -> float | None:
    """MiB that the system has written to swap since it started."""
    for line in (_text(root / "proc/vmstat") or "").splitlines():
        if line.startswith("pswpout "):
            return int(line.split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
    return None


def _busy_seconds(root: Path) -> tuple[float, float] | None:
    """Seconds of all processors that programs and the system used, and that a hypervisor took away."""
    lines = (_text(root / "proc/stat") or "").splitlines()
    if not lines or not lines[0].startswith("cpu "):
        return None
    # user nice system idle iowait irq softirq steal
    ticks = [int(text) for text in lines[0].split()[1:9]]
    rate = os.sysconf("SC_CLK_TCK")
    return (ticks[0] + ticks[1] + ticks[2]) / rate, (ticks[7] if len(ticks) > 7 else 0) / rate


def _process_times() -> dict[int, tuple[str, float]]:
    """Seconds of processor time of every process so far."""
    found = {}
    for process in psutil.process_iter(["name", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            found[process.pid] = (process.info["name"] or "?", times.user + times.system)
    return found


def _difference(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else max(0.0, after - before)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _texts(root: Path, pattern: str) -> list[str]:
    return [text for path in sorted(root.glob(pattern)) if (text := _text(path))]
