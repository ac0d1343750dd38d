"""The memory of an engine by purpose, by arithmetic over its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mindnano.cache.slots import kv_bytes, state_bytes
from mindnano.checkpoint import ModelSummary
from mindnano.checkpoint.config import ModelConfig
from mindnano.engine.memory import scratch
from mindnano.engine.turns import SHORT

MIB = 1 << 20
RUNTIME_BYTES = 56 * MIB  # interpreter, libraries, a command around: 47 to 57 MiB measured
# Measured with the tokenizers library: bytes of a vocabulary entry, and of a byte of tokenizer.json beyond the
# entries (its merges), beside the file itself, which is kept.
_ENTRY, _ENTRY_JSON, _MERGES = 290, 17, 9.7


@dataclass(frozen=True)
class Setup:
    """Everything that decides an engine's memory but the context. Sizes in bytes; `tokenizer`: of tokenizer.json,
    `device`: what an NPU's buffers take of this machine's memory."""

    config: ModelConfig
    weights: int
    layout: str
    fmt: str
    slots: int
    block: int
    threads: int
    cache_budget: int
    recipe: str = "mixed"
    tokenizer: int = 0
    device: int = 0

    @classmethod
    def of(cls, model: ModelSummary, **engine: Any) -> Setup:
        """Of a model that was summarized and the engine's options."""
        return cls(model.config, model.nbytes, recipe=model.recipe, tokenizer=model.tokenizer_bytes, **engine)

    @property
    def dense(self) -> bool:
        return self.recipe in ("bf16", "native")


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by purpose, of `slots` full contexts. `per_token`: what one more token of context adds.

    weights: as stored. kv: rows of all slots. states: KDA and convolution states of all slots. checkpoints: the
    budget of the prefix cache. scratch: what passes through a layer, and the history that a prefill expands.
    runtime: interpreter, libraries, tokenizer. device: an NPU's buffers and weights laid out anew, 0 without one.
    """

    context: int
    slots: int
    weights: int
    kv: int
    states: int
    checkpoints: int
    scratch: int
    runtime: int
    device: int
    per_token: float

    @property
    def total(self) -> int:
        return (
            self.weights
            + self.kv
            + self.states
            + self.checkpoints
            + self.scratch
            + self.runtime
            + self.device
        )

    @property
    def fixed(self) -> int:
        """What doesn't depend on the context: total = fixed + per_token * context."""
        return round(self.total - self.per_token * self.context)

    def as_dict(self) -> dict[str, Any]:
        """All fields and sums in bytes, ready for JSON."""
        return {**vars(self), "fixed": self.fixed, "total": self.total}

    def text(self) -> str:
        """The sum in MiB, as refusals print it."""
        parts = (
            ("weights", self.weights), ("KV cache", self.kv), ("states", self.states),
            ("checkpoints", self.checkpoints), ("scratch", self.scratch), ("runtime", self.runtime),
            ("NPU", self.device),
        )  # fmt: skip
        return (
            " + ".join(f"{name} {size / MIB:,.0f}" for name, size in parts if size or name != "NPU")
            + f" = {self.total / MIB:,.0f} MiB"
        )


def plan_memory(setup: Setup, context: int) -> MemoryPlan:
    """The plan for sequences of `context` tokens in every slot."""
    length = 1 << 20  # of which the growing part's slope is taken, so that steps of a tile don't show
    growing = kv_bytes(setup.config, setup.layout, setup.fmt, 1) * setup.slots
    slope = (_growing_scratch(setup, 2 * length) - _growing_scratch(setup, length)) / length
    return MemoryPlan(
        context=context,
        slots=setup.slots,
        weights=setup.weights,
        kv=setup.slots * kv_bytes(setup.config, setup.layout, setup.fmt, context),
        states=setup.slots * state_bytes(setup.config),
        checkpoints=setup.cache_budget,
        scratch=_fixed_scratch(setup, context) + _growing_scratch(setup, context),
        runtime=RUNTIME_BYTES + tokenizer_memory(setup.config.vocab_size, setup.tokenizer),
        device=setup.device,
        per_token=growing + slope,
    )


def resident(setup: Setup, context: int, tokens: int) -> int:
    """Bytes that are really in memory when one prompt of `tokens` tokens, the first, has gone through an engine of
    `context`: pages are taken as they are used. 0: ready, all weights read, nothing run yet."""
    plan = plan_memory(setup, context)
    if not tokens:
        return plan.weights + plan.runtime
    rows = kv_bytes(setup.config, setup.layout, setup.fmt, tokens)
    scratch = plan_memory(setup, tokens).scratch
    return (
        plan.weights + plan.runtime + rows + state_bytes(setup.config) + scratch + kept_bytes(setup, tokens)
    )


def kept_bytes(setup: Setup, tokens: int) -> int:
    """What the prefix cache keeps of one prompt: its rows and tokens, states at each block's end, logits at its own."""
    blocks = -(-tokens // setup.block)
    states = blocks * state_bytes(setup.config) + 4 * setup.config.vocab_size
    rows = kv_bytes(setup.config, setup.layout, setup.fmt, tokens) + 8 * tokens
    return min(setup.cache_budget, rows + states)


def tokenizer_memory(vocabulary: int, file: int) -> int:
    """Bytes that a tokenizer of `vocabulary` entries takes whose tokenizer.json has `file` bytes; 0 without one."""
    return (
        round(_ENTRY * vocabulary + _MERGES * max(0, file - _ENTRY_JSON * vocabulary)) + file if file else 0
    )


def _fixed_scratch(setup: Setup, context: int) -> int:
    def prefill(block: int) -> int:
        return scratch.prefill_bytes(setup.config, setup.layout, min(block, context), setup.dense)

    short = prefill(SHORT) if setup.slots > 1 else 0  # of a short prompt inside a long one's block
    decode = scratch.decode_bytes(setup.config, setup.layout, setup.slots, setup.dense)
    return prefill(setup.block) + short + decode


def _growing_scratch(setup: Setup, context: int) -> int:
    return scratch.history_bytes(
        setup.config, setup.fmt, setup.threads, context, setup.dense
    ) + scratch.partials_bytes(setup.config, setup.layout, setup.slots, context)
