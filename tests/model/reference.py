"""The whole model in NumPy, from the equations: the specification of what the engine computes.

Reads checkpoint folders on its own and shares nothing with the engine but the configuration. float64 by
default. docs/model.md has the same formulas in words.
"""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors.numpy

from mindnano.checkpoint import KDAConfig, MLAConfig, MoEConfig, load_config

assert ml_dtypes.bfloat16  # NumPy knows BF16 from here on
L2_EPS = 1e-6  # of q's and k's norm in KDA, whatever rms_norm_eps is
LATENT_EPS = 1e-6  # of the norms of q_a and kv_a: the classes leave them at their default

Array = np.ndarray


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def l2_norm(x: Array) -> Array:
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + L2_EPS)


def convolve(x: Array, taps: Array) -> Array:
    """Causal depthwise convolution of x [T, C] with taps [C, 4]; the last tap is the current token's."""
    padded = np.concatenate([np.zeros((taps.shape[1] - 1, x.shape[1]), x.dtype), x])
    return sum(padded[i : i + len(x)] * taps[:, i] for i in range(taps.shape[1]))


def rotate(x: Array, theta: float) -> Array:
    """x [T, ..., D]: pairs (2i, 2i + 1) of row t turned by t * theta^(-2i / D)."""
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    turn = np.exp(1j * angles).reshape(len(x), *[1] * (x.ndim - 2), -1)
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
    return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape).astype(x.dtype)


class Weights:
    """The tensors of the model, or of a part of it, by what follows `prefix` in their names."""

    def __init__(self, tensors: dict[str, Array], prefix: str) -> None:
        self.tensors, self.prefix = tensors, prefix

    def __call__(self, *names: str) -> Array:
        """The tensor under the first of the names that is there: official, or as transformers saves it."""
        for name in names:
            for full in (self.prefix + name, self.prefix + name + ".weight"):
                if full in self.tensors:
                    return self.tensors[full]
        raise KeyError(self.prefix + names[0])

    def within(self, name: str) -> Weights:
        return Weights(self.tensors, self.prefix + name)


def kda(x: Array, w: Weights, c: KDAConfig, eps: float) -> Array:
    """x [T, hidden] -> [T, hidden]."""
    shape = (len(x), c.num_heads, c.head_dim)
    q, k, v = (
        silu(convolve(x @ w(f"{n}_proj").T, w(f"{n}_conv1d").squeeze(1))).reshape(shape) for n in "qkv"
    )
    q, k = l2_norm(q) * c.head_dim**-0.5, l2_norm(k)
    if c.low_rank:
        f, gate = ((x @ w(f"{n}_a_proj").T) @ w(f"{n}_b_proj").T for n in "fg")
    else:
        f, gate = (x @ w(f"{n}_proj").T for n in "fg")
    f = (f + w("dt_bias")).reshape(shape)
    rate = np.exp(w("A_log").reshape(-1, 1))
    g = c.lower_bound * sigmoid(rate * f) if c.gate == "sigmoid" else -rate * np.logaddexp(0, f)
    decay, beta = np.exp(g), sigmoid(x @ w("b_proj").T)
    state = np.zeros((c.num_heads, c.head_dim, c.head_dim), x.dtype)  # [heads, K, V]
    out = np.empty(shape, x.dtype)
    for t in range(len(x)):
        state = decay[t][:, :, None] * state
        u = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * u[:, None, :]
        out[t] = np.einsum("hkv,hk->hv", state, q[t])
    normed = rms_norm(out, w("o_norm"), eps) * sigmoid(gate.reshape(shape))
    return normed.reshape(len(x), -1) @ w("o_proj", "dense").T


def mla(x: Array, w: Weights, c: MLAConfig) -> Array:
    """x [T, hidden] -> [T, hidden]."""
    rows, heads, nope = len(x), c.num_heads, c.qk_nope_head_dim
    if c.q_lora_rank is None:
        q = x @ w("q_proj").T
    else:
        q = rms_norm(x @ w("q_a_proj").T, w("q_a_layernorm"), LATENT_EPS) @ w("q_b_proj").T
    q = q.reshape(rows, heads, nope + c.qk_rope_head_dim)
    latent, key = np.split(x @ w("kv_a_proj_with_mqa").T, [c.kv_lora_rank], axis=1)
    kv = (rms_norm(latent, w("kv_a_layernorm"), LATENT_EPS) @ w("kv_b_proj").T).reshape(rows, heads, -1)
    q_nope, q_rope = q[..., :nope], q[..., nope:]
    if c.rope_theta is not None:
        q_rope, key = rotate(q_rope, c.rope_theta), rotate(key, c.rope_theta)
    scores = np.einsum("thd,shd->hts", q_nope, kv[..., :nope]) + np.einsum("thd,sd->hts", q_rope, key)
    scores = scores * (nope + c.qk_rope_head_dim) ** -0.5
    scores[:, np.triu(np.ones((rows, rows), bool), 1)] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    out = np.einsum("hts,shd->thd", p / p.sum(-1, keepdims=True), kv[..., nope:])
    if c.head_gate:
        out = out * sigmoid(x @ w("g_proj").T)[..., None]
    return out.reshape(rows, -1) @ w("dense", "o_proj").T


def mlp(x: Array, w: Weights, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj") -> Array:
    return (silu(x @ w(gate).T) * (x @ w(up).T)) @ w(down).T


def route(x: Array, w: Weights, c: MoEConfig) -> Array:
    """Each expert's weight for each row [T, E], 0 where it isn't chosen."""
    score = sigmoid(x @ w("gate").T)
    # The bias has its say in the choice, not in the weights.
    choice = score + w("gate.expert_bias", "gate.e_score_correction_bias")
    groups = choice.reshape(len(x), c.n_group, -1)
    if c.topk_group < c.n_group:
        best = np.sort(groups, -1)[..., -2:].sum(-1)
        left = np.argsort(-best, -1, kind="stable")[:, c.topk_group :]
        np.put_along_axis(groups, left[..., None], -np.inf, 1)
    chosen = np.argsort(-choice, -1, kind="stable")[:, : c.top_k]
    weights = np.take_along_axis(score, chosen, 1)
    if c.norm_topk_prob:
        weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
    out = np.zeros_like(score)
    np.put_along_axis(out, chosen, weights * c.routed_scaling_factor, 1)
    return out


def moe(x: Array, w: Weights, c: MoEConfig) -> Array:
    """Routed experts and the shared one, x [T, hidden] -> [T, hidden]."""
    out = mlp(x, w.within("shared_experts."))
    names = ("w1", "w3", "w2") if "block_sparse_moe" in w.prefix else ("gate_proj", "up_proj", "down_proj")
    weights = route(x, w, c)
    for expert in range(c.num_experts):
        rows = np.flatnonzero(weights[:, expert])
        out[rows] += weights[rows, expert, None] * mlp(x[rows], w.within(f"experts.{expert}."), *names)
    return out


class Reference:
    """A checkpoint folder, read and ready to compute."""

    def __init__(self, folder: Path, dtype: type = np.float64) -> None:
        self.config = load_config(folder)
        self.tensors: dict[str, Array] = {}
        for file in sorted(folder.glob("*.safetensors")):
            stored = _unpacked(safetensors.numpy.load_file(file))
            self.tensors |= {name: tensor.astype(dtype) for name, tensor in stored.items()}

    def logits(self, tokens: list[int]) -> Array:
        """Logits after each token [T, vocabulary]."""
        c, model = self.config, Weights(self.tensors, "model.")
        x = model("word_embeddings" if "model.word_embeddings.weight" in self.tensors else "embed_tokens")[
            tokens
        ]
        for i in range(c.num_layers):
            w = model.within(f"layers.{i}.")
            attention = w.within(_present(w, "attention.", "self_attn."))
            h = rms_norm(x, w("input_layernorm"), c.rms_norm_eps)
            if c.layer_types[i] == "kda":
                x = x + kda(h, attention, c.kda, c.rms_norm_eps)
            else:
                x = x + mla(h, attention, c.mla)
            h = rms_norm(x, w("post_attention_layernorm"), c.rms_norm_eps)
            ffn = w.within(_present(w, "mlp.", "block_sparse_moe."))
            x = x + (mlp(h, ffn) if c.moe is None or c.is_dense(i) else moe(h, ffn, c.moe))
        return rms_norm(x, model("norm"), c.rms_norm_eps) @ self.tensors["lm_head.weight"].T


def _present(w: Weights, *names: str) -> str:
    return next(n for n in names if any(t.startswith(w.prefix + n) for t in w.tensors))


def _unpacked(tensors: dict[str, Array]) -> dict[str, Array]:
    """compressed-tensors int4 as values: words of eight nibbles q + 8, least significant first, a scale for 32."""
    out = {}
    for name, tensor in tensors.items():
        base = re.sub(r"_(packed|scale|shape)$", "", name)
        if base == name:
            out[name] = tensor
        elif name.endswith("_packed"):
            rows, cols = tensors[f"{base}_shape"]
            q = (tensor.view(np.uint32)[:, :, None] >> (4 * np.arange(8, dtype=np.uint32)) & 15).astype(
                np.int64
            ) - 8
            scales = np.repeat(tensors[f"{base}_scale"].astype(np.float64), 32, 1)
            out[base] = (q.reshape(rows, -1) * scales)[:, :cols]
    return out
