"""Benchmarks beside the emulated NPU: it is what computes, and every figure says so."""

import json

import pytest

from mindnano.bench import memory, reuse
from mindnano.bench.quality.variants import Variant
from mindnano.checkpoint import tiny
from mindnano.cli import main


@pytest.fixture
def path(tmp_path):
    tiny.build(tmp_path / "tiny.mn", seed=3)
    return str(tmp_path / "tiny.mn")


def test_depth(emulator, path, capsys):
    run = [
        "bench",
        "depth",
        path,
        "--depths",
        "0",
        "--tokens",
        "64",
        "--decode",
        "2",
        "--device",
        "rknpu",
    ]
    assert main([*run, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["device"] == "rknpu (emulated)" and shown["emulated"] is True


def test_memory(emulator, path):
    one = memory.measure(path, "latent", "int8", 512, device="rknpu", cache_budget=0)
    assert one.device == "rknpu (emulated)"


def test_reuse(emulator, path):
    [one] = reuse.measure(path, [256], answer=8, kv="int8", kv_layout="latent", device="rknpu")
    assert one.cold.device == one.restarted.device == "rknpu (emulated)"


def test_serving(emulator, path, capsys):
    run = [
        "bench",
        "serving",
        path,
        "--tokens",
        "1K",
        "--answers",
        "16",
        "--rounds",
        "1",
        "--device",
        "rknpu",
    ]
    assert main([*run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["emulated"] is True


def test_quality_is_the_cpus(emulator, path):
    with Variant(kv_format="int8").open(path, 512, 1) as llm:
        assert llm.device == "cpu"
