"""`mindnano bench all`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mindnano.cli.bench.common import RunOptions, StartOptions
from mindnano.cli.options import Model
from mindnano.errors import MindNanoError

KERNELS_S = 120.0  # about, of bench kernels


def everything(
    model: Model = None,
    /,
    *,
    scale: Annotated[
        Literal["full", "quick"],
        Parameter(help="full: hours on a full-size model; quick: minutes on a small one."),
    ] = "full",
    report: Annotated[
        str | None,
        Parameter(
            metavar="DIR",
            help="Where the report goes; left out, into the results' folder.",
            show_default=False,
        ),
    ] = None,
    server: StartOptions = StartOptions(),  # noqa: B008
    runs: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Speed, capacity, comparisons, kernels and quality in one go, then the report. Goes on where it stopped.

    Short inputs and small contexts come first, so that a part of it (--budget) already makes a report.
    """
    from mindnano.bench import full
    from mindnano.bench.servers import Setting
    from mindnano.cli import output
    from mindnano.cli.bench.report import write

    base = Setting(model=model, threads=server.threads, device=server.device)
    if runs.dry_run:
        print(full.describe(full.steps(None, base, full.SCALES[scale], output.note)))
        return
    folder = Path(runs.output_dir)
    with runs.campaign(f"all --scale {scale}", server) as campaign:
        for step in full.steps(campaign, base, full.SCALES[scale], output.note):
            output.note(step.name)
            step.run()
        if not (folder / "kernels.json").exists():
            reason = campaign.budget.refusal(KERNELS_S)
            output.note("kernels" if reason is None else f"kernels: left out: {reason}")
            if reason is None:
                _kernels(folder / "kernels.json", quick=scale == "quick")
    for path in write(folder, Path(report) if report else None)[:2]:
        print(path)


def _kernels(target: Path, quick: bool) -> None:
    """In a process of its own: it sets thread counts and instruction sets as it likes."""
    words = [sys.executable, "-m", "mindnano", "bench", "kernels", "--json", *(["--quick"] if quick else [])]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        raise MindNanoError(
            "bench kernels failed: a kernel disagrees with its NumPy twin, so no speed is measured"
        )
    target.write_bytes(lines[-1] + b"\n")
