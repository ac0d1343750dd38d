"""Prefill attention on the NPU: one head a core at a time, both products there, the softmax between them here.

In INT8 it gives the CPU's result to the bit: both cut the history at the same keys, the integer sums are exact, and one
row's softmax is the same code (native/kernels/attention_rows.hpp). In FP16, which serves the float caches, it agrees
within FP16's rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import numpy as np

from mindnano import kernels
from mindnano.cache.kv import KVCache, LatentCache
from mindnano.checkpoint.config import MLAConfig
from mindnano.device.curves import ROWS
from mindnano.device.rknpu.binding import NpuUnfit
from mindnano.device.rknpu.contexts import PAGE, CoreContexts, Product, Section, Shape, round_up
from mindnano.device.rknpu.npu import CORES, Npu
from mindnano.kernels import HeadHistory, Matrix
from mindnano.model.linear import F32
from mindnano.model.stages import MLA_PHASES, StageClock

TILE_KEYS = 512  # kTileKeys of native/kernels/mla_history.hpp: part of INT8's definition
MOST_ROWS = 2048  # of these by default: calibrating measures which is best
SPAN_TILES = 16  # of the history that are expanded at once, for one head a core
PIECE_PAIRS = 16 << 20  # queries times keys of one head in a piece of work: a fraction of a second


@dataclass(eq=False)
class _Head:
    """One head's online softmax over the rows of a block."""

    head: int
    m: F32
    l: F32
    o: F32  # [rows, Dv]

    @classmethod
    def start(cls, head: int, rows: int, v_dims: int) -> _Head:
        empty = np.full(rows, -np.inf, np.float32)
        return cls(head, empty, np.zeros(rows, np.float32), np.zeros((rows, v_dims), np.float32))


@dataclass(frozen=True)
class _Block:
    """What a call of attend asks for."""

    q: F32  # [T, H, Dk]
    kv: KVCache
    kv_b: Matrix | None
    start: int
    scale: float
    chunks: tuple[tuple[int, int, int], ...]  # first row, rows, rows of the product


class _Scratch:
    """One core's operands: of the products, and a span of one head's history."""

    def __init__(
        self, contexts: CoreContexts, shapes: tuple[Shape, Shape], tile_bytes: int, tiles: int
    ) -> None:
        parts = [shape.nbytes(operand) for shape in shapes for operand in ("A", "C")]
        arena = contexts.arena(sum(round_up(n, PAGE) for n in (*parts, tiles * tile_bytes)))
        self.q, self.scores, self.p, self.sums = (arena.section(n) for n in parts)
        self.history = arena.section(tiles * tile_bytes)


@dataclass
class Seconds:
    """A core's seconds by phase."""

    pack: float = 0.0
    sync: float = 0.0
    matmul: float = 0.0
    softmax: float = 0.0
    _last: float = field(default_factory=perf_counter)

    def lap(self, phase: str) -> None:
        now = perf_counter()
        setattr(self, phase, getattr(self, phase) + now - self._last)
        self._last = now


def shapes(config: MLAConfig, fmt: str, rows: int) -> tuple[Shape, Shape]:
    """The products of so many query rows with a tile, int8 or fp16: QK^T and P V."""
    width = round_up(config.qk_nope_head_dim + config.qk_rope_head_dim, 32)
    return Shape(fmt, rows, width, TILE_KEYS), Shape(fmt, rows, TILE_KEYS, round_up(config.v_head_dim, 32))


def memory_bytes(config: MLAConfig, fmt: str, most_rows: int) -> int:
    """The NPU's memory for attention to a cache of that format, whatever the context."""
    kind = "int8" if fmt == "int8" else "fp16"
    both = shapes(config, kind, most_rows)
    tile = sum(shape.nbytes("B") for shape in both) + (8 * TILE_KEYS if kind == "int8" else 0)
    parts = [shape.nbytes(operand) for shape in both for operand in ("A", "C")]
    return CORES * sum(round_up(n, PAGE) for n in (*parts, SPAN_TILES * tile))


class RknpuAttention:
    """Causal attention of a block's queries over a sequence's cache, CORES heads at a time."""

    name = "rknpu"

    def __init__(self, npu: Npu, config: MLAConfig, fmt: str, most_rows: int = MOST_ROWS) -> None:
        self.npu, self.config, self.most_rows = npu, config, most_rows
        self.format = "int8" if fmt == "int8" else "fp16"
        c = config
        self.depth = self.shapes(most_rows)[0].depth
        self.histories = [
            HeadHistory(
                self.format, c.num_heads, c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim, "rknpu"
            )
            for _ in range(CORES)
        ]
        parts: tuple[int, int, int] = self.histories[0].tile_parts()
        self.k_bytes, self.v_bytes, self.tile_bytes = parts
        self._scratch: dict[int, _Scratch] = {}

    def shapes(self, rows: int) -> tuple[Shape, Shape]:
        """Of QK^T and of P V."""
        return shapes(self.config, self.format, rows)

    def attend(
        self, q: F32, kv: KVCache, kv_b: Matrix | None, start: int, scale: float, out: F32, clock: StageClock,
        heads: range,
    ) -> Iterator[None]:  # fmt: skip
        """These heads, one a core, of q [T, H, Dk] over cache rows [0, start + T) -> out [T, H, Dv].

        Yields between pieces of bounded work. Raises NpuError, with `out` untouched.
        """
        c, rows = self.config, len(q)
        states = [_Head.start(h, rows, c.v_head_dim) for h in heads]
        block = _Block(q, kv, kv_b, start, scale, tuple(self._chunks(rows)))
        step = TILE_KEYS * min(SPAN_TILES, max(1, PIECE_PAIRS // (rows * TILE_KEYS)))
        for begin in range(0, start + rows, step):
            end = min(begin + step, start + rows)
            jobs = [partial(self._span, i, state, block, begin, end) for i, state in enumerate(states)]
            seconds = self.npu.run(jobs)
            shares = {phase: sum(getattr(s, phase) for s in seconds) / len(seconds) for phase in MLA_PHASES}
            clock.attention(self.name, **shares)
            clock.lap("mla")
            yield
        for state in states:
            np.multiply(state.o, (np.float32(1) / state.l)[:, None], out=out[:, state.head])
        clock.lap("mla")

    def _chunks(self, rows: int) -> Iterator[tuple[int, int, int]]:
        """The block's rows in pieces of at most most_rows, each with the rows of its products."""
        for first in range(0, rows, self.most_rows):
            count = min(self.most_rows, rows - first)
            yield first, count, min(capacity for capacity in ROWS if capacity >= count)

    def _span(
        self, core: int, state: _Head, block: _Block, begin: int, end: int, contexts: CoreContexts
    ) -> Seconds:
        """Keys begin .. end of one head: expand them, then every chunk of rows that sees some. On the core's thread."""
        seconds = Seconds()
        scratch = self._scratch.get(core)
        if scratch is None:
            both = self.shapes(self.most_rows)
            scratch = self._scratch[core] = _Scratch(contexts, both, self.tile_bytes, SPAN_TILES)
        history = self.histories[core]
        if isinstance(block.kv, LatentCache):
            history.load_latent(block.kv.view, end, state.head, 1, block.kv_b, begin, scratch.history.data)
        else:
            history.load_expanded(block.kv.view, end, state.head, 1, begin, scratch.history.data)
        if not history.fits:
            raise NpuUnfit(f"head {state.head}: a key or value beyond FP16's range")
        seconds.lap("pack")
        tiles = -(-(end - begin) // TILE_KEYS)
        contexts.send(scratch.history.part(0, tiles * self.tile_bytes))
        seconds.lap("sync")
        for first, count, capacity in block.chunks:
            if block.start + first + count > begin:
                chunk = _Chunk(self, contexts, scratch, capacity, seconds)
                chunk.attend(state, block, first, count, begin, tiles)
        return seconds


class _Chunk:
    """Some rows of one head against the tiles of a span. On a core's thread."""

    def __init__(
        self,
        device: RknpuAttention,
        contexts: CoreContexts,
        scratch: _Scratch,
        capacity: int,
        seconds: Seconds,
    ) -> None:
        self.device, self.scratch, self.capacity, self.seconds = device, scratch, capacity, seconds
        self.qk, self.pv = (contexts.product(shape) for shape in device.shapes(capacity))
        for product, a, c in ((self.qk, scratch.q, scratch.scores), (self.pv, scratch.p, scratch.sums)):
            product.bind("A", a)
            product.bind("C", c)

    def attend(self, state: _Head, block: _Block, first: int, count: int, begin: int, tiles: int) -> None:
        device, rows = self.device, slice(first, first + count)
        row_scales, decay, p_scale = (np.empty(count, np.float32) for _ in range(3))
        if not kernels.npu_queries(
            device.format, block.q, state.head, first, first + count, block.scale, device.depth, self.capacity,
            self.qk.data("A"), row_scales,
        ):  # fmt: skip
            raise NpuUnfit(f"head {state.head}: a query beyond FP16's range")
        self.seconds.lap("pack")
        self.qk.send("A")
        self.seconds.lap("sync")
        for tile in range(tiles):
            seen = block.start + first + 1 - begin - tile * TILE_KEYS  # of these keys, by the first row
            if seen + count <= 1:
                break
            visible = min(TILE_KEYS, seen + count - 1)  # by the last row
            seeing = max(0, 1 - seen)  # the first row that sees any
            k, v, scales = self._operands(tile)
            self._multiply(self.qk, k, 0, count, visible)
            kernels.npu_softmax(
                device.format, self.qk.data("C"), row_scales, *scales, seen, count, self.capacity, state.m[rows],
                state.l[rows], decay, p_scale, self.pv.data("A"),
            )  # fmt: skip
            self.seconds.lap("softmax")
            self.pv.send("A")
            self._multiply(self.pv, v, seeing, count, device.config.v_head_dim)
            kernels.npu_accumulate(
                device.format, self.pv.data("C"), decay, p_scale, seeing, self.capacity, state.o[rows]
            )
            self.seconds.lap("softmax")

    def _operands(self, tile: int) -> tuple[Section, Section, tuple[F32, F32] | tuple[None, None]]:
        """K^T and V of a tile, and INT8's scales of its keys and values."""
        d, at = self.device, tile * self.device.tile_bytes
        k = self.scratch.history.part(at, d.k_bytes)
        v = self.scratch.history.part(at + d.k_bytes, d.v_bytes)
        if d.format == "fp16":
            return k, v, (None, None)
        scales = self.scratch.history.part(at + d.k_bytes + d.v_bytes, 8 * TILE_KEYS).data.view(np.float32)
        return k, v, (scales[:TILE_KEYS], scales[TILE_KEYS:])

    def _multiply(self, product: Product, b: Section, first: int, rows: int, cols: int) -> None:
        """Run, and look at rows first .. rows and columns .. cols of the result."""
        product.bind("B", b)
        self.seconds.lap("sync")
        product.run()
        self.seconds.lap("matmul")
        product.fetch()
        self.seconds.lap("sync")
        product.check(first, rows, cols)
        self.seconds.lap("matmul")
