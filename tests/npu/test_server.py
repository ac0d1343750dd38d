"""A server beside the emulated NPU: what failed in the middle of a request is told, and the answer is right."""

import re

import pytest

from mindnano import LLM
from mindnano.checkpoint import tiny
from tests.server.running import Live

ASKED = {"messages": [{"role": "user", "content": "x " * 150}], "max_tokens": 4, "temperature": 0}


@pytest.fixture
def path(tmp_path):
    tiny.build(tmp_path / "tiny.mn", seed=3)
    return tmp_path / "tiny.mn"


def answer(path, device, before=lambda: None):
    """(the answer, /props, /metrics) of a server of its own."""
    with LLM(path, context=1024, kv="int8", device=device, cache_budget=0) as llm:
        live = Live(llm)
        try:
            before()
            with live.client() as client:
                got = client.post("/v1/chat/completions", json=ASKED).json()
                return got, client.get("/props").json(), client.get("/metrics").text
        finally:
            live.stop()


def count(metrics, name):
    return float(re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)[1])


def test_a_failure_within_a_request(emulator, path):
    want, props, metrics = answer(path, "cpu")
    assert props["device"]["effective"] == "cpu" and props["device"]["emulated"] is False
    assert count(metrics, "mindnano_device_fallbacks_total") == 0
    got, props, metrics = answer(path, "rknpu", lambda: emulator.fault("timeout@9"))
    assert got["choices"][0]["message"] == want["choices"][0]["message"]
    assert got["timings"]["fallbacks"] == 1 and got["timings"]["mla_calls"]["rknpu"] > 0
    assert props["device"]["effective"] == "rknpu (emulated)" and props["device"]["emulated"] is True
    assert props["memory"]["plan"]["device"] > 0
    assert count(metrics, "mindnano_device_fallbacks_total") == 1
    calls = got["timings"]["mla_calls"]
    for device in ("cpu", "rknpu"):
        name = f'mindnano_prompt_attention_calls_total{{device="{device}"}}'
        assert count(metrics, re.escape(name)) == calls[device]
