"""The same model with another cache or other weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mindnano.engine.llm import LLM
from mindnano.model.linear import F32
from mindnano.model.stages import StageClock

BLOCK = 1024  # tokens of a prefill block: several models are open at once, each with scratch for a block


@dataclass(frozen=True)
class Variant:
    """A cache layout and format, and a recipe where the weights are quantized on opening (None: as they are)."""

    kv_layout: str = "latent"
    kv_format: str = "bf16"
    recipe: str | None = None

    def open(self, model: str | Path | None, context: int, threads: int | None) -> LLM:
        """On the CPU, whose INT8 is the definition: what a cache costs shall not depend on who computed it."""
        return LLM(
            model, context=context, kv=self.kv_format, kv_layout=self.kv_layout, recipe=self.recipe, threads=threads,
            device="cpu", prefill_block=BLOCK, cache_budget=0,
        )  # fmt: skip


def facts(llm: LLM) -> dict[str, Any]:
    """What a record says of an open model."""
    about = llm.describe()
    return {
        "model": Path(about["model"]).name, "recipe": about["recipe"], "synthetic": about["synthetic"],
        "kv_layout": about["kv_layout"], "kv_format": about["kv_format"],
    }  # fmt: skip


def label(llm: LLM) -> str:
    about = facts(llm)
    return " ".join(str(about[name]) for name in ("recipe", "kv_layout", "kv_format"))


class Reader:
    """A sequence that is read token by token in one model; leaving the block frees its slot."""

    def __init__(self, llm: LLM, stack: ExitStack) -> None:
        self._llm = llm
        self._slot = llm._pool.take()
        stack.callback(llm._pool.give_back, self._slot)

    @property
    def length(self) -> int:
        return self._slot.length

    def read(self, tokens: Sequence[int]) -> None:
        """Take tokens in as a prompt."""
        for begin in range(0, len(tokens), self._llm.block):
            piece = tokens[begin : begin + self._llm.block]
            for _ in self._llm._model.prefill(piece, self._slot, self._llm._pool, StageClock(), rows="none"):
                pass

    def next(self, token: int) -> F32:
        """Take one token in as an answer is computed; the logits [vocabulary] of what follows, until the next call."""
        logits: F32 = self._llm._model.decode([token], [self._slot], self._llm._pool, StageClock())[0]
        return logits


def log_softmax(logits: F32) -> np.ndarray:
    """In double precision."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    return wide
