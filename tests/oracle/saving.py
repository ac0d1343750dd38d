"""Writes a class's model as a checkpoint folder: in the official layout, or as transformers saves it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

from tests.oracle.cases import Case
from tests.oracle.models import _DTYPES, INT4_GROUP, int4_grid

KEPT_IN_F32 = ("A_log", "dt_bias", "expert_bias", "e_score_correction_bias")


def save(model: torch.nn.Module, case: Case, folder: Path) -> None:
    """A checkpoint folder of the model: config.json and its safetensors files."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        tensors = {
            name: tensor.numpy()
            for file in sorted(Path(scratch).glob("*.safetensors"))
            for name, tensor in safetensors.torch.load_file(file).items()
        }
        config = json.loads((Path(scratch) / "config.json").read_text())
    config.pop("transformers_version")
    if case.spelling == "official":
        tensors = {_official_name(name, case, config): tensor for name, tensor in tensors.items()}
        config = (_official_kimi if case.family == "kimi_linear" else _official_bailing)(case)
    stored: dict[str, np.ndarray] = {}
    for name, tensor in sorted(tensors.items()):
        if case.int4 and ".experts." in name:
            stored |= _packed(name, tensor)
            continue
        kept = tensor if name.endswith(KEPT_IN_F32) else tensor.astype(_DTYPES[case.dtype])
        assert np.array_equal(kept.astype(np.float32), tensor), f"{name}: not exact in {case.dtype}"
        stored[name] = kept
    if case.int4:
        config["quantization_config"] = _int4_config()
    _write(folder, stored, case.shards)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def _official_name(name: str, case: Case, config: dict[str, Any]) -> str:
    """save_pretrained's inverse renaming knows suffixes only: it calls KDA's output projection `dense` as well,
    and Kimi's dense MLP a `block_sparse_moe`."""
    layer = int(name.split(".")[2]) if name.startswith("model.layers.") else -1
    if case.family == "bailing_hybrid" and layer >= 0 and config["layer_types"][layer] == "linear_attention":
        return name.replace(".attention.dense.", ".attention.o_proj.")
    if case.family == "kimi_linear" and layer >= 0 and config["mlp_layer_types"][layer] == "dense":
        return name.replace(".block_sparse_moe.", ".mlp.")
    return name


def _official_bailing(case: Case) -> dict[str, Any]:
    """Ling-3.0's spelling."""
    o = case.all_options
    same = (
        "first_k_dense_replace", "head_dim", "hidden_size", "intermediate_size", "kda_safe_gate", "kv_lora_rank",
        "layer_group_size", "max_position_embeddings", "moe_intermediate_size", "n_group", "norm_topk_prob",
        "num_attention_heads", "num_experts_per_tok", "num_hidden_layers", "num_key_value_heads", "pad_token_id",
        "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "rms_norm_eps", "rope_theta", "routed_scaling_factor",
        "topk_group", "v_head_dim", "vocab_size", "bos_token_id", "eos_token_id",
    )  # fmt: skip
    bound = o["kda_lower_bound"]
    return {name: o[name] for name in same} | {
        "architectures": ["BailingHybridForCausalLM"],
        "kda_lower_bound": int(bound) if bound == int(bound) else bound,
        "model_type": "bailing_hybrid",
        "moe_router_enable_expert_bias": True,
        "moe_shared_expert_intermediate_size": o["moe_intermediate_size"] * o["n_shared_experts"],
        "no_kda_lora": True,
        "num_experts": o["num_local_experts"],
        "num_nextn_predict_layers": 0,
        "num_shared_experts": o["n_shared_experts"],
        "partial_rotary_factor": 0.5,
        "rope_interleave": True,
        "score_function": "sigmoid",
        "tie_word_embeddings": False,
        "torch_dtype": {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[case.dtype],
        "use_qk_norm": True,
    }


def _official_kimi(case: Case) -> dict[str, Any]:
    """Kimi-Linear's spelling, layers counted from 1."""
    o = case.all_options
    kinds = list(enumerate(o["layer_types"], 1))
    same = (
        "hidden_size", "intermediate_size", "kv_lora_rank", "moe_intermediate_size", "num_attention_heads",
        "num_hidden_layers", "num_key_value_heads", "pad_token_id", "q_lora_rank", "qk_nope_head_dim",
        "qk_rope_head_dim", "rms_norm_eps", "routed_scaling_factor", "topk_group", "v_head_dim", "vocab_size",
        "bos_token_id", "eos_token_id",
    )  # fmt: skip
    return {name: o[name] for name in same} | {
        "architectures": ["KimiLinearForCausalLM"],
        "first_k_dense_replace": o["mlp_layer_types"].count("dense"),
        "head_dim": 72,
        "linear_attn_config": {
            "full_attn_layers": [n for n, kind in kinds if kind == "full_attention"],
            "head_dim": o["linear_head_dim"],
            "kda_layers": [n for n, kind in kinds if kind == "linear_attention"],
            "num_heads": o["linear_num_heads"],
            "short_conv_kernel_size": 4,
        },
        "mla_use_nope": True,
        "model_max_length": o["max_position_embeddings"],
        "model_type": "kimi_linear",
        "moe_layer_freq": 1,
        "moe_renormalize": o["norm_topk_prob"],
        "moe_router_activation_func": "sigmoid",
        "num_expert_group": o["n_group"],
        "num_experts": o["num_local_experts"],
        "num_experts_per_token": o["num_experts_per_tok"],
        "num_nextn_predict_layers": 0,
        "num_shared_experts": o["n_shared_experts"],
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "use_grouped_topk": True,
    }


def _packed(name: str, tensor: np.ndarray) -> dict[str, np.ndarray]:
    """compressed-tensors "pack-quantized": int32 words of eight nibbles q + 8, least significant first."""
    values, q, scales = int4_grid(tensor.astype(np.float64))
    assert np.array_equal(values.astype(np.float32), tensor), f"{name}: not exact in int4"
    nibbles = (q.astype(np.int64) + 8).reshape(len(q), -1, 8)
    words = (nibbles << (4 * np.arange(8))).sum(-1).astype(np.uint32).view(np.int32)
    return {
        f"{name}_packed": words,
        f"{name}_scale": scales,
        f"{name}_shape": np.array(tensor.shape, np.int64),
    }


def _int4_config() -> dict[str, Any]:
    weights = {
        "num_bits": 4, "type": "int", "symmetric": True, "group_size": INT4_GROUP, "strategy": "group",
        "dynamic": False, "actorder": None, "block_structure": None, "observer": "minmax", "observer_kwargs": {},
    }  # fmt: skip
    group = {"input_activations": None, "output_activations": None, "targets": ["Linear"], "weights": weights}
    return {
        "config_groups": {"group_0": group}, "format": "pack-quantized", "ignore": ["lm_head"],
        "quant_method": "compressed-tensors", "quantization_status": "compressed",
    }  # fmt: skip


def _write(folder: Path, tensors: dict[str, np.ndarray], shards: int) -> None:
    if shards == 1:
        safetensors.numpy.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    names = sorted(tensors)
    index: dict[str, str] = {}
    for shard in range(shards):
        part = names[shard::shards]
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        safetensors.numpy.save_file({n: tensors[n] for n in part}, folder / file, {"format": "pt"})
        index |= dict.fromkeys(part, file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    text = json.dumps(
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}, indent=1
    )
    (folder / "model.safetensors.index.json").write_text(text + "\n")


assert ml_dtypes.bfloat16  # registers the dtype with NumPy, which safetensors needs to write BF16
