"""Prefill attention on the emulated NPU against the CPU's."""

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mindnano.cache.kv import LAYOUTS
from mindnano.device.choice import Attention, Devices
from mindnano.device.rknpu import attention
from mindnano.device.rknpu.contexts import MOST_CONTEXTS
from mindnano.kernels.reference import mla as ref
from mindnano.model.stages import StageClock
from tests.kernels.products import ISAS, running
from tests.npu.attending import LING, SMALL, Case, shape


@contextmanager
def opened(fmt="int8"):
    devices = Devices.open("rknpu", fmt)
    try:
        yield devices
    finally:
        devices.close()


@st.composite
def cases(draw):
    config = shape(
        heads=draw(st.integers(1, 5)), nope=8 * draw(st.integers(0, 6)), rope=8 * draw(st.integers(1, 5)),
        v_dims=8 * draw(st.integers(1, 6)), rank=16 * draw(st.integers(1, 10)),
    )  # fmt: skip
    start = draw(st.sampled_from([0, 1, 5, 300, 511, 512, 513, 1000, 1100]))
    rows = draw(st.integers(1, 200) | st.sampled_from([63, 64, 65, 511, 512, 513, 700]))
    return Case(config, draw(st.sampled_from(LAYOUTS)), "int8", start, rows, draw(st.integers(0, 99)))


ways = (cases(), st.sampled_from([64, 256, 2048]), st.sampled_from([1, 2, 16]), st.sampled_from(ISAS))
checking = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@settings(max_examples=25, **checking)
@given(*ways)
def test_int8_is_the_cpus_to_the_bit(emulator, case, most_rows, span_tiles, isa):
    """Every shape, however rows and history are cut, on every instruction set."""
    check_bits(case, most_rows, span_tiles, isa)


@pytest.mark.slow
@settings(max_examples=500, **checking)
@given(*ways)
def test_int8_is_the_cpus_to_the_bit_in_many_cases(emulator, case, most_rows, span_tiles, isa):
    check_bits(case, most_rows, span_tiles, isa)


def check_bits(case, most_rows, span_tiles, isa):
    with running(isa), opened() as devices, pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "SPAN_TILES", span_tiles)
        clock, on = StageClock(), Attention(case.config, "int8", devices)
        on.npu.most_rows = most_rows
        np.testing.assert_array_equal(case.run(on, clock), case.on_cpu())
    assert clock.mla_calls["rknpu"] > 0 == clock.mla_calls["cpu"] == clock.fallbacks


def test_the_twin_agrees(emulator):
    """Not only CPU and NPU with each other: both with the definition in NumPy."""
    case = Case(SMALL, "expanded", "int8", 600, 90)
    arrays, n = case.kv.arrays(), 690
    k, v = ((arrays[x][:, :n], arrays[f"{x}_scales"][:, :n]) for x in "kv")
    with opened() as devices:
        got = case.on_npu(devices)
    want = ref.attend_int8(case.q, k, v, case.start, case.scale)
    assert np.abs(got - want).max() <= 2e-3 * np.abs(want).max()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
def test_float_caches_within_fp16(emulator, layout, fmt):
    """Q, K, V and P are rounded to FP16, 2^-11 each; the CPU rounds what it expands to the cache's format."""
    case = Case(shape(4, 56, 16, 40, 96), layout, fmt, 700, 150)
    exact, clock = case.exact(), StageClock()
    with opened(fmt) as devices:
        got, cpu = (case.on_npu(devices, clock), case.on_cpu())
    ours, theirs = (np.sqrt(np.square(x - exact).mean() / np.square(exact).mean()) for x in (got, cpu))
    print(f"{layout} {fmt}: relative error on the NPU {ours:.6f}, on the CPU {theirs:.6f}")
    assert ours < 2.0**-11 * 4
    assert clock.mla_calls["rknpu"] > 0 == clock.fallbacks


def test_sixteen_heads_go_to_three_cores_as_6_5_5(emulator):
    with opened() as devices:
        before = [emulator.count(f"runs{core}") for core in range(3)]
        Case(LING, "latent", "int8", 0, 64).on_npu(devices)
        runs = [emulator.count(f"runs{core}") - n for core, n in enumerate(before)]
    assert runs == [12, 10, 10]  # two products a head


def test_cores_work_at_the_same_time(emulator):
    emulator.cost("2000,1e9,1e9")
    with opened() as devices:
        Case(SMALL, "expanded", "int8", 0, 64).on_npu(devices)
    assert emulator.count("overlap") == 3


def test_nothing_is_made_again_for_a_second_block(emulator):
    case = Case(SMALL, "latent", "int8", 1200, 300)
    with opened() as devices:
        on = Attention(case.config, "int8", devices)
        case.run(on)
        made = [emulator.count(what) for what in ("contexts", "allocations", "slices")]
        case.run(on)
        assert [emulator.count(what) for what in ("contexts", "allocations", "slices")] == made
        assert made[1] == 3  # one buffer a core
        assert devices.npu.nbytes == attention.memory_bytes(SMALL, "int8", on.npu.most_rows)


def test_contexts_stay_under_their_limit(emulator, monkeypatch):
    from mindnano.device.rknpu import contexts

    monkeypatch.setattr(contexts, "MOST_CONTEXTS", 2)
    with opened() as devices:
        for rows in (10, 100, 200, 400, 10):
            case = Case(SMALL, "expanded", "int8", 0, rows)
            np.testing.assert_array_equal(case.on_npu(devices), case.on_cpu())
        assert emulator.count("contexts") == 3 * (1 + 2)
    assert 3 * (1 + MOST_CONTEXTS) < 150


def test_pieces_are_bounded(emulator, monkeypatch):
    """A prefill can be left between them: their number grows with queries times keys."""
    monkeypatch.setattr(attention, "PIECE_PAIRS", 64 * 512)
    case = Case(SMALL, "expanded", "int8", 2048 - 64, 64)
    with opened() as devices:
        on = Attention(case.config, "int8", devices)
        out = np.zeros((64, 4, 16), np.float32)
        pieces = list(on.attend(case.q, case.kv, case.kv_b, case.start, case.scale, out, StageClock()))
    assert len(pieces) == 2 * 4  # two rounds of heads, four spans of one tile


def test_a_prefill_that_is_left_leaves_no_work_behind(emulator):
    case = Case(SMALL, "expanded", "int8", 1500, 64)
    with opened() as devices:
        on = Attention(case.config, "int8", devices)
        out = np.zeros((64, 4, 16), np.float32)
        pieces = on.attend(case.q, case.kv, case.kv_b, case.start, case.scale, out, StageClock())
        next(pieces)
        pieces.close()
        np.testing.assert_array_equal(case.run(on), case.on_cpu())


def test_phases_are_timed(emulator):
    emulator.cost("3000,1e9,1e9")
    clock = StageClock()
    with opened() as devices:
        Case(SMALL, "latent", "int8", 600, 64).on_npu(devices, clock)
    phases = clock.mla_seconds
    assert min(phases.values()) > 0
    # Two rounds of heads, two tiles, two products, of 3 ms each by the emulation's clock.
    assert phases["matmul"] >= 8 * 0.003
    assert clock.seconds["mla"] >= phases["matmul"]
