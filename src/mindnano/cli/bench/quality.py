"""`mindnano bench quality`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

from cyclopts import Parameter

from mindnano.cli.bench.common import RUNS, Formats, Layouts, choices, note_results, show_tables, sizes
from mindnano.cli.options import Json, KVFormat, KVLayout, Model, Recipe
from mindnano.errors import MindNanoError


def quality(
    model: Model = None,
    /,
    *,
    kv: Formats = "bf16,int8,fp16",
    kv_layout: Layouts = "latent,expanded",
    recipes: Annotated[
        str,
        Parameter(metavar="LIST", help="Also these recipes, against native weights.", show_default=False),
    ] = "",
    native: Annotated[
        str | None,
        Parameter(
            metavar="FOLDER",
            help="Checkpoint folder of the yardstick, for a packed MODEL; left out, MODEL itself.",
            show_default=False,
        ),
    ] = None,
    lengths: Annotated[
        str, Parameter(metavar="LIST", help="Positions at which divergence is measured.")
    ] = "512,1K,2K,4K,8K,16K,32K",
    segments: Annotated[int, Parameter(help="Texts; four and more give intervals.")] = 8,
    positions: Annotated[int, Parameter(help="Positions judged before each length.")] = 32,
    retrieval_lengths: Annotated[
        str, Parameter(metavar="LIST", help="Lengths of retrieval prompts; empty: none.")
    ] = "1K,4K,8K,32K",
    retrieval_samples: Annotated[int, Parameter(help="Questions of each task, length and depth.")] = 4,
    greedy_prompts: Annotated[int, Parameter(help="Answers of which the first difference is looked for.")] = 8,
    greedy_tokens: Annotated[int, Parameter(help="Tokens of each.")] = 128,
    text: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="FILE", negative="", show_default=False,
            help="Text file to read; several times. Left out, text is written from the seed.",
        ),
    ] = (),
    threads: Annotated[int | None, Parameter(help="Threads; left out, one a core.", show_default=False)] = None,
    seed: Annotated[str, Parameter(help="Of text and questions.")] = "mindnano",
    output_dir: Annotated[
        str,
        Parameter(metavar="DIR", group=RUNS, help="Folder of the results; what is there already isn't measured again."),
    ] = "bench-results",
    json: Json = False,
) -> None:  # fmt: skip
    """What a smaller cache costs: divergence, retrieval and greedy answers of each layout and format, against bf16."""
    from mindnano import __version__
    from mindnano.bench.load import now
    from mindnano.bench.progress import Progress
    from mindnano.bench.quality import Plan, Variant, run, summarize
    from mindnano.bench.records import Results, Run
    from mindnano.bench.report import quality_tables
    from mindnano.cli import machine, output

    for name, value in (
        ("segments", segments),
        ("positions", positions),
        ("retrieval-samples", retrieval_samples),
    ):
        if value < 1:
            raise MindNanoError(f"--{name}: expected at least 1, got {value}")
    layouts = choices(kv_layout, "--kv-layout", get_args(KVLayout))
    wanted = choices(recipes, "--recipes", get_args(Recipe)) if recipes else []
    yardstick = Variant("latent", "bf16", "native" if wanted and native is None else None)
    kinds = choices(kv, "--kv", get_args(KVFormat))
    variants = [Variant(layout, kind, yardstick.recipe) for layout in layouts for kind in kinds]
    if native is None:  # the yardstick against itself says nothing
        variants = [one for one in variants if one != yardstick]
    variants += [Variant("latent", "bf16", recipe) for recipe in wanted if recipe != yardstick.recipe]
    plan = Plan(
        model, variants, yardstick, native, sizes(lengths, "--lengths") if lengths else [], segments, positions,
        sizes(retrieval_lengths, "--retrieval-lengths", 256) if retrieval_lengths else [], retrieval_samples,
        greedy_prompts, greedy_tokens, [Path(one) for one in text], threads, seed,
    )  # fmt: skip
    with Results(Path(output_dir)) as results, Progress() as progress:
        results.append(Run(at=now(), command="quality", version=__version__, machine=machine.read().as_dict(),
                           options={"seed": seed}))  # fmt: skip
        run(plan, results, progress, output.note)
    found = summarize(results.records)
    if json:
        output.print_json(
            {
                "command": "bench quality",
                "results": str(results.path),
                "quality": [vars(one) for one in found],
            }
        )
        return
    show_tables(lambda: quality_tables.quality(found))
    note_results(results.path)
