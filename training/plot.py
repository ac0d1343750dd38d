"""Draws a run's log: python -m training.plot RUN IMAGE."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

from training.curriculum import STAGES

SMOOTHING = 0.95


def read(path: Path) -> list[dict[str, Any]]:
    """A JSONL file; of a step that was done twice (resumed from a checkpoint) the later one."""
    if not path.exists():
        return []
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted({e["step"]: e for e in entries}.values(), key=lambda e: e["step"])


def smooth(values: Sequence[float]) -> list[float]:
    """Mean that forgets, without the pull to its first value."""
    out, mean, weight = [], 0.0, 0.0
    for value in values:
        mean, weight = SMOOTHING * mean + (1 - SMOOTHING) * value, SMOOTHING * weight + 1 - SMOOTHING
        out.append(mean / weight)
    return out


def draw(log: list[dict[str, Any]], judged: list[dict[str, Any]], image: Path) -> None:
    """Training losses and accuracy over tokens; where the stages begin; what evaluation measured."""
    tokens, done = [], 0
    for entry in log:
        done += entry["tokens"]
        tokens.append(done / 1e6)
    at = {entry["step"]: t for entry, t in zip(log, tokens, strict=True)}
    figure, (losses, accuracy) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), layout="constrained")
    losses.plot(tokens, smooth([e["text_loss"] for e in log]), label="text, stories, chats (training)")
    losses.plot(tokens, smooth([e["value_loss"] for e in log]), label="values asked for (training)")
    judged = [e for e in judged if e["step"] is not None and e["step"] - 1 in at]
    for kind, color in (("text", "C2"), ("story", "C3")):
        found = [(at[e["step"] - 1], e[kind]) for e in judged if kind in e]
        if found:
            losses.plot(
                *zip(*((t, v["loss"]) for t, v in found), strict=True),
                "o-",
                color=color,
                label=f"held-out {kind}",
            )
            losses.axhline(found[-1][1]["ngram_loss"], color=color, ls=":", label="its 5-gram baseline")
    losses.set(ylabel="nats a token", ylim=(0, 6))
    accuracy.plot(
        tokens,
        smooth([e["value_accuracy"] for e in log]),
        lw=0.8,
        label="values, training, length of the step",
    )
    for length in sorted({r["length"] for e in judged for r in e["retrieval"]}):
        found = [
            (at[e["step"] - 1], r["accuracy"])
            for e in judged
            for r in e["retrieval"]
            if r["length"] == length
        ]
        accuracy.plot(*zip(*found, strict=True), "o-", label=f"answers right at {length:,} tokens, held-out")
    accuracy.set(xlabel="million tokens", ylabel="share right", ylim=(0, 1.02))
    current = 0
    for entry, t in zip(log, tokens, strict=True):
        if entry["current"] != current:
            current = entry["current"]
            for axes in (losses, accuracy):
                axes.axvline(t, color="gray", lw=0.6)
            accuracy.text(t, 0.02, f" {STAGES[current].length}", fontsize=8, color="gray")
    for axes in (losses, accuracy):
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    figure.savefig(image, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="has log.jsonl and evaluation.jsonl")
    parser.add_argument("image", type=Path, help="an .svg file")
    args = parser.parse_args()
    log = read(args.run / "log.jsonl")
    draw(log, read(args.run / "evaluation.jsonl"), args.image)
    minutes = sum(e["step_seconds"] for e in log) / 60
    print(f"{len(log)} steps, {sum(e['tokens'] for e in log):,} tokens, {minutes:.0f} minutes")


if __name__ == "__main__":
    main()
