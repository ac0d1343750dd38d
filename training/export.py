"""A trained model as a checkpoint folder in Ling-3.0's official layout.

python -m training.export RUN FOLDER [--dtype bf16|f32]
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from training.model import Model, Shape

KEPT_IN_F32 = ("A_log", "dt_bias", "expert_bias")
SAMPLING = {"do_sample": True, "temperature": 0.7, "top_p": 0.95, "top_k": 20}


def official_config(shape: Shape, ids: dict[str, int]) -> dict[str, Any]:
    """`config.json` in the official spelling; ids: bos, eos and pad token."""
    same = (
        "vocab_size", "hidden_size", "num_hidden_layers", "layer_group_size", "first_k_dense_replace",
        "intermediate_size", "num_attention_heads", "head_dim", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim",
        "qk_rope_head_dim", "v_head_dim", "rope_theta", "num_experts", "num_experts_per_tok", "n_group", "topk_group",
        "moe_intermediate_size", "routed_scaling_factor", "rms_norm_eps",
    )  # fmt: skip
    return {
        "architectures": ["BailingHybridForCausalLM"],
        "model_type": "bailing_hybrid",
        **{name: getattr(shape, name) for name in same},
        "num_key_value_heads": shape.num_attention_heads,
        "kda_lower_bound": int(shape.kda_lower_bound),
        "kda_safe_gate": True,
        "no_kda_lora": True,
        "short_conv_kernel_size": shape.conv,
        "num_shared_experts": 1,
        "moe_shared_expert_intermediate_size": shape.moe_intermediate_size,
        "moe_router_enable_expert_bias": True,
        "score_function": "sigmoid",
        "norm_topk_prob": True,
        "num_nextn_predict_layers": 0,
        "max_position_embeddings": 131072,
        "partial_rotary_factor": 0.5,
        "rope_interleave": True,
        "use_qk_norm": True,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
        "pad_token_id": ids["pad"],
    }


def official_tensors(model: Model) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights under their official names; stacked experts one by one."""
    for name, tensor in model.state_dict().items():
        full = name if name.startswith("lm_head") else f"model.{name}"
        if name.endswith("experts_gate_up"):
            base = full.removesuffix("experts_gate_up")
            for expert, both in enumerate(tensor):
                gate, up = both.chunk(2)
                yield f"{base}experts.{expert}.gate_proj.weight", gate
                yield f"{base}experts.{expert}.up_proj.weight", up
        elif name.endswith("experts_down"):
            base = full.removesuffix("experts_down")
            for expert, down in enumerate(tensor):
                yield f"{base}experts.{expert}.down_proj.weight", down
        else:
            yield full, tensor


def save(model: Model, folder: Path, ids: dict[str, int], dtype: torch.dtype = torch.bfloat16) -> None:
    """config.json, generation_config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to(torch.float32 if name.endswith(KEPT_IN_F32) else dtype).contiguous()
        for name, tensor in official_tensors(model)
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = official_config(model.shape, ids) | {"torch_dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    generation = SAMPLING | {"eos_token_id": ids["eos"], "pad_token_id": ids["pad"]}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")


def load_model(run: Path) -> Model:
    """The weights of a run's last checkpoint."""
    model = Model(Shape.load(run / "shape.json"))
    model.load_state_dict(torch.load(run / "last.pt", weights_only=True, map_location="cpu")["model"])
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a run's model in the official layout.")
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    args = parser.parse_args()
    from training import tokenizer

    save(
        load_model(args.run), args.folder, tokenizer.ids(args.run),
        {"bf16": torch.bfloat16, "f32": torch.float32}[args.dtype],
    )  # fmt: skip
    for name in tokenizer.FILES:
        shutil.copyfile(args.run / name, args.folder / name)
    print(args.folder, sum(p.stat().st_size for p in args.folder.iterdir()) // 1024, "KiB")


if __name__ == "__main__":
    main()
