"""Which device serves a call: as the user says, or the one that is faster by the machine's curves.

A device that fails in the middle of a request costs time, not the answer: what it left is computed on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mindnano.cache.kv import KVCache
from mindnano.checkpoint import layout
from mindnano.checkpoint.config import MLAConfig, ModelConfig
from mindnano.device import curves
from mindnano.device.cpu import CpuAttention
from mindnano.device.curves import LINEAR, Calibration, Machine, attention_work
from mindnano.device.rknpu.attention import MOST_ROWS, RknpuAttention, memory_bytes
from mindnano.device.rknpu.binding import NpuError, NpuUnavailable
from mindnano.device.rknpu.linear import ROWS as LINEAR_ROWS
from mindnano.device.rknpu.linear import RknpuLinear, linear_bytes
from mindnano.device.rknpu.npu import CORES, Npu
from mindnano.errors import MindNanoError
from mindnano.kernels import Matrix
from mindnano.model.linear import F32
from mindnano.model.stages import StageClock

DEVICES = ("auto", "cpu", "rknpu")


def check_device(device: str, fmt: str) -> None:
    """Raises MindNanoError where there is no such device, or it can't serve caches of that format."""
    if device not in DEVICES:
        raise MindNanoError(f"device: expected one of {', '.join(DEVICES)}, got {device!r}")
    if device == "rknpu" and fmt == "fp32":
        raise MindNanoError(
            "device rknpu: an fp32 cache is attended on the CPU only; use --kv int8, bf16 or fp16"
        )


class Devices:
    """The CPU, and the NPU where it is there and wanted. `reason` says why it isn't, or how it is chosen."""

    def __init__(self, npu: Npu | None, calibration: Calibration | None, forced: bool, reason: str) -> None:
        self.npu, self.calibration, self.forced, self.reason = npu, calibration, forced, reason

    @classmethod
    def open(cls, device: str, fmt: str, threads: int | None = None) -> Devices:
        """threads: those whose curves count, where that isn't the pool as it is now.

        Raises MindNanoError where rknpu is asked for and can't be had.
        """
        check_device(device, fmt)
        if device == "cpu" or fmt == "fp32":
            return cls(
                None, None, False, "as asked" if device == "cpu" else "fp32 caches are attended on the CPU"
            )
        try:
            npu = Npu()
        except NpuUnavailable as error:
            if device == "rknpu":
                raise MindNanoError(f"device rknpu: {error}; or use --device cpu") from None
            return cls(None, None, False, str(error))
        missing = "an NPU is here; run mindnano calibrate to have it used"
        try:
            calibration = curves.load(Machine.here(npu.runtime, npu.driver, threads))
        except MindNanoError as error:
            calibration, missing = None, str(error)
        if device == "rknpu":
            return cls(npu, calibration, True, "as asked")
        if calibration is None:
            npu.close()
            return cls(None, None, False, missing)
        return cls(npu, calibration, False, "by this machine's curves")

    @property
    def name(self) -> str:
        """What may compute: "cpu", "rknpu", "rknpu (emulated)"."""
        return "cpu" if self.npu is None else self.npu.name

    @property
    def emulated(self) -> bool:
        return self.npu is not None and self.npu.emulated

    @property
    def usable(self) -> bool:
        return self.npu is not None and self.npu.off is None

    def linear(self, matrices: Sequence[Matrix]) -> RknpuLinear | None:
        """Who computes products with these weights where the curves say that it pays."""
        if self.npu is None or self.calibration is None:
            return None
        kept = self.calibration
        device = RknpuLinear(
            self.npu, matrices, lambda rows, size: kept.faster(LINEAR, rows, size) == "rknpu"
        )
        return None if device.empty else device

    def memory_bytes(self, config: ModelConfig, fmt: str, recipe: str) -> int:
        """What the NPU's memory takes of this machine's: buffers of attention, and weights laid out anew."""
        if self.npu is None or config.mla is None or "mla" not in config.layer_types:
            return 0
        kept = self.calibration
        total = memory_bytes(config.mla, fmt, kept.rows_per_product if kept else MOST_ROWS)
        if kept is not None and recipe in ("mixed", "w8"):
            items = (item for item in layout.items(config) if isinstance(item, layout.Linear))
            shapes = [(item.rows, item.cols) for item in items if item.name != "lm_head"]
            total += linear_bytes(
                [
                    shape
                    for shape in shapes
                    if kept.faster(LINEAR, LINEAR_ROWS, shape[0] * shape[1]) == "rknpu"
                ]
            )
        return total

    @classmethod
    def planned_bytes(cls, device: str, config: ModelConfig, fmt: str, recipe: str, threads: int) -> int:
        """`memory_bytes` of what `open` would give, for a plan before anything is started."""
        devices = cls.open(device, fmt, threads)
        try:
            return devices.memory_bytes(config, fmt, recipe)
        finally:
            devices.close()

    def describe(self) -> dict[str, Any]:
        off = None if self.npu is None else self.npu.off
        reason = f"NPU off: {off}" if off else self.reason
        return {"device": self.name, "emulated": self.emulated, "device_reason": reason}

    def close(self) -> None:
        if self.npu is not None:
            self.npu.close()


class Attention:
    """Prefill attention on the device that serves it best."""

    def __init__(self, config: MLAConfig, fmt: str, devices: Devices) -> None:
        self.config, self.devices = config, devices
        self.work = attention_work(config, fmt)
        self.cpu = CpuAttention(config, fmt)
        self.npu: RknpuAttention | None = None
        if devices.npu is not None:
            kept = devices.calibration
            self.npu = RknpuAttention(devices.npu, config, fmt, kept.rows_per_product if kept else MOST_ROWS)

    def attend(
        self, q: F32, kv: KVCache, kv_b: Matrix | None, start: int, scale: float, out: F32, clock: StageClock
    ) -> Iterator[None]:
        """q [T, H, Dk] at positions start.. against cache rows [0, start + T); writes out [T, H, Dv].

        The block's own rows are in the cache already. Yields between pieces of bounded work.
        """
        npu = self.npu
        if npu is None or not self._pays(len(q), start + (len(q) + 1) // 2):
            yield from self.cpu.attend(q, kv, kv_b, start, scale, out, clock)
            return
        for head in range(0, self.config.num_heads, CORES):
            heads = range(head, min(head + CORES, self.config.num_heads))
            if self.devices.usable:
                try:
                    yield from npu.attend(q, kv, kv_b, start, scale, out, clock, heads)
                    npu.npu.succeeded()
                    continue
                except NpuError as error:
                    npu.npu.failed(error)
                    clock.fallbacks += 1
            yield from self.cpu.attend(q, kv, kv_b, start, scale, out, clock, heads)

    def _pays(self, rows: int, keys: int) -> bool:
        if not self.devices.usable:
            return False
        kept = self.devices.calibration
        return self.devices.forced or (kept is not None and kept.faster(self.work, rows, keys) == "rknpu")
