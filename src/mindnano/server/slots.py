"""How many requests run at once where nobody said."""

from __future__ import annotations

from dataclasses import replace

from mindnano.checkpoint import summarize
from mindnano.device.choice import Devices
from mindnano.engine import cores
from mindnano.engine.llm import DEFAULT_BLOCK
from mindnano.engine.memory import Available, Setup, available
from mindnano.engine.memory.fit import largest_context

MOST = 4  # slots
USEFUL = 32768  # tokens of context that one more slot shall not take away


def choose_slots(setup: Setup, context: int | str, memory: Available, reserve: int) -> int:
    """The most slots, up to four, beside which `context` fits; "auto" asks for 32K, or what the model was trained for.

    1 where nothing fits, so that opening the model says why.
    """
    trained = setup.config.max_position_embeddings
    wanted = context if isinstance(context, int) else min(trained, USEFUL)
    for slots in range(MOST, 1, -1):
        if largest_context(replace(setup, slots=slots), memory.nbytes, reserve, wanted) >= wanted:
            return slots
    return 1


def slots_for(
    model: str | None, recipe: str | None, layout: str, fmt: str, threads: int | None, cache_budget: int,
    context: int | str, reserve: int, device: str, cpus: str = "auto",
) -> int:  # fmt: skip
    """`choose_slots` for a model that isn't opened yet."""
    summary, count = summarize(model, recipe), cores.count(threads, cpus)
    setup = Setup.of(
        summary, layout=layout, fmt=fmt, slots=1, block=DEFAULT_BLOCK,
        threads=count, cache_budget=cache_budget,
        device=Devices.planned_bytes(device, summary.config, fmt, summary.recipe, count),
    )  # fmt: skip
    return choose_slots(setup, context, available(), reserve)
