"""The tables of a report."""

from __future__ import annotations

from collections.abc import Sequence

from mindnano.bench.compare import by_kind, compare
from mindnano.bench.records import Point, Record, unmeasured
from mindnano.bench.report import groups
from mindnano.bench.report.groups import Cell
from mindnano.bench.report.table import EMPTY, Table, estimate, marks, mib, number, percent, tokens
from mindnano.bench.statistics import Estimate

MEASURES = {"ttft_s": "TTFT", "decode_tok_s": "decode"}


def layouts(kinds: Sequence[str]) -> dict[str, list[str]]:
    """Caches by layout, as the reference's tables hold the formats of one layout side by side."""
    found: dict[str, list[str]] = {}
    for kind in kinds:
        found.setdefault(kind.partition(" ")[0], []).append(kind)
    return found


def capacity(records: Sequence[Record]) -> list[Table]:
    """For each layout the reference's table; then what filling half of each context showed."""
    known = groups.capacity(records)
    made = []
    for layout, kinds in layouts(groups.kinds(known)).items():
        columns = ["context"]
        for kind in kinds:
            fmt = kind.partition(" ")[2] or kind
            columns += [f"{fmt} KV", f"{fmt} RSS", f"{fmt} available"]
        rows, notes = [], []
        for context in sorted({point.context_tokens or 0 for point in known if point.kind in kinds}):
            row = [tokens(context)]
            for kind in kinds:
                point = next((p for p in known if p.kind == kind and p.context_tokens == context), None)
                if point is not None and point.status == "not_started":
                    row += [EMPTY, "not started", EMPTY]
                    notes.append(f"{kind}, {tokens(context)} not started: {point.reason}.")
                else:
                    row += [mib(getattr(point, name, None)) for name in
                            ("kv_capacity_mib", "rss_mib", "mem_available_mib")]  # fmt: skip
            rows.append(row)
        of = [point for point in known if point.kind in kinds and point.status == "ok"]
        made.append(Table(f"Capacity, {layout}, MiB", columns, rows, marks(of), notes))
    filled = [point for point in known if point.status == "ok"]
    if filled:
        made.append(_filled(filled))
    return made


def _filled(known: Sequence[Point]) -> Table:
    rows = [
        [point.kind, tokens(point.context_tokens), mib(point.rss_mib), tokens(point.filled_tokens),
         mib(point.peak_rss_mib), mib(point.vm_swap_mib), mib(point.predicted_filled_rss_mib),
         point.predicted_from or EMPTY, mib(room(point))]
        for point in known
    ]  # fmt: skip
    return Table(
        "Memory while half of the context is filled, and predicted for all of it, MiB",
        ["cache", "context", "RSS", "tokens read", "peak RSS", "in swap", "predicted full", "from", "left when full"],
        rows, marks(known),
        ["RSS of a warm server. Predicted: the server's own plan, or the smallest context's RSS plus the cache's "
         "growth; left when full: available when ready, less mapped file pages and what is still to be touched."],
    )  # fmt: skip


def room(point: Point) -> float | None:
    """MiB that would be left with a full context.

    Pages of the weights' file that the server has mapped count as available, as the system could drop them; the server
    would read them again and again, so they are taken off.
    """
    if point.mem_available_mib is None or point.rss_mib is None or point.predicted_filled_rss_mib is None:
        return None
    growth = max(0.0, point.predicted_filled_rss_mib - point.rss_mib)
    return point.mem_available_mib - (point.rss_file_mib or 0.0) - growth


def missing(records: Sequence[Record]) -> Table | None:
    """What a time budget left out, and why."""
    rounds: dict[tuple[str, ...], list[Point]] = {}
    for point in unmeasured(records):
        what = {"capacity": "capacity", "quality": "quality"}.get(point.phase, "speed")
        if point.filled_tokens:
            what = "capacity, half filled"
        if point.comparison is not None:
            what = f"pairs: {point.comparison}"
        load = EMPTY
        if point.input_tokens:
            load = f"{point.input_tokens}/{point.output_tokens}"
            load += f", {point.concurrency} clients" if (point.concurrency or 1) > 1 else ""
        context = tokens(point.context_tokens) if point.phase != "quality" else EMPTY
        cache = EMPTY if point.comparison or point.phase == "quality" else point.kind
        rounds.setdefault((what, cache, context, load), []).append(point)
    if not rounds:
        return None
    rows = [[*key, str(len(of)), of[0].reason or EMPTY] for key, of in rounds.items()]
    return Table("Not measured", ["what", "cache", "context", "input/output", "runs", "why"], rows, left=2,
                 notes=["The same command with the same results folder goes on with these."])  # fmt: skip


def speed(records: Sequence[Record]) -> list[Table]:
    """For each layout and figure: means by length and format, and what INT8 gains over BF16."""
    made = [cell for cell in groups.cells(records) if cell.key.concurrency == 1]
    return [
        _speed(records, measure, layout, [cell for cell in made if cell.key.kind in kinds], kinds)
        for measure in MEASURES
        for layout, kinds in layouts(groups.kinds(made)).items()
    ]


def _speed(
    records: Sequence[Record], measure: str, layout: str, here: Sequence[Cell], kinds: Sequence[str]
) -> Table:
    bf16, int8 = f"{layout} bf16", f"{layout} int8"
    gains = {
        (one.input_tokens, one.output_tokens, one.prompts): one
        for one in (compare(records, by_kind(bf16, int8)) if bf16 in kinds and int8 in kinds else [])
        if one.measure == measure and one.concurrency == 1
    }
    rows = []
    for load in sorted({(c.key.input_tokens, c.key.output_tokens, c.key.prompts) for c in here}):
        row = [f"{load[0]}/{load[1]}" + (f" {load[2]}" if load[2] not in ("", "text") else "")]
        row += [estimate(_cell_mean(here, kind, load, measure)) for kind in kinds]
        if gains:
            one = gains.get(load)
            row += [EMPTY, EMPTY] if one is None else [percent(one.ratio), one.verdict]
        rows.append(row)
    columns = ["input/output", *(kind.partition(" ")[2] or kind for kind in kinds)]
    what = "Time to the first token, s" if measure == "ttft_s" else "Decode, tokens/s"
    return Table(
        f"{what}, {layout}", [*columns, "INT8 against BF16", "verdict"] if gains else columns, rows,
        marks(run for cell in here for run in cell.runs), _speed_notes(here),
    )  # fmt: skip


def _cell_mean(cells: Sequence[Cell], kind: str, load: tuple[int, int, str], measure: str) -> Estimate | None:
    for cell in cells:
        if (
            cell.key.kind == kind
            and (cell.key.input_tokens, cell.key.output_tokens, cell.key.prompts) == load
        ):
            return cell.mean(measure)
    return None


def _speed_notes(cells: Sequence[Cell]) -> list[str]:
    runs = sorted({len(cell.runs) for cell in cells})
    many = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}" if runs else "0"
    notes = [
        f"Geometric means of {many} run{'' if many == '1' else 's'}, with 95 % intervals from four runs on; "
        "over HTTP; one warm-up request a server isn't counted."
    ]
    if used := sum(cell.disturbed for cell in cells):
        notes.append(
            f"Disturbed: {used} of these runs were, and there were no undisturbed ones to use instead."
        )
    if dropped := sum(cell.dropped for cell in cells):
        notes.append(f"{dropped} disturbed runs are left out.")
    return notes


def requests(records: Sequence[Record]) -> Table | None:
    """Each load in detail: tokens, how it ended, the time between tokens."""
    made = groups.cells(records)
    if not made:
        return None
    rows = [
        [cell.key.kind, f"{cell.key.input_tokens}/{cell.key.output_tokens}", str(cell.key.concurrency),
         str(len(cell.runs)), str(cell.first("prompt_tokens")), str(cell.first("completion_tokens")),
         str(cell.first("cached_tokens")), str(cell.first("finish_reason")),
         *(number(1000 * found.value) if (found := cell.mean(f"inter_token_{p}_s")) else EMPTY
           for p in ("p50", "p95", "p99"))]
        for cell in made
    ]  # fmt: skip
    return Table(
        "Requests: tokens, and milliseconds between them",
        ["cache", "input/output", "clients", "runs", "prompt", "answer", "cached", "finish", "p50", "p95", "p99"],
        rows, marks(run for cell in made for run in cell.runs),
        ["Between pieces of text as they came over HTTP; a piece is a token unless a character needs several."],
    )  # fmt: skip


def levels(records: Sequence[Record]) -> Table | None:
    """The same requests as the client, the engine and its stages saw them: what HTTP and the engine add."""
    made = [
        cell for cell in groups.cells(records) if cell.key.concurrency == 1 and cell.mean("engine_ttft_s")
    ]
    rows = []
    for cell in made:
        http, engine, stages = cell.mean("ttft_s"), cell.mean("engine_ttft_s"), sum(cell.stages().values())
        decode, inside = cell.mean("decode_tok_s"), cell.mean("engine_decode_tok_s")
        # Stages are of the whole request: prefill and decode.
        requests = [run.engine_ttft_s + ((run.completion_tokens or 1) - 1) / run.engine_decode_tok_s
                    for run in cell.runs if run.engine_ttft_s and run.engine_decode_tok_s and run.stage_s]  # fmt: skip
        whole = sum(requests) / len(requests) if requests else None
        rows.append([
            cell.key.kind, f"{cell.key.input_tokens}/{cell.key.output_tokens}", number(http.value if http else None, 4),
            number(engine.value if engine else None, 4), number(decode.value if decode else None, 4),
            number(inside.value if inside else None, 4), number(whole, 4), number(stages or None, 4),
        ])  # fmt: skip
    if not rows:
        return None
    return Table(
        "HTTP, engine and stages: the same requests at three levels",
        ["cache", "input/output", "TTFT HTTP, s", "TTFT engine, s", "decode HTTP, tok/s", "decode engine, tok/s",
         "request engine, s", "request in stages, s"],
        rows, marks(run for cell in made for run in cell.runs),
        ["Stages are what the engine spends around its kernels; the rest of the request is scheduling and sampling."],
    )  # fmt: skip


def stages(records: Sequence[Record]) -> list[Table]:
    """Where a request's time goes, and inside MLA by phase and device."""
    made = [cell for cell in groups.cells(records) if cell.stages() and cell.key.concurrency == 1]
    if not made:
        return []
    names = [name for name in made[0].stages() if any(cell.stages().get(name) for cell in made)]
    said = marks(run for cell in made for run in cell.runs)
    first = [[cell.key.kind, f"{cell.key.input_tokens}/{cell.key.output_tokens}",
              *(number(cell.stages().get(name)) for name in names)] for cell in made]  # fmt: skip
    second = []
    for cell in made:
        phases, calls = cell.stages("mla_s"), cell.first("mla_calls")
        served = (
            [f"{device} {count}" for device, count in calls.items() if count]
            if isinstance(calls, dict)
            else []
        )
        second.append([
            cell.key.kind, f"{cell.key.input_tokens}/{cell.key.output_tokens}",
            *(number(phases.get(name)) for name in ("pack", "sync", "matmul", "softmax")),
            ", ".join(served) or EMPTY, str(cell.first("fallbacks")),
        ])  # fmt: skip
    return [
        Table("Seconds by stage, prefill and decode together", ["cache", "input/output", *names], first, said),
        Table("Seconds inside MLA by phase, and attention calls by device",
              ["cache", "input/output", "pack", "sync", "matmul", "softmax", "calls", "fallbacks"], second, said),
    ]  # fmt: skip


def together(records: Sequence[Record]) -> Table | None:
    """Several clients at once."""
    made = groups.cells(records)
    many = {(c.key.kind, c.key.input_tokens, c.key.output_tokens) for c in made if c.key.concurrency > 1}
    here = [c for c in made if (c.key.kind, c.key.input_tokens, c.key.output_tokens) in many]
    if not here:
        return None
    rows = [
        [cell.key.kind, f"{cell.key.input_tokens}/{cell.key.output_tokens}", str(cell.key.concurrency),
         *(estimate(cell.mean(name)) for name in ("ttft_s", "decode_tok_s", "throughput_tok_s"))]
        for cell in here
    ]  # fmt: skip
    return Table(
        "Clients at once",
        ["cache", "input/output", "clients", "TTFT, s", "decode each, tok/s", "answer tokens/s of all"],
        rows, marks(run for cell in here for run in cell.runs),
        ["TTFT and decode are medians over the clients of a run; the last column is all answer tokens over its time."],
    )  # fmt: skip
