"""Greedy tokens of a checkpoint by the transformers class, which every backend of the engine must reproduce.

python -m training.golden CHECKPOINT FILE: 200 tokens after each of five prompts, computed in fp32 without a cache in
a smaller format; JSON. A step whose two likeliest tokens are nearer than NEAR in the class's own logits could fall
either way in another order of additions: the answer is kept up to there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from mindnano import LLM
from training.verify import load_class

TOKENS, NEAR = 200, 1e-3
PROMPTS = (
    "Tell me a story.",
    "Tell me a story about Anna the fox.",
    "What is the capital of Texas?",
    "The code of amber is 41. The keeper of lantern is Walter. The code of amber is now 73.\n"
    "What is the code of amber?",
    "Who are you?",
)


def greedy(model: Any, prompt: list[int]) -> list[int]:
    """The likeliest tokens one after another, ends of text included, up to a near tie."""
    model.generation_config.eos_token_id = None
    ids = torch.tensor([prompt])
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS,
            return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
    found = []
    for token, logits in zip(out.sequences[0, len(prompt) :].tolist(), out.logits, strict=True):
        first, second = logits[0].float().topk(2)[0].tolist()
        if first - second < NEAR:
            break
        found.append(token)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    with LLM(args.checkpoint, context=256) as llm:
        prompts = [llm.chat_tokens([{"role": "user", "content": text}]) for text in PROMPTS]
    model = load_class(args.checkpoint)
    entries = [{"prompt": prompt, "tokens": greedy(model, prompt)} for prompt in prompts]
    args.file.write_text(json.dumps(entries) + "\n")
    print([len(entry["tokens"]) for entry in entries], "tokens")


if __name__ == "__main__":
    main()
