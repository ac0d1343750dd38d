"""How fast is the next token, when the context already holds N? Prefill and decode speed by depth.

One sequence grows to the largest depth. At each depth the next `tokens` tokens of prefill are timed, then
`decode` tokens of greedy decode, after which the prompt goes on. Nothing is skipped or filled in: the cache at
32K holds what 32K tokens put there. Between pieces of prefill and between decoded tokens the machine's limits are
looked at, and with them `floor` gives the least time that the same work could take: on a shared machine the share of
it says more than the seconds.

Tokens are drawn from a Zipf distribution over the vocabulary (s = 1.1, a seed of its own): one repeated token
would always take the same experts.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np

from mindnano import kernels
from mindnano.bench.floor import NEEDED, Watch, Work, count
from mindnano.engine.llm import LLM
from mindnano.engine.timings import peak_rss_mib, rss_mib
from mindnano.model.stages import StageClock

DEPTHS = (0, 4096, 16384, 32768)
WARM_UP = 256  # tokens


@dataclass(frozen=True)
class DepthPoint:
    depth: int
    prefill_tok_s: float
    decode_tok_s: float
    decode_ms_p50: float
    ttft_s: float  # of a prompt of this length, from the first token of the run; 0 at depth 0
    prefill_stage_s: dict[str, float]
    decode_stage_ms: dict[str, float]
    prefill_mla_s: dict[str, float]
    prefill_share: float  # of the floor, by the limits measured meanwhile
    decode_share: float
    limits: dict[str, float]  # of decode: 1e9 bytes or operations a second


def zipf_tokens(vocabulary: int, count: int, seed: int = 7) -> list[int]:
    """`count` token ids, Zipf-distributed over a random order of the vocabulary."""
    random = np.random.default_rng(seed)
    ranks = np.arange(1, vocabulary + 1, dtype=np.float64) ** -1.1
    order = random.permutation(vocabulary)
    picked = np.searchsorted(np.cumsum(ranks / ranks.sum()), random.random(count))
    return [int(order[min(p, vocabulary - 1)]) for p in picked]


def measure(
    llm: LLM, depths: tuple[int, ...] = DEPTHS, tokens: int = 2048, decode: int = 24
) -> list[DepthPoint]:
    """Points at `depths`, ascending. Needs a context of max(depths) + tokens + decode."""
    model, pool, block = llm._model, llm._pool, llm.block
    work, watch = _work(llm), Watch()
    prompt = zipf_tokens(llm.config.vocab_size, max(depths) + tokens + block)
    slot = pool.take()
    points: list[DepthPoint] = []
    spent = 0.0  # seconds of prefill so far: what a prompt of slot.length tokens would have taken

    def prefill(count: int, clock: StageClock) -> float:
        begin = perf_counter()
        while count > 0:
            piece = prompt[slot.length : slot.length + min(count, block)]
            for _ in model.prefill(piece, slot, pool, clock):
                pass
            count -= len(piece)
        return perf_counter() - begin

    try:
        prefill(WARM_UP, StageClock())  # warm-up: pages of the weights, threads, scratch
        pool.clear(slot)
        for depth in depths:
            while slot.length < depth:
                spent += prefill(min(block, depth - slot.length), StageClock())
                print(f"\rprefill {slot.length:>6} of {max(depths)}", end="", file=sys.stderr, flush=True)
            ttft = spent
            clock = StageClock()
            watch.look(*NEEDED)
            seconds = prefill(tokens, clock)
            spent += seconds
            watch.look(*NEEDED)
            prefill_share = work.prefill_seconds(tokens, depth, watch.take()) / seconds
            steps, step_clock = [], StageClock()
            token = prompt[slot.length]
            for step in range(decode + 2):
                begin = perf_counter()
                logits = model.decode([token], [slot], pool, step_clock)
                token = int(np.argmax(logits[0]))
                if step >= 2:  # the first two bring the decode path's scratch and pages in
                    steps.append(perf_counter() - begin)
                    watch.look(*NEEDED)
                else:
                    step_clock = StageClock()
            limits = watch.take()
            points.append(DepthPoint(
                depth, tokens / seconds, decode / sum(steps), 1e3 * float(np.median(steps)), ttft,
                {k: round(v, 3) for k, v in clock.seconds.items() if v},
                {k: round(1e3 * v / decode, 3) for k, v in step_clock.seconds.items() if v},
                {k: round(v, 3) for k, v in clock.mla_seconds.items() if v},
                round(prefill_share, 3),
                round(work.decode_seconds(depth + tokens, limits) * decode / sum(steps), 3),
                {k: round(v, 1) for k, v in limits.items()},
            ))  # fmt: skip
            print(f"\rdepth {depth}: prefill {points[-1].prefill_tok_s:.1f} tok/s, decode "
                  f"{points[-1].decode_tok_s:.1f} tok/s   ", file=sys.stderr, flush=True)  # fmt: skip
    finally:
        pool.give_back(slot)
    return points


def _work(llm: LLM) -> Work:
    setup = llm.describe()
    return count(llm.config, llm._files.weights, setup["kv_layout"], setup["kv_format"])


def run(
    model: str | None, kv: str = "int8", kv_layout: str = "latent", threads: int | None = None,
    cpus: str = "auto", depths: tuple[int, ...] = DEPTHS, tokens: int = 2048, decode: int = 24,
    json_output: bool = False, **memory: Any,
) -> None:  # fmt: skip
    """Measure and print a table, or JSON as the last line. `memory`: memory_reserve, allow_tight, force of LLM."""
    begin = perf_counter()
    with LLM(
        model,
        context=max(WARM_UP, max(depths) + tokens + len(depths) * (decode + 2) + 64),
        kv=kv,
        kv_layout=kv_layout,
        threads=threads,
        cpus=cpus,
        cache_budget=0,
        **memory,
    ) as llm:
        ready = perf_counter() - begin
        rss_ready = rss_mib()
        points = measure(llm, depths, tokens, decode)
        result = {
            **llm.describe(), "start_s": round(ready, 3), "rss_ready_mib": round(rss_ready),
            "threads": kernels.threads(), "peak_rss_mib": round(peak_rss_mib()), "tokens": tokens,
            "points": [asdict(p) for p in points],
        }  # fmt: skip
    if json_output:
        print(json.dumps(result))
        return
    from rich.console import Console
    from rich.table import Table

    label = "" if result["device"] == "cpu" else f", {result['device']}"
    label += " (synthetic weights: speed only)" if result["synthetic"] else ""
    table = Table(title=f"{result['recipe']}, {kv_layout} {kv}, {kernels.threads()} threads{label}")
    for column in (
        "depth",
        f"prefill of {tokens}, tok/s",
        "of the floor",
        "decode, tok/s",
        "of the floor",
        "TTFT, s",
    ):
        table.add_column(column, justify="right")
    for p in points:
        table.add_row(
            str(p.depth),
            f"{p.prefill_tok_s:.1f}",
            f"{p.prefill_share:.0%}",
            f"{p.decode_tok_s:.1f}",
            f"{p.decode_share:.0%}",
            f"{p.ttft_s:.1f}",
        )
    Console().print(table)
    print(f"start {ready:.2f} s, RSS ready {rss_ready:,.0f} MiB, peak {peak_rss_mib():,.0f} MiB")
