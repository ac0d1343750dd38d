"""`mindnano bench kernels|depth`: the engine in this process."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from mindnano.cli.options import Cpus, Json, KVFormat, KVLayout, Model, Threads
from mindnano.units import parse_size


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


def serving(
    model: Model = None,
    /,
    *,
    url: Annotated[
        str | None,
        Parameter(
            help="A running server's address; left out, one of its own is started.", show_default=False
        ),
    ] = None,
    tokens: Annotated[str, Parameter(help="Tokens of the long prompt.")] = "16K",
    answers: Annotated[int, Parameter(help="Tokens of the answers whose speed is compared.")] = 64,
    rounds: Annotated[int, Parameter(help="How often each is measured.")] = 3,
    kv: Annotated[KVFormat, Parameter(help="Format of the KV cache.")] = "int8",
    threads: Annotated[
        int | None, Parameter(help="Threads; left out, one a core.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """What sharing a server costs: four answers against one, and a long prompt beside running answers."""
    from mindnano.bench.serving import run

    options = ["--kv", kv] + ([] if threads is None else ["--threads", str(threads)])
    run(model, url, parse_size(tokens), answers, rounds, options, json)
