"""Feed-forward: y = sum over the chosen experts of w down(silu(gate x) * up x), and the dense MLP as one expert."""

from __future__ import annotations

import numpy as np

from mindnano import kernels
from mindnano.checkpoint.config import MoEConfig
from mindnano.checkpoint.store import WeightStore
from mindnano.model.linear import F32, Activations, Linear


class Experts:
    """E gated MLPs. Quantized: gate and up in one matrix, rows interleaved in eights; dense: apart."""

    def __init__(self, weights: WeightStore, name: str) -> None:
        stored = weights.experts(name)
        self.gate_up, self.gate, self.up, self.down = stored.gate_up, stored.gate, stored.up, stored.down

    def __call__(self, x: Activations, ids: np.ndarray, weights: F32, out: F32) -> None:
        """Add sum_k weights[t, k] expert[ids[t, k]](x[t]) to out [T, hidden]."""
        if self.gate_up is not None:
            kernels.experts_quantized(*x.quantized(), ids, weights, self.gate_up, self.down, out, True)
        else:
            kernels.experts_dense(x.x, ids, weights, self.gate, self.up, self.down, out, True)


class MLP:
    """A dense gated MLP."""

    def __init__(self, weights: WeightStore, name: str) -> None:
        self.experts = Experts(weights, name)

    def __call__(self, x: Activations, out: F32) -> None:
        """Add the MLP's output for x [T, hidden] to out [T, hidden]."""
        rows, ws = x.x.shape[0], x.ws
        ids, ones = ws("mlp.ids", (rows, 1), np.int32), ws("mlp.ones", (rows, 1))
        ids.fill(0)
        ones.fill(1.0)
        self.experts(x, ids, ones, out)


class MoE:
    """Routed experts and a shared one. Router: sigmoid scores, bias only for the choice, best groups first
    (DeepSeek-V3, arXiv 2412.19437, section 2.1.2)."""

    def __init__(self, config: MoEConfig, weights: WeightStore, prefix: str) -> None:
        self.config = config
        self.router = Linear(weights.linear(f"{prefix}.router"))
        self.bias = weights.vector(f"{prefix}.bias")
        self.experts = Experts(weights, f"{prefix}.experts")
        self.shared = MLP(weights, f"{prefix}.shared") if config.shared_intermediate_size else None

    def __call__(self, x: Activations, out: F32) -> None:
        """Add the experts' output for x [T, hidden] to out [T, hidden]."""
        c, rows, ws = self.config, x.x.shape[0], x.ws
        logits = self.router(x, ws("moe.logits", (rows, c.num_experts)))
        ids = ws("moe.ids", (rows, c.top_k), np.int32)
        chosen = ws("moe.weights", (rows, c.top_k))
        kernels.route(
            logits, self.bias, c.n_group, c.topk_group, c.top_k, c.norm_topk_prob, c.routed_scaling_factor,
            c.score, ids, chosen,
        )  # fmt: skip
        self.experts(x, ids, chosen, out)
        if self.shared is not None:
            self.shared(x, out)
