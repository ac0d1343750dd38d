"""The plan of every context x layout x format, as data: what `mindnano plan` prints and a server shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mindnano.cache.kv import LAYOUTS
from mindnano.cache.slots import kv_bytes
from mindnano.engine.memory.available import Available
from mindnano.engine.memory.fit import Verdict, largest_context, verdict
from mindnano.engine.memory.plan import MemoryPlan, Setup, plan_memory

CONTEXTS = tuple(8192 << step for step in range(6))
FORMATS = ("bf16", "int8", "fp16")


@dataclass(frozen=True)
class Baseline:
    """A process's RSS in bytes, measured with a context whose KV cache it holds."""

    context: int
    rss: int

    def predict(self, setup: Setup, context: int) -> int:
        """RSS of the same process with another context: what was measured, and what the KV cache grows by."""
        config, layout, fmt = setup.config, setup.layout, setup.fmt
        grown = kv_bytes(config, layout, fmt, context) - kv_bytes(config, layout, fmt, self.context)
        return self.rss + setup.slots * grown


@dataclass(frozen=True)
class Row:
    """One context x layout x format: its plan, the bytes that are predicted (the plan's sum, or from a baseline),
    what they leave (negative: what is missing), and the verdict."""

    layout: str
    fmt: str
    plan: MemoryPlan
    predicted: int
    left: int
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        return {
            "kv_layout": self.layout,
            "kv_format": self.fmt,
            **self.plan.as_dict(),
            "predicted": self.predicted,
            "left": self.left,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class MemoryReport:
    """All rows, the memory they are held against, and for each layout and format the largest context that fits
    (0: none). Sizes in bytes."""

    recipe: str
    trained_context: int
    available: Available
    reserve: int
    slots: int
    block: int
    threads: int
    cache_budget: int
    rows: tuple[Row, ...]
    largest: dict[tuple[str, str], int]
    baseline: Baseline | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "recipe": self.recipe,
            "trained_context": self.trained_context,
            "available": self.available.nbytes,
            "available_from": self.available.source,
            "reserve": self.reserve,
            "slots": self.slots,
            "prefill_block": self.block,
            "threads": self.threads,
            "cache_budget": self.cache_budget,
            "predicted_from": "arithmetic" if self.baseline is None else vars(self.baseline),
            "rows": [row.as_dict() for row in self.rows],
            "largest_context": [
                {"kv_layout": layout, "kv_format": fmt, "context": context}
                for (layout, fmt), context in self.largest.items()
            ],
        }


def report(
    setup: Setup,
    available: Available,
    reserve: int,
    *,
    contexts: Sequence[int] = CONTEXTS,
    layouts: Sequence[str] = LAYOUTS,
    formats: Sequence[str] = FORMATS,
    baseline: Baseline | None = None,
) -> MemoryReport:
    """The plan of `setup` for each context, layout and format; `setup`'s own layout and format don't count.

    `baseline` belongs to one layout and format: with it only these are reported.
    """
    trained = setup.config.max_position_embeddings
    kinds = [(layout, fmt) for layout in layouts for fmt in formats]
    setups = {kind: replace(setup, layout=kind[0], fmt=kind[1]) for kind in kinds}

    def row(context: int, kind: tuple[str, str]) -> Row:
        plan = plan_memory(setups[kind], context)
        predicted = plan.total if baseline is None else baseline.predict(setups[kind], context)
        word = verdict(predicted, context, available.nbytes, reserve, trained)
        return Row(*kind, plan, predicted, available.nbytes - predicted, word)

    return MemoryReport(
        recipe=setup.recipe,
        trained_context=trained,
        available=available,
        reserve=reserve,
        slots=setup.slots,
        block=setup.block,
        threads=setup.threads,
        cache_budget=setup.cache_budget,
        rows=tuple(row(context, kind) for context in contexts for kind in kinds),
        largest={kind: largest_context(setups[kind], available.nbytes, reserve, trained) for kind in kinds},
        baseline=baseline,
    )
