"""`mindnano plan`: does it fit, before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, Token

from mindnano.cli.options import (
    CACHE,
    OPTIONS,
    RESERVE,
    AttentionDevice,
    CacheBudget,
    Json,
    KVFormat,
    KVLayout,
    MemoryReserve,
    Recipe,
    Threads,
    size_in_bytes,
)
from mindnano.errors import MindNanoError
from mindnano.units import format_bytes, parse_bytes, parse_size

if TYPE_CHECKING:
    from rich.table import Table

    from mindnano.checkpoint import ModelSummary
    from mindnano.engine.memory import Baseline, MemoryReport

MIB = 1 << 20


def ram(type_: Any, tokens: list[Token] | tuple[Token, ...]) -> int | None:
    return None if tokens[0].value == "auto" else size_in_bytes(type_, tokens)


def contexts(type_: Any, tokens: list[Token] | tuple[Token, ...]) -> tuple[int, ...]:
    found = tuple(parse_size(part) for part in tokens[0].value.split(","))
    if min(found) < 1:
        raise MindNanoError(f"--ctx: expected numbers of tokens from 1, got {tokens[0].value!r}")
    return found


def plan(
    model: Annotated[
        str | None,
        Parameter(
            show_default=False,
            help="Packed file, checkpoint folder, or a config.json alone; left out, the built-in model.",
        ),
    ] = None,
    /,
    *,
    ram: Annotated[
        int | None,
        Parameter(
            converter=ram,
            metavar="SIZE|auto",
            show_default="auto",
            help="Memory that can be had, such as 14GiB; auto: what this machine has now.",
        ),
    ] = None,
    ctx: Annotated[
        tuple[int, ...],
        Parameter(
            converter=contexts,
            n_tokens=1,
            negative="",
            metavar="N,...",
            show_default="8K to 256K",
            help="Contexts, such as 8K,48K.",
        ),
    ] = (),
    kv: Annotated[
        KVFormat | None, Parameter(help="Only this format; left out: all.", show_default=False)
    ] = None,
    kv_layout: Annotated[
        KVLayout | None, Parameter(help="Only this layout; left out: all.", show_default=False)
    ] = None,
    slots: Annotated[int, Parameter(help="Sequences at once, each with a whole context.")] = 1,
    recipe: Annotated[
        Recipe | None,
        Parameter(
            help="Of a config.json (left out: mixed), or to quantize a folder with.", show_default=False
        ),
    ] = None,
    threads: Threads = None,
    memory_reserve: Annotated[MemoryReserve, Parameter(group=OPTIONS)] = RESERVE,
    cache_budget: Annotated[CacheBudget, Parameter(group=OPTIONS)] = CACHE,
    baseline: Annotated[
        str | None,
        Parameter(
            metavar="CTX=SIZE",
            show_default=False,
            help="RSS that was measured with a context and holds its cache, such as 8K=5750MiB: predict from it. "
            "Needs --kv and --kv-layout.",
        ),
    ] = None,
    device: AttentionDevice = "auto",
    json: Json = False,
) -> None:
    """Show what memory a model needs, by arithmetic, and whether it fits here. Reads no weights."""
    from mindnano.checkpoint import summarize
    from mindnano.cli import output
    from mindnano.device.choice import Devices
    from mindnano.engine import cores
    from mindnano.engine.llm import DEFAULT_BLOCK
    from mindnano.engine.memory import Available, Setup, available, report
    from mindnano.engine.memory.report import CONTEXTS, FORMATS

    if slots < 1 or (threads is not None and threads < 1):
        raise MindNanoError("--slots and --threads: expected at least 1")
    if baseline is not None and (kv is None or kv_layout is None):
        raise MindNanoError("--baseline: belongs to one layout and format; add --kv-layout and --kv")
    summary, count = summarize(model, recipe), cores.count(threads)
    setup = Setup.of(
        summary, layout="latent", fmt="bf16", slots=slots, block=DEFAULT_BLOCK,
        threads=count, cache_budget=cache_budget,
        device=Devices.planned_bytes(device, summary.config, kv or "bf16", summary.recipe, count),
    )  # fmt: skip
    found = report(
        setup,
        available() if ram is None else Available(ram, "given"),
        memory_reserve,
        contexts=ctx or CONTEXTS,
        layouts=("latent", "expanded") if kv_layout is None else (kv_layout,),
        formats=FORMATS if kv is None else (kv,),
        baseline=None if baseline is None else _baseline(baseline),
    )
    if json:
        head = {"command": "plan", "model": summary.name, "synthetic": summary.synthetic}
        output.print_json(head | found.as_dict())
    else:
        _print(summary, found)


def _baseline(text: str) -> Baseline:
    from mindnano.engine.memory import Baseline

    context, equals, rss = text.partition("=")
    if not equals:
        raise MindNanoError(f"--baseline: expected CTX=SIZE such as 8K=5750MiB, got {text!r}")
    return Baseline(parse_size(context), parse_bytes(rss))


def _print(summary: ModelSummary, found: MemoryReport) -> None:
    from mindnano.cli import output

    screen = output.console()
    source = {"MemAvailable": "available now", "cgroup": "left by the control group", "given": "given"}
    screen.print(
        f"{summary.name}, {found.recipe}: {format_bytes(summary.nbytes)} of weights, {found.slots} slot(s), "
        f"trained for {found.trained_context} tokens. Memory: {format_bytes(found.available.nbytes)} "
        f"{source[found.available.source]}, {format_bytes(found.reserve)} of it kept in reserve.",
        markup=False,
    )
    screen.print(_kinds(found))
    first = found.rows[0].plan
    screen.print(
        f"In every row: weights {first.weights / MIB:,.0f} + states {first.states / MIB:,.0f} + kept prefixes "
        f"{first.checkpoints / MIB:,.0f} (--cache-budget) + runtime {first.runtime / MIB:,.0f} MiB"
        + (f" + NPU {first.device / MIB:,.0f} MiB" if first.device else ""),
    )
    screen.print(_rows(found))
    notes = ["MiB."]
    if found.baseline is not None:
        notes.append("sum: the measured RSS, and what the KV cache grows by.")
    if _hides_fp16(found):
        notes.append("fp16 takes what bf16 takes.")
    screen.print(" ".join(notes), style="dim")


def _hides_fp16(found: MemoryReport) -> bool:
    return {"fp16", "bf16"} <= {row.fmt for row in found.rows}


def _table(*names: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="left" if name in ("cache", "") else "right", no_wrap=True)
    return table


def _kinds(found: MemoryReport) -> Table:
    """What a layout and format needs as fixed + per token, and how far it goes."""
    table = _table("cache", "fixed, MiB", "a token, KiB", "largest context that fits")
    plans = {(row.layout, row.fmt): row.plan for row in found.rows}
    for (layout, fmt), plan in plans.items():
        if fmt != "fp16" or not _hides_fp16(found):
            best = str(found.largest[layout, fmt] or "none")
            table.add_row(f"{layout} {fmt}", f"{plan.fixed / MIB:,.0f}", f"{plan.per_token / 1024:.2f}", best)
    return table


def _rows(found: MemoryReport) -> Table:
    table = _table("context", "cache", "KV", "scratch", "sum", "left", "")
    for row in found.rows:
        if row.fmt == "fp16" and _hides_fp16(found):
            continue
        sizes = (row.plan.kv, row.plan.scratch, row.predicted, row.left)
        numbers = (f"{size / MIB:,.0f}" for size in sizes)
        table.add_row(str(row.plan.context), f"{row.layout} {row.fmt}", *numbers, row.verdict)
    return table
