"""Measures this machine's curves: attention and projections, on the CPU and, where there is one, on the NPU.

Random caches and weights of a model's shape: time doesn't depend on their values. A curve ends before a point would
take longer than a limit, on each device by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from mindnano import kernels
from mindnano.cache.kv import KVCache, make_kv_cache
from mindnano.checkpoint.config import MLAConfig
from mindnano.device.cpu import CpuAttention
from mindnano.device.curves import FORMAT, LINEAR, ROWS, Calibration, Curve, Machine, Point, attention_work
from mindnano.device.rknpu.attention import MOST_ROWS, RknpuAttention
from mindnano.device.rknpu.binding import NpuError
from mindnano.device.rknpu.linear import RknpuLinear
from mindnano.device.rknpu.npu import CORES, Npu
from mindnano.errors import MindNanoError
from mindnano.kernels import Matrix, packing
from mindnano.model.linear import F32, quantize
from mindnano.model.stages import StageClock
from mindnano.model.workspace import Workspace

# Ling-3.0-tiny's attention, and its largest and smallest projections [outputs, inputs].
LING_TINY = MLAConfig(16, 256, 512, 128, 64, 128, 6e6, head_gate=True)
LING_PROJECTIONS = ((10240, 1536), (1536, 2048))

LONG_BLOCK = 2048  # rows with which products of different sizes are compared

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What to measure: a block's rows, keys that a row sees on average (two lengths or more, none below half the
    rows), tokens of a projection; no point above `limit_s`."""

    rows: tuple[int, ...] = (16, 128, 1024)
    keys: tuple[int, ...] = (512, 4096, 32768)
    tokens: tuple[int, ...] = (16, 64, 256)
    formats: tuple[str, ...] = ("int8", "bf16")
    limit_s: float = 10.0
    compare_rows: bool = True  # of the NPU's products


QUICK = Plan(rows=(16, 256), keys=(512, 2048), tokens=(16, 128), limit_s=3.0, compare_rows=False)


def measure(
    config: MLAConfig,
    projections: tuple[tuple[int, int], ...],
    npu: Npu | None,
    plan: Plan,
    progress: Progress,
) -> Calibration:
    """All curves of a model's shape on this machine. Raises MindNanoError where the NPU fails while it is measured."""
    machine = Machine.here(npu.runtime, npu.driver) if npu is not None else Machine.here()
    found: dict[str, dict[str, Curve]] = {}
    most_rows = MOST_ROWS
    try:
        for fmt in plan.formats:
            case = _AttentionCase(config, fmt, max(plan.keys) + max(max(plan.rows), LONG_BLOCK))
            curves = found.setdefault(attention_work(config, fmt), {})
            curves["cpu"] = _curve(plan.rows, plan.keys, plan.limit_s, case.on(CpuAttention(config, fmt)), progress,
                                   f"attention {fmt} cpu")  # fmt: skip
            if npu is not None:
                if plan.compare_rows and fmt == plan.formats[0]:
                    most_rows = _best_rows(npu, config, fmt, case, plan, progress)
                device = RknpuAttention(npu, config, fmt, most_rows)
                label = f"attention {fmt} {npu.name}"
                curves["rknpu"] = _curve(
                    plan.rows, plan.keys, plan.limit_s, case.on(_All(device)), progress, label
                )
        found[LINEAR] = _linear_curves(projections, npu, plan, progress)
    except NpuError as error:
        raise MindNanoError(f"the NPU failed while it was measured: {error}; nothing was kept") from None
    emulated = npu is not None and npu.emulated
    return Calibration(FORMAT, machine, emulated, most_rows, found)


def _curve(
    rows: tuple[int, ...], sizes: tuple[int, ...], limit_s: float, time: Callable[[int, int], Point],
    progress: Progress, label: str,
) -> Curve:  # fmt: skip
    """Points of two sizes at least, then on until the next size's largest would exceed the limit."""
    points: list[Point] = []
    for i, size in enumerate(sizes):
        if i > 1 and points[-1].seconds * size / sizes[i - 1] > limit_s:
            break
        for count in rows:
            progress(f"{label}: {count} x {size}")
            points.append(time(count, size))
    return Curve(points)


class _All:
    """The NPU's attention over all heads, without a CPU to fall back to."""

    def __init__(self, npu: RknpuAttention) -> None:
        self.npu = npu

    def attend(
        self, q: F32, kv: KVCache, kv_b: Matrix | None, start: int, scale: float, out: F32, clock: StageClock
    ) -> Iterator[None]:
        for head in range(0, self.npu.config.num_heads, CORES):
            heads = range(head, min(head + CORES, self.npu.config.num_heads))
            yield from self.npu.attend(q, kv, kv_b, start, scale, out, clock, heads)


class _AttentionCase:
    """A random cache and queries of a model's shape."""

    def __init__(self, config: MLAConfig, fmt: str, keys: int) -> None:
        rng = np.random.default_rng(5)
        self.config, self.fmt = config, fmt
        self.kv = make_kv_cache(config, "latent", fmt, keys)
        for array in self.kv.arrays().values():
            array[:] = _random_rows(rng, array)
        outputs = config.num_heads * (config.qk_nope_head_dim + config.v_head_dim)
        self.kv_b = _random_w8(rng, outputs, config.kv_lora_rank)

    def on(self, device: CpuAttention | _All) -> Callable[[int, int], Point]:
        """A function that times so many rows that see so many keys on average."""
        c = self.config
        width = c.qk_nope_head_dim + c.qk_rope_head_dim

        def run(rows: int, keys: int) -> Point:
            start = keys - rows // 2
            q = np.random.default_rng(6).standard_normal((rows, c.num_heads, width), np.float32)
            out: F32 = np.empty((rows, c.num_heads, c.v_head_dim), np.float32)

            def once() -> StageClock:
                clock = StageClock()
                for _ in device.attend(q, self.kv, self.kv_b, start, width**-0.5, out, clock):
                    pass
                return clock

            return _timed(once, rows, keys)

        return run


def _timed(once: Callable[[], StageClock], rows: int, size: int) -> Point:
    """The best of a few calls, of one where a call is long; the first one warms up."""
    best: Point | None = None
    for attempt in range(4):
        begin = perf_counter()
        clock = once()
        seconds = perf_counter() - begin
        if best is None or seconds < best.seconds or attempt == 1:
            best = Point(rows, size, seconds, **clock.mla_seconds)
        if seconds > 0.5 and attempt:
            break
    assert best is not None
    return best


def _best_rows(
    npu: Npu, config: MLAConfig, fmt: str, case: _AttentionCase, plan: Plan, progress: Progress
) -> int:
    """Query rows of a product with which a long block on a long history takes least."""
    keys, seconds = plan.keys[1], {}
    for most in (rows for rows in ROWS if 512 <= rows <= LONG_BLOCK):
        progress(f"attention {fmt} {npu.name}: {most} rows a product")
        seconds[most] = case.on(_All(RknpuAttention(npu, config, fmt, most)))(LONG_BLOCK, keys).seconds
        if seconds[most] > plan.limit_s:
            break
    return min(seconds, key=lambda most: seconds[most])


def _linear_curves(
    projections: tuple[tuple[int, int], ...], npu: Npu | None, plan: Plan, progress: Progress
) -> dict[str, Curve]:
    rng, ws = np.random.default_rng(7), Workspace()
    matrices = {rows * cols: _random_w8(rng, rows, cols) for rows, cols in projections}
    sizes = tuple(sorted(matrices))
    device = RknpuLinear(npu, list(matrices.values()), lambda rows, size: True) if npu is not None else None

    def run(name: str) -> Callable[[int, int], Point]:
        def timed(tokens: int, size: int) -> Point:
            matrix = matrices[size]
            x = quantize(rng.standard_normal((tokens, matrix.cols), np.float32), ws, "x")
            out: F32 = np.empty((tokens, matrix.rows), np.float32)

            def once() -> StageClock:
                if name == "cpu":
                    kernels.linear_quantized(*x, matrix, out)
                elif device is None or not device(x, matrix, out, 0, False):
                    raise NpuError(device.refused or "a product was refused" if device else "no device")
                return StageClock()

            return _timed(once, tokens, size)

        return timed

    names = ["cpu"] if npu is None else ["cpu", "rknpu"]
    return {
        name: _curve(plan.tokens, sizes, plan.limit_s, run(name), progress, f"linear {name}")
        for name in names
    }


def _random_rows(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    """A block of random rows, repeated; floats of about unit size."""
    floats = rng.standard_normal((min(len(like), 512), *like.shape[1:]), np.float32)
    if like.dtype == np.int8:
        block: np.ndarray = np.clip(np.rint(floats * 40), -127, 127).astype(np.int8)
    elif like.dtype == np.uint16:  # BF16
        block = (floats.view(np.uint32) >> 16).astype(np.uint16)
    else:
        block = np.abs(floats) / np.float32(40)
    return np.resize(block, like.shape)


def _random_w8(rng: np.random.Generator, rows: int, cols: int) -> Matrix:
    data = rng.integers(-127, 128, packing.w8_shape(rows, cols), np.int8)
    scales = np.full(-(-rows // 16) * 16, 1 / (64 * np.sqrt(cols)), np.float32)
    return Matrix.w8(data, scales, rows, cols)
