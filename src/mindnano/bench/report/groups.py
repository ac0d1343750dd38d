"""Runs put together: by cache, by load, undisturbed ones where there are any."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mindnano.bench.records import Point, Record, points
from mindnano.bench.statistics import Estimate, geometric_mean

_LAYOUTS, _FORMATS = ("latent", "expanded"), ("bf16", "int8", "fp16", "fp32")


@dataclass(frozen=True)
class Key:
    """One load on one cache."""

    kind: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    prompts: str


@dataclass
class Cell:
    """The runs of one load on one cache. `runs`: what counts; `disturbed`: how many had to be used though disturbed."""

    key: Key
    runs: list[Point]
    disturbed: int
    dropped: int

    def mean(self, measure: str) -> Estimate | None:
        """Geometric mean of a figure with its interval."""
        values = [value for run in self.runs if (value := getattr(run, measure))]
        return geometric_mean(values) if values else None

    def first(self, measure: str) -> object:
        return next((value for run in self.runs if (value := getattr(run, measure)) is not None), None)

    def stages(self, name: str = "stage_s") -> dict[str, float]:
        """Mean seconds by stage."""
        known = [value for run in self.runs if (value := getattr(run, name))]
        return (
            {stage: sum(one.get(stage, 0.0) for one in known) / len(known) for stage in known[0]}
            if known
            else {}
        )


def kind_order(kind: str) -> tuple[int, int, str]:
    """latent before expanded, bf16 before int8 before fp16."""
    layout, _, fmt = kind.partition(" ")
    return (
        _LAYOUTS.index(layout) if layout in _LAYOUTS else len(_LAYOUTS),
        _FORMATS.index(fmt) if fmt in _FORMATS else len(_FORMATS),
        kind,
    )


def name_of(point: Point, several: bool) -> str:
    """The cache, and where a report holds several models or servers, whose it is."""
    return f"{point.model or point.server} {point.kind}" if several else point.kind


def cells(records: Iterable[Record]) -> list[Cell]:
    """Cells of all perf runs, those of comparisons left out: they are measured beside another server."""
    found: dict[Key, list[Point]] = {}
    for point in points(records, "perf"):
        if point.status == "ok" and not point.side and point.input_tokens:
            key = Key(point.kind, point.input_tokens, point.output_tokens or 0, point.concurrency or 1,
                      point.prompts or "")  # fmt: skip
            found.setdefault(key, []).append(point)
    made = []
    for key, runs in found.items():
        good = [run for run in runs if run.counts]
        made.append(Cell(key, good or runs, 0 if good else len(runs), len(runs) - len(good) if good else 0))
    return sorted(
        made, key=lambda cell: (kind_order(cell.key.kind), cell.key.concurrency, cell.key.input_tokens)
    )


def capacity(records: Iterable[Record]) -> list[Point]:
    """The last measured point of every context and cache."""
    found: dict[tuple[str, int], Point] = {}
    for point in points(records, "capacity"):
        if point.context_tokens and point.status in ("ok", "not_started"):
            found[point.kind, point.context_tokens] = point
    return [found[key] for key in sorted(found, key=lambda key: (kind_order(key[0]), key[1]))]


def kinds(made: Iterable[Cell] | Iterable[Point]) -> list[str]:
    """The caches in order."""
    return sorted({one.key.kind if isinstance(one, Cell) else one.kind for one in made}, key=kind_order)
