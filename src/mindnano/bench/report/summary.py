"""What the figures mean, in plain sentences: what fits, what stays interactive, what to change."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mindnano.bench.compare import by_kind, compare
from mindnano.bench.quality.summary import Quality
from mindnano.bench.records import Judged, Point, Record, Run, points, unmeasured
from mindnano.bench.report import groups
from mindnano.bench.report.groups import Cell
from mindnano.bench.report.plots import INTERACTIVE_S
from mindnano.bench.report.table import mib, number, percent, tokens
from mindnano.bench.report.tables import room
from mindnano.bench.statistics import UNCLEAR

RESERVE_MIB = 512.0


def sentences(records: Sequence[Record], quality: Sequence[Quality]) -> list[str]:
    """The whole summary, most important first."""
    return [
        *fits(records),
        *interactive(records),
        *gain(records),
        *cost(quality),
        *change(records),
    ]


def warnings(records: Sequence[Record]) -> list[str]:
    """What must be known before any figure is read."""
    found = []
    known = [record for record in records if isinstance(record, Point | Judged)]
    if any(one.synthetic for one in known):
        found.append("The weights are synthetic (random, of a real model's shape): speed and memory are measured, "
                     "answers mean nothing, and divergence is numerical error, not quality.")  # fmt: skip
    if any(getattr(one, "emulated", None) for one in known):
        found.append("The NPU is emulated: its times are those of an emulation, not of a board.")
    runs = [point for point in points(records, "perf") if point.status == "ok"]
    if disturbed := [run for run in runs if run.disturbed]:
        found.append(f"{len(disturbed)} of {len(runs)} speed runs were disturbed ({', '.join(_reasons(disturbed))}); "
                     "tables use the undisturbed ones where there are any and say where not.")  # fmt: skip
    if missing := unmeasured(records):
        runs_of = f"{len(missing)} planned run{'' if len(missing) == 1 else 's'}"
        found.append(f"Not measured for lack of time: {runs_of}, listed with the reason under Left out.")
    if failed := [point for point in points(records) if point.status == "failed"]:
        found.append(f"{len(failed)} runs failed; the first: {failed[0].reason}.")
    return found


def _reasons(runs: Sequence[Point]) -> list[str]:
    words = {"of a core": "other processes", "swap": "swap", "throttled": "throttling", "cache": "cached tokens",
             "the prompt had": "prompts of another length"}  # fmt: skip
    text = " ".join(why for run in runs for why in run.disturbed)
    return [name for word, name in words.items() if word in text]


def fits(records: Sequence[Record]) -> list[str]:
    """The largest context with room, of each cache."""
    known = groups.capacity(records)
    found = []
    for kind in groups.kinds(known):
        of = [point for point in known if point.kind == kind]
        good = [p for p in of if p.status == "ok" and (left := room(p)) is not None and left >= RESERVE_MIB]
        if not good:
            if any(room(p) is not None for p in of):
                found.append(f"{kind}: no measured context leaves {RESERVE_MIB:.0f} MiB.")
            continue
        best = good[-1]
        larger = next((p for p in of if (p.context_tokens or 0) > (best.context_tokens or 0)), None)
        why = "the largest tried"
        if larger is not None:
            why = (f"{tokens(larger.context_tokens)} was not started" if larger.status == "not_started" else
                   f"{tokens(larger.context_tokens)} would leave {mib(room(larger))} MiB")  # fmt: skip
        fit = tokens(best.context_tokens)
        found.append(f"{kind}: {fit} of context fit and leave {mib(room(best))} MiB when full ({why}).")
    return found


def interactive(records: Sequence[Record]) -> list[str]:
    """The longest input whose first token comes within 10 and 60 seconds."""
    made = [cell for cell in groups.cells(records) if cell.key.concurrency == 1]
    found = []
    for kind in groups.kinds(made):
        curve = {cell.key.input_tokens: mean.value for cell in made if cell.key.kind == kind
                 and (mean := cell.mean("ttft_s")) is not None}  # fmt: skip
        if not curve:
            continue
        longest = max(curve)
        limits = [limit for limit in INTERACTIVE_S if max(curve.values()) > limit]
        if limits:
            parts = [f"within {limit:.0f} s {reach(curve, limit)}" for limit in limits]
            found.append(f"{kind}: the first token comes {', '.join(parts)}.")
        else:
            takes = f"takes {number(curve[longest])} s to the first token, under {INTERACTIVE_S[0]:.0f} s"
            found.append(f"{kind}: {tokens(longest)}, the longest input tried, {takes}.")
    return found


def reach(curve: dict[int, float], limit: float) -> str:
    """How long an input may be for a time: measured lengths, and between two of them along a power law."""
    inside = [n for n in sorted(curve) if curve[n] <= limit]
    beyond = [n for n in sorted(curve) if curve[n] > limit]
    if not inside:
        return f"for less than {tokens(beyond[0])} tokens (that takes {number(curve[beyond[0]])} s)"
    low = inside[-1]
    after = next((n for n in beyond if n > low), None)
    if after is None:
        return f"for {tokens(low)} tokens and more ({tokens(low)} takes {number(curve[low])} s, the longest tried)"
    power = math.log(curve[after] / curve[low]) / math.log(after / low)
    at = low * (limit / curve[low]) ** (1 / power) if power > 0 else low
    between = f"{tokens(low)} takes {number(curve[low])} s, {tokens(after)} {number(curve[after])} s"
    return f"up to about {number(at, 2)} tokens ({between})"


def gain(records: Sequence[Record]) -> list[str]:
    """What INT8 gains over BF16 at the longest length that both were measured at."""
    found = []
    for layout in ("latent", "expanded"):
        compared = compare(records, by_kind(f"{layout} bf16", f"{layout} int8"))
        parts = []
        for measure, name in (("ttft_s", "TTFT"), ("decode_tok_s", "decode")):
            of = [one for one in compared if one.measure == measure and one.concurrency == 1]
            if of:
                one = max(of, key=lambda compared: compared.input_tokens)
                said = "no difference shown" if one.verdict == UNCLEAR else f"INT8 is {one.verdict}"
                parts.append(f"{name} at {tokens(one.input_tokens)}: {said}, {percent(one.ratio)}")
        if parts:
            found.append(f"{layout}, INT8 against BF16, {'; '.join(parts)}.")
    return found


def cost(quality: Sequence[Quality]) -> list[str]:
    """The largest divergence of each cache."""
    of = [one for one in quality if one.measure == "kl_mean"]
    found = []
    for kind in dict.fromkeys(q.kind for q in of):
        worst = max((q for q in of if q.kind == kind), key=lambda q: q.value or 0.0)
        what = "numerical error only" if worst.synthetic else "mean KL divergence"
        found.append(
            f"{kind}: at most {number(worst.value, 2)} nats from {worst.against} ({what}, at {tokens(worst.length)})."
        )
    return found


def change(records: Sequence[Record]) -> list[str]:
    """What would help, as far as the figures say so."""
    found = []
    runs = [run for run in records if isinstance(run, Run) and run.machine]
    if runs:
        found += _machine(runs[-1].machine)
    made = [cell for cell in groups.cells(records) if cell.key.concurrency == 1 and cell.stages()]
    if made:
        found.append(_largest_stage(max(made, key=lambda cell: cell.key.input_tokens)))
    known = [
        p for p in groups.capacity(records) if p.status == "ok" and p.kv_capacity_mib and p.context_tokens
    ]
    if len({p.kind for p in known}) > 1:
        each = {p.kind: (p.kv_capacity_mib or 0) * 1024 / (p.context_tokens or 1) for p in known}
        small, large = min(each, key=lambda kind: each[kind]), max(each, key=lambda kind: each[kind])
        found.append(
            f"For more context use {small}: {number(each[small])} KiB a token, {large} takes {number(each[large])}."
        )
    return found


def _machine(machine: dict[str, object]) -> list[str]:
    found = []
    governors = machine.get("governors") or []
    if isinstance(governors, list | tuple) and any(
        governor not in ("performance", "schedutil") for governor in governors
    ):
        found.append(
            f"The clock is governed by {', '.join(map(str, governors))}; performance gives higher and steadier figures."
        )
    if isinstance(used := machine.get("swap_used"), int) and used > 256 << 20:
        found.append(f"{used >> 20} MiB were swapped out before the benchmark began; close other programs.")
    return found


def _largest_stage(cell: Cell) -> str:
    seconds = cell.stages()
    name = max(seconds, key=lambda stage: seconds[stage])
    share = 100 * seconds[name] / (sum(seconds.values()) or 1.0)
    advice = {
        "mla": "a smaller cache format, the latent layout or a shorter input help most",
        "moe": "a recipe with smaller experts (w4) or more cores help most; the cache format changes little",
        "projections": "smaller weights (mixed, w4) or more cores help most; the cache format changes little",
        "kda": "more cores help most; the cache format changes nothing there",
        "lm_head": "longer inputs would hide it; it is paid once a token",
    }.get(name)  # fmt: skip
    length, stage = tokens(cell.key.input_tokens), name.replace("_", " ")
    said = f"Of the time of {length}-token requests ({cell.key.kind}), {share:.0f} % is {stage}"
    return f"{said}: {advice}." if advice else f"{said}."
