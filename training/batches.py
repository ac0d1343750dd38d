"""Rows of tokens and weights for a training step; each depends on the seed, the step and the worker only."""

from __future__ import annotations

import re
from bisect import bisect
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch

from training import chats, data, retrieval, tokenizer
from training.curriculum import Stage
from training.retrieval import VALUE, Weighted

SENTENCE = re.compile(r"(?<=[.!?;])[\"')]*\s+")
PROMPT_WEIGHT = 0.2  # of what the model needn't say in chats
TEXT_SHARES = (0.7, 0.1, 0.2)  # English text, stories, chats: the grammars are soon learned, English is not


@dataclass
class Batch:
    """inputs and targets [rows, length]; weights of the loss and where a value is asked for, the same shape."""

    inputs: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor

    @property
    def values(self) -> torch.Tensor:
        return self.weights == VALUE


class Source:
    """Draws rows from the texts, stories, chats and retrieval tasks."""

    def __init__(self, folder: Path, run: Path, split: str = "train") -> None:
        self.folder, self.split = folder, split
        self.tokenizer = tokenizer.load(run)
        self.end = tokenizer.ids(run)["pad"]
        texts = data.texts(folder, split)
        self.documents = [e.ids for e in self.tokenizer.encode_batch(texts)]
        self.starts = [0]
        for document in self.documents:
            self.starts.append(self.starts[-1] + len(document))
        pieces = [SENTENCE.split(text.replace("\n", " ")) for text in texts]
        self.sentences = [[f" {s}" for s in found if s] for found in pieces]
        self.sizes = [[len(e.ids) for e in self.tokenizer.encode_batch(found)] for found in self.sentences]
        self.stories = data.stories(split)

    def noise(self, r: Random, tokens: int) -> list[str]:
        """Sentences that follow each other in a document (or the next ones), not more than `tokens` in all."""
        document = r.randrange(len(self.sentences))
        at, left, out = r.randrange(len(self.sentences[document])), tokens, []
        while True:
            if at == len(self.sentences[document]):
                document, at = (document + 1) % len(self.sentences), 0
            size = self.sizes[document][at]
            if size > left:
                if size <= tokens or left < 20:
                    return out
            else:
                out.append(self.sentences[document][at])
                left -= size
            at += 1

    def encode(self, parts: Weighted) -> tuple[list[int], list[float]]:
        tokens: list[int] = []
        weights: list[float] = []
        for encoded, (_, weight) in zip(
            self.tokenizer.encode_batch([p for p, _ in parts]), parts, strict=True
        ):
            tokens += encoded.ids
            weights += [weight] * len(encoded.ids)
        return tokens, weights

    def retrieval_row(self, r: Random, stage: Stage) -> tuple[list[int], list[float]]:
        """Exactly length + 1 tokens, padded at the end."""
        size = stage.length + 1
        while True:
            pairs = r.randint(*stage.pairs)
            if r.random() < stage.dense:
                parts = retrieval.dense(r, self.noise, pairs, max(16, stage.length - 10 * pairs - 8))
            else:
                questions = min(stage.questions, pairs)
                room = stage.length - 34 * questions - 12 * pairs - 40
                parts = retrieval.asked(r, self.noise, pairs, max(16, room), questions)
            tokens, weights = self.encode(parts)
            if len(tokens) <= size:
                break
        missing = size - len(tokens)
        return tokens + [self.end] * missing, weights + [0.0] * missing

    def _window(self, r: Random, size: int) -> list[int]:
        at = r.randrange(self.starts[-1])
        document = bisect(self.starts, at) - 1
        tokens = self.documents[document]
        begin = max(0, min(at - self.starts[document], len(tokens) - size))
        return tokens[begin : begin + size]

    def text_row(self, r: Random, length: int) -> tuple[list[int], list[float]]:
        """One row of length + 1: a window of a text, or stories, or chats one after another."""
        size = length + 1
        kind = r.choices(("text", "story", "chat"), TEXT_SHARES)[0]
        tokens: list[int] = []
        weights: list[float] = []
        while len(tokens) < size:
            if kind == "text":
                found = self._window(r, size - len(tokens))
                more = [1.0] * len(found)
            elif kind == "story":
                found = self.tokenizer.encode(r.choice(self.stories)).ids
                more = [1.0] * len(found)
            else:
                parts = chats.chat(r, self.folder)
                found, more = self.encode([(t, 1.0 if answer else PROMPT_WEIGHT) for t, answer in parts])
            tokens += [*found, self.end]
            weights += [*more, 0.5 if kind == "story" else 0.0]
        return tokens[:size], weights[:size]

    def retrieval(self, r: Random, stage: Stage) -> Batch:
        return _batch([self.retrieval_row(r, stage) for _ in range(stage.rows)])

    def text(self, r: Random, stage: Stage) -> Batch:
        return _batch([self.text_row(r, stage.text_length) for _ in range(stage.text_rows)])


def _batch(rows: list[tuple[list[int], list[float]]]) -> Batch:
    tokens = torch.tensor([t for t, _ in rows])
    weights = torch.tensor([w for _, w in rows])
    return Batch(tokens[:, :-1], tokens[:, 1:], weights[:, 1:])
