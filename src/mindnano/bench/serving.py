"""What sharing a server costs: several decodes against one, and a long prompt beside running answers.

Over HTTP, against a server of its own or a given one. A prompt of P tokens is prefilled alone (T0) and while others
decode (T1), alternately. The others' gaps between two pieces of text in that time are what their users see; what the
prompt loses, T1 - T0, is held against the seconds of decode that the engine itself counted meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

from mindnano.bench.streams import Stream, get
from mindnano.errors import MindNanoError

WARM = 8  # pieces of an answer before it is measured
DECODERS = 3  # answers beside the prompt


@dataclass(frozen=True)
class Shared:
    """One round. Seconds; gaps are the others'."""

    prefill_alone: float
    prefill_shared: float
    decode_seconds: float
    gap_p50: float
    gap_p95: float
    gap_max: float
    gaps: int

    @property
    def loss(self) -> float:
        """What the prompt lost beyond the others' decodes, as a share of its time alone."""
        return (self.prefill_shared - self.prefill_alone - self.decode_seconds) / self.prefill_alone


@contextlib.contextmanager
def own_server(model: str | None, context: int, options: list[str]) -> Iterator[str]:
    """A fresh server on a free port; its address."""
    command = [sys.executable, "-m", "mindnano", "serve", *([model] if model else []), "--port", "0"]
    command += ["--ctx", str(context), "--slots", str(DECODERS + 2), "--session-dir", "none", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line.strip())
            if found := re.search(r"listening on (\S+)", line):
                yield found[1]
                return
        raise MindNanoError(f"the server didn't start: {' / '.join(seen)[-300:]}")
    finally:
        process.terminate()
        process.communicate()


def prompt(generator: random.Random, tokens: int) -> list[int]:
    """Token ids that no earlier prompt began with."""
    return [generator.randrange(32, 256) for _ in range(tokens)]


def answer(tokens: int, ids: list[int], seed: int) -> dict[str, Any]:
    return {"prompt": ids, "max_tokens": tokens, "ignore_eos": True, "temperature": 1.0, "seed": seed}


def decode_rate(url: str, count: int, tokens: int, generator: random.Random) -> float:
    """Tokens a second of `count` answers together, from the last one's first token to the first one's last."""
    streams = [Stream(url, answer(tokens, prompt(generator, 16), i)) for i in range(count)]
    for stream in streams:
        stream.join()
    begin, end = max(s.times[0] for s in streams), min(s.times[-1] for s in streams)
    pieces = sum(begin < time <= end for s in streams for time in s.times)
    return pieces / (end - begin)


def prefill_alone(url: str, tokens: int, generator: random.Random) -> float:
    """Seconds to the first token with nobody else there."""
    stream = Stream(url, answer(1, prompt(generator, tokens), 0))
    stream.join()
    return float(stream.timings["ttft_s"])


def shared(url: str, tokens: int, generator: random.Random) -> Shared:
    """One round: alone, then beside others."""
    alone = prefill_alone(url, tokens, generator)
    others = [Stream(url, answer(1 << 20, prompt(generator, 16), i)) for i in range(DECODERS)]
    try:
        for other in others:
            other.wait_for(WARM)
        before, begin = busy(url), perf_counter()
        stream = Stream(url, answer(1, prompt(generator, tokens), 0))
        stream.join()
        end, after = perf_counter(), busy(url)
    finally:
        for other in others:
            other.stop()
    for other in others:
        if other.error:
            raise MindNanoError(f"an answer beside the prompt failed: {other.error}")
    gaps = sorted(
        late - early
        for other in others
        for early, late in zip(other.times, other.times[1:], strict=False)
        if begin < late <= end
    )
    if not gaps:
        raise MindNanoError("the prompt was done before the others said anything; use more --tokens")
    return Shared(
        prefill_alone=alone,
        prefill_shared=float(stream.timings["ttft_s"]),
        decode_seconds=after["decode"] - before["decode"],
        gap_p50=median(gaps),
        gap_p95=gaps[min(len(gaps) - 1, round(0.95 * len(gaps)))],
        gap_max=gaps[-1],
        gaps=len(gaps),
    )


def busy(url: str) -> dict[str, float]:
    """The engine's seconds of work so far, by kind."""
    text = get(url, "/metrics").decode()
    found = re.findall(r'^mindnano_busy_seconds_total\{kind="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {kind: float(value) for kind, value in found}


def run(
    model: str | None,
    url: str | None,
    tokens: int,
    answers: int,
    rounds: int,
    options: list[str],
    as_json: bool,
) -> None:
    """Measure, and print a table and one line of JSON."""
    with contextlib.ExitStack() as stack:
        where = url or stack.enter_context(own_server(model, tokens + 4096, options))
        props = json.loads(get(where, "/props"))
        generator = random.Random()
        decode_rate(where, 1, WARM, generator)
        rates = [(decode_rate(where, 1, answers, generator), decode_rate(where, 4, answers, generator))
                 for _ in range(rounds)]  # fmt: skip
        results = [shared(where, tokens, generator) for _ in range(rounds)]
    if not as_json:
        for one, four in rates:
            print(f"decode: one {one:6.1f} tok/s, four together {four:6.1f} tok/s, {four / one:.2f} times")
        for result in results:
            print(
                f"prompt of {tokens}: alone {result.prefill_alone:.2f} s, beside {DECODERS} answers "
                f"{result.prefill_shared:.2f} s, of that decode {result.decode_seconds:.2f} s, lost beyond it "
                f"{100 * result.loss:+.1f} %; the others' gaps p50 {1e3 * result.gap_p50:.0f} ms, p95 "
                f"{1e3 * result.gap_p95:.0f} ms, max {1e3 * result.gap_max:.0f} ms ({result.gaps})"
            )
        if props["model"]["synthetic"]:
            print("synthetic model: random weights; speed and memory only")
        if props["device"]["emulated"]:
            print("emulated NPU: its times are those of an emulation, not of a board")
        return
    print(
        json.dumps(
            {
                "command": "bench serving",
                "synthetic": props["model"]["synthetic"],
                "emulated": props["device"]["emulated"],
                "prompt_tokens": tokens,
                "decoders": DECODERS,
                "decode": [{"one": one, "four": four, "ratio": four / one} for one, four in rates],
                "shared": [asdict(result) | {"loss": result.loss} for result in results],
                "server": props,
            }
        )
    )
