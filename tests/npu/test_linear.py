"""W8 products on the emulated NPU against the CPU's, to the bit."""

from contextlib import contextmanager

import numpy as np
import pytest

from mindnano import kernels
from mindnano.device.rknpu import linear
from mindnano.device.rknpu.linear import RknpuLinear
from mindnano.device.rknpu.npu import MOST_FAILURES, Npu
from tests.kernels.products import Weights, heavy, quantize

SHAPES = ((40, 96), (300, 256), (1, 32), (97, 300))


@contextmanager
def placed(*matrices, faster=lambda rows, size: True):
    npu = Npu()
    try:
        yield RknpuLinear(npu, [w.matrix for w in matrices], faster)
    finally:
        npu.close()


def product(device, weights, x, accumulate):
    """By the CPU and by the device, into columns of a wider output."""
    want = heavy(np.random.default_rng(9), len(x[0]), len(weights.values) + 5)
    got = want.copy()
    kernels.linear_quantized(*x, weights.matrix, want, 2, accumulate)
    return want, got, device(x, weights.matrix, got, 2, accumulate)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("tokens", [2, 256, 300])
def test_products_are_the_cpus_to_the_bit(emulator, monkeypatch, tokens, accumulate):
    monkeypatch.setattr(linear, "MOST_COLS", 64)  # several parts a core
    rng = np.random.default_rng(8)
    weights = [Weights.random(8, rows, cols, rng) for rows, cols in SHAPES]
    with placed(*weights) as device:
        for w in weights:
            want, got, served = product(
                device, w, quantize(heavy(rng, tokens, w.values.shape[1])), accumulate
            )
            assert served
            np.testing.assert_array_equal(got, want)
        assert device.take_counts() == (len(SHAPES), 0)
        assert device.take_counts() == (0, 0)
        assert linear.linear_bytes(SHAPES) == device.npu.nbytes


def test_all_cores_share_a_product(emulator):
    rng = np.random.default_rng(8)
    w = Weights.random(8, 300, 256, rng)
    with placed(w) as device:
        before = [emulator.count(f"runs{core}") for core in range(3)]
        assert product(device, w, quantize(heavy(rng, 20, 256)), False)[2]
        assert [emulator.count(f"runs{core}") - n for core, n in enumerate(before)] == [2, 2, 2]


def test_only_what_pays_is_placed_and_served(emulator):
    rng = np.random.default_rng(8)
    small, large, w4 = (Weights.random(bits, n, 64, rng) for bits, n in ((8, 32), (8, 320), (4, 320)))

    def faster(rows, size):
        return rows >= 64 and size > 32 * 64

    with placed(small, large, w4, faster=faster) as device:
        for weights, tokens, served in (
            (small, 256, False),
            (large, 64, True),
            (large, 63, False),
            (w4, 256, False),
        ):
            if weights is w4:
                out = np.zeros((tokens, 320), np.float32)
                assert device(quantize(heavy(rng, tokens, 64)), w4.matrix, out, 0, False) is False
            else:
                assert product(device, weights, quantize(heavy(rng, tokens, 64)), False)[2] is served
    with placed(small, w4, faster=faster) as device:
        assert device.empty


@pytest.mark.parametrize("fault", ["zeros@2", "wrong@5", "fail@1", "timeout@3"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_failure_leaves_the_output_alone(emulator, fault, accumulate):
    """So that the CPU can do all of it, adding once."""
    rng = np.random.default_rng(8)
    w = Weights.random(8, 300, 256, rng)
    with placed(w) as device:
        x = quantize(heavy(rng, 100, 256))
        emulator.fault(fault)
        before = heavy(np.random.default_rng(9), 100, 305)
        _, got, served = product(device, w, x, accumulate)
        assert not served
        np.testing.assert_array_equal(got, before)
        assert device.take_counts() == (0, 1)
        want, got, served = product(device, w, x, accumulate)
        assert served
        np.testing.assert_array_equal(got, want)


def test_no_room_for_the_weights(emulator):
    """Projections stay on the CPU for good; the NPU is there for attention."""
    rng = np.random.default_rng(8)
    w = Weights.random(8, 300, 256, rng)
    with placed(w) as device:
        x = quantize(heavy(rng, 100, 256))
        emulator.fault("alloc@2")
        for _ in range(MOST_FAILURES + 1):
            assert not product(device, w, x, False)[2]
        assert device.take_counts() == (0, 1)
        assert "no memory" in device.refused
        assert device.npu.off is None
        assert emulator.count("allocations") == device.npu.nbytes == 0, "the other cores' share is given back"
