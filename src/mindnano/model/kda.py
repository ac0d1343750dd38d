"""Kimi Delta Attention: linear attention with a gated delta rule and a decay per channel.

Kimi Linear (arXiv 2510.26692), section 3; Ling 3 uses a bounded sigmoid as the forget gate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mindnano import kernels
from mindnano.cache.states import KDAState
from mindnano.checkpoint.config import KDAConfig
from mindnano.checkpoint.store import WeightStore
from mindnano.model.linear import F32, Activations, Linear
from mindnano.model.stages import StageClock
from mindnano.model.workspace import Workspace


class KDA:
    """One KDA layer's attention: x -> W_o [ RMSNorm(o) * sigmoid(W_g x) ], o read from the state."""

    def __init__(self, config: KDAConfig, eps: float, weights: WeightStore, prefix: str) -> None:
        self.config = config
        self.eps = eps
        self.heads, self.head_dim = config.num_heads, config.head_dim
        self.width = self.heads * self.head_dim
        self.w_in = Linear(weights.linear(f"{prefix}.in"))  # q | k | v | f | g, or q | k | v | f_a | g_a
        self.w_b = Linear(weights.linear(f"{prefix}.b"))
        self.w_o = Linear(weights.linear(f"{prefix}.o"))
        self.w_f = Linear(weights.linear(f"{prefix}.f_b")) if config.low_rank else None
        self.w_g = Linear(weights.linear(f"{prefix}.g_b")) if config.low_rank else None
        taps = weights.vector(f"{prefix}.conv").reshape(3, self.width, -1)
        self.conv = np.ascontiguousarray(taps.transpose(0, 2, 1))  # [3, taps, width]: channels side by side
        self.a_log = weights.vector(f"{prefix}.A_log")
        self.dt_bias = weights.vector(f"{prefix}.dt_bias")
        self.o_norm = weights.vector(f"{prefix}.o_norm")

    def projections(self) -> list[Linear]:
        """The large products of a row."""
        return [w for w in (self.w_in, self.w_f, self.w_g, self.w_o) if w is not None]

    def __call__(
        self,
        x: Activations,
        state: KDAState,
        slots: NDArray[np.int32],
        out: F32,
        ws: Workspace,
        clock: StageClock,
    ) -> None:
        """Add the layer's output for rows x [T, hidden] to out [T, hidden].

        The rows are those of len(slots) sequences, T / len(slots) consecutive tokens each; `state` is updated.
        """
        rows = x.x.shape[0]
        wide = (rows, self.width)
        y = self.w_in(x, ws("kda.in", (rows, self.w_in.rows)))
        b = self.w_b(x, ws("kda.b", (rows, self.heads)))
        forget, gate = y, y
        forget_at, gate_at = 3 * self.width, 4 * self.width
        if self.w_f is not None and self.w_g is not None:
            rank = self.w_f.cols
            f_a = ws("kda.f_a", (rows, rank))
            f_a[:] = y[:, forget_at : forget_at + rank]
            forget = self.w_f(Activations(f_a, ws, "kda.f_a"), ws("kda.f", wide))
            g_a = ws("kda.g_a", (rows, self.w_g.cols))
            g_a[:] = y[:, forget_at + rank :]
            gate = self.w_g(Activations(g_a, ws, "kda.g_a"), ws("kda.g", wide))
            forget_at, gate_at = 0, 0
        clock.lap("projections")

        q, k, v, decay = (ws(name, wide) for name in ("kda.q", "kda.k", "kda.v", "kda.decay"))
        beta = ws("kda.beta", (rows, self.heads))
        kernels.kda_prepare(
            y, (0, self.width, 2 * self.width, forget_at), forget, b, self.conv, state.conv, slots,
            self.a_log, self.dt_bias, self.config.gate, self.config.lower_bound, q, k, v, decay, beta,
        )  # fmt: skip
        o = ws("kda.o", wide)
        kernels.kda_recurrence(q, k, v, decay, beta, state.memory, slots, o)
        normed = ws("kda.normed", wide)
        kernels.kda_output(o, gate, gate_at, self.o_norm, self.eps, normed)
        clock.lap("kda")

        self.w_o(Activations(normed, ws, "kda.normed"), out, accumulate=True)
        clock.lap("projections")
