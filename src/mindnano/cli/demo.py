"""`mindnano demo`: the main job, from a checkpoint folder to text, in under a minute."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mindnano.cli.options import RESERVE, AllowTight, Json, MemoryReserve

if TYPE_CHECKING:
    from rich.console import Console

    from mindnano.engine.llm import LLM

    Open = Callable[..., LLM]

CONTEXTS = tuple(8192 << step for step in range(6))
KINDS = (("expanded", "bf16"), ("expanded", "int8"), ("latent", "bf16"), ("latent", "int8"))
TEXT = (
    "A long input is read once, layer by layer. What the attention layers have to remember of it is kept "
    "as a small latent, the rest as states of constant size. "
)
CONTEXT = 2048
PROMPT, ANSWER = 600, 48  # tokens


def demo(
    *, memory_reserve: MemoryReserve = RESERVE, allow_tight: AllowTight = False, json: Json = False
) -> int:
    """Show what MindNano does: run the built-in model, compare KV caches, plan for this machine. Needs no download."""
    from mindnano.checkpoint import builtin
    from mindnano.cli import demo_plan, demo_trained, output

    begin = perf_counter()
    screen = output.console(stderr=json)
    open_model = partial(_open, memory_reserve=memory_reserve, allow_tight=allow_tight)
    if builtin.trained():
        results = {"synthetic": False} | demo_trained.run(screen, open_model, KINDS)
        parts = 2
    else:
        with tempfile.TemporaryDirectory(prefix="mindnano-demo-") as folder:
            results = {"synthetic": True} | _run(Path(folder), screen, open_model)
        parts = 3
    results["kv_mib"] = kv_table()
    _title(screen, parts + 1, "The KV cache of the real Ling-3.0-tiny, computed (MiB)")
    _print_kv(screen, results["kv_mib"])
    _title(screen, parts + 2, "Ling-3.0-tiny on this machine")
    results["plan"] = demo_plan.plan(memory_reserve)
    demo_plan.show(screen, results["plan"])
    results["seconds"] = round(perf_counter() - begin, 2)
    screen.print(
        f"\nDone in {results['seconds']:.1f} s. Next: mindnano doctor, mindnano chat, mindnano --help"
    )
    if json:
        output.print_json({"command": "demo", **results})
    return 0 if results["repeats"] else 1  # then this installation is broken


def _run(folder: Path, screen: Console, open_model: Open) -> dict[str, Any]:
    """The steps on a model made on the spot; prints as it goes."""
    from mindnano.checkpoint import convert
    from mindnano.cli import demo_checkpoint
    from mindnano.units import format_bytes

    screen.print(
        "The model of this demo is made on the spot, with [bold]random weights[/bold] of a fixed seed: every "
        "part of Ling-3.0-tiny at a small size. What it says means nothing; how it runs is real."
    )
    _title(screen, 1, "A checkpoint in the official layout, converted to one packed file")
    source, packed = folder / "checkpoint", folder / "model.mn"
    source.mkdir()
    parameters, size = demo_checkpoint.write(source)
    begin = perf_counter()
    packed_size = convert(source, packed, "mixed")
    seconds = perf_counter() - begin
    screen.print(
        f"{parameters / 1e6:.1f} M parameters: {format_bytes(size)} in BF16, {format_bytes(packed_size)} as "
        f"mixed (experts 4 bits, the rest 8), in {seconds:.2f} s"
    )
    results: dict[str, Any] = {
        "parameters": parameters,
        "checkpoint_bytes": size,
        "packed_bytes": packed_size,
    }
    results |= _generate(packed, screen, open_model)
    results |= _compare(source, packed, screen, open_model)
    return results


def _open(model: Path | None, **options: Any) -> LLM:
    from mindnano import LLM

    return LLM(model, **({"context": CONTEXT, "cache_budget": 0} | options))


def _prompt(llm: LLM, tokens: int) -> list[int]:
    once = llm.tokenizer.encode(TEXT)
    return (once * (tokens // len(once) + 1))[:tokens]


def _generate(packed: Path, screen: Console, open_model: Open) -> dict[str, Any]:
    from mindnano import SamplingParams
    from mindnano.cli.output import one_line, speeds

    _title(screen, 2, "Opened in place; text from it")
    greedy = SamplingParams(max_tokens=ANSWER, temperature=0, ignore_eos=True)
    sampled = SamplingParams(
        max_tokens=ANSWER, temperature=1.0, top_p=0.95, top_k=20, seed=7, ignore_eos=True
    )
    begin = perf_counter()
    with open_model(packed) as llm:
        opened = perf_counter() - begin
        screen.print(f"ready after {opened * 1e3:.0f} ms, {llm.describe()['isa']} kernels")
        prompt = _prompt(llm, PROMPT)
        answers = {}
        for label, params in (("greedy", greedy), ("sampled", sampled)):
            done = llm.generate(prompt, params)
            again = llm.generate(prompt, params)
            answers[label] = {"token_ids": done.token_ids, "repeats": done.token_ids == again.token_ids}
            screen.print(f"{label:8}", one_line(done.text)[:60], markup=False)
            same = "the same" if answers[label]["repeats"] else "ANOTHER ANSWER"
            screen.print(f"         again: {same}", style="dim")
        screen.print(speeds(done.timings), style="dim")
    blocks = {}
    for block in (64, 512):
        with open_model(packed, prefill_block=block) as llm:
            blocks[block] = llm.generate(_prompt(llm, PROMPT), greedy).token_ids
    equal = blocks[64] == blocks[512] == answers["greedy"]["token_ids"]
    screen.print(
        f"prompt read in blocks of 64, of 512, at once: {'the same tokens' if equal else 'TOKENS DIFFER'}"
    )
    return {
        "open_s": round(opened, 4),
        "answers": answers,
        "blocks_agree": equal,
        "repeats": equal and all(answer["repeats"] for answer in answers.values()),
        "timings": done.timings.as_dict(),
    }


def _compare(source: Path, packed: Path, screen: Console, open_model: Open) -> dict[str, Any]:
    """What the packed weights change, then, with those weights, what each KV cache changes."""
    _title(screen, 3, "What smaller weights and a smaller KV cache change")
    with open_model(source, kv="fp32", recipe="native") as llm:
        prompt = _prompt(llm, PROMPT)
        stored = llm.logits(prompt)
    with open_model(packed, kv="fp32") as llm:
        exact = llm.logits(prompt)
    weights = agreement(stored, exact)
    rows = [_measure(open_model, packed, prompt, exact, layout, kv) for layout, kv in KINDS]
    screen.print(
        f"mixed weights against the stored ones: KL divergence {weights['kl']:.1e}, the same likeliest token "
        f"at {weights['same_top']:.0%} of {PROMPT} positions (random weights are harder to "
        "round than trained ones)"
    )
    _print_comparison(screen, rows)
    screen.print(
        f"KL divergence, same likeliest token: against an fp32 cache, over {PROMPT} positions.", style="dim"
    )
    return {"weights": weights, "kv": rows}


def _measure(
    open_model: Open, packed: Path, prompt: list[int], exact: Any, layout: str, kv: str
) -> dict[str, Any]:
    """Size, agreement with `exact` and speed of one KV kind."""
    from mindnano import SamplingParams

    with open_model(packed, kv=kv, kv_layout=layout) as llm:
        close = agreement(exact, llm.logits(prompt))
        timings = llm.generate(
            prompt, SamplingParams(max_tokens=ANSWER, temperature=0, ignore_eos=True)
        ).timings
        return {
            "kv_layout": layout,
            "kv_format": kv,
            "kv_bytes": llm.describe()["kv_bytes"],
            **close,
            "prefill_tok_s": timings.prefill_tok_s,
            "decode_tok_s": timings.decode_tok_s,
        }


def _print_comparison(screen: Console, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("KV cache")
    for column in (f"{CONTEXT} tokens", "KL diverg.", "same top", "prefill", "decode"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row['kv_layout']} {row['kv_format']}",
            f"{row['kv_bytes'] / 1024:,.0f} KiB",
            f"{row['kl']:.1e}",
            f"{row['same_top']:.1%}",
            f"{row['prefill_tok_s']:,.0f} tok/s",
            f"{row['decode_tok_s']:,.0f} tok/s",
        )
    screen.print(table)


def agreement(exact: Any, other: Any) -> dict[str, float]:
    """Of logits [tokens, vocabulary]: mean KL divergence in nats, and the share of equal likeliest tokens."""
    import numpy as np

    def log_softmax(logits: Any) -> Any:
        shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

    p, q = log_softmax(exact), log_softmax(other)
    divergence = (np.exp(p) * (p - q)).sum(axis=-1).mean()
    return {"kl": float(divergence), "same_top": float((exact.argmax(-1) == other.argmax(-1)).mean())}


def kv_table() -> list[dict[str, Any]]:
    """KV cache of Ling-3.0-tiny (6 MLA layers) in MiB, by context, layout and format."""
    from mindnano.cache.kv import kv_bytes_per_token
    from mindnano.checkpoint import MLAConfig

    layers, config = 6, MLAConfig(16, 256, 512, 128, 64, 128, 6e6, head_gate=True)
    return [
        {
            "context": context,
            **{
                f"{layout}_{fmt}": round(
                    context * layers * kv_bytes_per_token(config, layout, fmt) / (1 << 20), 2
                )
                for layout, fmt in KINDS
            },
        }
        for context in CONTEXTS
    ]


def _print_kv(screen: Console, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("context", justify="right")
    for layout, fmt in KINDS:
        table.add_column(f"{layout} {fmt}", justify="right")
    for row in rows:
        table.add_row(
            f"{row['context'] // 1024}K", *(f"{row[f'{layout}_{fmt}']:,.0f}" for layout, fmt in KINDS)
        )
    screen.print(table)
    screen.print("expanded: K and V of every head. latent: what MindNano keeps by default.", style="dim")


def _title(screen: Console, number: int, text: str) -> None:
    screen.print(f"\n[bold]{number}. {text}[/bold]")
