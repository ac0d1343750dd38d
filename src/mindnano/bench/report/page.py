"""The report as files: report.html (self-contained), report.md, and the plots as SVG for the latter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from mindnano.bench.quality.summary import summarize
from mindnano.bench.records import Judged, Point, Record, Run
from mindnano.bench.report import comparison_tables, kernel_tables, plots, quality_tables, summary, tables
from mindnano.bench.report.table import Table
from mindnano.errors import MindNanoError
from mindnano.units import format_bytes

TITLE = "MindNano benchmark"
CAPTIONS = {
    "ttft": "Time to the first token by length of the input, with 95 % intervals where there are enough runs.",
    "decode": "Decode speed after an input of that length.",
    "shape": "The same relative to one length, beside the reference's tables: each machine against itself.",
    "memory": "Resident memory predicted for a full context (lines); the peak while half of it was filled (crosses).",
    "stages": "Where a request's time goes, prefill and decode together.",
    "divergence": "Divergence from the yardstick by position, over segments of text.",
}


@dataclass
class Section:
    """One part of the page."""

    title: str
    warnings: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    plots: list[dict[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z]+", "-", self.title.lower()).strip("-")

    @property
    def empty(self) -> bool:
        return not (self.warnings or self.sentences or self.plots or self.tables)


def write(records: Sequence[Record], target: Path, kernels: dict[str, Any] | None = None) -> list[Path]:
    """Write report.html, report.md and plots/*.svg into `target`; the files written.

    kernels: what `bench kernels --json` printed. Raises MindNanoError where the records hold nothing to report.
    """
    if not any(isinstance(record, Point | Judged) for record in records):
        raise MindNanoError(
            "no measured point in the results; run bench capacity, perf, compare or quality first"
        )
    drawn = plots.draw(records)
    sections = _sections(records, drawn, kernels)
    target.mkdir(parents=True, exist_ok=True)
    written = [target / "report.html", target / "report.md"]
    written[0].write_text(_html(sections, records), encoding="utf-8")
    written[1].write_text(_markdown(sections, records), encoding="utf-8")
    for name, svg in drawn.items():
        path = target / "plots" / f"{name}.svg"
        path.parent.mkdir(exist_ok=True)
        path.write_text(plots.standalone(svg), encoding="utf-8")
        written.append(path)
    return written


def _sections(
    records: Sequence[Record], drawn: dict[str, str], kernels: dict[str, Any] | None
) -> list[Section]:
    def shown(*names: str) -> list[dict[str, str]]:
        return [{"name": n, "svg": drawn[n], "caption": CAPTIONS[n]} for n in names if n in drawn]

    def there(*found: Table | None) -> list[Table]:
        return [table for table in found if table is not None]

    quality = summarize(records)
    sections = [
        Section("Summary", summary.warnings(records), summary.sentences(records, quality)),
        Section("Speed", plots=shown("ttft", "decode"), tables=[
            *tables.speed(records), *there(tables.requests(records), tables.together(records))]),
        Section("Where the time goes", plots=shown("stages"), tables=[
            *tables.stages(records), *there(tables.levels(records), kernel_tables.kernels(kernels))]),
        Section("Comparison", plots=shown("shape"), tables=[
            *comparison_tables.comparisons(records), *comparison_tables.against_reference(records)]),
        Section("Capacity", plots=shown("memory"), tables=tables.capacity(records)),
        Section("Quality", plots=shown("divergence"), tables=quality_tables.quality(quality)),
        Section("Left out", tables=there(tables.missing(records))),
        Section("Machine", tables=there(machine(records))),
    ]  # fmt: skip
    return [section for section in sections if not section.empty]


def machine(records: Sequence[Record]) -> Table | None:
    """What was measured on, and the state it was in."""
    runs = [record for record in records if isinstance(record, Run)]
    if not runs:
        return None
    run, found = runs[-1], runs[-1].machine
    rows = [["MindNano", run.version], ["begun", runs[0].at], ["last run", run.at]]
    for name, value in found.items():
        if value in (None, [], (), ""):
            continue
        if name in ("memory", "available", "cgroup_limit", "cgroup_left", "page_cache", "swap", "swap_used"):
            value = format_bytes(value)
        elif name in ("frequency", "largest_frequency"):
            value = f"{value:,.0f} MHz"
        elif isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        rows.append([name.replace("_", " "), str(value)])
    measured = [record for record in records if isinstance(record, Point) and record.machine]
    hottest = max(
        (p.machine["temperature_c"] for p in measured if p.machine and "temperature_c" in p.machine),
        default=None,
    )
    if hottest is not None:
        rows.append(["hottest", f"{hottest:.0f} degrees Celsius"])
    return Table("The machine when the last command began", ["", ""], rows, left=2)


def _about(records: Sequence[Record]) -> str:
    """Models, recipes and servers in one line."""
    of = [record for record in records if isinstance(record, Judged)
          or (isinstance(record, Point) and record.status == "ok")]  # fmt: skip
    models = dict.fromkeys(" ".join(part for part in (one.model, one.recipe) if part) for one in of)
    servers = dict.fromkeys(
        " ".join(part for part in (p.server, p.server_version) if part) for p in of if isinstance(p, Point)
    )
    return "; ".join(", ".join(name for name in names if name) for names in (models, servers) if any(names))


def _html(sections: Sequence[Section], records: Sequence[Record]) -> str:
    from jinja2 import Environment

    source = (files("mindnano.bench.report") / "template.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
    return page.render(
        title=TITLE,
        subtitle=_about(records),
        sections=sections,
        day=plots.variables(False),
        night=plots.variables(True),
    )


def _markdown(sections: Sequence[Section], records: Sequence[Record]) -> str:
    parts = [f"# {TITLE}", _about(records)]
    for section in sections:
        parts.append(f"## {section.title}")
        parts += [f"> {text}" for text in section.warnings]
        if section.sentences:
            parts.append("\n".join(f"- {text}" for text in section.sentences))
        parts += [f"![{plot['caption']}](plots/{plot['name']}.svg)" for plot in section.plots]
        parts += [table.markdown() for table in section.tables]
    return "\n\n".join(part for part in parts if part) + "\n"
