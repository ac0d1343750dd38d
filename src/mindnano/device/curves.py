"""Calibrated curves: seconds of a piece of work by its rows and size, measured on this machine, kept in a file.

Attention: rows are a block's queries, size the keys that a row sees on average. Linear: rows are tokens, size a
matrix's weights.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from mindnano import kernels
from mindnano.checkpoint.config import MLAConfig
from mindnano.errors import MindNanoError

FORMAT = 1
ROWS = (64, 128, 256, 512, 1024, 2048)  # query rows that a product of the NPU can have
LINEAR = "linear"


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measurement: seconds in all, and of these by phase."""

    rows: int
    size: int
    seconds: float
    pack: float = 0.0
    sync: float = 0.0
    matmul: float = 0.0
    softmax: float = 0.0


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Points over a grid of rows and sizes, two of each or more."""

    points: list[Point]

    def __post_init__(self) -> None:
        grid = {(p.rows, p.size) for p in self.points}
        rows, sizes = self.axes
        whole = len(grid) == len(self.points) == len(rows) * len(sizes) and min(len(rows), len(sizes)) >= 2
        if not whole or any(p.rows < 1 or p.size < 1 or not 0 < p.seconds < math.inf for p in self.points):
            raise ValueError("a curve needs one positive time for each of two or more rows and sizes")

    @property
    def axes(self) -> tuple[list[int], list[int]]:
        return sorted({p.rows for p in self.points}), sorted({p.size for p in self.points})

    def seconds(self, rows: int, size: int) -> float:
        """Interpolated between the points, all in logarithms; beyond them along the last two."""
        axes = self.axes
        table = {(p.rows, p.size): math.log(p.seconds) for p in self.points}
        (r0, r1, u), (s0, s1, v) = (
            _between(axis, value) for axis, value in zip(axes, (rows, size), strict=True)
        )
        low = table[r0, s0] + v * (table[r0, s1] - table[r0, s0])
        high = table[r1, s0] + v * (table[r1, s1] - table[r1, s0])
        return math.exp(min(low + u * (high - low), 100.0))


def _between(axis: Sequence[int], value: int) -> tuple[int, int, float]:
    """The two of an axis that `value` lies between, or the nearest two, and where: 0 at the first, 1 at the second."""
    i = min(max(bisect_right(axis, value), 1), len(axis) - 1)
    low, high = axis[i - 1], axis[i]
    return low, high, math.log(max(value, 1) / low) / math.log(high / low)


class Machine(NamedTuple):
    """What curves are only valid for. runtime, driver: of the NPU, empty without one."""

    name: str
    runtime: str
    driver: str
    isa: str
    threads: int

    @classmethod
    def here(cls, runtime: str = "", driver: str = "", threads: int | None = None) -> Machine:
        """threads: of the engine that will use them, where that isn't the pool as it is now."""
        return cls(machine_name(), runtime, driver, kernels.isa(), threads or kernels.threads())

    @property
    def key(self) -> str:
        return hashlib.blake2b(repr((FORMAT, *self)).encode(), digest_size=8).hexdigest()


class Calibration(msgspec.Struct, forbid_unknown_fields=True):
    """All curves of a machine: by kind of work, then by device. rows_per_product: of the NPU's attention."""

    format: int
    machine: Machine
    emulated: bool
    rows_per_product: int
    curves: dict[str, dict[str, Curve]]

    def __post_init__(self) -> None:
        if self.rows_per_product not in ROWS:
            raise ValueError(f"rows_per_product: expected one of {ROWS}, got {self.rows_per_product}")

    def seconds(self, work: str, device: str, rows: int, size: int) -> float | None:
        """None where it wasn't measured."""
        curve = self.curves.get(work, {}).get(device)
        return None if curve is None else curve.seconds(rows, size)

    def faster(self, work: str, rows: int, size: int) -> str:
        """The device that is faster, the CPU where that isn't known."""
        cpu, npu = (self.seconds(work, device, rows, size) for device in ("cpu", "rknpu"))
        return "rknpu" if npu is not None and (cpu is None or npu < cpu) else "cpu"


def attention_work(config: MLAConfig, fmt: str) -> str:
    """Of a layer's attention: it depends on the shape, and on whether the cache is INT8 or floats."""
    dims = f"{config.qk_nope_head_dim + config.qk_rope_head_dim}x{config.v_head_dim}"
    return f"attention {'int8' if fmt == 'int8' else 'float'} {config.num_heads}x{dims} rank {config.kv_lora_rank}"


def machine_name() -> str:
    """The board's name on ARM, the processor's elsewhere."""
    for path, key in (("/proc/device-tree/model", None), ("/proc/cpuinfo", "model name")):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if key is None:
            return text.strip("\0\n ")
        names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(key)]
        if names:
            return names[0]
    return platform.machine()


def folder() -> Path:
    """Where calibrations are kept: mindnano/curves under XDG_STATE_HOME, or ~/.local/state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "mindnano" / "curves"


def path_for(machine: Machine) -> Path:
    return folder() / f"{machine.key}.json"


def load(machine: Machine) -> Calibration | None:
    """The machine's calibration, None where there is none. Raises MindNanoError where the file is unusable."""
    path = path_for(machine)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MindNanoError(f"{path}: {error.strerror}; run mindnano calibrate again") from None
    try:
        found = msgspec.json.decode(data, type=Calibration)
    except (msgspec.DecodeError, ValueError) as error:
        raise MindNanoError(f"{path} is no calibration ({error}); run mindnano calibrate again") from None
    if found.format != FORMAT or found.machine != machine:
        raise MindNanoError(f"{path} belongs to another machine or version; run mindnano calibrate again")
    return found


def save(calibration: Calibration) -> Path:
    """Keep it, replacing what was there. Raises MindNanoError where that can't be written."""
    path = path_for(calibration.machine)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(calibration), indent=1))
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise MindNanoError(
            f"{path}: {error.strerror}; set XDG_STATE_HOME to a folder that can be written"
        ) from None
    return path
