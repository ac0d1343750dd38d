"""The binding: structures, versions, where the library is looked for, and what becomes of an unusable one."""

import ctypes
import subprocess

import pytest

from mindnano.device.rknpu import binding
from mindnano.device.rknpu.binding import ABI, Library, NpuUnavailable, find_library, parse_version
from mindnano.device.rknpu.npu import Npu
from tests.npu.emulation import COMPILER


def test_structures_are_the_librarys():
    """The emulation's C compiler checks the same numbers (tests/npu/emulator/rknn.h)."""
    sizes = {structure.__name__: ctypes.sizeof(structure) for structure in ABI}
    assert sizes == {
        "MatmulInfo": 64, "TensorAttr": 332, "IoAttr": 996, "TensorMem": 40, "QuantParams": 288, "MatmulShape": 12,
        "SdkVersion": 512,
    }  # fmt: skip
    for structure, (_, offsets) in ABI.items():
        assert set(offsets) == {name for name, *_ in structure._fields_}
        assert list(offsets.values()) == sorted(offsets.values())
    binding.check_abi()


def test_a_machine_that_lays_them_out_otherwise_is_refused(monkeypatch):
    monkeypatch.setitem(ABI, binding.MatmulInfo, (60, {"M": 0}))
    with pytest.raises(NpuUnavailable, match="MatmulInfo has 64 bytes instead of 60"):
        binding.check_abi()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.3.2 (429f97ae6b@2025-04-09T09:09:27)", (2, 3, 2)),
        ("2.1", (2, 1)),
        ("librknnrt version: 2.0.0b0", None),
        ("v1.6.0", (1, 6, 0)),
        ("", None),
    ],
)
def test_versions_are_read(text, version):
    assert parse_version(text) == version


def test_the_library_is_looked_for(tmp_path, monkeypatch):
    assert find_library(tmp_path) is None
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/librknnrt.so").touch()
    assert find_library(tmp_path) == "/usr/lib/librknnrt.so"
    monkeypatch.delenv("MINDNANO_RKNNRT", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", f":/nowhere:{tmp_path}/usr/lib")
    assert find_library() == f"{tmp_path}/usr/lib/librknnrt.so"
    monkeypatch.setenv("MINDNANO_RKNNRT", "/somewhere/else.so")
    assert find_library() == "/somewhere/else.so"


def test_no_library_is_told_with_what_to_do(monkeypatch):
    monkeypatch.delenv("MINDNANO_RKNNRT", raising=False)
    monkeypatch.setattr(binding, "PLACES", ())
    with pytest.raises(NpuUnavailable, match=r"was not found .*; set MINDNANO_RKNNRT"):
        Npu()


def test_a_file_that_is_no_library_is_told(tmp_path):
    (tmp_path / "librknnrt.so").write_text("not a library")
    with pytest.raises(NpuUnavailable, match="can't be loaded"):
        Library(str(tmp_path / "librknnrt.so"))


def test_a_library_without_the_functions_is_told(tmp_path):
    (tmp_path / "old.c").write_text("int rknn_matmul_create(void) { return 0; }")
    target = tmp_path / "librknnrt.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", str(tmp_path / "old.c"), "-o", str(target)], check=True)
    with pytest.raises(
        NpuUnavailable, match=r"has no rknn_matmul_set_core_mask; a RKNN runtime 2\.1 or later"
    ):
        Library(str(target))


def test_the_versions_and_the_emulation_are_seen(emulator):
    npu = Npu()
    assert (npu.runtime, npu.driver, npu.emulated, npu.name) == (
        "2.3.2 (emulated)",
        "0.9.8",
        True,
        "rknpu (emulated)",
    )
    npu.close()


@pytest.mark.parametrize("version", ["2.0.0", "1.6.0", "unknown"])
def test_an_old_runtime_is_refused(emulator, monkeypatch, version):
    monkeypatch.setenv("RKNN_EMU_VERSION", version)
    with pytest.raises(NpuUnavailable, match=f"'{version} .emulated.' is too old: 2.1 or later"):
        Npu()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("zeros@1+", r"int8 product of 64 x 192 x 64 wrong \(all zeros\); install another version"),
        ("zeros@5+", "wrong"),
        ("wrong@2", "wrong; install"),
        ("nothing@1", "wrong"),
        ("fail@1", r"rknn_matmul_run: failed \(-1\); is the rknpu driver loaded"),
        ("fail=-3@3", r"device unavailable \(-3\)"),
        ("timeout@4", "timed out"),
        ("alloc@1", "no memory"),
        ("create@1", r"out of memory \(-4\)"),
        ("create@3", "out of memory"),
        ("layout@2", "the runtime lays A of .* out as"),
    ],
)
def test_a_board_that_computes_wrong_is_refused(emulator, fault, words):
    emulator.fault(fault)
    with pytest.raises(NpuUnavailable, match=words):
        Npu()
