"""ctypes binding of the RKNN matmul library (librknnrt.so, ABI of SDK 2.3.2, aarch64 and other 64-bit Linux)."""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char,
    c_float,
    c_int,
    c_int8,
    c_int16,
    c_int32,
    c_uint32,
    c_uint64,
)
from ctypes import c_void_p as pointer
from pathlib import Path
from typing import Any

VARIABLE = "MINDNANO_RKNNRT"
PLACES = (
    "/usr/lib/librknnrt.so",
    "/usr/lib64/librknnrt.so",
    "/usr/lib/aarch64-linux-gnu/librknnrt.so",
    "/usr/local/lib/librknnrt.so",
    "/lib/librknnrt.so",
)
OLDEST = (2, 1)  # signatures changed there

F16_F16_F32, INT8_INT8_INT32 = 1, 2  # matmul types
NORM, NATIVE = 0, 1  # layouts
TO_DEVICE, FROM_DEVICE = 1, 2  # sync modes
QUERY_SDK_VERSION = 5

ERRORS = {
    -1: "failed", -2: "timed out", -3: "device unavailable", -4: "out of memory", -5: "parameter refused",
    -6: "model refused", -7: "context refused", -8: "input refused", -9: "output refused", -10: "device mismatch",
}  # fmt: skip


class NpuError(Exception):
    """A call failed or gave a wrong result; what was asked for has to be computed elsewhere."""


class NpuUnavailable(NpuError):
    """The NPU can't be used at all; the text says why and what to do."""


class NpuUnfit(NpuError):
    """Values that FP16 can't hold: no fault of the device."""


class MatmulInfo(Structure):
    _fields_ = (
        ("M", c_int32), ("K", c_int32), ("N", c_int32), ("type", c_int32), ("B_layout", c_int16),
        ("B_quant_type", c_int16), ("AC_layout", c_int16), ("AC_quant_type", c_int16),
        ("iommu_domain_id", c_int32), ("group_size", c_int16), ("reserved", c_int8 * 34),
    )  # fmt: skip


class TensorAttr(Structure):
    _fields_ = (
        ("name", c_char * 256), ("n_dims", c_uint32), ("dims", c_uint32 * 16), ("size", c_uint32), ("type", c_int32),
    )  # fmt: skip

    def shape(self) -> tuple[int, ...]:
        return tuple(self.dims[: min(self.n_dims, 16)])


class IoAttr(Structure):
    _fields_ = (("A", TensorAttr), ("B", TensorAttr), ("C", TensorAttr))


class TensorMem(Structure):
    _fields_ = (
        ("virt_addr", pointer), ("phys_addr", c_uint64), ("fd", c_int32), ("offset", c_int32), ("size", c_uint32),
        ("flags", c_uint32), ("priv_data", pointer),
    )  # fmt: skip


class QuantParams(Structure):
    _fields_ = (
        ("name", c_char * 256), ("scale", POINTER(c_float)), ("scale_len", c_int32), ("zp", POINTER(c_int32)),
        ("zp_len", c_int32),
    )  # fmt: skip


class MatmulShape(Structure):
    _fields_ = (("M", c_int32), ("K", c_int32), ("N", c_int32))


class SdkVersion(Structure):
    _fields_ = (("api", c_char * 256), ("driver", c_char * 256))


# Size in bytes, and offsets of fields, of each structure.
ABI: dict[type[Structure], tuple[int, dict[str, int]]] = {
    MatmulInfo: (64, {
        "M": 0, "K": 4, "N": 8, "type": 12, "B_layout": 16, "B_quant_type": 18, "AC_layout": 20, "AC_quant_type": 22,
        "iommu_domain_id": 24, "group_size": 28, "reserved": 30,
    }),
    TensorAttr: (332, {"name": 0, "n_dims": 256, "dims": 260, "size": 324, "type": 328}),
    IoAttr: (996, {"A": 0, "B": 332, "C": 664}),
    TensorMem: (40, {
        "virt_addr": 0, "phys_addr": 8, "fd": 16, "offset": 20, "size": 24, "flags": 28, "priv_data": 32,
    }),
    QuantParams: (288, {"name": 0, "scale": 256, "scale_len": 264, "zp": 272, "zp_len": 280}),
    MatmulShape: (12, {"M": 0, "K": 4, "N": 8}),
    SdkVersion: (512, {"api": 0, "driver": 256}),
}  # fmt: skip

_MEM = POINTER(TensorMem)
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rknn_matmul_create": (c_int, (POINTER(c_uint64), POINTER(MatmulInfo), POINTER(IoAttr))),
    "rknn_matmul_set_core_mask": (c_int, (c_uint64, c_int)),
    "rknn_matmul_set_io_mem": (c_int, (c_uint64, _MEM, POINTER(TensorAttr))),
    "rknn_matmul_run": (c_int, (c_uint64,)),
    "rknn_matmul_destroy": (c_int, (c_uint64,)),
    "rknn_create_mem": (_MEM, (c_uint64, c_uint32)),
    "rknn_create_mem_from_fd": (_MEM, (c_uint64, c_int32, pointer, c_uint32, c_int32)),
    "rknn_mem_sync": (c_int, (c_uint64, _MEM, c_int)),
    "rknn_destroy_mem": (c_int, (c_uint64, _MEM)),
    "rknn_query": (c_int, (c_uint64, c_int, pointer, c_uint32)),
}


def check_abi() -> None:
    """Raises NpuUnavailable where a structure isn't laid out as the library has it."""
    for structure, (size, offsets) in ABI.items():
        got = {name: getattr(structure, name).offset for name in offsets}
        if ctypes.sizeof(structure) != size or got != offsets:
            raise NpuUnavailable(
                f"the binding's {structure.__name__} has {ctypes.sizeof(structure)} bytes instead of {size} on this "
                "machine; the RKNN library needs a 64-bit Linux"
            )


def find_library(root: Path = Path("/")) -> str | None:
    """Where librknnrt.so is: as MINDNANO_RKNNRT says, else in LD_LIBRARY_PATH or one of the usual places; None if
    nowhere. `root` is where the usual places are looked for."""
    here = root == Path("/")
    if here and os.environ.get(VARIABLE):
        return os.environ[VARIABLE]
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":") if here else []
    places = (*(f"{folder}/librknnrt.so" for folder in folders if folder), *PLACES)
    return next((place for place in places if (root / place.lstrip("/")).exists()), None)


def parse_version(text: str) -> tuple[int, ...] | None:
    """The numbers that `text` begins with: (2, 3, 2) of "2.3.2 (429f97ae6b@2025-04-09)"."""
    match = re.match(r"\D{0,16}(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups() if part is not None) if match else None


class Library:
    """The loaded library. Calls raise NpuError where they fail."""

    def __init__(self, path: str) -> None:
        check_abi()
        self.path = path
        try:
            dll = ctypes.CDLL(path)
        except OSError as error:
            raise NpuUnavailable(f"{path} can't be loaded: {error}") from None
        self._functions: dict[str, Any] = {}
        for name, (result, arguments) in _SIGNATURES.items():
            try:
                function = getattr(dll, name)
            except AttributeError:
                raise NpuUnavailable(f"{path} has no {name}; a RKNN runtime 2.1 or later is needed") from None
            function.restype, function.argtypes = result, arguments
            self._functions[name] = function

    def call(self, name: str, *arguments: Any) -> None:
        code = self._functions[name](*arguments)
        if code < 0:
            raise NpuError(f"{name}: {ERRORS.get(code, 'unknown error')} ({code})")

    def memory(self, name: str, *arguments: Any) -> Any:
        """What rknn_create_mem* returns: a pointer to TensorMem."""
        mem = self._functions[name](*arguments)
        if not mem:
            raise NpuError(
                f"{name}: no memory for {arguments[-1] if name == 'rknn_create_mem' else arguments[3]} bytes"
            )
        return mem

    def versions(self, context: c_uint64) -> tuple[str, str]:
        """Runtime and driver version as the library tells them."""
        version = SdkVersion()
        self.call("rknn_query", context, QUERY_SDK_VERSION, byref(version), ctypes.sizeof(version))
        api, driver = (
            getattr(version, field).decode(errors="replace").strip() for field in ("api", "driver")
        )
        return api, driver
