"""`mindnano bench kernels|depth`: the engine in this process."""

from __future__ import annotations

from typing import Annotated, get_args

from cyclopts import Parameter

from mindnano.cli.bench.common import choices, sizes
from mindnano.cli.options import (
    CACHE,
    RESERVE,
    AllowTight,
    AttentionDevice,
    CacheBudget,
    Cpus,
    Force,
    Json,
    KVFormat,
    KVLayout,
    MemoryReserve,
    Model,
    Threads,
)
from mindnano.units import parse_size

Markdown = Annotated[bool, Parameter(negative="", help="Print the table in Markdown.", show_default=False)]


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
    device: AttentionDevice = "auto",
    memory_reserve: MemoryReserve = RESERVE,
    allow_tight: AllowTight = False,
    force: Force = False,
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
        device=device,
        memory_reserve=memory_reserve,
        allow_tight=allow_tight,
        force=force,
    )


def memory(
    model: Model = None,
    /,
    *,
    contexts: Annotated[str, Parameter(help="Tokens of context; half of them are filled.")] = "8K,16K",
    kv: Annotated[str, Parameter(help="Formats of the KV cache.")] = "bf16,int8",
    kv_layout: Annotated[str, Parameter(help="Layouts of the KV cache.")] = "latent,expanded",
    threads: Threads = None,
    device: AttentionDevice = "auto",
    memory_reserve: MemoryReserve = RESERVE,
    cache_budget: CacheBudget = CACHE,
    allow_tight: AllowTight = False,
    force: Force = False,
    markdown: Markdown = False,
    json: Json = False,
) -> int:
    """Planned against measured memory: a fresh process for each context, layout and format. 1 beyond 3 %."""
    from mindnano.bench.memory import run

    formats = choices(kv, "--kv", get_args(KVFormat))
    layouts = choices(kv_layout, "--kv-layout", get_args(KVLayout))
    return run(
        model,
        [(layout, fmt) for layout in layouts for fmt in formats],
        sizes(contexts, "--contexts", least=2),
        json,
        markdown,
        threads=threads,
        device=device,
        memory_reserve=memory_reserve,
        cache_budget=cache_budget,
        allow_tight=allow_tight,
        force=force,
    )


def reuse(
    model: Model = None,
    /,
    *,
    lengths: Annotated[str, Parameter(help="Tokens of the conversations, one after the other.")] = "4K,16K",
    answer: Annotated[int, Parameter(help="Tokens of the answer before the follow-up question.")] = 32,
    kv: Annotated[KVFormat, Parameter(help="Format of the KV cache.")] = "int8",
    kv_layout: Annotated[KVLayout, Parameter(help="Layout of the KV cache.")] = "latent",
    threads: Threads = None,
    cpus: Cpus = "auto",
    device: AttentionDevice = "auto",
    memory_reserve: MemoryReserve = RESERVE,
    cache_budget: CacheBudget = CACHE,
    allow_tight: AllowTight = False,
    force: Force = False,
    markdown: Markdown = False,
    json: Json = False,
) -> int:
    """A follow-up question against the cold prompt; a session saved, loaded by another process, gone on with.
    1 where a target is missed."""
    from mindnano.bench.reuse import run

    return run(
        model,
        sizes(lengths, "--lengths", least=128),
        json,
        markdown,
        answer=answer,
        kv=kv,
        kv_layout=kv_layout,
        threads=threads,
        cpus=cpus,
        device=device,
        memory_reserve=memory_reserve,
        cache_budget=cache_budget,
        allow_tight=allow_tight,
        force=force,
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
    threads: Threads = None,
    device: AttentionDevice = "auto",
    json: Json = False,
) -> None:
    """What sharing a server costs: four answers against one, and a long prompt beside running answers."""
    from mindnano.bench.serving import run

    options = ["--kv", kv, "--device", device] + ([] if threads is None else ["--threads", str(threads)])
    run(model, url, parse_size(tokens), answers, rounds, options, json)
