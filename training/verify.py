"""A checkpoint's logits by the engine against the transformers class: python -m training.verify CHECKPOINT."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from transformers import BailingHybridConfig, BailingHybridForCausalLM

from mindnano import LLM, SamplingParams

TEXT = "Tell me a story about Anna the fox. The code of amber is 73. What is the code of amber? "


def load_class(folder: Path) -> torch.nn.Module:
    """The class from an official checkpoint folder, computing in fp32; every tensor must find its place."""
    values = json.loads((folder / "config.json").read_text())
    config = BailingHybridConfig.from_dict(values | {"kda_lower_bound": float(values["kda_lower_bound"])})
    config._attn_implementation = config._experts_implementation = "eager"
    model, report = BailingHybridForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, output_loading_info=True
    )
    wrong = {
        key: report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if report[key]
    }
    if wrong:
        raise SystemExit(f"{folder}: {wrong}")
    return model.eval()


def compare(folder: Path, length: int) -> dict[str, float]:
    """Largest difference over the largest logit, share of equal likeliest tokens, equal greedy tokens of 64."""
    model = load_class(folder)
    with LLM(folder, recipe="native", kv="fp32", context=length + 128, cache_budget=0) as llm:
        once = llm.tokenizer.encode(TEXT)
        tokens = (once * (length // len(once) + 1))[:length]
        ours = llm.logits(tokens)
        with torch.no_grad():
            theirs = model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()
        prompt = llm.chat_tokens([{"role": "user", "content": "Tell me a story."}])
        greedy = llm.generate(prompt, SamplingParams(max_tokens=64, temperature=0, ignore_eos=True)).token_ids
    ids = torch.tensor([prompt])
    model.generation_config.eos_token_id = None
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=64)
    return {
        "tokens": length,
        "largest_difference": float(np.abs(ours - theirs).max() / np.abs(theirs).max()),
        "same_likeliest": float((ours.argmax(-1) == theirs.argmax(-1)).mean()),
        "same_greedy": sum(a == b for a, b in zip(out[0, len(prompt) :].tolist(), greedy, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--length", type=int, default=700)
    args = parser.parse_args()
    print(json.dumps(compare(args.checkpoint, args.length), indent=1))


if __name__ == "__main__":
    main()
