"""The decoder: h = x + attention(norm(x)); y = h + mlp(norm(h)), layer by layer.

Decode takes one token of several sequences; prefill takes a block of one sequence through one layer before
the next, so that weights and expanded history are read once a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mindnano import kernels
from mindnano.cache.slots import Slot, SlotPool
from mindnano.checkpoint.config import ModelConfig
from mindnano.checkpoint.store import WeightStore
from mindnano.device.cpu import CpuAttention
from mindnano.model.kda import KDA
from mindnano.model.linear import F32, Activations, Linear
from mindnano.model.mla import MLA
from mindnano.model.moe import MLP, MoE
from mindnano.model.stages import StageClock
from mindnano.model.workspace import Workspace

# Rows that go through a layer's projections at once: enough for the products to run at full speed, few
# enough for what lies between them to stay in the caches.
ATTENTION_TILE = 512
# Rows that go through the experts at once: with 128 experts and 8 chosen, 128 rows an expert.
EXPERT_TILE = 2048


class Layer:
    """One decoder layer with its norms."""

    def __init__(
        self, config: ModelConfig, weights: WeightStore, index: int, device: CpuAttention | None
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


class Decoder:
    """The model without caches or scheduling: rows of tokens in, logits out."""

    def __init__(self, config: ModelConfig, weights: WeightStore, kv_format: str) -> None:
        self.config = config
        device = CpuAttention(config.mla, kv_format) if config.mla is not None else None
        self.table = weights.embedding()  # (array, scales or None, dtype)
        self.layers = [Layer(config, weights, i, device) for i in range(config.num_layers)]
        self.norm = weights.vector("norm")
        self.lm_head = Linear(weights.linear("lm_head"))
        self.decode_scratch, self.prefill_scratch = Workspace(), Workspace()

    def decode(
        self, tokens: Sequence[int], slots: Sequence[Slot], pool: SlotPool, clock: StageClock
    ) -> F32:
        """One token a sequence, appended at slots[s].length. Returns logits [S, vocabulary], valid until the next call."""
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
                layer.mla.few(h, positions, caches, x, ws, clock)
            layer.mlp(self._normed(x, layer.mlp_norm, ws), x)
            clock.lap("moe")
        for slot in slots:
            slot.length += 1
        return self._logits(x, ws, clock)

    def prefill(
        self, tokens: Sequence[int], slot: Slot, pool: SlotPool, clock: StageClock, rows: str = "last"
    ) -> Iterator[F32 | None]:
        """A block of one sequence's tokens, appended at slot.length.

        Yields None between pieces of bounded work (other sequences may decode there; if the iterator is
        closed early the slot's states are unusable and must be cleared), and at last the logits:
        [1, vocabulary] of the last token, [T, vocabulary] with rows="all", [0, vocabulary] with rows="none".
        """
        ws, c = self.prefill_scratch, self.config
        clock.restart()
        x = self._embed(tokens, ws)
        count, start = len(tokens), slot.length
        positions = np.arange(start, start + count, dtype=np.int64)
        index = np.array([slot.index], np.int32)
        for layer in self.layers:
            if layer.kda is not None:
                for begin in range(0, count, ATTENTION_TILE):
                    tile = x[begin : begin + ATTENTION_TILE]
                    h = self._normed(tile, layer.attention_norm, ws)
                    layer.kda(h, pool.states[layer.index], index, tile, ws, clock)
                    yield None
                    clock.restart()
            elif layer.mla is not None and layer.mla.expands(count, start + count):
                yield from self._prefill_mla(layer, layer.mla, x, positions, slot, ws, clock)
            elif layer.mla is not None:
                for begin in range(0, count, 64):
                    tile = x[begin : begin + 64]
                    h = self._normed(tile, layer.attention_norm, ws)
                    caches = [slot.kv[layer.index]] * len(tile)
                    layer.mla.few(h, positions[begin : begin + 64], caches, tile, ws, clock)
                    yield None
                    clock.restart()
            for begin in range(0, count, EXPERT_TILE):
                tile = x[begin : begin + EXPERT_TILE]
                layer.mlp(self._normed(tile, layer.mlp_norm, ws), tile)
                clock.lap("moe")
                yield None
                clock.restart()
        slot.length += count
        wanted = {"last": x[-1:], "all": x, "none": x[:0]}[rows]
        yield self._logits(wanted, ws, clock) if len(wanted) else np.empty((0, c.vocab_size), np.float32)

    def _prefill_mla(
        self, layer: Layer, mla: MLA, x: F32, positions: NDArray[np.int64], slot: Slot, ws: Workspace,
        clock: StageClock,
    ) -> Iterator[None]:  # fmt: skip
        """Queries of the whole block first (its rows go to the cache), then attention, then the output."""
        count, kv = len(x), slot.kv[layer.index]
        heads, v_dim = mla.config.num_heads, mla.config.v_head_dim
        q: F32 = ws("block.q", (count, heads, mla.head_dim))  # type: ignore[assignment]
        o: F32 = ws("block.o", (count, heads, v_dim))  # type: ignore[assignment]
        for begin in range(0, count, ATTENTION_TILE):
            tile = x[begin : begin + ATTENTION_TILE]
            at = positions[begin : begin + ATTENTION_TILE]
            h = self._normed(tile, layer.attention_norm, ws)
            y = mla.project(h, at, q[begin : begin + len(tile)], ws, clock)
            mla.store(y, at, 0, len(tile), kv, int(at[0]), ws)
            clock.lap("mla")
            yield None
            clock.restart()
        for _ in mla.attend(q, kv, int(positions[0]), o, clock):
            yield None
            clock.restart()
        for begin in range(0, count, ATTENTION_TILE):
            tile = x[begin : begin + ATTENTION_TILE]
            h = self._normed(tile, layer.attention_norm, ws)
            mla.output(h, o[begin : begin + len(tile)], tile, ws, clock)
            yield None
            clock.restart()

    def _embed(self, tokens: Sequence[int], ws: Workspace) -> F32:
        array, scales, dtype = self.table
        x: F32 = ws("x", (len(tokens), self.config.hidden_size))  # type: ignore[assignment]
        kernels.embed(np.asarray(tokens, np.int64), array, scales, dtype, x)
        return x

    def _normed(self, x: F32, weight: F32, ws: Workspace) -> Activations:
        y: F32 = ws("normed", x.shape)  # type: ignore[assignment]
        kernels.rms_norm(x, weight, y, self.config.rms_norm_eps)
        return Activations(y, ws, "normed")

    def _logits(self, x: F32, ws: Workspace, clock: StageClock) -> F32:
        logits: F32 = ws("logits", (len(x), self.lm_head.rows))  # type: ignore[assignment]
        self.lm_head(self._normed(x, self.norm, ws), logits)
        clock.lap("lm_head")
        return logits
