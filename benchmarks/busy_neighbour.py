#!/usr/bin/env python3
"""How much speed is lost when other processes want the cores? Prefill and decode with 0, 1 and 2 busy processes.

In turns, so that what the machine does besides falls on all of them alike. With P busy processes on C cores that the
scheduler shares fairly, T threads get C / (C + P) of the time they had where T = C: the fair share that is printed.

    python benchmarks/busy_neighbour.py MODEL [--rounds 4] [--kv int8]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from time import perf_counter

from mindnano import LLM, kernels
from mindnano.bench.depth import zipf_tokens
from mindnano.model.stages import StageClock

PROMPT, STEPS = 256, 16


def measure(llm: LLM, prompt: list[int]) -> tuple[float, float]:
    """Prefill and decode tokens a second of one short request."""
    slot, clock = llm._pool.take(), StageClock()
    try:
        begin = perf_counter()
        for _ in llm._model.prefill(prompt, slot, llm._pool, clock):
            pass
        prefill = len(prompt) / (perf_counter() - begin)
        begin = perf_counter()
        for token in prompt[:STEPS]:
            llm._model.decode([token], [slot], llm._pool, clock)
        return prefill, STEPS / (perf_counter() - begin)
    finally:
        llm._pool.give_back(slot)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed with 0, 1 and 2 busy processes beside the engine.")
    parser.add_argument("model", help="a packed file or checkpoint folder")
    parser.add_argument("--rounds", type=int, default=4, help="measurements of each, in turns")
    parser.add_argument("--kv", default="int8", help="format of the KV cache")
    options = parser.parse_args()
    llm = LLM(options.model, context=1024, kv=options.kv)
    cores = len(os.sched_getaffinity(0))
    prompt = zipf_tokens(llm.config.vocab_size, PROMPT)
    measure(llm, prompt)
    rates: dict[int, list[tuple[float, float]]] = {0: [], 1: [], 2: []}
    for _ in range(options.rounds):
        for busy, seen in rates.items():
            others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
            try:
                seen.append(measure(llm, prompt))
            finally:
                for other in others:
                    other.kill()
                    other.wait()
    alone = [statistics.median(rate[i] for rate in rates[0]) for i in range(2)]
    for busy, seen in rates.items():
        prefill, decode = (statistics.median(rate[i] for rate in seen) for i in range(2))
        row = {
            "busy": busy, "threads": kernels.threads(), "fair_share": round(cores / (cores + busy), 2),
            "prefill_tok_s": round(prefill, 1), "prefill_share": round(prefill / alone[0], 2),
            "decode_tok_s": round(decode, 2), "decode_share": round(decode / alone[1], 2),
            "synthetic": llm.synthetic,
        }  # fmt: skip
        print(json.dumps(row))


if __name__ == "__main__":
    main()
