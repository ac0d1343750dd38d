"""`mindnano convert`: a checkpoint to one packed file."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

from cyclopts import Parameter

from mindnano.cli.options import Json, Recipe


def convert(
    source: Annotated[str, Parameter(help="Checkpoint folder: config.json, safetensors, tokenizer.json.")],
    target: Annotated[
        str, Parameter(help="The packed file to write. It appears when it is whole, or not at all.")
    ],
    /,
    *,
    recipe: Annotated[
        Recipe, Parameter(help="mixed: experts 4 bits, the rest 8. native: as stored.")
    ] = "mixed",
    force: Annotated[
        bool, Parameter(negative="", help="Replace TARGET if it exists.", show_default=False)
    ] = False,
    json: Json = False,
) -> None:
    """Convert a checkpoint folder to one packed file, which opens at once and is used in place."""
    from mindnano.checkpoint import convert as run
    from mindnano.cli import output
    from mindnano.engine.timings import peak_rss_mib
    from mindnano.units import format_bytes

    begin = perf_counter()
    with output.byte_progress("converting") as progress:
        size = run(source, target, recipe, progress, force=force)
    seconds = perf_counter() - begin
    if json:
        output.print_json(
            {
                "command": "convert",
                "source": source,
                "target": target,
                "recipe": recipe,
                "bytes": size,
                "synthetic": False,
                "seconds": round(seconds, 3),
                "peak_rss_mib": round(peak_rss_mib(), 1),
            }
        )
    else:
        print(f"{target}: {format_bytes(size)}, recipe {recipe}, {seconds:.1f} s")
