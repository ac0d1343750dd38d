"""Does it fit? The verdict on a plan, the largest context that fits, and the check before anything starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from mindnano.cache.kv import FORMATS, LAYOUTS
from mindnano.engine.memory.available import Available
from mindnano.engine.memory.plan import MIB, Setup, plan_memory
from mindnano.errors import MindNanoError, OutOfMemoryError

DEFAULT_RESERVE = 512 << 20
DEFAULT_CACHE = 512 << 20  # keeps 64K tokens of Ling-3.0-tiny in latent BF16, 128K in INT8
STEP = 256  # contexts that are chosen for the user are multiples of this

Verdict = Literal["fits", "tight", "does not fit", "beyond trained context"]


def verdict(need: int, context: int, available: int, reserve: int, trained: int) -> Verdict:
    """tight: fits, but leaves less than the reserve. Beyond what the model was trained for: it would start, but
    nobody has verified what it answers."""
    if need > available:
        return "does not fit"
    if context > trained:
        return "beyond trained context"
    return "fits" if need + reserve <= available else "tight"


def largest_context(setup: Setup, available: int, reserve: int, most: int) -> int:
    """The largest context, a multiple of 256 or `most` itself, that leaves `reserve`; 0 if none does."""

    def fits(context: int) -> bool:
        return plan_memory(setup, context).total + reserve <= available

    if fits(most):
        return most
    low, high = 0, most // STEP
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * STEP) else (low, middle - 1)
    return low * STEP


def choose_context(
    setup: Setup,
    wanted: int | str,
    available: Available,
    reserve: int,
    *,
    allow_tight: bool = False,
    force: bool = False,
) -> int:
    """`wanted` if it fits; the largest context that does for "auto".

    `allow_tight` accepts what leaves less than the reserve, `force` what is beyond the model's trained context.
    Raises OutOfMemoryError with the sum, or MindNanoError for a context that can't be.
    """
    trained = setup.config.max_position_embeddings
    if wanted == "auto":
        best = largest_context(setup, available.nbytes, 0 if allow_tight else reserve, trained)
        if best == 0:
            raise _refusal("no context fits", setup, min(STEP, trained), available, reserve)
        return best
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        raise MindNanoError(f"ctx: expected a number of tokens from 1, or auto, got {wanted!r}")
    if wanted > trained and not force:
        raise MindNanoError(
            f"ctx: {wanted} tokens is beyond the {trained} that the model was trained for, where nobody has verified "
            f"its answers; use at most {trained}, or --force"
        )
    plan = plan_memory(setup, wanted)
    if plan.total + (0 if allow_tight else reserve) > available.nbytes:
        tight = plan.total <= available.nbytes
        what = f"ctx {wanted} ({setup.layout} {setup.fmt}) " + ("is tight" if tight else "does not fit")
        raise _refusal(what, setup, wanted, available, reserve, tight)
    return wanted


def _refusal(
    what: str, setup: Setup, context: int, available: Available, reserve: int, tight: bool = False
) -> OutOfMemoryError:
    """Need, have, and what would fit instead."""
    plan = plan_memory(setup, context)
    best = largest_context(setup, available.nbytes, reserve, context)
    others = [
        f"{layout} {fmt}"
        for layout in LAYOUTS
        for fmt in FORMATS
        if (layout, fmt) != (setup.layout, setup.fmt)
        and plan_memory(replace(setup, layout=layout, fmt=fmt), context).total + reserve <= available.nbytes
    ]
    ways = [f"the largest context that fits is {best}" if best else "no context of this format fits"]
    if others:
        ways.append(f"{context} tokens fit as {', '.join(others)}")
    without = plan_memory(replace(setup, cache_budget=0), context).total + reserve
    if setup.cache_budget and without <= available.nbytes:
        ways.append("or with a smaller --cache-budget")
    if setup.slots > 1 and plan_memory(replace(setup, slots=1), context).total + reserve <= available.nbytes:
        ways.append("or with fewer slots")
    if tight:
        ways.append("--allow-tight starts anyway")
    elif not best:
        ways.append("close other programs or use a smaller recipe")
    where = "the control group leaves" if available.source == "cgroup" else "available"
    return OutOfMemoryError(
        f"{what}: needs {plan.text()} and {reserve / MIB:,.0f} MiB reserve, {where} {available.nbytes / MIB:,.0f} MiB; "
        + "; ".join(ways),
        need=plan.total + reserve,
        have=available.nbytes,
        largest_context=best,
    )
