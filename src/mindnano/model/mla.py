"""Multi-head latent attention: keys and values of all heads come from one latent a token.

DeepSeek-V2 (arXiv 2405.04434), section 2.1. Decode is absorbed (scores against the latent itself), prefill
expands the history, a few heads at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mindnano import kernels
from mindnano.cache.kv import ExpandedCache, KVCache
from mindnano.checkpoint.config import MLAConfig
from mindnano.checkpoint.store import WeightStore
from mindnano.device.choice import Attention
from mindnano.model.linear import F32, Activations, HeadLinear, Linear
from mindnano.model.stages import StageClock
from mindnano.model.workspace import Workspace


class MLA:
    """One MLA layer's attention: x -> W_o [ softmax(q k^T / sqrt(Dk)) v * sigmoid(W_gate x) ]."""

    def __init__(self, config: MLAConfig, weights: WeightStore, prefix: str, device: Attention) -> None:
        self.config, self.device = config, device
        c = config
        self.head_dim = c.qk_nope_head_dim + c.qk_rope_head_dim
        self.scale = self.head_dim**-0.5
        self.theta = c.rope_theta or 0.0  # 0: the rope part isn't rotated
        self.w_in = Linear(weights.linear(f"{prefix}.in"))  # q_a | kv_a, or q | kv_a
        self.latent_at = self.w_in.rows - c.kv_lora_rank - c.qk_rope_head_dim
        self.w_qb = Linear(weights.linear(f"{prefix}.q_b")) if c.q_lora_rank else None
        self.q_norm = weights.vector(f"{prefix}.q_norm") if c.q_lora_rank else None
        self.kv_norm = weights.vector(f"{prefix}.kv_norm")
        self.kv_b = weights.linear(f"{prefix}.kv_b")[0]
        self.k_absorb = HeadLinear(weights.heads(f"{prefix}.k_absorb"))
        self.k_absorb_scale = weights.vector(f"{prefix}.k_absorb_scale").reshape(c.num_heads, -1)
        self.v_absorb = HeadLinear(weights.heads(f"{prefix}.v_absorb"))
        self.w_gate = Linear(weights.linear(f"{prefix}.gate")) if c.head_gate else None
        self.w_o = Linear(weights.linear(f"{prefix}.o"))

    def projections(self) -> list[Linear]:
        """The large products of a row."""
        return [w for w in (self.w_in, self.w_qb, self.w_o) if w is not None]

    def project(
        self, x: Activations, positions: NDArray[np.int64], q: F32, ws: Workspace, clock: StageClock
    ) -> F32:
        """Write the rotated queries of x [T, hidden] to q [T, H, Dk]; return [T, .. | latent | rope key]."""
        c, rows = self.config, x.x.shape[0]
        y = self.w_in(x, ws("mla.in", (rows, self.w_in.rows)))
        flat = q.reshape(rows, -1)
        if self.w_qb is not None and self.q_norm is not None:
            q_a = ws("mla.q_a", (rows, self.w_qb.cols))
            q_a[:] = y[:, : self.latent_at]
            kernels.rms_norm(q_a, self.q_norm, q_a, c.norm_eps)
            self.w_qb(Activations(q_a, ws, "mla.q_a"), flat)
        else:
            flat[:] = y[:, : self.latent_at]
        if self.theta:
            kernels.rope_inplace(q, positions, c.qk_rope_head_dim, self.theta)
        clock.lap("projections")
        return y

    def store(self, y: F32, positions: NDArray[np.int64], kv: KVCache, ws: Workspace) -> None:
        """Put the rows of the projection y [T, ..] into the cache, at consecutive positions."""
        c, count, start = self.config, len(y), int(positions[0])
        if not isinstance(kv, ExpandedCache):
            kernels.latent_write(
                y, self.latent_at, self.kv_norm, c.norm_eps, self.theta, positions, kv.view, start
            )
            return
        latent = ws("mla.latent", (count, c.kv_lora_rank))
        rope_at = self.latent_at + c.kv_lora_rank
        latent[:] = y[:, self.latent_at : rope_at]
        kernels.rms_norm(latent, self.kv_norm, latent, c.norm_eps)
        key = ws("mla.rope_key", (count, 1, c.qk_rope_head_dim))
        key[:, 0] = y[:, rope_at:]
        if self.theta:
            kernels.rope_inplace(key, positions, c.qk_rope_head_dim, self.theta)
        expanded = ws("mla.expanded", (count, self.kv_b.rows))
        Linear([self.kv_b])(Activations(latent, ws, "mla.latent"), expanded)
        kernels.expanded_write(expanded, key.reshape(count, -1), kv.view, start)

    def output(self, x: Activations, o: F32, out: F32, ws: Workspace, clock: StageClock) -> None:
        """Gate the heads' outputs o [T, H, Dv] by x and add W_o of them to out [T, hidden]."""
        rows = o.shape[0]
        if self.w_gate is not None:
            gate = self.w_gate(x, ws("mla.gate", (rows, self.config.num_heads)))
            kernels.head_gate(o, gate)
        self.w_o(Activations(o.reshape(rows, -1), ws, "mla.o"), out, accumulate=True)
        clock.lap("projections")

    def decode(
        self,
        x: Activations,
        positions: NDArray[np.int64],
        caches: Sequence[KVCache],
        out: F32,
        ws: Workspace,
        clock: StageClock,
    ) -> None:
        """Decode: row t is the token at positions[t] of caches[t]'s sequence. Adds to out [T, hidden]."""
        c, rows = self.config, x.x.shape[0]
        q = ws("mla.q", (rows, c.num_heads, self.head_dim))
        y = self.project(x, positions, q, ws, clock)
        for t in range(rows):
            self.store(y[t : t + 1], positions[t : t + 1], caches[t], ws)
        lengths = positions + 1
        views = [cache.view for cache in caches]
        o = ws("mla.o", (rows, c.num_heads, c.v_head_dim))
        if isinstance(caches[0], ExpandedCache):
            seconds = kernels.mla_decode_expanded(q, views, lengths, self.scale, o)
        else:
            nope = ws("mla.q_nope", (rows, c.num_heads, c.qk_nope_head_dim))
            np.multiply(q[..., : c.qk_nope_head_dim], self.k_absorb_scale, out=nope)
            rope = ws("mla.q_rope", (rows, c.num_heads, c.qk_rope_head_dim))
            rope[:] = q[..., c.qk_nope_head_dim :]
            absorbed = ws("mla.q_latent", (rows, c.num_heads, c.kv_lora_rank))
            self.k_absorb(nope, absorbed, ws, "mla.q_nope")
            u = ws("mla.u", (rows, c.num_heads, c.kv_lora_rank))
            seconds = kernels.mla_decode_latent(absorbed, rope, views, lengths, self.scale, u)
            self.v_absorb(u, o, ws, "mla.u")
        clock.attention("cpu", *seconds)
        clock.lap("mla")
        self.output(x, o, out, ws, clock)

    def attend(self, q: F32, kv: KVCache, start: int, o: F32, clock: StageClock) -> Iterator[None]:
        """A block's queries q [T, H, Dk] over cache rows [0, start + T) -> o [T, H, Dv]; yields in between."""
        return self.device.attend(q, kv, self.kv_b, start, self.scale, o, clock)
