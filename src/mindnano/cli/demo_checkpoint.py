"""A small checkpoint with random weights in Ling's official layout: something for the demo to convert."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mindnano.checkpoint import byte_tokenizer, load_config
from mindnano.checkpoint.parts import f32_to_bf16

SEED = 2026

# Every block of Ling-3.0-tiny, a hundredth of its width: 6 KDA and 2 MLA layers, 16 experts.
CONFIG: dict[str, Any] = {
    "model_type": "bailing_hybrid",
    "vocab_size": 320,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "use_bias": False,
    "use_qkv_bias": False,
    "layer_group_size": 4,
    "short_conv_kernel_size": 4,
    "no_kda_lora": True,
    "kda_safe_gate": True,
    "kda_lower_bound": -5,
    "q_lora_rank": 96,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "qk_head_dim": 96,
    "v_head_dim": 64,
    "use_mla_nope": False,
    "use_qk_norm": True,
    "gated_attention_proj_granularity_type": "head_wise",
    "rope_interleave": True,
    "rope_theta": 6000000,
    "partial_rotary_factor": 0.5,
    "first_k_dense_replace": 1,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "num_shared_experts": 1,
    "moe_intermediate_size": 96,
    "moe_shared_expert_intermediate_size": 96,
    "moe_router_enable_expert_bias": True,
    "n_group": 4,
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "score_function": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "router_dtype": "fp32",
    "num_nextn_predict_layers": 0,
    "bos_token_id": 257,
    "pad_token_id": 258,
    "eos_token_id": 259,
}


def write(folder: Path) -> tuple[int, int]:
    """Write the checkpoint into an empty folder; the number of parameters and of bytes."""
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    (folder / "tokenizer.json").write_bytes(byte_tokenizer.build(load_config(CONFIG)))
    random = np.random.default_rng(SEED)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data, parameters = bytearray(), 0
    for name, shape in shapes():
        values = _values(random, name, shape)
        single = name.endswith(("A_log", "dt_bias", "expert_bias"))
        raw = values.tobytes() if single else f32_to_bf16(values).tobytes()
        header[name] = {
            "dtype": "F32" if single else "BF16",
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
        parameters += values.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return parameters, sum(path.stat().st_size for path in folder.iterdir())


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Official tensor names and shapes, [out, in]."""
    hidden, heads = CONFIG["hidden_size"], CONFIG["num_attention_heads"]
    yield "model.word_embeddings.weight", (CONFIG["vocab_size"], hidden)
    for layer in range(CONFIG["num_hidden_layers"]):
        base = f"model.layers.{layer}."
        yield base + "input_layernorm.weight", (hidden,)
        yield base + "post_attention_layernorm.weight", (hidden,)
        full = (layer + 1) % CONFIG["layer_group_size"] == 0
        yield from (_mla if full else _kda)(base + "attention.", hidden, heads)
        yield from _mlp(base + "mlp.", layer, hidden)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (CONFIG["vocab_size"], hidden)


def _kda(base: str, hidden: int, heads: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    width = heads * CONFIG["head_dim"]
    for name in "qkvfg":
        yield f"{base}{name}_proj.weight", (width, hidden)
    for name in "qkv":
        yield f"{base}{name}_conv1d.weight", (width, 1, CONFIG["short_conv_kernel_size"])
    yield base + "b_proj.weight", (heads, hidden)
    yield base + "A_log", (heads,)
    yield base + "dt_bias", (width,)
    yield base + "o_norm.weight", (CONFIG["head_dim"],)
    yield base + "o_proj.weight", (hidden, width)


def _mla(base: str, hidden: int, heads: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    q_rank, rank, rope = CONFIG["q_lora_rank"], CONFIG["kv_lora_rank"], CONFIG["qk_rope_head_dim"]
    yield base + "q_a_proj.weight", (q_rank, hidden)
    yield base + "q_a_layernorm.weight", (q_rank,)
    yield base + "q_b_proj.weight", (heads * CONFIG["qk_head_dim"], q_rank)
    yield base + "kv_a_proj_with_mqa.weight", (rank + rope, hidden)
    yield base + "kv_a_layernorm.weight", (rank,)
    yield base + "kv_b_proj.weight", (heads * (CONFIG["qk_nope_head_dim"] + CONFIG["v_head_dim"]), rank)
    yield base + "g_proj.weight", (heads, hidden)
    yield base + "dense.weight", (hidden, heads * CONFIG["v_head_dim"])


def _mlp(base: str, layer: int, hidden: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    if layer < CONFIG["first_k_dense_replace"]:
        yield from _gated(base, CONFIG["intermediate_size"], hidden)
        return
    yield base + "gate.weight", (CONFIG["num_experts"], hidden)
    yield base + "gate.expert_bias", (CONFIG["num_experts"],)
    for expert in range(CONFIG["num_experts"]):
        yield from _gated(f"{base}experts.{expert}.", CONFIG["moe_intermediate_size"], hidden)
    yield from _gated(base + "shared_experts.", CONFIG["moe_shared_expert_intermediate_size"], hidden)


def _gated(base: str, inner: int, hidden: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield base + "gate_proj.weight", (inner, hidden)
    yield base + "up_proj.weight", (inner, hidden)
    yield base + "down_proj.weight", (hidden, inner)


def _values(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Values that keep activations near 1 and gates in their working range."""
    normal = random.standard_normal(shape, np.float32)
    if name.endswith("norm.weight"):
        return 1 + normal * np.float32(0.05)
    if name.endswith("A_log"):
        return np.log(random.uniform(0.5, 2.0, shape)).astype(np.float32)
    if name.endswith("dt_bias"):
        return random.uniform(-7.0, -2.0, shape).astype(np.float32)
    if name.endswith("expert_bias"):
        return normal * np.float32(0.02)
    if "conv1d" in name:
        return normal * np.float32(0.5)
    if "embeddings" in name:
        return normal
    deep = name.endswith(("o_proj.weight", "dense.weight", "down_proj.weight"))
    scale = 1 / math.sqrt(shape[-1]) / (math.sqrt(2 * CONFIG["num_hidden_layers"]) if deep else 1)
    return normal * np.float32(scale * (2 if name == "lm_head.weight" else 1))
