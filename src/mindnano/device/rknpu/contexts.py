"""Products and memory of one NPU core. All of it belongs to the core's thread: a context knows only that one."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from ctypes import byref, c_uint64
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mindnano import kernels
from mindnano.device.rknpu.binding import (
    F16_F16_F32,
    FROM_DEVICE,
    INT8_INT8_INT32,
    NATIVE,
    TO_DEVICE,
    IoAttr,
    Library,
    MatmulInfo,
    NpuError,
    NpuUnavailable,
)

Bytes = NDArray[np.uint8]

MOST_DEPTH, MOST_COLS = 3072, 4096  # K and N beyond which boards were seen to fail or split
MOST_CONTEXTS = 40  # a core's; about 150 a machine are the library's limit
PAGE = 4096
SAMPLES = 8  # elements of every product that are computed again
SIZES = {"int8": 1, "fp16": 2}  # bytes of an operand's element
_TYPES = {"int8": INT8_INT8_INT32, "fp16": F16_F16_F32}


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


@dataclass(frozen=True)
class Shape:
    """C [rows, cols] = A [rows, depth] B [depth, cols], format int8 (int32 sums) or fp16 (fp32 sums)."""

    format: str
    rows: int
    depth: int
    cols: int

    @property
    def operands(self) -> dict[str, tuple[int, ...]]:
        """Native layouts on the RK3588, as kernels/reference/npu.py has them."""
        piece, width = 16 // SIZES[self.format], 32 // SIZES[self.format]
        return {
            "A": (self.depth // piece, self.rows, piece),
            "B": (self.cols // width, self.depth // 32, width, 32),
            "C": (self.cols // 4, self.rows, 4),
        }

    def nbytes(self, operand: str) -> int:
        elements = {"A": self.rows * self.depth, "B": self.depth * self.cols, "C": self.rows * self.cols}[
            operand
        ]
        return elements * (4 if operand == "C" else SIZES[self.format])


@dataclass(frozen=True, eq=False)
class Section:
    """A part of an arena: bytes as the processor sees them."""

    arena: Arena
    offset: int
    data: Bytes

    @property
    def size(self) -> int:
        return self.data.nbytes

    def part(self, offset: int, size: int) -> Section:
        return Section(self.arena, self.offset + offset, self.data[offset : offset + size])


_serials = count()


class Arena:
    """One allocation that the NPU can read and write. Contexts see slices of it, made once each."""

    def __init__(self, library: Library, context: c_uint64, size: int) -> None:
        self._library, self._context = library, context
        self.serial = next(_serials)
        self.size = round_up(size, PAGE)
        self.mem = library.memory("rknn_create_mem", context, self.size)
        self.fd, self.address = self.mem.contents.fd, self.mem.contents.virt_addr
        self.data: Bytes = np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self.address))
        self._used = 0

    def section(self, size: int) -> Section:
        """The next `size` bytes, from a page's beginning."""
        offset, self._used = self._used, self._used + round_up(size, PAGE)
        if self._used > self.size:
            raise NpuError(f"an arena of {self.size} bytes is full")
        return Section(self, offset, self.data[offset : offset + size])

    def close(self) -> None:
        self._library.call("rknn_destroy_mem", self._context, self.mem)


class Product:
    """A matmul context with its operands bound. Slices of arenas are made when first needed and kept."""

    def __init__(self, library: Library, mask: int, shape: Shape) -> None:
        if shape.depth % 32 or shape.cols % 32 or shape.depth > MOST_DEPTH or shape.cols > MOST_COLS:
            raise NpuError(
                f"no product of K = {shape.depth}, N = {shape.cols}: multiples of 32, up to 3072 and 4096"
            )
        self._library, self.shape = library, shape
        self._context, self._attr = c_uint64(), IoAttr()
        self._slices: dict[tuple[int, int, int], Any] = {}
        self._checks = 0
        self._bound: dict[str, tuple[Any, Section]] = {}
        info = MatmulInfo(
            M=shape.rows,
            K=shape.depth,
            N=shape.cols,
            type=_TYPES[shape.format],
            B_layout=NATIVE,
            AC_layout=NATIVE,
        )
        library.call("rknn_matmul_create", byref(self._context), byref(info), byref(self._attr))
        try:
            library.call("rknn_matmul_set_core_mask", self._context, mask)
            self._check_layout()
        except BaseException:
            self.close()
            raise

    @property
    def handle(self) -> c_uint64:
        return self._context

    def bind(self, operand: str, section: Section) -> None:
        """Use `section` as A, B or C from now on."""
        bound = self._bound.get(operand)
        if bound is not None and (bound[1].arena, bound[1].offset) == (section.arena, section.offset):
            return
        attr = getattr(self._attr, operand)
        mem = self.slice(section.part(0, attr.size))
        self._library.call("rknn_matmul_set_io_mem", self._context, mem, byref(attr))
        self._bound[operand] = mem, section

    def slice(self, section: Section) -> Any:
        key = (section.arena.serial, section.offset, section.size)
        mem = self._slices.get(key)
        if mem is None:
            arena = section.arena
            mem = self._slices[key] = self._library.memory(
                "rknn_create_mem_from_fd",
                self._context,
                arena.fd,
                arena.address,
                section.size,
                section.offset,
            )
        return mem

    def send(self, operand: str) -> None:
        """Let the NPU see what the processor wrote to an operand."""
        self._library.call("rknn_mem_sync", self._context, self._bound[operand][0], TO_DEVICE)

    def run(self) -> None:
        self._library.call("rknn_matmul_run", self._context)

    def fetch(self) -> None:
        """Let the processor see C."""
        self._library.call("rknn_mem_sync", self._context, self._bound["C"][0], FROM_DEVICE)

    def check(self, first: int, rows: int, cols: int) -> None:
        """Raises NpuError where one of a few elements of rows first .. rows and columns .. cols is wrong."""
        s = self.shape
        self._checks += 1
        wrong = kernels.npu_check(
            s.format, self.data("A"), self.data("B"), self.data("C"), first, rows, s.rows, s.depth, cols, SAMPLES,
            self._checks,
        )  # fmt: skip
        if wrong:
            raise NpuError(
                f"a product of {s.rows} x {s.depth} x {s.cols} is wrong in {wrong} of {SAMPLES} samples"
            )

    def data(self, operand: str) -> Bytes:
        return self._bound[operand][1].data[: self.shape.nbytes(operand)]

    def drop_slices(self, arena: Arena | None = None) -> None:
        """Give back the slices of one arena, or all."""
        for key in [key for key in self._slices if arena is None or key[0] == arena.serial]:
            self._library.call("rknn_destroy_mem", self._context, self._slices.pop(key))

    def close(self) -> None:
        self.drop_slices()
        self._library.call("rknn_matmul_destroy", self._context)

    def _check_layout(self) -> None:
        for operand, wanted in self.shape.operands.items():
            attr = getattr(self._attr, operand)
            if attr.shape() != wanted or attr.size != self.shape.nbytes(operand):
                raise NpuUnavailable(
                    f"the runtime lays {operand} of {self.shape} out as {list(attr.shape())}, not as the RK3588's "
                    f"{list(wanted)}"
                )


class CoreContexts:
    """The products of one core, the least recently used closed when there are too many, and its arenas."""

    def __init__(self, library: Library, index: int) -> None:
        self._library, self.mask = library, 1 << index
        self._products: OrderedDict[Shape, Product] = OrderedDict()
        self._arenas: list[Arena] = []
        self._anchor = Product(library, self.mask, Shape("int8", 32, 32, 32))  # what arenas belong to

    @property
    def handle(self) -> c_uint64:
        return self._anchor.handle

    def product(self, shape: Shape) -> Product:
        product = self._products.get(shape)
        if product is None:
            if len(self._products) >= MOST_CONTEXTS:
                self._products.popitem(last=False)[1].close()
            product = self._products[shape] = Product(self._library, self.mask, shape)
        self._products.move_to_end(shape)
        return product

    def arena(self, size: int) -> Arena:
        arena = Arena(self._library, self._anchor.handle, size)
        self._arenas.append(arena)
        return arena

    def drop(self, arena: Arena) -> None:
        """Give an arena back that no product uses any more."""
        self._anchor.drop_slices(arena)
        self._arenas.remove(arena)
        arena.close()

    def send(self, section: Section) -> None:
        """Let the NPU see what the processor wrote there."""
        self._library.call("rknn_mem_sync", self._anchor.handle, self._anchor.slice(section), TO_DEVICE)

    @property
    def nbytes(self) -> int:
        return sum(arena.size for arena in self._arenas)

    def close_products(self) -> None:
        """Close all products, e.g. after a time-out; arenas stay."""
        while self._products:
            self._products.popitem()[1].close()

    def close(self) -> None:
        self.close_products()
        self._anchor.drop_slices()
        for arena in self._arenas:
            arena.close()
        self._arenas.clear()
        self._anchor.close()
