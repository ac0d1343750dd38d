"""Judges an exported checkpoint with MindNano itself: held-out loss beside an n-gram model's, and retrieval.

python -m training.evaluate DATA CHECKPOINT [--lengths 1K,4K,8K] [--samples N] [--log FILE]

Native weights, bf16 cache. Held-out documents and stories are in no training row; retrieval is asked in the chat
template over held-out text, and counts when the greedy answer is the whole right sentence.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from mindnano import LLM, SamplingParams
from training import retrieval
from training.batches import Source
from training.ngram import KneserNey

WINDOW = 1024  # tokens of context that held-out text is read in
PAIRS = 12


def held_out(llm: LLM, source: Source, train: Source, windows: int) -> dict[str, Any]:
    """Nats a token of text and of stories, ours and the better n-gram model's, on the same tokens."""
    found: dict[str, Any] = {}
    everything = {kind: stream(train, kind) for kind in ("text", "story")}
    for kind, own in everything.items():
        baselines = [
            KneserNey(tokens, llm.config.vocab_size)
            for tokens in (own, [*everything["text"], *everything["story"]])
        ]
        found[kind] = _losses(llm, stream(source, kind), baselines, windows)
    return found


def _losses(llm: LLM, tokens: list[int], baselines: list[KneserNey], windows: int) -> dict[str, Any]:
    """Over windows spread evenly; judged are the tokens that have a whole n-gram history in their window."""
    skipped = baselines[0].order - 1
    starts = np.linspace(0, max(0, len(tokens) - WINDOW), min(windows, len(tokens) // WINDOW)).astype(int)
    ours, theirs, characters = [], [], 0
    for start in starts:
        window = tokens[start : start + WINDOW]
        logits = llm.logits(window)[skipped - 1 : -1].astype(np.float64)
        wanted = np.asarray(window[skipped:])
        top = logits.max(-1, keepdims=True)
        log_sum = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
        ours.append(log_sum - logits[np.arange(len(wanted)), wanted])
        theirs.append([baseline.losses(window).mean() for baseline in baselines])
        characters += len(llm.tokenizer.decode(window[skipped:]))
    loss, ngram = float(np.mean(ours)), float(np.mean(theirs, axis=0).min())
    bits = len(ours) * len(ours[0]) / characters / np.log(2)  # a character, for a nat a token
    return {
        "tokens": len(ours) * len(ours[0]), "loss": round(loss, 4), "ngram_loss": round(ngram, 4),
        "bits_per_character": round(loss * bits, 4), "ngram_bits_per_character": round(ngram * bits, 4),
    }  # fmt: skip


def stream(source: Source, kind: str) -> list[int]:
    """All documents of a kind, one after another, an end token after each."""
    documents = source.documents
    if kind == "story":
        documents = [e.ids for e in source.tokenizer.encode_batch(source.stories)]
    return [token for document in documents for token in (*document, source.end)]


def retrieved(llm: LLM, source: Source, length: int, samples: int, thinking: bool = False) -> dict[str, Any]:
    """Share of right answers to one question about a prompt of `length` tokens with 12 facts, 3 of them overwritten.

    Beside it (asked, right) by kind, for overwritten values, and by where in the text the value stands; `named`:
    answers that begin with the key that was asked for.
    """
    counts: dict[str, list[int]] = {}
    named = 0
    for sample in range(samples):
        r = Random(f"evaluation {length} {sample}")
        text, facts = retrieval.make(r, source.noise(r, length - 12 * PAIRS - 90), PAIRS)
        number = r.randrange(PAIRS)
        fact = facts[number]
        messages = [{"role": "user", "content": f"{text}\n{fact.question}"}]
        params = SamplingParams(max_tokens=48, temperature=0)
        answer = llm.chat(messages, params, thinking=thinking).text.rpartition("</think>")[2].strip()
        good = answer == f"{fact.lead()} {fact.value}."
        named += answer.startswith(f"{fact.lead()} ")
        depth = min(3, int(4 * text.rfind(f" {fact.key} is") / len(text)))
        groups = ["all", fact.kind, f"quarter {depth + 1}"] + ["overwritten"] * (number < PAIRS // 4)
        for group in groups:
            entry = counts.setdefault(group, [0, 0])
            entry[0] += 1
            entry[1] += good
    return {
        "length": length, "samples": samples, "accuracy": round(counts["all"][1] / samples, 4), "named": named,
        "groups": dict(sorted(counts.items())), "thinking": thinking,
    }  # fmt: skip


def size(text: str) -> int:
    return int(text[:-1]) * 1024 if text.upper().endswith("K") else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--lengths", default="1K,4K,8K")
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument(
        "--windows", type=int, default=60, help="of 1024 tokens, for the loss; 0 leaves it out"
    )
    parser.add_argument("--thinking", action="store_true")
    parser.add_argument("--log", type=Path, help="append the result to this JSONL file")
    parser.add_argument("--step", type=int, help="noted in the log")
    args = parser.parse_args()
    lengths = [size(text) for text in args.lengths.split(",") if text]
    source = Source(args.data, args.checkpoint, "valid")
    result: dict[str, Any] = {"step": args.step}
    with LLM(
        args.checkpoint, recipe="native", context=max([2048, *lengths]) + 256, cache_budget=0, threads=1
    ) as llm:
        if args.windows:
            result |= held_out(llm, source, Source(args.data, args.checkpoint), args.windows)
        result["retrieval"] = [retrieved(llm, source, n, args.samples, args.thinking) for n in lengths]
    print(json.dumps(result, indent=1))
    if args.log:
        with args.log.open("a") as log:
            log.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
