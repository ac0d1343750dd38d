"""`mindnano bench`: measurements."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from mindnano.cli.options import OPTIONS, Cpus, Json, KVFormat, KVLayout, Model, Threads
from mindnano.units import parse_size


def build(sort_key: int) -> App:
    app = App(
        name="bench",
        sort_key=sort_key,
        group_parameters=OPTIONS,
        help="Measure speed: of the kernels against this machine's limits, of the model by depth of the context.",
    )
    app.command(kernels, name="kernels")
    app.command(depth, name="depth")
    return app


def kernels(
    *,
    filter: Annotated[
        str | None, Parameter(help="Only operations whose name holds this text.", show_default=False)
    ] = None,
    quick: Annotated[bool, Parameter(help="A fifth of the time.", negative="")] = False,
    threads: Threads = None,
    cpus: Cpus = "auto",
    json: Json = False,
) -> int:
    """Every kernel against its NumPy twin, then its speed as a share of this machine's limit."""
    from mindnano.bench.kernels import run

    return run(json, filter, quick, threads, cpus)


def depth(
    model: Model = None,
    /,
    *,
    depths: Annotated[
        str, Parameter(help="Tokens that the context already holds, ascending.")
    ] = "0,4K,16K,32K",
    tokens: Annotated[int, Parameter(help="Tokens of prefill timed at each depth.")] = 2048,
    decode: Annotated[int, Parameter(help="Tokens of decode timed at each depth.")] = 24,
    kv: Annotated[KVFormat, Parameter(help="Format of the KV cache.")] = "int8",
    kv_layout: Annotated[KVLayout, Parameter(help="Layout of the KV cache.")] = "latent",
    threads: Threads = None,
    cpus: Cpus = "auto",
    json: Json = False,
) -> None:
    """Prefill and decode speed when the context already holds some tokens."""
    from mindnano.bench.depth import run

    run(
        model,
        kv,
        kv_layout,
        threads,
        cpus,
        tuple(parse_size(part) for part in depths.split(",")),
        tokens,
        decode,
        json,
    )
