"""`mindnano synth`: random weights of a real shape."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

from cyclopts import Parameter

from mindnano.cli.options import Json, Recipe


def synth(
    config: Annotated[str, Parameter(help="config.json of the model whose shape to take.")],
    target: Annotated[
        str, Parameter(help="The packed file to write. It appears when it is whole, or not at all.")
    ],
    /,
    *,
    recipe: Annotated[Recipe, Parameter(help="mixed: experts 4 bits, the rest 8.")] = "mixed",
    seed: Annotated[int, Parameter(help="Other seeds give other weights.")] = 0,
    force: Annotated[
        bool, Parameter(negative="", help="Replace TARGET if it exists.", show_default=False)
    ] = False,
    json: Json = False,
) -> None:
    """Make a packed file of random weights in a real model's shape, to measure speed and memory with."""
    from mindnano.checkpoint import synth as run
    from mindnano.cli import output
    from mindnano.engine.timings import peak_rss_mib
    from mindnano.units import format_bytes

    begin = perf_counter()
    with output.byte_progress("writing") as progress:
        size = run(config, target, recipe, seed, progress, force=force)
    seconds = perf_counter() - begin
    if json:
        output.print_json(
            {
                "command": "synth",
                "config": config,
                "target": target,
                "recipe": recipe,
                "seed": seed,
                "bytes": size,
                "synthetic": True,
                "seconds": round(seconds, 3),
                "peak_rss_mib": round(peak_rss_mib(), 1),
            }
        )
    else:
        print(f"{target}: {format_bytes(size)}, recipe {recipe}, {seconds:.1f} s; {output.SYNTHETIC}")
