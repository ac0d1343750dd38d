"""A run of a few steps: it learns, stops at a signal with a checkpoint, and goes on as if it hadn't stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.oracle
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """(data folder, run folder with a tokenizer): made-up documents, the real formats."""
    from training import data, tokenizer

    folder = tmp_path_factory.mktemp("data")
    (folder / "moby-dick/data").mkdir(parents=True)
    for n in range(30):
        text = " ".join(
            f"Chapter {n} has a sentence about {word}, number {k}." for k, word in enumerate("abcdefgh" * 8)
        )
        (folder / "moby-dick/data" / f"chapter_{n}.txt").write_text(text)
    (folder / data.CAPITALS).parent.mkdir(parents=True)
    (folder / data.CAPITALS).write_text(json.dumps({"Ohio": "Columbus"}))
    run = tmp_path_factory.mktemp("run")
    tokenizer.train(folder, run, 2560)
    return folder, run


def start(folder, run, steps):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "training.train", folder, run, "--steps", str(steps)], env=environment, cwd=run
    )


def log(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def weights(run):
    import torch

    return torch.load(run / "last.pt", weights_only=True)["model"]


def test_stopping_changes_nothing(prepared, tmp_path):
    import shutil

    import torch

    folder, run = prepared
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for target in (whole, parts):
        shutil.copytree(run, target)
    assert start(folder, whole, 4).wait(240) == 0
    process = start(folder, parts, 4)
    try:
        deadline = time.monotonic() + 200
        while not (parts / "log.jsonl").exists():  # the first step is done
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    finally:
        process.kill()
    stopped = len(log(parts))
    print("stopped after", stopped)
    assert start(folder, parts, 4).wait(240) == 0
    first, second = log(whole), log(parts)
    assert [e["step"] for e in second] == [0, 1, 2, 3]
    for key in ("retrieval_loss", "text_loss", "value_loss", "stage"):
        assert [e[key] for e in first] == pytest.approx([e[key] for e in second], abs=2e-3)
    assert first[-1]["retrieval_loss"] < first[0]["retrieval_loss"]
    kept = {f"model.{stopped}.pt", "model.4.pt"}
    assert {file.name for file in parts.glob("model.*.pt")} == kept
    assert len(list(parts.glob("optimizer.*.pt"))) == 2 * len(kept)
    one, two = weights(whole), weights(parts)
    assert all(torch.allclose(one[name], two[name], atol=1e-3) for name in one)


def test_a_run_exports(prepared, tmp_path):
    """Model, tokenizer and chat template of a run, in a folder that the engine opens."""
    import shutil

    from mindnano import LLM, SamplingParams
    from training import export, tokenizer

    folder, run = prepared
    target = tmp_path / "run"
    shutil.copytree(run, target)
    assert start(folder, target, 1).wait(240) == 0
    checkpoint = tmp_path / "checkpoint"
    export.save(export.load_model(target), checkpoint, tokenizer.ids(target))
    for name in tokenizer.FILES:
        shutil.copyfile(target / name, checkpoint / name)
    with LLM(checkpoint, context=256) as llm:
        assert llm.tokenizer.special_tokens.keys() >= {"<|role_end|>", "<|endoftext|>", "<role>"}
        done = llm.chat([{"role": "user", "content": "Hello!"}], SamplingParams(max_tokens=4, temperature=0))
        assert 1 <= len(done.token_ids) <= 4
