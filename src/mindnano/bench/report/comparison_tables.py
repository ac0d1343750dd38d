"""Tables of ratios: pairs that were measured, and this machine's shape beside the reference's."""

from __future__ import annotations

from collections.abc import Sequence

from mindnano.bench import compare as pairs
from mindnano.bench import reference
from mindnano.bench.compare import Compared, by_kind
from mindnano.bench.records import Point, Record, points
from mindnano.bench.report import groups
from mindnano.bench.report.table import EMPTY, Table, marks, number, percent, times, tokens
from mindnano.bench.report.tables import MEASURES, layouts


def compared(found: Sequence[Compared], title: str = "B against A", of: Sequence[Point] = ()) -> Table:
    """Ratios with intervals and verdicts."""
    several = any(one.cache for one in found)
    rows = [
        [*([one.cache] if several else []), MEASURES.get(one.measure, one.measure),
         f"{one.input_tokens}/{one.output_tokens}" + (f", {one.concurrency} clients" if one.concurrency > 1 else ""),
         number(one.a), number(one.b), percent(one.ratio), str(one.ratio.n), one.verdict, one.marked or ""]
        for one in found
    ]  # fmt: skip
    columns = ["figure", "input/output", "A", "B", "B against A", "n", "verdict", "disturbed by"]
    return Table(
        title, ["cache", *columns] if several else columns, rows, marks(of),
        ["TTFT in seconds, decode in tok/s; 95 % intervals of each ratio; verdicts are corrected for the number of "
         "comparisons, so two equal settings are called different anywhere in at most one run of twenty."],
        left=3 if several else 2,
    )  # fmt: skip


def comparisons(records: Sequence[Record]) -> list[Table]:
    """Of the pairs that `bench compare` measured, a table each."""
    made = []
    for name in pairs.comparisons(records):
        found = pairs.compare(records, pairs.by_side(name))
        if found:
            a, _, b = name.partition(" | ")
            of = [point for point in points(records, "perf") if point.comparison == name]
            made.append(compared(found, f"Pairs: A is {a}; B is {b}", of))
    return made


def against_reference(records: Sequence[Record]) -> list[Table]:
    """Ratios inside this machine beside ratios inside the reference's."""
    rows = reference.growth(records)
    made = []
    if rows:
        made.append(Table(
            "Growth with the input, each machine against itself",
            ["cache", "input", "against", "TTFT times", "reference's", "decode left", "reference's"],
            [[row.kind, tokens(row.input_tokens), tokens(row.base), times(row.growth), number(row.reference_growth),
              times(row.left), number(row.reference_left)] for row in rows],
            marks(points(records, "perf")),
            [f"The reference ({reference.tables()['device']}) has one run a point, so no interval, and the expanded "
             "cache of the same format (BF16 beside FP16). Seconds of two machines aren't compared."],
        ))  # fmt: skip
    theirs = reference.gains()
    kinds = groups.kinds(groups.cells(records))
    for layout in layouts(kinds):
        found = pairs.compare(records, by_kind(f"{layout} bf16", f"{layout} int8"))
        both = [[MEASURES[one.measure], tokens(one.input_tokens), percent(one.ratio), one.verdict,
                 _change(theirs[one.measure].get(one.input_tokens))]
                for one in found if one.concurrency == 1]  # fmt: skip
        if both:
            made.append(Table(
                f"INT8 against BF16, {layout}, each machine against itself",
                ["figure", "input", "here", "verdict", "reference's, one run"], both, marks(points(records, "perf")),
            ))  # fmt: skip
    return made


def _change(ratio: float | None) -> str:
    return EMPTY if ratio is None else f"{round(100 * (ratio - 1)) + 0:+d} %"
