"""`mindnano bench compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from mindnano.cli.bench.common import Prompts, RunOptions, StartOptions, note_results, show_tables, sizes
from mindnano.cli.options import Json
from mindnano.errors import MindNanoError

if TYPE_CHECKING:
    from mindnano.bench.compare import Compared
    from mindnano.bench.records import Record
    from mindnano.bench.report.table import Table


def compare(
    a: Annotated[
        str,
        Parameter(help="Results (a folder or .jsonl file), or a setting such as kv=bf16,kv-layout=latent."),
    ],
    b: Annotated[
        str | None,
        Parameter(help="The same; left out, the pairs or caches inside A are compared.", show_default=False),
    ] = None,
    /,
    *,
    model: Annotated[
        str | None,
        Parameter(help="Model of settings that name none; left out, the built-in one.", show_default=False),
    ] = None,
    inputs: Annotated[
        str, Parameter(metavar="LIST", help="Tokens of input, the chat template included.")
    ] = "1K,4K",
    outputs: Annotated[str, Parameter(metavar="LIST", help="Tokens of output.")] = "64",
    concurrency: Annotated[str, Parameter(metavar="LIST", help="Clients at once.")] = "1",
    prompts: Annotated[
        Prompts, Parameter(help="text: prose, code and figures; digits: as the reference.")
    ] = "text",
    pairs: Annotated[int, Parameter(help="Pairs of runs; fewer than four can't show a difference.")] = 6,
    ctx: Annotated[str | None, Parameter(help="One context for all inputs.", show_default=False)] = None,
    a_kind: Annotated[
        str | None,
        Parameter(
            metavar="CACHE", help="Of results A only this cache, such as 'latent bf16'.", show_default=False
        ),
    ] = None,
    b_kind: Annotated[
        str | None,
        Parameter(metavar="CACHE", help="Of results B, or of A where B is left out.", show_default=False),
    ] = None,
    against: Annotated[
        Literal["reference"] | None,
        Parameter(help="Hold results A against the reference's tables.", show_default=False),
    ] = None,
    json: Json = False,
    server: StartOptions = StartOptions(),  # noqa: B008
    runs: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Is B faster than A? Two settings in interleaved pairs, or two results, each ratio with an interval and a verdict.

    A setting is NAME=VALUE,... with kv, kv-layout, model, binary, preset, command, url, pid, threads, device.
    """
    if _is_results(a):
        if against is not None:
            _against_reference(a, json)
        else:
            _compare_results(a, b, a_kind, b_kind, json)
        return
    if b is None or against is not None or _is_results(b):
        raise MindNanoError(f"{a!r} is no results file or folder, so B is expected as a second setting")
    _measure(a, b, model, inputs, outputs, concurrency, prompts, pairs, ctx, json, server, runs)


def _is_results(text: str) -> bool:
    return Path(text).exists() or text.endswith(".jsonl")


def _compare_results(a: str, b: str | None, a_kind: str | None, b_kind: str | None, json: bool) -> None:
    from mindnano.bench import compare as bench
    from mindnano.bench.records import points, read_folder

    first = read_folder(Path(a))
    if b is not None and Path(a).resolve() != Path(b).resolve():
        second = read_folder(Path(b))
        _show(bench.files(first, second, (a_kind, b_kind)), json, f"B is {b}, A is {a}", [*first, *second])
        return
    if a_kind is not None and b_kind is not None:
        found, title = bench.compare(first, bench.by_kind(a_kind, b_kind)), f"A is {a_kind}, B is {b_kind}"
    else:
        found, title = bench.compare(first, bench.by_side()), "B against A, as they were measured in pairs"
    if not found:
        held = ", ".join(sorted({point.kind for point in points(first, "perf")})) or "no speed runs"
        raise MindNanoError(
            f"{a}: nothing to compare in it; it holds {held}. Give B, or --a-kind and --b-kind for two of these"
        )
    _show(found, json, title, first)


def _against_reference(a: str, json: bool) -> None:
    from mindnano.bench import reference
    from mindnano.bench.records import read_folder
    from mindnano.bench.report import comparison_tables
    from mindnano.cli import output

    records = read_folder(Path(a))
    rows = reference.growth(records)
    if not rows:
        raise MindNanoError(
            f"{a}: expected runs at two lengths of input at least, to hold their ratio against the reference's"
        )
    if json:
        output.print_json(
            {"command": "bench compare", "against": "reference", "rows": [row.as_dict() for row in rows]}
        )
    else:
        show_tables(lambda: comparison_tables.against_reference(records))


def _measure(
    a: str, b: str, model: str | None, inputs: str, outputs: str, concurrency: str, prompts: str, pairs: int,
    ctx: str | None, json: bool, server: StartOptions, runs: RunOptions,
) -> None:  # fmt: skip
    from mindnano.bench import compare as bench
    from mindnano.bench.progress import Estimate, duration
    from mindnano.bench.servers import Setting
    from mindnano.cli.bench.measure import parse_loads

    if pairs < 1:
        raise MindNanoError(f"--pairs: expected at least 1, got {pairs}")
    base = Setting(model=model, kv="bf16", kv_layout="latent", threads=server.threads, device=server.device,
                   api_key=server.api_key)  # fmt: skip
    sides = bench.parse_setting(a, base), bench.parse_setting(b, base)
    loads = parse_loads(inputs, outputs, concurrency, prompts)
    context = sizes(ctx, "--ctx", 256)[0] if ctx is not None else None
    if runs.dry_run:
        seconds = 2 * pairs * sum(Estimate().seconds("", load) for load in loads)
        print(
            f"A: {sides[0].label}\nB: {sides[1].label}\n{pairs} pairs of {len(loads)} loads, about {duration(seconds)}"
        )
        return
    with runs.campaign("compare", server, a=sides[0].label, b=sides[1].label, pairs=pairs) as campaign:
        bench.run(campaign, *sides, loads, pairs, context)
    records = campaign.results.records
    _show(
        bench.compare(records, bench.by_side(bench.name_of(*sides))),
        json,
        f"A is {sides[0].label}, B is {sides[1].label}",
        records,
    )
    if not json:
        note_results(campaign.results.path)


def _show(found: list[Compared], json: bool, title: str, records: list[Record]) -> None:
    from mindnano.bench.records import points
    from mindnano.bench.report import comparison_tables
    from mindnano.cli import output

    if json:
        output.print_json({"command": "bench compare", "compared": [one.as_dict() for one in found]})
        return

    def made() -> list[Table]:
        return [comparison_tables.compared(found, title, list(points(records, "perf")))]

    show_tables(made)
