"""Small random models of the transformers classes, every weight, bias and gate random, saved in the official layout.

Weights are rounded to BF16, as official checkpoints store them, and the classes compute with those in fp32.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from transformers import (
    BailingHybridConfig,
    BailingHybridForCausalLM,
    KimiLinearConfig,
    KimiLinearForCausalLM,
)

torch.set_num_threads(1)  # OpenMP's waiting threads slow everything down on a busy machine

LENGTHS = (1, 2, 63, 64, 65, 500)
GREEDY_PROMPT, GREEDY_STEPS = 20, 200

_IDS = {"vocab_size": 272, "pad_token_id": 258, "eos_token_id": 259, "bos_token_id": 257}
_BAILING = _IDS | {
    "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 4,
    "num_attention_heads": 2, "head_dim": 32, "layer_group_size": 4, "first_k_dense_replace": 1, "num_local_experts": 16,
    "n_group": 4, "topk_group": 2, "num_experts_per_tok": 4, "q_lora_rank": 16, "kv_lora_rank": 32,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 24, "num_mtp_layers": 0, "kda_lower_bound": -5.0,
}  # fmt: skip
_KIMI = _IDS | {
    "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32, "num_hidden_layers": 4,
    "num_attention_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 24, "linear_head_dim": 32,
    "linear_num_heads": 2,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
}  # fmt: skip

CASES: dict[str, dict[str, object]] = {
    "bailing": _BAILING,
    "bailing-one-head": _BAILING | {
        "hidden_size": 72, "num_attention_heads": 1, "head_dim": 48, "layer_group_size": 2, "first_k_dense_replace": 0,
        "q_lora_rank": None, "kv_lora_rank": 48, "n_group": 1, "topk_group": 1, "num_local_experts": 6,
        "num_experts_per_tok": 3, "moe_intermediate_size": 40, "v_head_dim": 40,
    },
    "bailing-16-heads": _BAILING | {
        "hidden_size": 100, "num_attention_heads": 16, "head_dim": 16, "layer_group_size": 3, "num_hidden_layers": 5,
        "first_k_dense_replace": 2, "num_local_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "kv_lora_rank": 64, "q_lora_rank": 24,
        "moe_intermediate_size": 24, "intermediate_size": 72,
    },
    "bailing-odd": _BAILING | {
        "hidden_size": 88, "num_attention_heads": 3, "head_dim": 24, "layer_group_size": 2, "num_hidden_layers": 3,
        "kv_lora_rank": 160, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 40, "q_lora_rank": 40,
        "rms_norm_eps": 1e-4, "routed_scaling_factor": 1.7,
    },
    "kimi": _KIMI,
    "kimi-odd": _KIMI | {
        "hidden_size": 80, "num_attention_heads": 3, "linear_num_heads": 4, "linear_head_dim": 16, "num_hidden_layers": 5,
        "kv_lora_rank": 48, "n_group": 2, "topk_group": 1, "num_local_experts": 12, "num_experts_per_tok": 4,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention", "linear_attention"],
        "mlp_layer_types": ["dense", "dense", "sparse", "sparse", "sparse"],
    },
}  # fmt: skip


def make_model(case: str, seed: int) -> torch.nn.Module:
    """The class's model for CASES[case] with weights from `seed`."""
    options = {**CASES[case]}
    kimi = case.startswith("kimi")
    options["num_key_value_heads"] = options["num_attention_heads"]
    config = (KimiLinearConfig if kimi else BailingHybridConfig)(**options)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = (KimiLinearForCausalLM if kimi else BailingHybridForCausalLM)(config).float().eval()
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: torch.Size) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith("A_log"):
                tensor.copy_(normal(tensor.shape) * 0.7)
            elif name.endswith("dt_bias"):
                tensor.copy_(normal(tensor.shape))
            elif name.endswith("e_score_correction_bias"):
                tensor.copy_(normal(tensor.shape) * 0.2)
            elif "norm" in name:
                tensor.copy_((1 + 0.3 * normal(tensor.shape)).bfloat16().float())
            elif tensor.ndim >= 2:
                fan_in = tensor.shape[-1] if "conv1d" not in name else tensor.shape[-1] / 2
                gain = 2.0 if "embed" in name else 1.0  # more, and rounding grows from layer to layer
                tensor.copy_((normal(tensor.shape) * gain / fan_in**0.5).bfloat16().float())
    return model


def save(model: torch.nn.Module, folder: Path) -> None:
    """The official layout: BF16 weights; A_log, dt_bias and the expert bias in F32."""
    import safetensors.torch

    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    keep = ("A_log", "dt_bias", "expert_bias", "e_score_correction_bias")
    for name, tensor in tensors.items():
        if not name.endswith(keep):
            assert torch.equal(tensor.bfloat16().float(), tensor), name
            tensors[name] = tensor.bfloat16()
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config.pop("transformers_version")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    for extra in ("generation_config.json",):
        (folder / extra).unlink(missing_ok=True)


def tokens_of(seed: int, count: int) -> list[int]:
    return np.random.default_rng([seed, count]).integers(0, 256, count).tolist()


def rows_kept(length: int) -> list[int]:
    """Which rows of a sequence's logits a fixture keeps: the first, the last eight, and every 61st."""
    return sorted({0, *range(max(0, length - 8), length), *range(0, length, 61)})


@torch.no_grad()
def logits_of(model: torch.nn.Module, tokens: list[int]) -> np.ndarray:
    return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


@torch.no_grad()
def greedy_of(model: torch.nn.Module, prompt: list[int], steps: int) -> list[int]:
    """Greedy tokens by the class's own generation with its own cache."""
    out = model.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=steps, min_new_tokens=steps, use_cache=True,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return out[0, len(prompt) :].tolist()


def expected(model: torch.nn.Module, seed: int) -> dict[str, np.ndarray]:
    """What a fixture holds beside the weights."""
    out: dict[str, np.ndarray] = {}
    for length in LENGTHS:
        tokens = tokens_of(seed, length)
        out[f"tokens.{length}"] = np.array(tokens, np.int32)
        out[f"logits.{length}"] = logits_of(model, tokens)[rows_kept(length)]
    prompt = tokens_of(seed, GREEDY_PROMPT)
    out["greedy.prompt"] = np.array(prompt, np.int32)
    out["greedy.tokens"] = np.array(greedy_of(model, prompt, GREEDY_STEPS), np.int32)
    return out
