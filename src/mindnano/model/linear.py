"""Products with weights: y = x W^T for dense and quantized W, activations quantized once for all that share them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mindnano import kernels
from mindnano.kernels import Matrix
from mindnano.model.workspace import Workspace

F32 = NDArray[np.float32]
Quantized = tuple[NDArray[np.int8], F32, NDArray[np.int16]]

GROUP = 128  # inputs that share one activation scale
PANEL = 32  # inputs are padded to a multiple of this


def quantize(x: F32, ws: Workspace, name: str) -> Quantized:
    """INT8 rows of x [T, K] with a scale per token and group of 128, for W4 and W8 products."""
    rows, width = x.shape
    panels = -(-width // PANEL)
    q = ws(name + ".q", (rows, panels * PANEL), np.int8)
    scales = ws(name + ".s", (rows, -(-panels * PANEL // GROUP)))
    pairs = ws(name + ".p", (rows, panels, 2), np.int16)
    kernels.quantize_rows(x, q, scales, pairs)
    return q, scales, pairs


class Activations:
    """Rows [T, K] in fp32, quantized at most once. `name` is their scratch's name in the workspace."""

    __slots__ = ("_quantized", "name", "ws", "x")

    def __init__(self, x: F32, ws: Workspace, name: str) -> None:
        self.x = x
        self.ws = ws
        self.name = name
        self._quantized: Quantized | None = None

    def quantized(self) -> Quantized:
        if self._quantized is None:
            self._quantized = quantize(self.x, self.ws, self.name)
        return self._quantized


def is_quantized(matrix: Matrix) -> bool:
    return matrix.format in ("w4", "w8")


class LinearDevice(Protocol):
    """Who may compute large products instead of the CPU, with the same bits."""

    def __call__(self, x: Quantized, matrix: Matrix, out: F32, column: int, accumulate: bool) -> bool:
        """Write (or add) x W^T to out[:, column..]; False, with nothing done, where the CPU is to do it."""


class Linear:
    """y = x W^T, W [N, K] given as one matrix or as several stacked by rows."""

    def __init__(self, parts: Sequence[Matrix]) -> None:
        self.parts = list(parts)
        self.rows = sum(part.rows for part in parts)
        self.cols = parts[0].cols
        self.nbytes = sum(part.nbytes for part in parts)
        self.device: LinearDevice | None = None

    def __call__(self, x: Activations, out: F32, accumulate: bool = False) -> F32:
        """Write (or add) x W^T to out [T, N]."""
        column = 0
        for part in self.parts:
            if is_quantized(part):
                device = self.device if len(out) > 1 else None
                if device is None or not device(x.quantized(), part, out, column, accumulate):
                    kernels.linear_quantized(*x.quantized(), part, out, column, accumulate)
            else:
                kernels.linear_dense(x.x, part, out, column, accumulate)
            column += part.rows
        return out


class HeadLinear:
    """out[t, h] = x[t, h] W[h]^T with a matrix [N, K] for each of H heads."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.heads, self.rows, self.cols = matrix.count, matrix.rows, matrix.cols

    def __call__(self, x: F32, out: F32, ws: Workspace, name: str) -> F32:
        """x [T, H, K] -> out [T, H, N]."""
        if is_quantized(self.matrix):
            flat = x.reshape(-1, self.cols)
            kernels.linear_heads(*quantize(flat, ws, name), self.matrix, out)
        else:
            kernels.linear_heads_dense(x, self.matrix, out)
        return out
