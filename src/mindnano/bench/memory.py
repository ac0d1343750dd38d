"""Plan against truth: resident memory as planned and as measured, a fresh process for each layout x format x context.

"ready" is after all weights were read, "peak" the most until a prompt of half the context has gone through, the
prefix checkpoints that it leaves included. RSS isn't disturbed by other load, so that this needs no quiet machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mindnano.bench.depth import zipf_tokens
from mindnano.errors import EngineError

MIB = 1 << 20
LIMIT = 0.03  # how far plan and measurement may be apart


@dataclass(frozen=True)
class Resident:
    """One process, in bytes. `tokens`: of the prompt."""

    kv_layout: str
    kv_format: str
    context: int
    tokens: int
    planned_ready: int
    measured_ready: int
    planned_peak: int
    measured_peak: int

    @property
    def error(self) -> float:
        """The larger of the two relative differences, with its sign."""
        ready = self.planned_ready / self.measured_ready - 1
        peak = self.planned_peak / self.measured_peak - 1
        return max(ready, peak, key=abs)


def measure(model: str | None, kv_layout: str, kv: str, context: int, **engine: Any) -> Resident:
    """In a process of its own."""
    arguments = json.dumps({"model": model, "kv_layout": kv_layout, "kv": kv, "context": context, **engine})
    done = subprocess.run(
        [sys.executable, "-m", "mindnano.bench.memory", arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        raise EngineError(
            f"bench memory: the process of {kv_layout} {kv} {context} ended with {done.returncode}"
        )
    return Resident(**json.loads(done.stdout.splitlines()[-1]))


def measure_here(model: str | None, kv_layout: str, kv: str, context: int, **engine: Any) -> Resident:
    """In this process, which must be fresh: the peak counts from its beginning."""
    from mindnano import LLM, SamplingParams
    from mindnano.engine.memory import resident

    tokens = context // 2
    with LLM(model, context=context, kv_layout=kv_layout, kv=kv, **engine) as llm:
        prompt = zipf_tokens(llm.config.vocab_size, tokens)
        llm.read_weights()
        ready = _status("VmRSS")
        llm.generate(prompt, SamplingParams(max_tokens=1, temperature=0))
        return Resident(
            kv_layout, kv, context, tokens,
            planned_ready=resident(llm.setup, context, 0), measured_ready=ready,
            planned_peak=resident(llm.setup, context, tokens), measured_peak=_status("VmHWM"),
        )  # fmt: skip


def _status(name: str) -> int:
    """Bytes that the kernel says of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise EngineError(f"/proc/self/status: has no {name}; this measurement needs Linux")


def run(
    model: str | None,
    kinds: Sequence[tuple[str, str]],
    contexts: Sequence[int],
    json_output: bool,
    **engine: Any,
) -> int:
    """Measure and print; 1 where plan and measurement differ by more than 3 %."""
    from rich.table import Table

    from mindnano.cli import output

    found = []
    for context in contexts:
        for layout, fmt in kinds:
            found.append(measure(model, layout, fmt, context, **engine))
            output.note(f"{layout} {fmt} {context}: {found[-1].error:+.1%}")
    if json_output:
        rows = [asdict(r) | {"error": r.error} for r in found]
        output.print_json({"command": "bench memory", "model": model or "built-in", "rows": rows})
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in (
            "context",
            "cache",
            "ready planned",
            "measured",
            "peak planned",
            "measured",
            "differ by",
        ):
            table.add_column(name, justify="left" if name == "cache" else "right", no_wrap=True)
        for r in found:
            sizes = (r.planned_ready, r.measured_ready, r.planned_peak, r.measured_peak)
            numbers = (f"{size / MIB:,.0f}" for size in sizes)
            table.add_row(str(r.context), f"{r.kv_layout} {r.kv_format}", *numbers, f"{r.error:+.1%}")
        output.console().print(table)
        print("MiB. peak: until a prompt of half the context has gone through.")
    return 1 if any(abs(r.error) > LIMIT for r in found) else 0


if __name__ == "__main__":
    print(json.dumps(asdict(measure_here(**json.loads(sys.argv[1])))))
