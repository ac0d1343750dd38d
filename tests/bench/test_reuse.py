"""`mindnano bench reuse` and `bench memory` on a small model: what they measure is what they say."""

from dataclasses import replace

import pytest

from mindnano.bench import memory, reuse
from mindnano.checkpoint import tiny

ENGINE = {"kv": "int8", "kv_layout": "latent", "threads": 1}


def test_reuse_goes_through_two_processes(tmp_path):
    tiny.build(tmp_path / "model.mn")
    found = reuse.measure(str(tmp_path / "model.mn"), [256, 512], answer=8, **ENGINE)
    assert [one.cold.prompt for one in found] == [256, 512]
    for one in found:
        assert one.cold.cached == 0
        assert one.follow_up.cached == one.restarted.cached == one.reusable == one.cold.prompt
        assert one.again.cached == one.again.prompt == one.cold.prompt
        assert one.follow_up.prompt > one.cold.prompt + 8
        assert min(one.save_s, one.load_s, one.cold.ttft, one.nbytes) > 0
        assert "said" not in one.as_dict()["cold"]
    text = reuse.table(found, "Reuse", synthetic=True).markdown()
    assert text.count("\n| 256 |") == 1 and "synthetic weights" in text


def test_memory_as_a_table():
    one = memory.Resident("latent", "int8", 8192, 4096, 5100, 5000, 6000, 6100)
    assert one.error == one.ready_error == pytest.approx(0.02)
    text = memory.table([one], "Memory", synthetic=False).markdown()
    assert "+2.0% / -1.6%" in text and "emulated" not in text
    beside = replace(one, device="rknpu (emulated)")
    assert "emulated device" in memory.table([one, beside], "Memory", synthetic=False).heading


def test_reuse_says_emulated():
    cold = reuse.Answer(1.0, 256, 0, [], "rknpu (emulated)")
    warm = reuse.Answer(0.01, 280, 256, [], "rknpu (emulated)")
    one = reuse.Conversation(cold, warm, 0.1, 1 << 20, 0.1, 256, warm, warm)
    assert "emulated device" in reuse.table([one], "Reuse", synthetic=False).heading
    plain = replace(one, cold=replace(cold, device="cpu"))
    assert "emulated" not in reuse.table([plain], "Reuse", synthetic=False).heading
