"""Whatever the NPU does in the middle of a request, the answer is right and the failure is counted."""

import time

import numpy as np
import pytest

from mindnano.device.choice import Attention, Devices
from mindnano.device.rknpu.npu import MOST_FAILURES
from mindnano.errors import MindNanoError
from mindnano.model.stages import StageClock
from tests.npu.attending import SMALL, Case


@pytest.fixture
def devices(emulator):
    opened = Devices.open("rknpu", "int8")
    yield opened
    opened.close()


@pytest.mark.parametrize("layout", ["latent", "expanded"])
@pytest.mark.parametrize("at", [1, 2, 7, 11])
@pytest.mark.parametrize("kind", ["zeros", "wrong", "nothing", "fail", "fail=-3", "timeout"])
def test_one_failure_costs_one_fallback(emulator, devices, kind, at, layout):
    case, clock = Case(SMALL, layout, "int8", 700, 80), StageClock()
    want = case.on_cpu()
    kind, _, code = kind.partition("=")
    emulator.fault(f"{kind}@{at}" + (f"={code}" if code else ""))
    np.testing.assert_array_equal(case.on_npu(devices, clock), want)
    assert clock.fallbacks == 1
    assert min(clock.mla_calls.values()) > 0
    assert devices.usable
    again = StageClock()
    np.testing.assert_array_equal(case.on_npu(devices, again), want)
    assert (again.fallbacks, again.mla_calls["cpu"]) == (0, 0)


@pytest.mark.parametrize("fmt", ["int8", "bf16"])
def test_a_wrong_result_is_seen_in_both_formats(emulator, fmt):
    devices, clock = Devices.open("rknpu", fmt), StageClock()
    case = Case(SMALL, "expanded", fmt, 0, 30)
    emulator.fault("zeros@1")
    got = case.on_npu(devices, clock)
    devices.close()
    assert clock.fallbacks == 1
    np.testing.assert_array_equal(got[:, :3], case.on_cpu()[:, :3])


def test_a_device_that_keeps_failing_is_left(emulator, devices):
    case, clock = Case(SMALL, "expanded", "int8", 100, 40), StageClock()
    want = case.on_cpu()
    emulator.fault("timeout@1+")
    on = Attention(SMALL, "int8", devices)
    for _ in range(4):
        np.testing.assert_array_equal(case.run(on, clock), want)
    assert clock.fallbacks == MOST_FAILURES
    assert (
        "3 failures in a row, the last: rknn_matmul_run: timed out (-2)"
        in devices.describe()["device_reason"]
    )
    runs = emulator.count("runs")
    case.run(on)
    assert emulator.count("runs") == runs


def test_a_success_between_failures_counts(emulator, devices):
    case, clock = Case(SMALL, "expanded", "int8", 0, 40), StageClock()
    on = Attention(SMALL, "int8", devices)
    for _ in range(2 * MOST_FAILURES):
        emulator.fault("fail@1")
        case.run(on, clock)
        case.run(on, clock)
    assert devices.usable
    assert clock.fallbacks == 2 * MOST_FAILURES


@pytest.mark.parametrize("fault", ["alloc@1", "alloc@3", "create@2", "layout@2"])
def test_no_room_or_another_layout_for_a_block(emulator, devices, fault):
    case, clock = Case(SMALL, "latent", "int8", 600, 50), StageClock()
    emulator.fault(fault)
    np.testing.assert_array_equal(case.on_npu(devices, clock), case.on_cpu())
    assert clock.fallbacks == 1


@pytest.mark.parametrize(
    ("variable", "value"),
    [("RKNN_EMU_CONTEXTS", "7"), ("RKNN_EMU_DESCRIPTORS", "1"), ("RKNN_EMU_ADDRESS_SPACE", "99999")],
)
def test_limits_of_the_board(emulator, devices, monkeypatch, variable, value):
    """Reached in the middle of a request: the emulation counts a broken rule, the answer is right."""
    emulator.expected = True
    monkeypatch.setenv(variable, value)
    case, clock = Case(SMALL, "latent", "int8", 600, 50), StageClock()
    np.testing.assert_array_equal(case.on_npu(devices, clock), case.on_cpu())
    assert clock.fallbacks > 0


def test_a_core_that_does_not_answer_is_given_up(emulator, monkeypatch):
    monkeypatch.setenv("RKNN_EMU_HANG", "1")
    emulator.expected = True  # the core that hangs gives nothing back
    devices = Devices.open("rknpu", "int8")
    devices.npu.patience_s = 0.2
    case, clock = Case(SMALL, "expanded", "int8", 600, 50), StageClock()
    want = case.on_cpu()
    emulator.fault("hang@4")
    np.testing.assert_array_equal(got := case.on_npu(devices, clock), want)
    assert clock.fallbacks == 1
    assert "did not answer within 0.2 s" in devices.describe()["device_reason"]
    time.sleep(1.2)  # what comes in too late may not reach the result
    np.testing.assert_array_equal(got, want)
    devices.close()


@pytest.mark.parametrize("what", ["query", "key", "value"])
def test_values_beyond_fp16_are_the_cpus(emulator, what):
    case, clock = Case(SMALL, "expanded", "bf16", 20, 30), StageClock()
    huge = np.uint16(0x4790)  # 73,728 in BF16
    if what == "query":
        case.q[3, 1, 5] = 1e6
    else:
        case.kv.arrays()[what[0]][1, 7, 3] = huge
    devices = Devices.open("rknpu", "bf16")
    for _ in range(2 * MOST_FAILURES):
        got = case.on_npu(devices, clock)
    np.testing.assert_array_equal(got[:, :3], case.on_cpu()[:, :3])
    assert clock.fallbacks == 2 * MOST_FAILURES
    assert devices.usable, "no fault of the device"
    devices.close()


def test_what_cannot_be_had_is_refused(monkeypatch, emulator):
    with pytest.raises(MindNanoError, match="device: expected one of auto, cpu, rknpu, got 'gpu'"):
        Devices.open("gpu", "int8")
    with pytest.raises(MindNanoError, match="fp32 cache is attended on the CPU only; use --kv int8"):
        Devices.open("rknpu", "fp32")
    emulator.fault("zeros@1+")
    with pytest.raises(MindNanoError, match=r"device rknpu: .* wrong \(all zeros\).*; or use --device cpu"):
        Devices.open("rknpu", "int8")


def test_auto_says_why_the_cpu_is_used(monkeypatch, emulator):
    assert "run mindnano calibrate" in Devices.open("auto", "int8").describe()["device_reason"]
    emulator.fault("zeros@1+")
    found = Devices.open("auto", "int8").describe()
    assert found["device"] == "cpu" and "all zeros" in found["device_reason"]
    assert Devices.open("cpu", "int8").describe() == {
        "device": "cpu", "emulated": False, "device_reason": "as asked",
    }  # fmt: skip
