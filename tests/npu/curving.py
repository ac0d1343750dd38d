"""Calibrations by hand: which device is said to be faster from which size on."""

from __future__ import annotations

from mindnano.checkpoint.config import MLAConfig
from mindnano.device import curves
from mindnano.device.curves import FORMAT, LINEAR, Calibration, Curve, Machine, Point, attention_work

RUNTIME, DRIVER = "2.3.2 (emulated)", "0.9.8"


def flat(floor: float, each: float) -> Curve:
    """floor + each * rows * size seconds."""
    return Curve([Point(r, s, floor + each * r * s) for r in (1, 4096) for s in (1, 1 << 20)])


def calibration(config: MLAConfig, attention: float = 0.0, linear: float | None = None) -> Calibration:
    """The NPU has this floor of seconds and no further cost; the CPU takes 1 s for 1e6 rows times size."""
    cpu = flat(1e-9, 1e-6)
    kept = {
        attention_work(config, fmt): {"cpu": cpu, "rknpu": flat(attention or 1e-9, 1e-15)}
        for fmt in ("int8", "bf16")
    }
    if linear is not None:
        kept[LINEAR] = {"cpu": cpu, "rknpu": flat(linear or 1e-9, 1e-15)}
    return Calibration(FORMAT, Machine.here(RUNTIME, DRIVER), True, 64, kept)


def keep(config: MLAConfig, attention: float = 0.0, linear: float | None = None) -> None:
    curves.save(calibration(config, attention, linear))
