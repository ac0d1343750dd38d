"""The decoder: h = x + attention(norm(x)); y = h + mlp(norm(h)), layer by layer.

Decode takes one token of several sequences; prefill takes a block of one sequence through one layer before
the next, so that weights and expanded history are read once a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mindnano import kernels
from mindnano.cache.prefix import StateCopy
from mindnano.cache.slots import Slot, SlotPool
from mindnano.checkpoint.config import ModelConfig
from mindnano.checkpoint.store import WeightStore
from mindnano.device.choice import Attention, Devices
from mindnano.model.kda import KDA
from mindnano.model.linear import F32, Activations, Linear
from mindnano.model.mla import MLA
from mindnano.model.moe import MLP, MoE
from mindnano.model.stages import StageClock
from mindnano.model.workspace import Workspace

# Rows that go through a layer's projections at once: enough for the products to run at full speed, few
# enough for what lies between them to stay in the caches.
ATTENTION_TILE = 256
# Rows that go through the experts at once: with 128 experts and 8 chosen, 32 rows an expert. On two cores of a desktop
# that is 0.1 s, in which nobody else decodes; 2048 rows at once take as long a row.
EXPERT_TILE = 512


def tiles(count: int, size: int, cuts: Iterable[int] = ()) -> Iterator[tuple[int, int]]:
    """[0, count) in order, in pieces of at most `size` that end at every cut."""
    ends = sorted({count, *range(size, count, size), *(cut for cut in cuts if 0 < cut < count)})
    return zip([0, *ends[:-1]], ends, strict=True)


class Layer:
    """One decoder layer with its norms."""

    def __init__(
        self, config: ModelConfig, weights: WeightStore, index: int, device: Attention | None
    ) -> None:
        name = f"layers.{index}"
        self.index = index
        self.attention_norm = weights.vector(f"{name}.attention_norm")
        self.mlp_norm = weights.vector(f"{name}.mlp_norm")
        self.kda: KDA | None = None
        self.mla: MLA | None = None
        if config.layer_types[index] == "kda":
            self.kda = KDA(config.kda, config.rms_norm_eps, weights, f"{name}.kda")
        else:
            assert device is not None
            self.mla = MLA(config.mla, weights, f"{name}.mla", device)
        self.mlp: MLP | MoE
        if config.moe is None or config.is_dense(index):
            self.mlp = MLP(weights, f"{name}.mlp")
        else:
            self.mlp = MoE(config.moe, weights, f"{name}.moe")

    def projections(self) -> list[Linear]:
        attention = self.kda or self.mla
        return attention.projections() if attention is not None else []


class Decoder:
    """The model without caches or scheduling: rows of tokens in, logits out."""

    def __init__(self, config: ModelConfig, weights: WeightStore, kv_format: str, devices: Devices) -> None:
        self.config = config
        device = Attention(config.mla, kv_format, devices) if config.mla is not None else None
        self.table = weights.embedding()  # (array, scales or None, dtype)
        self.layers = [Layer(config, weights, i, device) for i in range(config.num_layers)]
        self.norm = weights.vector("norm")
        self.lm_head = Linear(weights.linear("lm_head"))
        self.decode_scratch, self.prefill_scratch = Workspace(), Workspace()
        self.attending = False  # whether a block's attention is under way, with the device's scratch
        projections = [linear for layer in self.layers for linear in layer.projections()]
        self.linear_device = devices.linear([part for linear in projections for part in linear.parts])
        for linear in projections:
            linear.device = self.linear_device

    def decode(self, tokens: Sequence[int], slots: Sequence[Slot], pool: SlotPool, clock: StageClock) -> F32:
        """One token a sequence, appended at slots[s].length. Logits [S, vocabulary], valid until the next call."""
        ws = self.decode_scratch
        clock.restart()
        x = self._embed(tokens, ws)
        indices = np.array([slot.index for slot in slots], np.int32)
        positions = np.array([slot.length for slot in slots], np.int64)
        for layer in self.layers:
            h = self._normed(x, layer.attention_norm, ws)
            if layer.kda is not None:
                layer.kda(h, pool.states[layer.index], indices, x, ws, clock)
            elif layer.mla is not None:
                caches = [slot.kv[layer.index] for slot in slots]
                layer.mla.decode(h, positions, caches, x, ws, clock)
            layer.mlp(self._normed(x, layer.mlp_norm, ws), x)
            clock.lap("moe")
        for slot in slots:
            slot.length += 1
        return self._logits(x, ws, clock)

    def prefill(
        self,
        tokens: Sequence[int],
        slot: Slot,
        pool: SlotPool,
        clock: StageClock,
        rows: Literal["last", "none"] | F32 = "last",
        marks: Mapping[int, StateCopy] | None = None,
        scratch: Workspace | None = None,
    ) -> Iterator[F32 | None]:
        """A block of one sequence's tokens, appended at slot.length.

        Yields None between pieces of bounded work (other sequences may decode there; if the iterator is
        closed early the slot's states are unusable and must be cleared), and at last the logits:
        [1, vocabulary] of the last token, or [0, vocabulary] with rows="none"; `rows` [T, vocabulary] itself, filled
        with those of all tokens, where it is an array.
        Of two blocks at once each needs a `scratch`, and one must not begin while `attending`.
        `marks` are positions in (slot.length, slot.length + T] where the KDA states are copied.

        A row's result doesn't depend, not even in its last bit, on which rows come with it in a block.
        """
        ws = self.prefill_scratch if scratch is None else scratch
        clock.restart()
        x = self._embed(tokens, ws)
        count, start = len(tokens), slot.length
        positions = np.arange(start, start + count, dtype=np.int64)
        for layer in self.layers:
            if layer.kda is not None:
                yield from self._prefill_kda(layer, layer.kda, x, start, slot, pool, marks or {}, ws, clock)
            elif layer.mla is not None:
                yield from self._prefill_mla(layer, layer.mla, x, positions, slot, ws, clock)
            for begin, end in tiles(count, EXPERT_TILE):
                layer.mlp(self._normed(x[begin:end], layer.mlp_norm, ws), x[begin:end])
                clock.lap("moe")
                yield None
                clock.restart()
            slot.layer = layer.index + 1
        slot.length += count
        if self.linear_device is not None:
            clock.linear(*self.linear_device.take_counts())
        slot.layer = 0
        if isinstance(rows, str):
            yield self._logits(x[-1:], ws, clock) if rows == "last" else x[:0, :0]
            return
        for begin, end in tiles(count, EXPERT_TILE):
            self._logits(x[begin:end], ws, clock, rows[begin:end])
        yield rows

    def _prefill_kda(
        self, layer: Layer, kda: KDA, x: F32, start: int, slot: Slot, pool: SlotPool,
        marks: Mapping[int, StateCopy], ws: Workspace, clock: StageClock,
    ) -> Iterator[None]:  # fmt: skip
        """Tile by tile, the state carried along; copied where a tile ends at a mark."""
        index = np.array([slot.index], np.int32)
        for begin, end in tiles(len(x), ATTENTION_TILE, cuts=[mark - start for mark in marks]):
            tile = x[begin:end]
            h = self._normed(tile, layer.attention_norm, ws)
            kda(h, pool.states[layer.index], index, tile, ws, clock)
            if start + end in marks:
                marks[start + end].take(layer.index, pool.states[layer.index], slot.index)
            yield None
            clock.restart()

    def _prefill_mla(
        self, layer: Layer, mla: MLA, x: F32, positions: NDArray[np.int64], slot: Slot, ws: Workspace,
        clock: StageClock,
    ) -> Iterator[None]:  # fmt: skip
        """Queries of the whole block first (its rows go to the cache), then attention, then the output."""
        count, kv = len(x), slot.kv[layer.index]
        heads, v_dim = mla.config.num_heads, mla.config.v_head_dim
        q = ws("block.q", (count, heads, mla.head_dim))
        o = ws("block.o", (count, heads, v_dim))
        for begin, end in tiles(count, ATTENTION_TILE):
            h = self._normed(x[begin:end], layer.attention_norm, ws)
            y = mla.project(h, positions[begin:end], q[begin:end], ws, clock)
            mla.store(y, positions[begin:end], kv, ws)
            clock.lap("mla")
            yield None
            clock.restart()
        self.attending = True
        try:
            for _ in mla.attend(q, kv, int(positions[0]), o, clock):
                yield None
                clock.restart()
        finally:
            self.attending = False
        for begin, end in tiles(count, ATTENTION_TILE):
            h = self._normed(x[begin:end], layer.attention_norm, ws)
            mla.output(h, o[begin:end], x[begin:end], ws, clock)
            yield None
            clock.restart()

    def _embed(self, tokens: Sequence[int], ws: Workspace) -> F32:
        array, scales, dtype = self.table
        x: F32 = ws("x", (len(tokens), self.config.hidden_size))
        kernels.embed(np.asarray(tokens, np.int64), array, scales, dtype, x)
        return x

    def _normed(self, x: F32, weight: F32, ws: Workspace) -> Activations:
        y: F32 = ws("normed", x.shape)
        kernels.rms_norm(x, weight, y, self.config.rms_norm_eps)
        return Activations(y, ws, "normed")

    def _logits(self, x: F32, ws: Workspace, clock: StageClock, out: F32 | None = None) -> F32:
        logits: F32 = ws("logits", (len(x), self.lm_head.rows)) if out is None else out
        self.lm_head(self._normed(x, self.norm, ws), logits)
        clock.lap("lm_head")
        return logits
