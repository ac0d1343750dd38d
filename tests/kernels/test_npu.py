"""The NPU's host side against its twins: operands, the softmax between two products, sums into rows.

The products themselves are NumPy's here; tests/npu runs them in an emulation of the library.
"""

from itertools import pairwise

import numpy as np
import pytest

from mindnano import kernels
from mindnano.kernels import HeadHistory, Matrix
from mindnano.kernels.reference import mla as mla_ref
from mindnano.kernels.reference import npu as ref

from .caches import Expanded, Latent
from .products import ISAS, Weights, assert_near, heavy, quantize, running

FORMATS = ("int8", "fp16")


def memory(nbytes: int, value: int = 0xA5) -> np.ndarray:
    """Poisoned bytes on a cache line's boundary."""
    raw = np.full(nbytes + 64, value, np.uint8)
    offset = -raw.ctypes.data % 64
    return raw[offset : offset + nbytes]


def as_bytes(array: np.ndarray) -> np.ndarray:
    data = memory(array.nbytes)
    data[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    return data


def floats(rows: int) -> np.ndarray:
    return np.full(rows, np.nan, np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("rows", "capacity", "dims", "depth"), [(1, 1, 8, 32), (37, 64, 96, 96), (64, 64, 192, 192)]
)
def test_queries(isa, format, rows, capacity, dims, depth):
    rng = np.random.default_rng(1)
    q, scale = heavy(rng, rows + 5, 3, dims), 0.07
    size = ref.OPERAND[format].itemsize
    a, row_scales = memory(depth * capacity * size), floats(rows)
    with running(isa):
        assert kernels.npu_queries(format, q, 1, 3, 3 + rows, scale, depth, capacity, a, row_scales)
    mine = q[3 : 3 + rows, 1]
    if format == "int8":
        values, scales = mla_ref.quantize(mine)
        np.testing.assert_array_equal(row_scales, scales * np.float32(scale))
    else:
        values = (mine * np.float32(scale)).astype(np.float16)
    want = ref.a_operand(format, values, capacity, depth)
    np.testing.assert_array_equal(a.view(want.dtype).reshape(want.shape), want)


def test_queries_beyond_fp16_are_told():
    q = np.ones((4, 1, 8), np.float32)
    a, row_scales = memory(4 * 32 * 2), floats(4)
    for value, fits in ((65504.0, True), (65505.0, False), (np.inf, False), (np.nan, False)):
        q[2, 0, 5] = value
        assert kernels.npu_queries("fp16", q, 0, 0, 4, 1.0, 32, 4, a, row_scales) is fits


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("seen", [-40, -3, 1, 100, 450, 511, 512, 3000])
def test_softmax(isa, format, seen):
    rng = np.random.default_rng(2)
    rows, capacity = 75, 96
    m, l = np.full(rows, -np.inf, np.float32), np.zeros(rows, np.float32)
    m[::2], l[::2] = heavy(rng, len(m[::2])), rng.random(len(l[::2])) + 1
    if format == "int8":
        sums = rng.integers(-(10**5), 10**5, (rows, ref.TILE_KEYS)).astype(np.int32)
        scales = tuple((rng.random(n) / 200).astype(np.float32) for n in (rows, ref.TILE_KEYS, ref.TILE_KEYS))
    else:
        sums, scales = heavy(rng, rows, ref.TILE_KEYS), None
    want = ref.softmax(format, sums, scales, seen, m, l)
    p, decay, p_scale = (
        memory(capacity * ref.TILE_KEYS * ref.OPERAND[format].itemsize),
        floats(rows),
        floats(rows),
    )
    if format == "fp16":
        p_scale[:] = 1
    c = as_bytes(ref.c_operand(format, sums, capacity))
    with running(isa):
        kernels.npu_softmax(
            format, c, *(scales or (None,) * 3), seen, rows, capacity, m, l, decay, p_scale, p
        )
    got = ref.a_rows(p.view(ref.OPERAND[format]).reshape(-1, capacity, ref.PIECE[format]))
    assert not got[rows:].any()
    one_step = 1 if format == "int8" else 1e-3  # an e^x that rounds the other way may move a P across a tie
    assert np.abs(got[:rows].astype(np.float64) - want[0]).max() <= one_step
    assert (got[:rows] != want[0]).mean() < 2e-3
    for mine, twin in zip((m, l, decay, p_scale), want[1:], strict=True):
        np.testing.assert_allclose(mine, twin, rtol=2e-6, atol=1e-37)  # e^-inf is the least float


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("first", [0, 13, 40])
def test_accumulate(isa, format, first):
    rng = np.random.default_rng(3)
    rows, capacity, dims, cols = 41, 64, 24, 32
    sums = rng.integers(-(2**22), 2**22, (rows, cols)).astype(ref.SUM[format])
    o, decay, p_scale = heavy(rng, rows, dims), rng.random(rows, np.float32), rng.random(rows, np.float32)
    if format == "fp16":
        p_scale[:] = 1
    want = o.copy()
    want[first:] = ref.accumulate(sums, decay, p_scale, o)[first:]
    with running(isa):
        kernels.npu_accumulate(
            format, as_bytes(ref.c_operand(format, sums, capacity)), decay, p_scale, first, capacity, o
        )
    np.testing.assert_array_equal(o[:first], want[:first])
    assert_near(o, want)


@pytest.mark.parametrize("format", FORMATS)
def test_check_sees_what_is_wrong(format):
    rng = np.random.default_rng(4)
    rows, capacity, depth, cols = 50, 64, 96, 64
    x, w = (
        rng.integers(-127, 128, shape).astype(ref.OPERAND[format]) for shape in ((rows, depth), (depth, cols))
    )
    if format == "fp16":
        x, w = x / np.float16(16), w / np.float16(32)
    exact = (x.astype(np.float64) @ w.astype(np.float64)).astype(ref.SUM[format])
    a, b = as_bytes(ref.a_operand(format, x, capacity, depth)), as_bytes(ref.b_operand(format, w))

    def wrong(sums, seed=7, first=0, cols=cols):
        c = as_bytes(ref.c_operand(format, sums, capacity))
        return kernels.npu_check(format, a, b, c, first, rows, capacity, depth, cols, 100, seed)

    assert wrong(exact) == 0
    assert wrong(np.zeros_like(exact)) > 80
    assert wrong(np.roll(exact, 1, 1)) > 80
    half = exact.copy()
    half[::2] = 0
    assert 20 < wrong(half) < 80
    if format == "int8":
        assert wrong(exact + 1) == 100
    assert wrong(half, 7) == wrong(half, 7)
    late = exact.copy()
    late[40:, :5] = 0
    assert wrong(late) < 10 and wrong(late, first=40, cols=5) > 80


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("layout", ["expanded", "latent"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("begin", "length"), [(0, 1), (0, 512), (512, 700), (512, 1030)])
def test_history_as_operands(isa, layout, format, begin, length):
    """K^T and V of a part of the history, padded with zeros; the same values as the CPU's scratch attends to."""
    rng = np.random.default_rng(5)
    heads, nope, dims, v_dims, rank = 2, 24, 16, 40, 48
    kept = format if format == "int8" else "bf16"
    if layout == "expanded":
        cache = Expanded.of(
            kept, heavy(rng, heads, length, nope + dims), heavy(rng, heads, length, v_dims), length + 3
        )
        k, v = cache.k, cache.v
    else:
        cache = Latent.of(kept, heavy(rng, length, rank), heavy(rng, length, dims), length + 3)
        values = heavy(rng, heads * (nope + v_dims), rank)
        k, v = mla_ref.expand(cache.latent, cache.rope, values, heads, v_dims)
        kv_b = Matrix.dense(values, "fp32")
    history = HeadHistory(format, heads, nope, dims, v_dims, "rknpu")
    k_bytes, v_bytes, tile_bytes = history.tile_parts()
    tiles = -(-(length - begin) // 512)
    data = memory(tiles * tile_bytes)
    with running(isa):
        if layout == "expanded":
            history.load_expanded(cache.view, length, 1, 1, begin, data)
        else:
            history.load_latent(cache.view, length, 1, 1, kv_b, begin, data)
    assert history.fits
    for tile in range(tiles):
        at, end = begin + 512 * tile, min(begin + 512 * tile + 512, length)
        part = data[tile * tile_bytes : (tile + 1) * tile_bytes]
        wanted_k, wanted_v = (np.zeros((512, n), np.float32) for n in (64, 64))
        wanted_k[: end - at, : nope + dims], wanted_v[: end - at, :v_dims] = k[1, at:end], v[1, at:end]
        got_k = part[:k_bytes].view(ref.OPERAND[format])
        got_v = part[k_bytes : k_bytes + v_bytes].view(ref.OPERAND[format])
        got_k = ref.c_rows(
            got_k.reshape(512 // ref.WIDTH[format], 2, -1, 32)
            .swapaxes(1, 2)
            .reshape(512, 2, 32)
            .swapaxes(0, 1)
        )
        got_v = got_v.reshape(64 // ref.WIDTH[format], 16, -1, 32).transpose(1, 3, 0, 2).reshape(512, 64)
        if format == "int8":
            scales = part[k_bytes + v_bytes :].view(np.float32).reshape(2, 512)
            got_k, got_v = got_k * scales[0][:, None], got_v * scales[1][:, None]
        tolerance = 0.0 if layout == "expanded" else 5e-6
        if layout == "latent" and format == "int8":
            tolerance = 1.01 / 254  # quantized once more on the way
        elif format == "fp16":
            tolerance += 2.0**-11
        for got, wanted in ((got_k, wanted_k), (got_v, wanted_v)):
            assert_near(got.astype(np.float32), wanted, tolerance)
            assert not got[end - at :].any()


def test_a_history_beyond_fp16_is_told():
    k, v = np.ones((1, 10, 8), np.float32), np.ones((1, 10, 8), np.float32)
    v[0, 3, 2] = 70000
    cache = Expanded.of("bf16", k, v, 10)
    history = HeadHistory("fp16", 1, 8, 0, 8, "rknpu")
    data = memory(history.tile_parts()[2])
    history.load_expanded(cache.view, 3, 0, 1, 0, data)
    assert history.fits
    history.load_expanded(cache.view, 10, 0, 1, 0, data)
    assert not history.fits


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("rows", "outputs", "cols", "parts", "at_once"),
    [(1, 40, 96, 1, 1), (33, 70, 300, 2, 2), (64, 128, 512, 3, 4)],
)
def test_a_w8_product_from_its_groups(isa, rows, outputs, cols, parts, at_once):
    """Equal to linear_quantized to the bit, in any cut of outputs and groups."""
    rng = np.random.default_rng(6)
    w, x = Weights.random(8, outputs, cols, rng), quantize(heavy(rng, rows, cols))
    want, got = (np.full((rows, outputs), np.nan, np.float32) for _ in range(2))
    capacity, groups = 64, x[1].shape[1]
    with running(isa):
        kernels.linear_quantized(*x, w.matrix, want)
        cuts = [outputs * i // parts // 16 * 16 for i in range(parts)] + [outputs]
        for first, end in pairwise(cuts):
            wide = -(-(end - first) // 32) * 32
            b = memory(-(-cols // 32) * 32 * wide)
            kernels.npu_weights(w.matrix, first, end - first, wide, b)
            operands = np.concatenate(
                [o.reshape(-1) for o in ref.weights(w.values, first, end - first, wide)]
            )
            np.testing.assert_array_equal(b.view(np.int8), operands)
            acc, part = (
                np.full((rows + 1) * wide, np.nan, np.float32),
                np.full((rows, end - first), np.nan, np.float32),
            )
            for g in range(0, groups, at_once):
                some = range(g, min(g + at_once, groups))
                sums = []
                for one in some:
                    depth = min(128, x[0].shape[1] - 128 * one)
                    a = memory(depth * capacity)
                    kernels.npu_inputs(*x, one, depth, capacity, a)
                    padded = ref.a_rows(a.view(np.int8).reshape(-1, capacity, 16))
                    np.testing.assert_array_equal(padded[:rows], x[0][:, 128 * one : 128 * one + depth])
                    assert not padded[rows:].any()
                    block = np.zeros((depth, wide), np.int32)
                    block[: w.values.shape[1] - 128 * one, : end - first] = w.values[first:end, 128 * one :][
                        :, :depth
                    ].T
                    sums.append(ref.c_operand("int8", padded.astype(np.int32) @ block, capacity))
                c_bytes = sums[0].nbytes
                kernels.npu_combine(
                    as_bytes(np.stack(sums)), c_bytes, g, len(some), *x, w.matrix, first, end - first, wide, capacity,
                    acc, part,
                )  # fmt: skip
            got[:, first:end] = part
    np.testing.assert_array_equal(got, want)


def test_refusals():
    rng = np.random.default_rng(7)
    q, a, scales = heavy(rng, 5, 2, 16), memory(32 * 8), floats(5)
    with pytest.raises(ValueError, match="format: expected int8 or fp16, got 'bf16'"):
        kernels.npu_queries("bf16", q, 0, 0, 5, 1.0, 32, 8, a, scales)
    with pytest.raises(ValueError, match="capacity: expected at least 5 rows, got 4"):
        kernels.npu_queries("int8", q, 0, 0, 5, 1.0, 32, 4, a, scales)
    with pytest.raises(ValueError, match="depth: expected a multiple of 32 from 16"):
        kernels.npu_queries("int8", q, 0, 0, 5, 1.0, 48, 8, a, scales)
    with pytest.raises(ValueError, match="a: expected 256 bytes or more"):
        kernels.npu_queries("int8", q, 0, 0, 5, 1.0, 32, 8, a[:255], scales)
    with pytest.raises(ValueError, match="rknpu has int8 and fp16, got 'bf16'"):
        HeadHistory("bf16", 1, 8, 0, 8, "rknpu")
    history = HeadHistory("int8", 1, 8, 0, 8, "rknpu")
    cache = Expanded.of("int8", heavy(rng, 1, 600, 8), heavy(rng, 1, 600, 8), 600)
    with pytest.raises(ValueError, match="memory: expected for a part"):
        history.load_expanded(cache.view, 600, 0, 1)
    with pytest.raises(ValueError, match="begin: expected a multiple of 512 below 600, got 600"):
        history.load_expanded(cache.view, 600, 0, 1, 600, memory(10))
    with pytest.raises(ValueError, match=r"memory: expected \[36864\] or more"):
        history.load_expanded(cache.view, 600, 0, 1, 512, memory(36863))
    with pytest.raises(ValueError, match="attended there"):
        history.attend(q[:, :1, :8].copy(), 0, 0, 5, 1.0, np.zeros((5, 1, 8), np.float32))
    w4 = Weights.random(4, 32, 32, rng)
    with pytest.raises(ValueError, match="matrix: expected one of W8"):
        kernels.npu_weights(w4.matrix, 0, 32, 32, memory(32 * 32))
