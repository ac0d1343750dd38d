"""The emulation itself: every rule it is there to enforce is seen when broken, and products are right when none is."""

import ctypes
import threading
from ctypes import byref, c_uint64

import numpy as np
import pytest

from mindnano.device.rknpu.binding import (
    FROM_DEVICE,
    NATIVE,
    NORM,
    TO_DEVICE,
    IoAttr,
    Library,
    MatmulInfo,
    MatmulShape,
    NpuError,
)
from mindnano.kernels.reference import npu as layouts
from tests.npu.by_hand import Matmul

TP_NORM = 2


@pytest.fixture
def library(emulator):
    return Library(emulator.path)


@pytest.fixture
def broken(emulator):
    """A check that the last call broke a rule, told in these words."""
    emulator.expected = True

    def check(words):
        count, text = emulator.violations()
        assert count > 0 and words in text, text

    yield check


@pytest.fixture
def matmul(library):
    made = []

    def make(*arguments, **more):
        made.append(Matmul(library, *arguments, **more))
        return made[-1]

    yield make
    for one in made:
        if one.handle:
            one.close()


def operands(format, rows, depth, cols):
    rng = np.random.default_rng(3)
    x, w = (
        rng.integers(-9, 10, shape).astype(layouts.OPERAND[format])
        for shape in ((rows, depth), (depth, cols))
    )
    return x, w, x.astype(np.float64) @ w.astype(np.float64)


@pytest.mark.parametrize(("format", "kind", "cols"), [("int8", 2, 64), ("fp16", 1, 48)])
@pytest.mark.parametrize("b_layout", [NORM, NATIVE, TP_NORM])
@pytest.mark.parametrize("ac_layout", [NORM, NATIVE])
def test_products_in_every_layout(matmul, format, kind, cols, b_layout, ac_layout):
    x, w, exact = operands(format, 5, 96, cols)
    m = matmul(5, 96, cols, kind, (ac_layout, b_layout))
    native_a, native_b = layouts.a_operand(format, x, 5, 96), layouts.b_operand(format, w)
    a, b = (x, native_a)[ac_layout], {NORM: w, NATIVE: native_b, TP_NORM: w.T}[b_layout]
    assert m.attr.A.shape() == a.shape and m.attr.B.shape() == b.shape
    for operand, array in (("A", a), ("B", b)):
        m.set(operand, array)
        # The normal layouts are read when they are set.
        m.call("rknn_matmul_set_io_mem", m.mems[operand], byref(getattr(m.attr, operand)))
    m.memory("C")
    got = m.result(layouts.SUM[format])
    got = layouts.c_rows(got.reshape(cols // 4, 5, 4)) if ac_layout == NATIVE else got.reshape(5, cols)
    np.testing.assert_array_equal(got, exact)


@pytest.mark.parametrize(("format", "kind"), [("int8", 2), ("fp16", 1)])
def test_the_librarys_own_conversion_of_b(emulator, format, kind):
    _, w, _ = operands(format, 1, 64, 96)
    native, info = np.zeros_like(w), MatmulInfo(type=kind)
    convert = emulator.dll.rknn_B_normal_layout_to_native_layout
    assert (
        convert(
            w.ctypes.data_as(ctypes.c_void_p), native.ctypes.data_as(ctypes.c_void_p), 64, 96, byref(info)
        )
        == 0
    )
    np.testing.assert_array_equal(native.reshape(-1), layouts.b_operand(format, w).reshape(-1))


def test_shapes_may_change_where_they_were_announced(emulator):
    shapes, attrs = (MatmulShape * 2)(MatmulShape(4, 32, 32), MatmulShape(8, 32, 32)), (IoAttr * 2)()
    handle, info = c_uint64(), MatmulInfo(type=2, AC_layout=NATIVE, B_layout=NATIVE)
    dll = emulator.dll
    assert dll.rknn_matmul_create_dynamic_shape(byref(handle), byref(info), 2, shapes, attrs) == 0
    assert [attr.A.shape() for attr in attrs] == [(2, 4, 16), (2, 8, 16)]
    assert dll.rknn_matmul_set_dynamic_shape(handle, byref(shapes[1])) == 0
    assert emulator.violations()[0] == 0
    emulator.expected = True
    assert dll.rknn_matmul_set_dynamic_shape(handle, byref(MatmulShape(5, 32, 32))) < 0
    assert dll.rknn_matmul_destroy(handle) == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"depth": 48}, "K = 48: a multiple of 32"),
        ({"cols": 48}, "N = 48: a multiple of 32"),
        ({"cols": 40, "kind": 1}, "N = 40: a multiple of 16"),
        ({"depth": 4128}, "at most 4096"),
        ({"cols": 8192}, "at most 4096"),
        ({"kind": 10}, "type 10"),
        ({"B_quant_type": 1}, "quantization types"),
        ({"layouts": (2, 1)}, "layouts"),
    ],
)
def test_a_shape_it_cannot_do(library, broken, more, words):
    with pytest.raises(NpuError, match=r"\(-5\)"):
        Matmul(library, **more)
    broken(words)


def test_an_info_that_was_not_zeroed(library, broken):
    info = MatmulInfo(M=1, K=32, N=32, type=2)
    info.reserved[33] = 1
    with pytest.raises(NpuError):
        library.call("rknn_matmul_create", byref(c_uint64()), byref(info), byref(IoAttr()))
    broken("wasn't zeroed")


def test_a_domain_needs_a_new_driver(library, matmul, broken, monkeypatch):
    matmul(iommu_domain_id=1)
    monkeypatch.setenv("RKNN_EMU_DRIVER", "0.9.6")
    with pytest.raises(NpuError):
        Matmul(library, iommu_domain_id=1)
    broken("domains need driver 0.9.8")


def test_k_above_3072_fails_with_many_rows(matmul, broken):
    m = matmul(5, 4096, 32)
    for operand in "ABC":
        m.memory(operand)
    with pytest.raises(NpuError, match="rknn_matmul_run: failed"):
        m.call("rknn_matmul_run")
    broken("K = 4096 with M > 4")


def test_too_many_contexts(library, matmul, broken, monkeypatch):
    monkeypatch.setenv("RKNN_EMU_CONTEXTS", "3")
    for _ in range(3):
        matmul()
    with pytest.raises(NpuError, match="out of memory"):
        Matmul(library)
    broken("more than 3 contexts")


def test_too_many_descriptors(library, matmul, broken, monkeypatch):
    monkeypatch.setenv("RKNN_EMU_DESCRIPTORS", "2")
    m = matmul()
    m.memory("A"), m.memory("B")
    with pytest.raises(NpuError, match="no memory"):
        m.memory("C")
    broken("more than 2 allocations")


def test_a_full_address_space(library, matmul, broken, monkeypatch):
    monkeypatch.setenv("RKNN_EMU_ADDRESS_SPACE", "8192")
    m = matmul()
    m.memory("A"), m.memory("B")
    with pytest.raises(NpuError, match="no memory"):
        m.memory("C")
    broken("address space is full")


def test_an_operand_that_was_not_synced_is_stale(matmul):
    x, w, exact = operands("int8", 8, 64, 32)
    m = matmul()
    m.set("A", layouts.a_operand("int8", x, 8, 64))
    m.set("B", layouts.b_operand("int8", w))
    m.memory("C")
    assert (layouts.c_rows(m.result(np.int32).reshape(8, 8, 4)) == exact).all()
    m.set("A", layouts.a_operand("int8", -x, 8, 64), send=False)
    assert (layouts.c_rows(m.result(np.int32).reshape(8, 8, 4)) == exact).all()
    m.sync("A", TO_DEVICE)
    assert (layouts.c_rows(m.result(np.int32).reshape(8, 8, 4)) == -exact).all()


def test_a_result_that_was_not_synced_is_poison(matmul):
    x, w, exact = operands("int8", 8, 64, 32)
    m = matmul()
    m.set("A", layouts.a_operand("int8", x, 8, 64))
    m.set("B", layouts.b_operand("int8", w))
    m.memory("C")
    m.result(np.int32)
    m.call("rknn_matmul_run")
    assert (m.view("C") == 0xA5).all()
    m.sync("C", FROM_DEVICE)
    assert (layouts.c_rows(m.view("C").view(np.int32).reshape(8, 8, 4)) == exact).all()


def test_normal_operands_are_copied_when_they_are_set(matmul):
    x, w, exact = operands("int8", 8, 64, 32)
    m = matmul(layouts=(NORM, NATIVE))
    m.set("A", x)
    m.call("rknn_matmul_set_io_mem", m.mems["A"], byref(m.attr.A))
    m.set("B", layouts.b_operand("int8", w))
    m.memory("C")
    m.set("A", -x)
    assert (m.result(np.int32).reshape(8, 32) == exact).all()
    m.call("rknn_matmul_set_io_mem", m.mems["A"], byref(m.attr.A))
    assert (m.result(np.int32).reshape(8, 32) == -exact).all()


def test_one_thread_a_context(matmul, broken):
    m, errors = matmul(), []

    def use():
        try:
            m.call("rknn_matmul_set_core_mask", 1)
        except NpuError as error:
            errors.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert "context refused" in errors[0]
    broken("used by two threads")


def test_a_context_that_is_gone(library, broken):
    m = Matmul(library)
    m.close()
    with pytest.raises(NpuError, match="context refused"):
        m.call("rknn_matmul_run")
    broken("no such context")


def test_core_masks(matmul, broken):
    m = matmul()
    for mask in (0, 1, 2, 3, 4, 7):
        m.call("rknn_matmul_set_core_mask", mask)
    with pytest.raises(NpuError):
        m.call("rknn_matmul_set_core_mask", 5)
    broken("core mask 5")


def test_a_run_without_operands(matmul, broken):
    m = matmul()
    m.memory("A"), m.memory("C")
    with pytest.raises(NpuError, match="input refused"):
        m.call("rknn_matmul_run")
    broken("without A or B")
    m.memory("B")
    m.call("rknn_destroy_mem", m.mems.pop("C"))
    with pytest.raises(NpuError, match="output refused"):
        m.call("rknn_matmul_run")


def test_operands_that_do_not_fit(library, matmul, broken):
    m, other = matmul(), matmul(rows=16)
    small = library.memory("rknn_create_mem", m.handle, m.attr.A.size - 1)
    m.mems["small"] = small
    with pytest.raises(NpuError, match="parameter refused"):
        m.call("rknn_matmul_set_io_mem", small, byref(m.attr.A))
    broken("A: 511 bytes for 512")
    m.memory("A")
    with pytest.raises(NpuError, match="parameter refused"):
        m.call("rknn_matmul_set_io_mem", m.mems["A"], byref(other.attr.A))
    broken("isn't the context's")


def test_slices(library, matmul, broken):
    m = matmul()
    whole = library.memory("rknn_create_mem", m.handle, 4096)
    given = whole.contents
    arguments = (m.handle, given.fd, given.virt_addr)
    part = library.memory("rknn_create_mem_from_fd", *arguments, 1024, 2048)
    assert part.contents.virt_addr == given.virt_addr + 2048
    for size, offset in ((1024, 3136), (1024, 2049), (0, 0)):
        with pytest.raises(NpuError):
            library.memory("rknn_create_mem_from_fd", *arguments, size, offset)
        broken("a slice of")
    with pytest.raises(NpuError):
        library.memory("rknn_create_mem_from_fd", m.handle, given.fd, given.virt_addr + 64, 64, 0)
    broken("first address")
    with pytest.raises(NpuError):
        m.call("rknn_destroy_mem", whole)
    broken("before its 1 slices")
    m.call("rknn_destroy_mem", part)
    m.call("rknn_destroy_mem", whole)
    with pytest.raises(NpuError):
        m.call("rknn_destroy_mem", whole)
    broken("no such memory")


def test_memory_outlives_its_context(library, broken):
    m = Matmul(library)
    m.memory("A")
    m.call("rknn_matmul_destroy")
    broken("destroyed before 1 of its memories")


def test_faults_strike_when_they_are_asked_for(emulator, library, matmul):
    x, w, exact = operands("int8", 8, 64, 32)
    m = matmul()
    m.set("A", layouts.a_operand("int8", x, 8, 64))
    m.set("B", layouts.b_operand("int8", w))
    m.memory("C")

    def outcome():
        try:
            return layouts.c_rows(m.result(np.int32).reshape(8, 8, 4)).copy()
        except NpuError as error:
            return str(error)

    emulator.fault("zeros@2,fail=-3@3,wrong@4,timeout@5,nothing@6+")
    assert (outcome() == exact).all()
    assert not outcome().any()
    assert "device unavailable" in outcome()
    assert (outcome() == exact + 1).all()
    assert "timed out" in outcome()
    m.set("A", layouts.a_operand("int8", -x, 8, 64))
    for _ in range(2):
        assert (outcome() == exact + 1).all()  # as the last one left it
    emulator.fault("")
    assert (outcome() == -exact).all()
    assert emulator.dll.rknn_emu_fault(b"nonsense@1") < 0


def test_time_is_burnt_on_one_core_at_a_time(emulator, library):
    """By the emulation's own clock: products of one core wait for each other, those of two do not."""
    emulator.cost("20000,1e9,1e9")

    def runs(masks):
        def use(mask):
            m = Matmul(library)
            m.call("rknn_matmul_set_core_mask", mask)
            for operand in "ABC":
                m.memory(operand)
            gate.wait()
            for _ in range(3):
                m.call("rknn_matmul_run")
            m.close()

        gate = threading.Barrier(len(masks))
        threads = [threading.Thread(target=use, args=(mask,)) for mask in masks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    runs([1, 2, 4])
    assert emulator.count("overlap") == 3
    assert [emulator.count(f"runs{i}") for i in range(3)] == [3, 3, 3]
