"""The memory of an engine by purpose, by arithmetic over its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mindnano.cache.slots import kv_bytes, state_bytes
from mindnano.checkpoint.config import ModelConfig
from mindnano.model.decoder import ATTENTION_TILE, EXPERT_TILE

MIB = 1 << 20
RUNTIME_BYTES = 110 * MIB  # interpreter, libraries, tokenizer: measured, not derived


@dataclass(frozen=True)
class Setup:
    """Everything that decides an engine's memory but the context. `weights` and `cache_budget` in bytes."""

    config: ModelConfig
    weights: int
    layout: str
    fmt: str
    slots: int
    block: int
    threads: int
    cache_budget: int


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by purpose, of `slots` full contexts. `per_token`: what one more token of context adds."""

    context: int
    slots: int
    weights: int
    kv: int
    states: int
    checkpoints: int
    scratch: int
    runtime: int
    per_token: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.states + self.checkpoints + self.scratch + self.runtime

    @property
    def fixed(self) -> int:
        """What doesn't depend on the context: total = fixed + per_token * context."""
        return self.total - self.per_token * self.context

    def as_dict(self) -> dict[str, Any]:
        """All fields and sums in bytes, ready for JSON."""
        return {**vars(self), "fixed": self.fixed, "total": self.total}

    def text(self) -> str:
        """The sum in MiB, as refusals print it."""
        parts = (
            ("weights", self.weights), ("KV cache", self.kv), ("states", self.states),
            ("checkpoints", self.checkpoints), ("scratch", self.scratch), ("runtime", self.runtime),
        )  # fmt: skip
        return (
            " + ".join(f"{name} {size / MIB:,.0f}" for name, size in parts)
            + f" = {self.total / MIB:,.0f} MiB"
        )


def plan_memory(setup: Setup, context: int) -> MemoryPlan:
    """The plan for sequences of `context` tokens in every slot."""
    scratch = scratch_per_token(setup)
    per_token = setup.slots * kv_bytes(setup.config, setup.layout, setup.fmt, 1) + scratch
    return MemoryPlan(
        context=context,
        slots=setup.slots,
        weights=setup.weights,
        kv=setup.slots * kv_bytes(setup.config, setup.layout, setup.fmt, context),
        states=setup.slots * state_bytes(setup.config),
        checkpoints=setup.cache_budget,
        scratch=scratch_fixed(setup.config, min(setup.block, context)) + context * scratch,
        runtime=RUNTIME_BYTES,
        per_token=per_token,
    )


def scratch_per_token(setup: Setup) -> int:
    """Bytes of a history token in the expanded scratch of the heads that are attended together."""
    mla = setup.config.mla
    if mla is None or "mla" not in setup.config.layer_types:
        return 0
    group = min(mla.num_heads, setup.threads)
    width = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
    return group * (width * {"int8": 1, "fp32": 4}.get(setup.fmt, 2) + (8 if setup.fmt == "int8" else 0))


def scratch_fixed(config: ModelConfig, block: int) -> int:
    """Bytes of a prefill block's rows and of the tiles that pass through a layer's products."""
    hidden, rows = config.hidden_size, min(block, EXPERT_TILE)
    total = 4 * block * hidden + rows * hidden * 6 + 8 * config.vocab_size
    if config.moe is not None:
        total += rows * config.moe.top_k * (config.moe.intermediate_size * 2 + 16)
    if config.kda is not None and "kda" in config.layer_types:
        total += 4 * min(block, ATTENTION_TILE) * 13 * config.kda.num_heads * config.kda.head_dim
    if config.mla is not None:
        heads = config.mla.num_heads
        width = config.mla.qk_nope_head_dim + config.mla.qk_rope_head_dim + config.mla.v_head_dim
        total += 4 * block * heads * width
    return total
