"""Where a request's time goes: seconds by stage, and of attention by phase."""

from __future__ import annotations

from time import perf_counter

STAGES = ("projections", "mla", "kda", "moe", "lm_head", "sampling", "other")
MLA_PHASES = ("pack", "sync", "matmul", "softmax")


class StageClock:
    """Adds up seconds by stage. `lap(stage)` books the time since the last lap on `stage`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)
        self.mla_seconds: dict[str, float] = dict.fromkeys(MLA_PHASES, 0.0)
        self.mla_calls: dict[str, int] = {"cpu": 0, "rknpu": 0}
        self.npu_projections = 0
        self.fallbacks = 0
        self._last = perf_counter()

    def restart(self) -> None:
        """Start a lap now, so that time spent elsewhere is booked nowhere."""
        self._last = perf_counter()

    def lap(self, stage: str) -> None:
        now = perf_counter()
        self.seconds[stage] += now - self._last
        self._last = now

    def attention(self, device: str, pack: float, matmul: float, softmax: float, sync: float = 0.0) -> None:
        """Book one attention call on `device` with its phases' seconds."""
        self.mla_calls[device] += 1
        phases = self.mla_seconds
        phases["pack"] += pack
        phases["matmul"] += matmul
        phases["softmax"] += softmax
        phases["sync"] += sync

    def linear(self, calls: int, fallbacks: int) -> None:
        """Book products of weights that the NPU computed, and such that it failed at."""
        self.npu_projections += calls
        self.fallbacks += fallbacks

    def add(self, other: StageClock) -> None:
        for stage, seconds in other.seconds.items():
            self.seconds[stage] += seconds
        for phase, seconds in other.mla_seconds.items():
            self.mla_seconds[phase] += seconds
        for device, calls in other.mla_calls.items():
            self.mla_calls[device] += calls
        self.npu_projections += other.npu_projections
        self.fallbacks += other.fallbacks
