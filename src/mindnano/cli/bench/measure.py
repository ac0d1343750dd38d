"""`mindnano bench capacity|perf`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mindnano.cli.bench.common import (
    Formats,
    Layouts,
    Prompts,
    RunOptions,
    ServerOptions,
    note_results,
    show_tables,
    sizes,
)
from mindnano.cli.options import Json, Model
from mindnano.errors import MindNanoError
from mindnano.units import parse_size

if TYPE_CHECKING:
    from mindnano.bench.campaign import Campaign
    from mindnano.bench.load import Load

CONTEXTS = "8K,16K,32K,64K,128K,256K"
INPUTS = "128,256,512,1K,2K,4K,8K,16K,32K,64K"


def capacity(
    model: Model = None,
    /,
    *,
    contexts: Annotated[str, Parameter(metavar="LIST", help="Tokens of context.")] = CONTEXTS,
    kv: Formats = "bf16,int8",
    kv_layout: Layouts = "latent,expanded",
    fill_up_to: Annotated[
        str | None,
        Parameter(
            metavar="N",
            help="Largest context of which half is filled with a prompt, which takes long; 0: none; left out, all.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    server: ServerOptions = ServerOptions(),  # noqa: B008
    runs: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """How much context fits: a fresh server for each, its memory when ready and while half of it is filled."""
    from mindnano.bench import capacity as bench
    from mindnano.bench.progress import Estimate, total

    wanted = [
        replace(one, context=context)
        for one in server.settings(model, kv, kv_layout)
        for context in ([one.context] if one.url else sizes(contexts, "--contexts", 256))
    ]
    most = parse_size(fill_up_to) if fill_up_to is not None else None
    if runs.dry_run:
        loads = [(one.label, bench.fill_load(one)) for one in wanted if most is None or one.context <= most]
        _show_plan([one.label for one in wanted], total(Estimate(), loads, len(wanted)))
        return
    with runs.campaign("capacity", server, model=_name(model)) as campaign:
        bench.run(campaign, wanted, most)
    _show(campaign, json, "capacity")


def perf(
    model: Model = None,
    /,
    *,
    inputs: Annotated[
        str, Parameter(metavar="LIST", help="Tokens of input, the chat template included.")
    ] = INPUTS,
    outputs: Annotated[str, Parameter(metavar="LIST", help="Tokens of output.")] = "64",
    kv: Formats = "bf16,int8",
    kv_layout: Layouts = "latent",
    concurrency: Annotated[str, Parameter(metavar="LIST", help="Clients at once.")] = "1",
    prompts: Annotated[
        Prompts, Parameter(help="text: prose, code and figures; digits: as the reference.")
    ] = "text",
    rounds: Annotated[int, Parameter(help="Runs of each; four and more give intervals.")] = 5,
    ctx: Annotated[
        str | None,
        Parameter(
            help="One context for all; left out, 8K up to 4K of input, then twice the input.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    server: ServerOptions = ServerOptions(),  # noqa: B008
    runs: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """How long inputs take: seconds to the first token and decode speed, by length, format and clients."""
    from mindnano.bench import perf as bench
    from mindnano.bench.progress import Estimate

    loads = parse_loads(inputs, outputs, concurrency, prompts)
    context = sizes(ctx, "--ctx", 256)[0] if ctx is not None else None
    if rounds < 1:
        raise MindNanoError(f"--rounds: expected at least 1, got {rounds}")
    plan = bench.visits(server.settings(model, kv, kv_layout), loads, rounds, context)
    if runs.dry_run:
        lines = [f"round {v.round + 1}: {v.setting.label}: " + ", ".join(
                 f"{one.input_tokens}/{one.output_tokens}" for one in v.loads) for v in plan]  # fmt: skip
        _show_plan(lines, bench.seconds(plan, Estimate()))
        return
    with runs.campaign("perf", server, model=_name(model), rounds=rounds) as campaign:
        bench.run(campaign, plan)
    _show(campaign, json, "perf")


def parse_loads(inputs: str, outputs: str, concurrency: str, prompts: str) -> list[Load]:
    from mindnano.bench.load import Load

    return [
        Load(tokens, answer, clients, prompts)
        for clients in sizes(concurrency, "--concurrency")
        for answer in sizes(outputs, "--outputs")
        for tokens in sizes(inputs, "--inputs")
    ]


def _name(model: str | None) -> str:
    """Without its folder: results are passed on."""
    from pathlib import Path

    return Path(model).name if model else "built-in"


def _show_plan(lines: list[str], seconds: float) -> None:
    from mindnano.bench.progress import DECODE_TOK_S, PREFILL_TOK_S, duration

    print("\n".join(lines))
    print(f"about {duration(seconds)}, at {PREFILL_TOK_S:.0f} tokens of prefill (falling with the length) and "
          f"{DECODE_TOK_S:.0f} of decode a second")  # fmt: skip


def _show(campaign: Campaign, json: bool, phase: str) -> None:
    """Tables of the whole results folder, or one JSON object with this phase's last points."""
    from mindnano.bench.records import as_dict, points
    from mindnano.bench.report import tables
    from mindnano.cli import output

    records = campaign.results.records
    if json:
        output.print_json({
            "command": f"bench {phase}", "results": str(campaign.results.path),
            "points": [as_dict(point) for point in points(records, phase)],
        })  # fmt: skip
        return
    show_tables(lambda: tables.capacity(records) if phase == "capacity" else [
        *tables.speed(records), tables.together(records)])  # fmt: skip
    note_results(campaign.results.path)
