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
from mindnano.bench.report.table import Table, engine_marks
from mindnano.errors import EngineError

MIB = 1 << 20
LIMIT = 0.03  # how far plan and measurement may be apart


@dataclass(frozen=True)
class Resident:
    """One process, in bytes. `tokens`: of the prompt; `device`: what may have computed, and if it is emulated."""

    kv_layout: str
    kv_format: str
    context: int
    tokens: int
    planned_ready: int
    measured_ready: int
    planned_peak: int
    measured_peak: int
    device: str = "cpu"

    @property
    def error(self) -> float:
        """The larger of the two relative differences, with its sign."""
        return max(self.ready_error, self.peak_error, key=abs)

    @property
    def ready_error(self) -> float:
        return self.planned_ready / self.measured_ready - 1

    @property
    def peak_error(self) -> float:
        return self.planned_peak / self.measured_peak - 1


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
            device=llm.device,
        )  # fmt: skip


def _status(name: str) -> int:
    """Bytes that the kernel says of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise EngineError(f"/proc/self/status: has no {name}; this measurement needs Linux")


def table(found: Sequence[Resident], title: str, synthetic: bool) -> Table:
    columns = (
        "cache",
        "context",
        "prompt",
        "ready planned",
        "measured",
        "peak planned",
        "measured",
        "differ by",
    )
    rows = [
        [
            f"{one.kv_layout} {one.kv_format}", f"{one.context}", f"{one.tokens}",
            *(f"{size / MIB:,.0f}" for size in (
                one.planned_ready, one.measured_ready, one.planned_peak, one.measured_peak)),
            f"{one.ready_error:+.1%} / {one.peak_error:+.1%}",
        ]
        for one in found
    ]  # fmt: skip
    notes = ["MiB. peak: until the prompt has gone through, with the prefix checkpoints that it leaves."]
    emulated = any("emulated" in one.device for one in found)
    return Table(title, columns, rows, engine_marks(synthetic, emulated), notes)


def run(
    model: str | None,
    kinds: Sequence[tuple[str, str]],
    contexts: Sequence[int],
    json_output: bool,
    markdown: bool = False,
    **engine: Any,
) -> int:
    """Measure and print; 1 where plan and measurement differ by more than 3 %."""
    from mindnano.checkpoint import summarize
    from mindnano.cli import output

    found, summary = [], summarize(model, None)
    for context in contexts:
        for layout, fmt in kinds:
            found.append(measure(model, layout, fmt, context, **engine))
            output.note(f"{layout} {fmt} {context}: {found[-1].error:+.1%}")
    if json_output:
        rows = [asdict(r) | {"error": r.error} for r in found]
        head = {"command": "bench memory", "model": summary.name, "synthetic": summary.synthetic}
        output.print_json(head | {"rows": rows})
    else:
        table(found, f"Planned and measured memory: {summary.recipe}", summary.synthetic).show(markdown)
    return 1 if any(abs(r.error) > LIMIT for r in found) else 0


if __name__ == "__main__":
    print(json.dumps(asdict(measure_here(**json.loads(sys.argv[1])))))
