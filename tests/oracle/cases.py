"""The configurations that fixtures and live comparisons are made of; needs neither torch nor transformers.

Options have the names of the transformers configuration classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "data" / "oracle"
LENGTHS = (1, 2, 63, 64, 65, 500)
GREEDY_PROMPT, GREEDY_STEPS = 20, 200
SEED = 2026

_IDS = {"vocab_size": 272, "pad_token_id": 258, "eos_token_id": 259, "bos_token_id": 257}
BAILING: dict[str, Any] = _IDS | {
    "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 4,
    "num_attention_heads": 2, "head_dim": 32, "layer_group_size": 4, "first_k_dense_replace": 1,
    "num_local_experts": 12, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 4, "n_shared_experts": 1,
    "q_lora_rank": 16, "kv_lora_rank": 32,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 24, "num_mtp_layers": 0, "kda_lower_bound": -5.0,
    "kda_safe_gate": True, "rms_norm_eps": 1e-6, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
    "rope_theta": 6e6, "max_position_embeddings": 4096,
}  # fmt: skip
_LINEAR, _FULL = "linear_attention", "full_attention"
KIMI: dict[str, Any] = _IDS | {
    "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 4,
    "num_attention_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1,
    "topk_group": 1, "q_lora_rank": None, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 24, "linear_head_dim": 32, "linear_num_heads": 2, "rms_norm_eps": 1e-5,
    "routed_scaling_factor": 2.446, "norm_topk_prob": True, "max_position_embeddings": 4096,
    "layer_types": [_LINEAR, _LINEAR, _FULL, _LINEAR],
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One configuration. `spelling`: "official" names, or those that transformers' save_pretrained writes.
    `dtype`: of the stored matrices. `int4`: routed experts in compressed-tensors' form. `shards`: files."""

    family: str
    options: dict[str, Any] = field(default_factory=dict)
    spelling: str = "official"
    dtype: str = "BF16"
    int4: bool = False
    shards: int = 1

    @property
    def all_options(self) -> dict[str, Any]:
        base = BAILING if self.family == "bailing_hybrid" else KIMI
        return base | self.options | {
            "num_key_value_heads": self.options.get("num_attention_heads", base["num_attention_heads"])
        }  # fmt: skip


def _bailing(**kwargs: Any) -> Case:
    own = {name: kwargs.pop(name) for name in ("spelling", "dtype", "int4", "shards") if name in kwargs}
    return Case("bailing_hybrid", kwargs, **own)


def _kimi(**kwargs: Any) -> Case:
    own = {name: kwargs.pop(name) for name in ("spelling", "dtype", "int4", "shards") if name in kwargs}
    return Case("kimi_linear", kwargs, **own)


CASES: dict[str, Case] = {
    "bailing": _bailing(shards=3),
    "bailing-as-saved": _bailing(
        spelling="transformers", num_local_experts=8, n_group=2, topk_group=1, layer_group_size=3,
    ),
    "bailing-one-head": _bailing(
        hidden_size=72, num_attention_heads=1, head_dim=48, layer_group_size=2, first_k_dense_replace=0,
        q_lora_rank=None,
        kv_lora_rank=48, n_group=1, topk_group=1, num_local_experts=6, num_experts_per_tok=3, moe_intermediate_size=40,
        v_head_dim=40, kda_lower_bound=-3.0, dtype="F16",
    ),
    "bailing-16-heads": _bailing(
        hidden_size=100, num_attention_heads=16, head_dim=16, num_hidden_layers=3, layer_group_size=3,
        first_k_dense_replace=2,
        num_local_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2, qk_nope_head_dim=8, qk_rope_head_dim=8,
        v_head_dim=8, kv_lora_rank=64, q_lora_rank=24, moe_intermediate_size=24, intermediate_size=72, rope_theta=1e4,
    ),
    "bailing-odd": _bailing(
        hidden_size=88, num_attention_heads=3, head_dim=24, layer_group_size=2, num_hidden_layers=3, kv_lora_rank=160,
        qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=40, q_lora_rank=40, rms_norm_eps=1e-4, kda_safe_gate=False,
        routed_scaling_factor=1.7, norm_topk_prob=False, n_shared_experts=2, num_local_experts=12, n_group=3,
        topk_group=2, moe_intermediate_size=24,
    ),
    "bailing-int4": _bailing(
        hidden_size=96, num_attention_heads=4, head_dim=16, num_hidden_layers=3, layer_group_size=3,
        num_local_experts=32, n_group=8, topk_group=4, num_experts_per_tok=8, moe_intermediate_size=32, int4=True,
    ),
    "kimi": _kimi(),
    "kimi-odd": _kimi(
        hidden_size=80, num_attention_heads=3, linear_num_heads=4, linear_head_dim=16, num_hidden_layers=5,
        q_lora_rank=24, kv_lora_rank=48, n_group=2, topk_group=1, num_local_experts=12, num_experts_per_tok=4,
        moe_intermediate_size=24, layer_types=[_LINEAR, _FULL, _LINEAR, _FULL, _LINEAR],
        mlp_layer_types=["dense", "dense", "sparse", "sparse", "sparse"],
    ),
    "kimi-as-saved": _kimi(
        spelling="transformers", hidden_size=72, num_hidden_layers=3, layer_types=[_LINEAR, _FULL, _LINEAR],
        mlp_layer_types=["sparse"] * 3, num_local_experts=6,
    ),
}  # fmt: skip


def random_case(seed: int) -> Case:
    """Any configuration the engine has to support, drawn by `seed`."""
    r = np.random.RandomState(seed)

    def pick(*values: Any) -> Any:
        return values[r.randint(len(values))]

    kimi = bool(r.randint(3) == 0)
    layers, groups = int(r.randint(2, 6)), pick(1, 1, 2, 4)
    experts = groups * int(r.randint(2, 6))
    topk_group = int(r.randint(1, groups + 1))
    options: dict[str, Any] = {
        "hidden_size": pick(56, 64, 72, 88, 100, 130), "num_attention_heads": pick(1, 2, 3, 4, 5, 8, 16),
        "num_hidden_layers": layers, "kv_lora_rank": pick(16, 32, 48, 64, 144), "q_lora_rank": pick(None, 8, 20, 32),
        "qk_nope_head_dim": pick(8, 16, 24, 40), "qk_rope_head_dim": pick(8, 16, 24), "v_head_dim": pick(8, 16, 32, 40),
        "num_local_experts": experts, "n_group": groups, "topk_group": topk_group,
        "num_experts_per_tok": int(r.randint(1, min(8, topk_group * experts // groups) + 1)),
        "n_shared_experts": pick(1, 1, 2), "moe_intermediate_size": pick(24, 32, 40, 50),
        "intermediate_size": pick(64, 90),
        "norm_topk_prob": pick(True, True, False), "routed_scaling_factor": pick(1.0, 2.5),
        "rms_norm_eps": pick(1e-6, 1e-5, 1e-4),
    }  # fmt: skip
    dense, dtype = int(r.randint(0, min(3, layers) + 1)), pick("BF16", "F16", "F32")
    spelling = pick("official", "transformers")
    if kimi:
        options |= {
            "linear_num_heads": pick(1, 2, 5), "linear_head_dim": pick(16, 24, 32, 48),
            "layer_types": [pick(_LINEAR, _FULL) for _ in range(layers)],
            "mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense),
        }  # fmt: skip
        return _kimi(**options, dtype=dtype, spelling=spelling)
    options |= {
        "head_dim": pick(16, 24, 32, 48), "layer_group_size": int(r.randint(2, 5)), "first_k_dense_replace": dense,
        "kda_lower_bound": pick(-5.0, -5.0, -2.5), "kda_safe_gate": pick(True, True, False),
        "rope_theta": pick(1e4, 6e6),
    }  # fmt: skip
    return _bailing(**options, dtype=dtype, spelling=spelling)


def tokens_of(seed: int, count: int) -> list[int]:
    """`count` token ids that any tokenizer of the fixtures has."""
    return [int(t) for t in np.random.RandomState([seed, count]).randint(0, 256, count)]


def rows_kept(length: int) -> list[int]:
    """Which rows of a sequence's logits a fixture keeps: the first, the last eight, and every 61st."""
    return sorted({0, *range(max(0, length - 8), length), *range(0, length, 61)})
