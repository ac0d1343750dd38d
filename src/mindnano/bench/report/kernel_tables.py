"""The table of kernels against the machine's limits, from what `mindnano bench kernels --json` printed."""

from __future__ import annotations

from typing import Any

from mindnano.bench.limits import UNITS
from mindnano.bench.report.table import EMPTY, Table, number


def kernels(found: dict[str, Any] | None) -> Table | None:
    """None without figures."""
    if not found or not found.get("results"):
        return None
    rows = [
        [str(one["name"]), number(one["best_ms"]), number(one["median_ms"]), str(one.get("limit") or EMPTY),
         EMPTY if one.get("share") is None else f"{100 * one['share']:.0f} %"]
        for one in found["results"]
    ]  # fmt: skip
    limits = found.get("limits", {}).get(str(found.get("threads")), {})
    notes = [f"{name}: {number(limits[name])} {unit}" for name, unit in UNITS.items() if name in limits]
    said = ["Limits of this machine, " + ", ".join(notes) + "."] if notes else []
    if found.get("disturbed"):
        spread = 100 * found.get("limit_spread", 0)
        said.append(f"Disturbed: the limits themselves varied by {spread:.0f} % during the run.")
    return Table(
        "Kernels alone, without engine and HTTP",
        ["operation", "best, ms", "median, ms", "bound by", "share of the limit"],
        rows, [f"{found.get('threads')} threads", str(found.get("isa"))], said,
    )  # fmt: skip
