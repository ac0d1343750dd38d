"""`mindnano bench kernels|depth`: the engine in this process."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from mindnano.cli.options import Json, KVFormat, KVLayout, Model
from mindnano.units import parse_size


def kernels(
    *,
    filter: Annotated[
        str | None, Parameter(help="Only operations whose name holds this text.", show_default=False)
    ] = None,
    quick: Annotated[bool, Parameter(help="A fifth of the time.", negative="")] = False,
    threads: Annotated[
        int | None, Parameter(help="Threads; left out, one a core.", show_default=False)
    ] = None,
    json: Json = False,
) -> int:
    """Every kernel against its NumPy twin, then its speed as a share of this machine's limit."""
    from mindnano.bench.kernels import run

    return run(json, filter, quick, threads)


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
    threads: Annotated[
        int | None, Parameter(help="Threads; left out, one a core.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Prefill and decode speed when the context already holds some tokens."""
    from mindnano.bench.depth import run

    run(
        model,
        kv,
        kv_layout,
        threads,
        tuple(parse_size(part) for part in depths.split(",")),
        tokens,
        decode,
        json,
    )
