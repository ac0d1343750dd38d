"""Writes small checkpoint folders in the official layout, with random values in every tensor.

Own code throughout (its own safetensors writer, int4 packer and configuration spelling), so that a mistake in
the package cannot hide in the test data.
"""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy_packing import bf16_bits, from_bf16

LING = {
    "architectures": ["BailingMoeV3ForCausalLM"],
    "model_type": "bailing_hybrid",
    "vocab_size": 320,
    "hidden_size": 72,
    "intermediate_size": 104,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 24,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "use_bias": False,
    "use_qkv_bias": False,
    "layer_group_size": 4,
    "short_conv_kernel_size": 4,
    "no_kda_lora": True,
    "kda_safe_gate": True,
    "kda_lower_bound": -5,
    "q_lora_rank": 40,
    "kv_lora_rank": 48,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8,
    "qk_head_dim": 32,
    "v_head_dim": 16,
    "use_mla_nope": False,
    "use_qk_norm": True,
    "gated_attention_proj_granularity_type": "head_wise",
    "rope_interleave": True,
    "rope_theta": 6000000,
    "partial_rotary_factor": 0.5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 6000000, "partial_rotary_factor": 0.5},
    "first_k_dense_replace": 1,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 36,
    "moe_shared_expert_intermediate_size": 36,
    "moe_router_enable_expert_bias": True,
    "n_group": 4,
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "score_function": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "router_dtype": "fp32",
    "num_nextn_predict_layers": 0,
    "bos_token_id": 316,
    "pad_token_id": 317,
    "eos_token_id": 319,
}
# Put over LING, the shape of Ling-3.0-tiny (its token ids beside).
LING_TINY_SIZES = {
    "vocab_size": 157184,
    "hidden_size": 1536,
    "intermediate_size": 4608,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "q_lora_rank": 256,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "qk_head_dim": 192,
    "v_head_dim": 168,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "moe_shared_expert_intermediate_size": 512,
    "n_group": 8,
    "topk_group": 4,
}
KIMI = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "vocab_size": 320,
    "hidden_size": 72,
    "intermediate_size": 104,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 24,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-05,
    "model_max_length": 4096,
    "linear_attn_config": {
        "full_attn_layers": [4],
        "kda_layers": [1, 2, 3],
        "head_dim": 24,
        "num_heads": 3,
        "short_conv_kernel_size": 4,
    },
    "mla_use_nope": True,
    "q_lora_rank": None,
    "kv_lora_rank": 48,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "moe_intermediate_size": 36,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "num_experts": 8,
    "num_experts_per_token": 2,
    "num_expert_group": 1,
    "topk_group": 1,
    "num_shared_experts": 1,
    "num_nextn_predict_layers": 0,
    "routed_scaling_factor": 2.446,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "use_grouped_topk": True,
    "bos_token_id": 316,
    "pad_token_id": 317,
    "eos_token_id": 319,
}
# compressed-tensors' description of the official int4 checkpoint.
INT4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "kv_cache_scheme": None,
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "input_activations": None,
            "output_activations": None,
            "weights": {
                "num_bits": 4,
                "type": "int",
                "symmetric": True,
                "strategy": "group",
                "group_size": 32,
                "dynamic": False,
                "actorder": None,
                "block_structure": None,
                "observer": "minmax",
            },
        }
    },
}
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "I64": 8, "U8": 1}


@dataclass
class Checkpoint:
    """What was written: the folder, and the exact float32 values of every tensor by official name."""

    path: Path
    config: dict
    values: dict = field(default_factory=dict)
    stored: dict = field(default_factory=dict)  # name -> (dtype, array of the stored bits)
    int4: dict = field(default_factory=dict)  # name -> (int8 values, BF16 scale bits)


def shapes(config):
    """Official tensor names and shapes."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    kimi = config["model_type"] == "kimi_linear"
    head_dim = config["linear_attn_config"]["head_dim"] if kimi else config["head_dim"]
    kda_heads = config["linear_attn_config"]["num_heads"] if kimi else heads
    width = kda_heads * head_dim
    experts, wide = config["num_experts"], config["moe_intermediate_size"]
    attention, moe = ("self_attn", "block_sparse_moe") if kimi else ("attention", "mlp")
    gate, up, down = ("w1", "w3", "w2") if kimi else ("gate_proj", "up_proj", "down_proj")
    yield (
        ("model.embed_tokens" if kimi else "model.word_embeddings") + ".weight",
        (config["vocab_size"], hidden),
    )
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}."
        a = f"{base}{attention}."
        yield base + "input_layernorm.weight", (hidden,)
        yield base + "post_attention_layernorm.weight", (hidden,)
        full = (
            layer + 1 in config["linear_attn_config"]["full_attn_layers"]
            if kimi
            else ((layer + 1) % config["layer_group_size"] == 0)
        )
        if full:
            key = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
            if config["q_lora_rank"]:
                yield a + "q_a_proj.weight", (config["q_lora_rank"], hidden)
                yield a + "q_a_layernorm.weight", (config["q_lora_rank"],)
                yield a + "q_b_proj.weight", (heads * key, config["q_lora_rank"])
            else:
                yield a + "q_proj.weight", (heads * key, hidden)
            rank = config["kv_lora_rank"]
            yield a + "kv_a_proj_with_mqa.weight", (rank + config["qk_rope_head_dim"], hidden)
            yield a + "kv_a_layernorm.weight", (rank,)
            yield a + "kv_b_proj.weight", (heads * (config["qk_nope_head_dim"] + config["v_head_dim"]), rank)
            if not kimi:
                yield a + "g_proj.weight", (heads, hidden)
            yield a + ("o_proj" if kimi else "dense") + ".weight", (hidden, heads * config["v_head_dim"])
        else:
            for name in "qkv":
                yield f"{a}{name}_proj.weight", (width, hidden)
                yield f"{a}{name}_conv1d.weight", (width, 1, 4)
            if kimi:
                for name in "fg":
                    yield f"{a}{name}_a_proj.weight", (head_dim, hidden)
                    yield f"{a}{name}_b_proj.weight", (width, head_dim)
            else:
                yield a + "f_proj.weight", (width, hidden)
                yield a + "g_proj.weight", (width, hidden)
            yield a + "b_proj.weight", (kda_heads, hidden)
            yield a + "A_log", (1, 1, kda_heads, 1) if kimi else (kda_heads,)
            yield a + "dt_bias", (width,)
            yield a + "o_norm.weight", (head_dim,)
            yield a + "o_proj.weight", (hidden, width)
        if layer < config["first_k_dense_replace"]:
            for name in ("gate_proj", "up_proj"):
                yield f"{base}mlp.{name}.weight", (config["intermediate_size"], hidden)
            yield base + "mlp.down_proj.weight", (hidden, config["intermediate_size"])
            continue
        m = f"{base}{moe}."
        yield m + "gate.weight", (experts, hidden)
        yield m + ("gate.e_score_correction_bias" if kimi else "gate.expert_bias"), (experts,)
        for expert in range(experts):
            yield f"{m}experts.{expert}.{gate}.weight", (wide, hidden)
            yield f"{m}experts.{expert}.{up}.weight", (wide, hidden)
            yield f"{m}experts.{expert}.{down}.weight", (hidden, wide)
        if config["num_shared_experts"]:
            shared = wide * config["num_shared_experts"]
            for name in ("gate_proj", "up_proj"):
                yield f"{m}shared_experts.{name}.weight", (shared, hidden)
            yield m + "shared_experts.down_proj.weight", (hidden, shared)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)


def write_safetensors(path, tensors, align=8):
    """tensors: name -> (dtype, array of bits). Old writers left the data unaligned (`align` 1)."""
    header, blobs, position = {"__metadata__": {"format": "pt"}}, [], 0
    for name, (dtype, array) in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        assert len(blob) == SIZES[dtype] * int(np.prod(array.shape))
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [position, position + len(blob)],
        }
        position += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8) if align == 8 else b" " * (1 - len(text) % 2)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def write_large(path):
    """Ling-3.0-tiny's shape in BF16; every tensor a piece of one random block, straight to the disk.
    Returns the number of tensors."""
    path.mkdir()
    config = LING | LING_TINY_SIZES
    (path / "config.json").write_text(json.dumps(config))
    block = bf16_bits(np.random.default_rng(0).standard_normal(1 << 24).astype(np.float32) * 0.03)
    header, position = {}, 0
    for name, shape in shapes(config):
        dtype = "F32" if name.endswith(("A_log", "dt_bias", "bias")) else "BF16"
        size = SIZES[dtype] * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for entry in header.values():
            start, end = entry["data_offsets"]
            if entry["dtype"] == "F32":
                file.write(np.ones((end - start) // 4, np.float32).tobytes())
            while start < end and entry["dtype"] != "F32":
                piece = block[: (end - start) // 2].data
                file.write(piece)
                start += piece.nbytes
    return len(header)


def _bits(values, dtype):
    if dtype == "BF16":
        return bf16_bits(values)
    return values.astype(np.float16 if dtype == "F16" else np.float32)


def _value(rng, name, shape):
    values = rng.standard_normal(shape).astype(np.float32)
    if name.endswith("norm.weight"):
        return 1 + 0.1 * values
    if name.endswith(("A_log", "dt_bias", "bias")):
        return values
    return values / np.sqrt(shape[-1]).astype(np.float32)


def _int4(values, rng):
    """Random integers and scales near the values' size, in compressed-tensors' form."""
    rows, cols = values.shape
    codes = rng.integers(-8, 8, (rows, cols)).astype(np.int8)
    scales = bf16_bits(np.abs(rng.standard_normal((rows, -(-cols // 32)))).astype(np.float32) * 0.03 + 0.01)
    words = np.zeros((rows, -(-cols // 8)), np.uint32)
    for k in range(cols):
        words[:, k // 8] |= (codes[:, k].astype(np.int64) + 8).astype(np.uint32) << np.uint32(4 * (k % 8))
    return codes, scales, words.view(np.int32)


def write(path, config=LING, *, dtype="BF16", int4=False, shards=1, seed=0, tokenizer=True, extra=()):
    """Writes a folder. `extra`: more (name, shape) to store, for checkpoints with what no decoder needs."""
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    config = dict(config)
    if int4:
        config["quantization_config"] = INT4
    made = Checkpoint(path, config)
    for name, shape in [*shapes(config), *extra]:
        if config["tie_word_embeddings"] and name == "lm_head.weight":
            continue
        values = _value(rng, name, shape)
        if int4 and ".experts." in name and "shared" not in name:
            codes, scales, words = _int4(values, rng)
            made.int4[name] = codes, scales
            made.values[name] = codes * np.repeat(from_bf16(scales), 32, axis=1)[:, : shape[1]]
            made.stored[name + "_packed"] = "I32", words
            made.stored[name + "_scale"] = "BF16", scales
            made.stored[name + "_shape"] = "I64", np.array(shape, np.int64)
            continue
        kind = "F32" if name.endswith(("A_log", "dt_bias", "bias")) else dtype
        bits = _bits(values, kind)
        made.stored[name] = kind, bits
        made.values[name] = from_bf16(bits) if kind == "BF16" else bits.astype(np.float32)
    (path / "config.json").write_text(json.dumps(config, indent=2))
    if tokenizer:
        (path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"type": "BPE"}}))
        (path / "chat_template.jinja").write_text("{{ messages[0].content }}")
        (path / "generation_config.json").write_text(
            json.dumps({"temperature": 1.0, "eos_token_id": [319, 317]})
        )
    names = list(made.stored)
    if shards == 1:
        write_safetensors(path / "model.safetensors", made.stored)
        return made
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: made.stored[name] for name in names[shard::shards]}
        write_safetensors(path / file, part)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return made
