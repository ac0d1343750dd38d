"""The NPU's part of `mindnano doctor`: what is there, whether it computes right, what keeps it from being used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mindnano.cli.machine import Machine

ADDRESS_SPACE = 4 << 30
HOT = 80.0  # degrees; the RK3588 slows down from about 85 on


@dataclass(frozen=True)
class Probe:
    """The library opened and tested, and closed again. `mappable`: bytes of memory that the NPU could be given, of
    `mapped_for_test` that were tried. `trouble`: why the NPU can't be used; `calibrated`: the file of
    this machine's curves, `calibration_trouble` why it is unusable."""

    runtime: str | None = None
    driver: str | None = None
    emulated: bool = False
    cores: int = 0
    mappable: int | None = None
    mapped_for_test: int = 0
    trouble: str | None = None
    calibrated: str | None = None
    calibration_trouble: str | None = None

    @property
    def uses(self) -> str:
        """What --device auto comes to."""
        if self.runtime is None or self.calibrated is None:
            return "cpu"
        return "rknpu (emulated) or cpu, by curves" if self.emulated else "rknpu or cpu, by curves"


def probe(threads: int | None = None) -> Probe:
    """threads: of the engine, whose curves are looked for."""
    import psutil

    from mindnano.device import curves
    from mindnano.device.rknpu import npu
    from mindnano.device.rknpu.binding import NpuUnavailable
    from mindnano.errors import MindNanoError

    try:
        opened = npu.Npu()
    except NpuUnavailable as error:
        return Probe(trouble=str(error))
    share = min(ADDRESS_SPACE, psutil.virtual_memory().available // 4)
    tried = 2 * npu.PROBE_BYTES if opened.emulated else share // npu.PROBE_BYTES * npu.PROBE_BYTES
    mappable = opened.mappable(tried)
    opened.close()
    machine = curves.Machine.here(opened.runtime, opened.driver, threads)
    calibrated = trouble = None
    try:
        calibrated = str(curves.path_for(machine)) if curves.load(machine) else None
    except MindNanoError as error:
        trouble = str(error)
    return Probe(
        opened.runtime, opened.driver, opened.emulated, npu.CORES, mappable, tried, None, calibrated, trouble
    )


def problems(machine: Machine, found: Probe) -> list[tuple[str, str]]:
    """What is wrong and what to do about it; nothing on a machine without an NPU."""
    npu, wrong = machine.npu, []
    if not npu.devices and machine.librknnrt is None:
        return []
    if npu.devices and not npu.readable:
        wrong.append((
            f"this user may not open the NPU's device {', '.join(npu.devices)}",
            "sudo usermod -aG render $USER, then log in again (for /dev/rknpu: a udev rule that gives it to the group)",
        ))  # fmt: skip
    if found.trouble is not None:
        remedy = "docs/rk3588.md has the steps; until then the CPU does all"
        wrong.append((f"the NPU can't be used: {found.trouble}", remedy))
    if found.emulated:
        wrong.append(("the NPU library says that it is an emulation: its results are right, its times mean nothing",
                      "unset MINDNANO_RKNNRT, or set it to the board's librknnrt.so"))  # fmt: skip
    if found.runtime is not None and found.calibrated is None:
        wrong.append((found.calibration_trouble or "the NPU is here but not calibrated, so that the CPU does all",
                      "mindnano calibrate"))  # fmt: skip
    if npu.dmc_mhz and npu.dmc_largest_mhz and npu.dmc_mhz < 0.7 * npu.dmc_largest_mhz:
        wrong.append((
            f"the memory's clock (DMC) is {npu.dmc_mhz:.0f} of {npu.dmc_largest_mhz:.0f} MHz, governor "
            f"{npu.dmc_governor or 'unknown'}: parked at 528 MHz it halves decode",
            "echo performance | sudo tee /sys/class/devfreq/dmc/governor",
        ))  # fmt: skip
    if npu.npu_governor in ("powersave", "userspace") and (npu.npu_mhz or 0) < (npu.npu_largest_mhz or 0):
        wrong.append((
            f"the NPU's clock is held at {npu.npu_mhz or 0:.0f} of {npu.npu_largest_mhz or 0:.0f} MHz by its governor "
            f"{npu.npu_governor}",
            "echo performance | sudo tee /sys/class/devfreq/fdab0000.npu/governor",
        ))  # fmt: skip
    hot = {name: value for name, value in npu.temperatures.items() if value >= HOT}
    if hot:
        names = ", ".join(f"{name} {value:.0f}" for name, value in hot.items())
        wrong.append(
            (f"it is hot ({names} degrees C): the clocks will fall", "cool the board before measuring")
        )
    return wrong


def facts(machine: Machine, found: Probe) -> list[tuple[str, str]]:
    """Lines for people."""
    from mindnano.units import format_bytes

    npu = machine.npu
    lines = [
        ("NPU", ", ".join(npu.devices) or "no device node"),
        ("librknnrt", machine.librknnrt or "not found"),
    ]
    if npu.devices or machine.librknnrt:
        runtime = found.runtime or "unknown"
        if found.emulated and "emulat" not in runtime:
            runtime += " (emulated)"
        tested = f", {found.cores} cores tested" if found.cores else ""
        lines.append(("RKNN", f"runtime {runtime}, driver {found.driver or npu.driver or 'unknown'}{tested}"))
    if found.mappable is not None:
        least = "at least " if found.mappable == found.mapped_for_test else ""
        lines.append(("NPU memory", f"{least}{format_bytes(found.mappable)} free of 4 GiB of address space"))
    for name, now, most, governor in (
        ("NPU clock", npu.npu_mhz, npu.npu_largest_mhz, npu.npu_governor),
        ("DMC clock", npu.dmc_mhz, npu.dmc_largest_mhz, npu.dmc_governor),
    ):
        if now is not None:
            largest = f" of {most:.0f}" if most else ""
            lines.append((name, f"{now:.0f}{largest} MHz, governor {governor or 'unknown'}"))
    if npu.load:
        lines.append(("NPU load", " ".join(npu.load.split())))
    if npu.temperatures:
        shown = ", ".join(
            f"{name.removesuffix('-thermal')} {value:.0f}" for name, value in npu.temperatures.items()
        )
        lines.append(("Temperature", f"{shown} degrees C"))
    return lines


def as_dict(found: Probe) -> dict[str, Any]:
    return vars(found) | {"uses": found.uses}
