"""The whole engine with the emulated NPU: the same tokens and logits, and every output says what computed."""

import json

import numpy as np
import pytest

from mindnano import LLM, SamplingParams
from mindnano.checkpoint import tiny
from mindnano.cli import main
from mindnano.device import curves
from mindnano.errors import MindNanoError
from tests.npu.curving import keep

GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("tiny") / "model.mn"
    tiny.build(target, seed=3)
    return target


@pytest.fixture
def prompt():
    return [int(token) for token in np.random.default_rng(4).integers(0, 250, 600)]


def opened(path, device, kv="int8", layout="latent", **more):
    return LLM(path, context=1024, kv=kv, kv_layout=layout, device=device, cache_budget=0, **more)


@pytest.mark.parametrize("layout", ["latent", "expanded"])
def test_tokens_and_logits_are_the_cpus(emulator, path, prompt, layout):
    with opened(path, "cpu", layout=layout) as llm:
        want, logits = llm.generate(prompt, GREEDY), llm.logits(prompt[:550])
    with opened(path, "rknpu", layout=layout) as llm:
        got = llm.generate(prompt, GREEDY)
        np.testing.assert_array_equal(llm.logits(prompt[:550]), logits)
    assert got.token_ids == want.token_ids
    assert got.timings.mla_calls["rknpu"] > 0 == got.timings.fallbacks
    assert want.timings.mla_calls["rknpu"] == 0


def test_tokens_survive_faults(emulator, path, prompt):
    with opened(path, "cpu") as llm:
        want = llm.generate(prompt, GREEDY).token_ids
    with opened(path, "rknpu") as llm:
        for fault in ("zeros@3", "timeout@9", "fail@1,wrong@12"):
            emulator.fault(fault)
            got = llm.generate(prompt, GREEDY)
            assert got.token_ids == want, fault
            assert got.timings.fallbacks == fault.count("@"), fault


def test_a_cached_prefix_gives_what_a_cold_prompt_gives(emulator, path, prompt):
    with LLM(path, context=1024, kv="int8", device="rknpu") as llm:
        first = llm.generate(prompt, GREEDY)
        again = llm.generate([*prompt, *first.token_ids, 5, 6, 7], GREEDY)
        assert again.timings.cached_tokens > 0
    with opened(path, "cpu") as llm:
        assert llm.generate([*prompt, *first.token_ids, 5, 6, 7], GREEDY).token_ids == again.token_ids


def test_projections_where_the_curves_say_so(emulator, path, prompt):
    keep(tiny.config().mla, attention=1e9, linear=0.0)
    with opened(path, "cpu") as llm:
        want, logits = llm.generate(prompt, GREEDY).token_ids, llm.logits(prompt[:80])
    with opened(path, "auto") as llm:
        got = llm.generate(prompt, GREEDY)
        np.testing.assert_array_equal(llm.logits(prompt[:80]), logits)
        emulator.fault("zeros@7")
        failed = llm.generate(prompt, GREEDY)
    assert got.token_ids == failed.token_ids == want
    assert (got.timings.mla_calls["rknpu"], got.timings.fallbacks, failed.timings.fallbacks) == (0, 0, 1)
    assert got.timings.npu_projections > failed.timings.npu_projections > 0


def test_everything_says_emulated(emulator, path, capsys):
    with opened(path, "rknpu") as llm:
        assert llm.device == "rknpu (emulated)" and llm.emulated
        assert llm.describe()["device"] == "rknpu (emulated)" and llm.describe()["emulated"] is True
        assert llm.generate("Hello", GREEDY).timings.as_dict()["device"] == "rknpu (emulated)"
    run = [
        "generate",
        str(path),
        "--prompt",
        "Hello there",
        "--max-tokens",
        "2",
        "--ctx",
        "512",
        "--device",
        "rknpu",
    ]
    assert main([*run, "--kv", "int8", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["timings"]["device"] == shown["engine"]["device"] == "rknpu (emulated)"
    assert main(run) == 0
    assert "rknpu (emulated)" in capsys.readouterr().err
    assert main(["doctor", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["npu"]["emulated"] is True
    assert "emulation" in " ".join(finding["problem"] for finding in shown["findings"])
    assert main(["doctor"]) == 0
    assert "2.3.2 (emulated)" in capsys.readouterr().out


def test_an_fp32_cache_is_the_cpus(emulator, path):
    with opened(path, "auto", kv="fp32") as llm:
        assert llm.describe()["device"] == "cpu"
    with pytest.raises(MindNanoError, match="fp32 cache is attended on the CPU only"):
        opened(path, "rknpu", kv="fp32")


def test_calibrating_is_what_auto_needs(emulator, path, prompt, capsys):
    with opened(path, "auto") as llm:
        assert llm.describe()["device"] == "cpu"
        assert "run mindnano calibrate" in llm.describe()["device_reason"]
    assert main(["calibrate", str(path), "--quick", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["emulated"] is True and shown["machine"]["runtime"] == "2.3.2 (emulated)"
    works = {
        work.split()[1] if " " in work else work: set(devices) for work, devices in shown["curves"].items()
    }
    assert works == {work: {"cpu", "rknpu"} for work in ("int8", "float", "linear")}
    points = [p for work, devices in shown["curves"].items() if "attention" in work for p in devices["rknpu"]]
    for p in points:
        assert min(p["pack"], p["sync"], p["matmul"], p["softmax"]) > 0
        assert p["pack"] + p["sync"] + p["matmul"] + p["softmax"] < 1.1 * p["seconds"]
    with opened(path, "auto") as llm:
        assert llm.describe()["device"] == "rknpu (emulated)"
        assert llm.describe()["device_reason"] == "by this machine's curves"
        assert llm.generate(prompt, GREEDY).timings.fallbacks == 0
    assert main(["calibrate", "--show"]) == 0
    shown = capsys.readouterr().out
    assert "The NPU is emulated" in shown and "faster" in shown
    assert main(["doctor", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["npu"]["calibrated"] is not None and "by curves" in shown["engine"]["device"]
    assert len(list(curves.folder().iterdir())) == 1


def test_calibrating_ends_clearly(emulator, path, capsys):
    assert main(["calibrate", "--show"]) == 2
    assert "run mindnano calibrate" in capsys.readouterr().err
    assert main(["calibrate", "--plot", "curves.doc"]) == 2
    assert "ends in .svg, .png or .pdf" in capsys.readouterr().err
    emulator.fault("wrong@40+")  # after the self-test
    assert main(["calibrate", str(path), "--quick"]) == 2
    assert "failed while it was measured" in capsys.readouterr().err
    assert not curves.folder().exists()
    emulator.fault("zeros@1+")
    assert main(["calibrate", str(path), "--device", "rknpu", "--quick"]) == 2
    assert "all zeros" in capsys.readouterr().err


def test_the_npus_memory_is_planned_and_given_back(emulator, path, prompt):
    keep(tiny.config().mla, linear=0.0)
    with opened(path, "cpu") as llm:
        alone = llm.plan
    with opened(path, "auto") as llm:
        assert llm.plan.total - alone.total == llm.plan.device > 0
        llm.generate(prompt, GREEDY)
        assert llm._devices.npu.nbytes == llm.plan.device
        assert f"NPU {llm.plan.device / (1 << 20):.0f} =" in llm.plan.text()
    assert emulator.count("allocations") == 0
    with pytest.raises(MindNanoError, match=r"NPU .* = .* MiB"):
        LLM(path, context=2048, slots=1 << 18, device="auto", kv="int8")
