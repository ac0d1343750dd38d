"""Tables of what a smaller cache or recipe costs."""

from __future__ import annotations

from collections.abc import Sequence

from mindnano.bench.quality.summary import Quality
from mindnano.bench.report.table import EMPTY, Table, estimate, marks, tokens
from mindnano.bench.statistics import Estimate


def quality(of: Sequence[Quality]) -> list[Table]:
    """What each cache costs: divergence by length, retrieval by length, where greedy answers part."""
    made = []
    if found := [q for q in of if q.measure in ("kl_mean", "kl_p99", "top1")]:
        made.append(_by_length(found, "Divergence from {against}, nats; top-1 agreement", {
            "kl_mean": "KL mean", "kl_p99": "KL p99", "top1": "same top token"}))  # fmt: skip
    tasks = sorted(
        {q.measure for q in of if q.measure.startswith("retrieval/") and q.measure.count("/") == 1}
    )
    if tasks:
        made.append(_by_length([q for q in of if q.measure in tasks], "Retrieval, share of right answers",
                               {task: task.partition("/")[2].replace("_", " ") for task in tasks}))  # fmt: skip
    depths = sorted(
        {q.measure for q in of if q.measure.startswith("retrieval/") and q.measure.count("/") == 2}
    )
    if depths:
        made.append(_by_depth([q for q in of if q.measure in depths]))
    if found := [q for q in of if q.measure == "first_difference"]:
        rows = [
            [q.kind, q.against, tokens(q.length), estimate(_of(q)), f"{q.censored or 0} of {q.samples}"]
            for q in found
        ]
        made.append(Table("Position of the first different greedy token", ["cache", "against", "prompt", "median",
                          "never differed"], rows, marks(found), left=2))  # fmt: skip
    return made


def _of(record: Quality) -> Estimate | None:
    return None if record.value is None else Estimate(record.value, record.low, record.high, record.samples)


def _by_length(of: Sequence[Quality], title: str, names: dict[str, str]) -> Table:
    against = ", ".join(dict.fromkeys(q.against for q in of if q.against))
    rows = []
    for kind, length in dict.fromkeys((q.kind, q.length) for q in of):
        cells = [
            next((q for q in of if (q.kind, q.length, q.measure) == (kind, length, name)), None)
            for name in names
        ]
        samples = max(q.samples for q in cells if q is not None)
        segments = max((q.segments or 0 for q in cells if q is not None), default=0)
        count = f"{samples} in {segments}" if segments else str(samples)
        rows.append([kind, tokens(length), *(estimate(_of(q)) if q else EMPTY for q in cells), count])
    return Table(
        title.format(against=against), ["cache", "length", *names.values(), "samples"], rows, marks(of)
    )


def _by_depth(of: Sequence[Quality]) -> Table:
    columns = sorted({q.measure.rpartition("/")[2] for q in of}, key=float)
    rows = []
    for kind, task, length in dict.fromkeys((q.kind, q.measure.split("/")[1], q.length) for q in of):
        known = {q.measure.rpartition("/")[2]: q for q in of
                 if (q.kind, q.length, q.measure.split("/")[1]) == (kind, length, task)}  # fmt: skip
        cells = [known.get(depth) for depth in columns]
        rows.append(
            [kind, task.replace("_", " "), tokens(length), *(estimate(_of(q)) if q else EMPTY for q in cells)]
        )
    return Table("Retrieval by depth of what is asked for (0 %: the beginning)", ["cache", "task", "length",
                 *(f"{100 * float(depth):.0f} %" for depth in columns)], rows, marks(of), left=2)  # fmt: skip
