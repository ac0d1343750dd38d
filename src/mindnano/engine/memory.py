"""The memory that an engine will need, by arithmetic over the configuration, and what this machine has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from mindnano.cache.slots import kv_bytes, state_bytes
from mindnano.checkpoint.config import ModelConfig
from mindnano.errors import MindNanoError
from mindnano.model.decoder import ATTENTION_TILE, EXPERT_TILE

MIB = 1 << 20
RUNTIME_BYTES = 110 * MIB  # interpreter, libraries, tokenizer: measured, not derived


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by purpose. `fixed` doesn't depend on the context; `per_token` is one more token of every slot."""

    weights: int
    kv: int
    states: int
    scratch: int
    runtime: int
    context: int
    per_token: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.states + self.scratch + self.runtime

    @property
    def fixed(self) -> int:
        return self.total - self.per_token * self.context

    def text(self) -> str:
        parts = (
            ("weights", self.weights), ("KV cache", self.kv), ("KDA states", self.states),
            ("scratch", self.scratch), ("runtime", self.runtime),
        )  # fmt: skip
        return (
            " + ".join(f"{name} {size / MIB:,.0f}" for name, size in parts)
            + f" = {self.total / MIB:,.0f} MiB"
        )


def scratch_per_token(config: ModelConfig, fmt: str, layout: str, threads: int) -> int:
    """Bytes of a history token in the expanded scratch of the heads that are attended together."""
    mla = config.mla
    if mla is None:
        return 0
    group = min(mla.num_heads, threads)
    width = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
    return group * (width * {"int8": 1, "fp32": 4}.get(fmt, 2) + (8 if fmt == "int8" else 0))


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


def plan_memory(
    config: ModelConfig,
    weights: int,
    layout: str,
    fmt: str,
    context: int,
    slots: int,
    block: int,
    threads: int,
) -> MemoryPlan:
    """The plan for `slots` sequences of `context` tokens each; `weights` in bytes."""
    per_token = slots * kv_bytes(config, layout, fmt, 1) + scratch_per_token(config, fmt, layout, threads)
    return MemoryPlan(
        weights=weights,
        kv=slots * kv_bytes(config, layout, fmt, context),
        states=slots * state_bytes(config),
        scratch=scratch_fixed(config, min(block, context))
        + context * scratch_per_token(config, fmt, layout, threads),
        runtime=RUNTIME_BYTES,
        context=context,
        per_token=per_token,
    )


def available_bytes() -> int:
    """Memory that can be had now: MemAvailable, or what a cgroup leaves if that is less."""
    available = psutil.virtual_memory().available
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            left = int(Path(limit).read_text()) - int(Path(used).read_text())
        except (OSError, ValueError):  # no cgroup of that version, or "max": no limit
            continue
        available = min(available, max(left, 0))
    return int(available)


def fit_context(
    config: ModelConfig, weights: int, layout: str, fmt: str, slots: int, block: int, threads: int,
    available: int, reserve: int, most: int,
) -> int:  # fmt: skip
    """The largest context, a multiple of 256 and at most `most`, that leaves `reserve`; 0 if none does."""

    def fits(context: int) -> bool:
        plan = plan_memory(config, weights, layout, fmt, context, slots, block, threads)
        return plan.total + reserve <= available

    low, high = 0, most // 256
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * 256) else (low, middle - 1)
    return low * 256 if low or most >= 256 else (most if fits(most) else 0)


def choose_context(
    config: ModelConfig, weights: int, layout: str, fmt: str, slots: int, block: int, threads: int,
    wanted: int | str, reserve: int,
) -> int:  # fmt: skip
    """`wanted` if it fits; the largest context that does for "auto". Raises MindNanoError with the sum otherwise."""
    available = available_bytes()
    trained = config.max_position_embeddings
    best = fit_context(config, weights, layout, fmt, slots, block, threads, available, reserve, trained)
    if wanted == "auto":
        if best == 0:
            smallest = plan_memory(config, weights, layout, fmt, 256, slots, block, threads)
            raise MindNanoError(
                f"not enough memory for any context: needs {smallest.text()} and {reserve / MIB:,.0f} MiB reserve, "
                f"available {available / MIB:,.0f} MiB; close other programs or use a smaller recipe"
            )
        return best
    if not isinstance(wanted, int) or wanted < 1:
        raise MindNanoError(f"ctx: expected a number of tokens from 1, or auto, got {wanted!r}")
    context = wanted
    if context > trained:
        raise MindNanoError(
            f"ctx: {context} tokens is beyond the {trained} that the model was trained for; use at most {trained}"
        )
    plan = plan_memory(config, weights, layout, fmt, context, slots, block, threads)
    if plan.total + reserve > available:
        raise MindNanoError(
            f"ctx {context} ({layout} {fmt}) does not fit: needs {plan.text()} and {reserve / MIB:,.0f} MiB reserve, "
            f"available {available / MIB:,.0f} MiB; the largest context that fits is {best}"
        )
    return context
