"""A `bailing_hybrid` model in plain PyTorch, made to train on a CPU; tensors have the official names.

Equations as in src/mindnano/model and the transformers class, which tests hold it against.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from training import kda
from training.functions import Experts, ShortConv
from training.initialize import initialize


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; names as in the official configuration."""

    vocab_size: int = 2560
    hidden_size: int = 128
    num_hidden_layers: int = 8
    layer_group_size: int = 4
    first_k_dense_replace: int = 1
    intermediate_size: int = 320
    num_attention_heads: int = 4
    head_dim: int = 32  # of KDA
    q_lora_rank: int = 64
    kv_lora_rank: int = 64
    qk_nope_head_dim: int = 32
    qk_rope_head_dim: int = 32
    v_head_dim: int = 32
    rope_theta: float = 6e6
    num_experts: int = 24
    num_experts_per_tok: int = 2
    n_group: int = 4
    topk_group: int = 2
    moe_intermediate_size: int = 64
    routed_scaling_factor: float = 2.5
    rms_norm_eps: float = 1e-6
    kda_lower_bound: float = -5.0
    conv: int = field(default=4, metadata={"official": "short_conv_kernel_size"})

    def is_mla(self, layer: int) -> bool:
        return (layer + 1) % self.layer_group_size == 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def load(cls, path: Path) -> Shape:
        return cls(**json.loads(path.read_text()))


class Linear(nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


class Conv(nn.Module):
    """Holds a short convolution's weight [C, 1, taps]."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, taps))


class KDA(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.dim, self.bound = shape.num_attention_heads, shape.head_dim, shape.kda_lower_bound
        width = self.heads * self.dim
        for name in "qkvfg":
            setattr(self, f"{name}_proj", Linear(shape.hidden_size, width))
        for name in "qkv":
            setattr(self, f"{name}_conv1d", Conv(width, shape.conv))
        self.b_proj = Linear(shape.hidden_size, self.heads)
        self.A_log = nn.Parameter(torch.empty(self.heads))
        self.dt_bias = nn.Parameter(torch.empty(width))
        self.o_norm = RMSNorm(self.dim, shape.rms_norm_eps)
        self.o_proj = Linear(width, shape.hidden_size)

    def forward(self, x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        split = (*x.shape[:2], self.heads, self.dim)
        width = self.heads * self.dim
        rows = F.linear(x, torch.cat([getattr(self, f"{name}_proj").weight for name in "qkvfgb"]))
        mixed, forget, gate, beta = rows.split([3 * width, width, width, self.heads], -1)
        taps = torch.cat([getattr(self, f"{name}_conv1d").weight for name in "qkv"])
        q, k, v = ShortConv.apply(mixed, taps).view(*x.shape[:2], 3, self.heads, self.dim).unbind(2)
        rate = self.A_log.exp().view(-1, 1)
        g = self.bound * torch.sigmoid(rate * (forget + self.dt_bias).view(split))
        out = kda.chunked(_unit(q) * self.dim**-0.5, _unit(k), v, g, torch.sigmoid(beta))
        out = self.o_norm(out) * torch.sigmoid(gate.reshape(split))
        return self.o_proj(out.flatten(2))


def rope_table(shape: Shape, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [length, rope / 2]."""
    width = shape.qk_rope_head_dim
    frequencies = shape.rope_theta ** (-torch.arange(0, width, 2, dtype=torch.float) / width)
    angles = torch.arange(length, dtype=torch.float)[:, None] * frequencies
    return angles.cos(), angles.sin()


def _rotate(x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """x [B, H, T, rope], pairs (2i, 2i + 1); the result de-interleaved, the same for queries and keys."""
    cos, sin = rope
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((even * cos - odd * sin, odd * cos + even * sin), -1)


class MLA(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        hidden, heads = shape.hidden_size, shape.num_attention_heads
        self.q_a_proj = Linear(hidden, shape.q_lora_rank)
        self.q_a_layernorm = RMSNorm(shape.q_lora_rank)
        self.q_b_proj = Linear(shape.q_lora_rank, heads * (shape.qk_nope_head_dim + shape.qk_rope_head_dim))
        self.kv_a_proj_with_mqa = Linear(hidden, shape.kv_lora_rank + shape.qk_rope_head_dim)
        self.kv_a_layernorm = RMSNorm(shape.kv_lora_rank)
        self.kv_b_proj = Linear(shape.kv_lora_rank, heads * (shape.qk_nope_head_dim + shape.v_head_dim))
        self.g_proj = Linear(hidden, heads)
        self.dense = Linear(heads * shape.v_head_dim, hidden)

    def forward(self, x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        s = self.shape
        split = (*x.shape[:2], s.num_attention_heads, -1)
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))).view(split).transpose(1, 2)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([s.kv_lora_rank, s.qk_rope_head_dim], -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).view(split).transpose(1, 2)
        k, v = kv.split([s.qk_nope_head_dim, s.v_head_dim], -1)
        k_rope = _rotate(k_rope.unsqueeze(1), rope).expand(-1, s.num_attention_heads, -1, -1)
        q_nope, q_rope = q.split([s.qk_nope_head_dim, s.qk_rope_head_dim], -1)
        q, k = torch.cat((q_nope, _rotate(q_rope, rope)), -1), torch.cat((k, k_rope), -1)
        # The fast kernel wants one width: zeros in the values add nothing.
        wide = F.pad(v, (0, q.shape[-1] - s.v_head_dim)) if q.shape[-1] > s.v_head_dim else v
        out = F.scaled_dot_product_attention(q, k, wide, is_causal=True)[..., : s.v_head_dim]
        out = out.transpose(1, 2) * torch.sigmoid(self.g_proj(x)).unsqueeze(-1)
        return self.dense(out.flatten(2))


class MLP(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = Linear(hidden, inner), Linear(hidden, inner)
        self.down_proj = Linear(inner, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    """The router's parameters. `expert_bias` is no parameter of the loss: the trainer moves it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape.num_experts, shape.hidden_size))
        self.register_buffer("expert_bias", torch.zeros(shape.num_experts))


class MoE(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.gate = Gate(shape)
        inner, hidden, count = shape.moe_intermediate_size, shape.hidden_size, shape.num_experts
        self.experts_gate_up = nn.Parameter(torch.empty(count, 2 * inner, hidden))
        self.experts_down = nn.Parameter(torch.empty(count, hidden, inner))
        self.shared_experts = MLP(hidden, inner)
        self.load = torch.zeros(count)  # tokens an expert got since it was last balanced

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(experts, weights) [N, top k]."""
        s = self.shape
        scores = torch.sigmoid(F.linear(x, self.gate.weight))
        with torch.no_grad():
            choice = (scores + self.gate.expert_bias).view(-1, s.n_group, s.num_experts // s.n_group)
            group = choice.topk(2, -1)[0].sum(-1)
            kept = group.topk(s.topk_group, -1)[1]
            mask = torch.full_like(group, -torch.inf).scatter_(1, kept, 0.0)
            chosen = (choice + mask.unsqueeze(-1)).flatten(1).topk(s.num_experts_per_tok, -1)[1]
        weights = scores.gather(1, chosen)
        return chosen, weights / (weights.sum(-1, keepdim=True) + 1e-20) * s.routed_scaling_factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, 1)
        chosen, weights = self.route(flat)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=self.shape.num_experts)
        if self.training:
            self.load += counts
        rows = order // chosen.shape[1]
        routed = Experts.apply(
            flat.index_select(0, rows), self.experts_gate_up, self.experts_down, counts.tolist()
        )
        routed = routed * weights.flatten().index_select(0, order).unsqueeze(-1)
        out = torch.zeros_like(flat).index_add(0, rows, routed)
        return out.view(x.shape) + self.shared_experts(x)


class Layer(nn.Module):
    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.attention = MLA(shape) if shape.is_mla(layer) else KDA(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        dense = layer < shape.first_k_dense_replace
        self.mlp = MLP(shape.hidden_size, shape.intermediate_size) if dense else MoE(shape)

    def forward(self, x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x = x + self.attention(self.input_layernorm(x), rope)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    """Token ids [B, T] to hidden rows or logits. T a multiple of 16; every row starts from an empty state."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.word_embeddings = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape, n) for n in range(shape.num_hidden_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.lm_head = Linear(shape.hidden_size, shape.vocab_size)
        initialize(self, torch.Generator().manual_seed(seed))

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        rope = rope_table(self.shape, tokens.shape[1])
        x = self.word_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, rope)
        return self.norm(x)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [B, T, vocabulary]; any T (padded inside)."""
        length = tokens.shape[1]
        padded = F.pad(tokens, (0, -length % kda.CHUNK))
        return self.lm_head(self.hidden(padded)[:, :length])
