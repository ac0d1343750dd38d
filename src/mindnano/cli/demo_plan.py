"""The demo's last part: what Ling-3.0-tiny itself would need, and how far it goes on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mindnano import data
from mindnano.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console


def plan(reserve: int) -> dict[str, Any]:
    """The plan by layout and format for this machine, with weights as mixed; sizes in bytes."""
    from mindnano.checkpoint import summarize
    from mindnano.engine import cores
    from mindnano.engine.llm import DEFAULT_BLOCK, DEFAULT_CACHE
    from mindnano.engine.memory import Setup, available, report

    summary = summarize(data.LING_TINY, "mixed")
    setup = Setup.of(
        summary, layout="latent", fmt="bf16", slots=1, block=DEFAULT_BLOCK, threads=cores.count(),
        cache_budget=DEFAULT_CACHE,
    )  # fmt: skip
    found = report(setup, available(), reserve, formats=("bf16", "int8"))
    plans = {(row.layout, row.fmt): row.plan for row in found.rows}
    return {
        "recipe": found.recipe,
        "weight_bytes": summary.nbytes,
        "available_bytes": found.available.nbytes,
        "kinds": [
            {
                "kv_layout": layout,
                "kv_format": fmt,
                "fixed_bytes": one.fixed,
                "bytes_per_token": one.per_token,
                "largest_context": found.largest[layout, fmt],
            }
            for (layout, fmt), one in plans.items()
        ],
    }


def show(screen: Console, found: dict[str, Any]) -> None:
    """Prints it."""
    from rich.table import Table

    screen.print(
        f"Weights {format_bytes(found['weight_bytes'])} ({found['recipe']}); "
        f"{format_bytes(found['available_bytes'])} of memory are available here now. Computed; nothing is loaded."
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("KV cache")
    for column in ("fixed", "a token", "largest context here"):
        table.add_column(column, justify="right")
    for kind in found["kinds"]:
        table.add_row(
            f"{kind['kv_layout']} {kind['kv_format']}",
            format_bytes(kind["fixed_bytes"]),
            f"{kind['bytes_per_token'] / 1024:.2f} KiB",
            f"{kind['largest_context']:,}" if kind["largest_context"] else "does not fit",
        )
    screen.print(table)
