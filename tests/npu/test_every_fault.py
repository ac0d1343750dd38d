"""Each fault that the emulation knows, when the engine opens and in the middle of a request: the right answer, with the
failure counted, or a refusal that says what to do."""

import re

import pytest

from mindnano import LLM, SamplingParams
from mindnano.checkpoint import tiny
from mindnano.errors import MindNanoError
from tests.npu.curving import keep
from tests.npu.emulation import SOURCES

GREEDY = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)
PROMPT = [7 * i % 250 for i in range(300)]
FAULTS = ("fail", "timeout", "zeros", "nothing", "wrong", "hang", "alloc", "create", "layout")
HANG = "hang"  # it alone takes its time: test_faults.py has it
CALLS = tuple(kind for kind in FAULTS if kind != HANG)


def test_none_is_left_out():
    source = (SOURCES / "faults.c").read_text()
    names = re.search(r"names\[FAULTS\] = \{(.*?)\}", source, re.DOTALL)[1]
    assert tuple(re.findall(r'"(\w+)"', names)) == FAULTS


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("tiny") / "model.mn"
    tiny.build(target, seed=3)
    return target


def opened(path, device):
    return LLM(path, context=512, kv="int8", device=device, cache_budget=0)


@pytest.fixture(scope="module")
def want(path):
    with opened(path, "cpu") as llm:
        return llm.generate(PROMPT, GREEDY).token_ids


@pytest.mark.parametrize("kind", [*CALLS, "version"])
def test_on_opening(emulator, monkeypatch, path, want, kind):
    """Asked for: refused, with what to do. Left to the curves: the CPU, which says why."""
    keep(tiny.config().mla)
    if kind == "version":
        monkeypatch.setenv("RKNN_EMU_VERSION", "1.6.0")
    emulator.fault("" if kind == "version" else f"{kind}@1+")
    with pytest.raises(MindNanoError, match=r"^device rknpu: .*; or use --device cpu$") as refused:
        opened(path, "rknpu")
    with opened(path, "auto") as llm:
        about = llm.describe()
        assert about["device"] == "cpu" and about["emulated"] is False
        assert about["device_reason"] in str(refused.value)
        assert llm.plan.device == 0
        got = llm.generate(PROMPT, GREEDY)
    assert got.token_ids == want
    assert (got.timings.mla_calls["rknpu"], got.timings.fallbacks, got.timings.device) == (0, 0, "cpu")


@pytest.mark.parametrize(("device", "at"), [("rknpu", "2"), ("auto", "1+")])
@pytest.mark.parametrize("kind", CALLS)
def test_in_the_middle_of_a_request(emulator, path, want, kind, device, at):
    keep(tiny.config().mla)
    with opened(path, device) as llm:
        assert llm.device == "rknpu (emulated)"
        emulator.fault(f"{kind}@{at}")
        got = llm.generate(PROMPT, GREEDY)
        assert got.token_ids == want
        assert got.timings.fallbacks > 0
        emulator.fault("")
        again = llm.generate(PROMPT, GREEDY)
        assert again.token_ids == want and again.timings.fallbacks == 0
        off = "NPU off" in llm.describe()["device_reason"]
        assert (again.timings.mla_calls["rknpu"] == 0) == off
