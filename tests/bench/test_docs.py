"""The docs name every field, and the script has the reference's options."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mindnano.bench import records
from mindnano.bench.records import Divergence, Parting, Point, Retrieval, Run

ROOT = Path(__file__).parents[2]
SCRIPT = "benchmarks/kv_context_benchmark.py"


@pytest.mark.parametrize("kind", [Point, Divergence, Retrieval, Parting, Run])
def test_every_field_is_described(kind):
    text = (ROOT / "docs" / "benchmark.md").read_text()
    described = set(re.findall(r"`([a-z_0-9]+)`", text))
    assert set(records.field_names(kind)) - described == set()


def test_no_field_is_described_that_there_isnt():
    text = (
        (ROOT / "docs" / "benchmark.md")
        .read_text()
        .partition("### capacity, perf")[2]
        .partition("### divergence")[0]
    )
    described = {name for line in text.splitlines() if line.startswith("| `") for name in
                 re.findall(r"`([a-z_0-9]+)`", line.split("|")[1])}  # fmt: skip
    assert described == set(records.field_names(Point)) - {"phase"}


def test_the_references_command_line():
    """From the repository's root; --help needs nothing installed."""
    done = subprocess.run(
        [sys.executable, "-S", SCRIPT, "--help"], cwd=ROOT, capture_output=True, text=True, env={}
    )
    assert done.returncode == 0
    for option in (
        "--mode {bf16,int8,fp16}",
        "--phase {capacity,perf}",
        "--binary",
        "--model",
        "--output-dir",
    ):
        assert option in done.stdout
    done = subprocess.run(
        [sys.executable, "-S", SCRIPT, "--mode", "bf16", "--phase", "perf", "--binary", "x", "--model", "x",
         "--output-dir", "x"],
        cwd=ROOT, capture_output=True, text=True, env={},
    )  # fmt: skip
    assert done.returncode == 2
    assert "make demo" in done.stderr
    assert "Traceback" not in done.stderr
