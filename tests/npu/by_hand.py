"""One product through the bare binding, operand by operand."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint64

import numpy as np

from mindnano.device.rknpu.binding import FROM_DEVICE, NATIVE, TO_DEVICE, IoAttr, MatmulInfo


class Matmul:
    """A context and its memories; `close` gives them back."""

    def __init__(self, library, rows=8, depth=64, cols=32, kind=2, layouts=(NATIVE, NATIVE), **more):
        self.library, self.handle, self.attr = library, c_uint64(), IoAttr()
        self.info = MatmulInfo(
            M=rows, K=depth, N=cols, type=kind, AC_layout=layouts[0], B_layout=layouts[1], **more
        )
        library.call("rknn_matmul_create", byref(self.handle), byref(self.info), byref(self.attr))
        self.mems = {}

    def call(self, name, *arguments):
        self.library.call(name, self.handle, *arguments)

    def memory(self, operand):
        attr = getattr(self.attr, operand)
        self.mems[operand] = self.library.memory("rknn_create_mem", self.handle, attr.size)
        self.call("rknn_matmul_set_io_mem", self.mems[operand], byref(attr))
        return self.view(operand)

    def view(self, operand):
        mem = self.mems[operand].contents
        return np.ctypeslib.as_array((ctypes.c_uint8 * mem.size).from_address(mem.virt_addr))

    def sync(self, operand, mode):
        self.call("rknn_mem_sync", self.mems[operand], mode)

    def set(self, operand, array, send=True):
        view = self.view(operand) if operand in self.mems else self.memory(operand)
        view[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        if send:
            self.sync(operand, TO_DEVICE)

    def result(self, dtype):
        self.call("rknn_matmul_run")
        self.sync("C", FROM_DEVICE)
        return self.view("C").view(dtype)

    def close(self):
        for mem in self.mems.values():
            self.call("rknn_destroy_mem", mem)
        self.call("rknn_matmul_destroy")
