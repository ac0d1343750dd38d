"""W8 products of a prefill tile on the NPU, equal to the CPU's to the bit.

Activations have a scale for each 128 inputs, so each group of 128 is a product of its own (K = 128) whose integer sums
come back and are scaled and added here in the CPU kernel's order. That is more traffic than one scale a row would need,
and keeps a token's result independent of who computed it. A matrix's outputs are shared out over the cores, its
integers kept there in the library's layout beside the packed file's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mindnano import kernels
from mindnano.device.rknpu.binding import NpuError
from mindnano.device.rknpu.contexts import MOST_COLS, PAGE, CoreContexts, Section, Shape, round_up
from mindnano.device.rknpu.npu import CORES, Npu
from mindnano.kernels import Matrix
from mindnano.model.linear import F32, Quantized

GROUP = 128  # inputs that share an activation scale
ROWS = 256  # tokens of a product: the decoder's tile
GROUPS_AT_ONCE = 4  # whose sums wait for the processor together


@dataclass(frozen=True)
class _Part:
    """Some outputs of a matrix on one core; its groups' integers lie one after the other at `offset`."""

    first: int
    outputs: int
    cols: int  # outputs padded to 32
    offset: int


def _parts(rows: int, cols: int, core: int, offset: int) -> list[_Part]:
    """A core's share of a [rows, cols] matrix's outputs, in parts of at most MOST_COLS, the first at `offset` of its
    arena."""
    share = round_up(-(-rows // CORES), 32)
    end, parts = min(rows, (core + 1) * share), []
    for first in range(core * share, end, MOST_COLS):
        outputs = min(MOST_COLS, end - first)
        parts.append(_Part(first, outputs, round_up(outputs, 32), offset))
        offset += parts[-1].cols * round_up(cols, 32)
    return parts


def linear_bytes(matrices: Sequence[tuple[int, int]]) -> int:
    """The NPU's memory for the products of these [rows, cols] matrices."""
    if not matrices:
        return 0
    shares = [
        [(part, cols) for rows, cols in matrices for part in _parts(rows, cols, core, 0)]
        for core in range(CORES)
    ]
    weights = sum(
        round_up(sum(part.cols * round_up(cols, 32) for part, cols in share), PAGE) for share in shares
    )
    shape = Shape("int8", ROWS, GROUP, max(part.cols for share in shares for part, _ in share))
    return weights + CORES * (shape.nbytes("A") + GROUPS_AT_ONCE * shape.nbytes("C"))


class _Scratch:
    """One core's operands, and the weights of all placed matrices."""

    def __init__(self, contexts: CoreContexts, cols: int, weight_bytes: int) -> None:
        shape = Shape("int8", ROWS, GROUP, cols)
        a, c = shape.nbytes("A"), shape.nbytes("C")
        sizes = (a, GROUPS_AT_ONCE * c, weight_bytes)
        self.arena = contexts.arena(sum(round_up(size, PAGE) for size in sizes))
        self.a, self.c, self.weights = (self.arena.section(size) for size in sizes)
        self.acc = np.empty(ROWS * cols, np.float32)


class RknpuLinear:
    """The matrices whose products the NPU may compute, and when it does."""

    def __init__(self, npu: Npu, matrices: Sequence[Matrix], faster: Callable[[int, int], bool]) -> None:
        """faster(rows, weights): whether the NPU is, for a matrix of so many weights."""
        self.npu, self._measured = npu, faster
        self.calls = self.fallbacks = 0
        self.refused: str | None = None  # why nothing is computed here any more
        self._faster: dict[tuple[int, int], bool] = {}
        self._placed: dict[int, tuple[Matrix, list[list[_Part]]]] = {}
        self._bytes = [0] * CORES
        for matrix in matrices:
            if matrix.format != "w8" or matrix.count != 1 or not self._pays(matrix, ROWS):
                continue
            parts = [_parts(matrix.rows, matrix.cols, core, self._bytes[core]) for core in range(CORES)]
            self._placed[id(matrix)] = matrix, parts
            for core, mine in enumerate(parts):
                self._bytes[core] += sum(part.cols for part in mine) * round_up(matrix.cols, 32)
        placed = [part for _, cores in self._placed.values() for mine in cores for part in mine]
        self._cols = max((part.cols for part in placed), default=0)
        self._scratch: dict[int, _Scratch] = {}  # by core
        self._laid_out = False

    @property
    def empty(self) -> bool:
        return not self._placed

    def __call__(self, x: Quantized, matrix: Matrix, out: F32, column: int, accumulate: bool) -> bool:
        """Write (or add) x W^T to out[:, column..] if the NPU is the faster one; False if nothing was done."""
        placed, rows = self._placed.get(id(matrix)), len(x[0])
        if placed is None or self.npu.off is not None or not self._pays(matrix, min(rows, ROWS)):
            return False
        if not self._laid_out and not self._lay_out():
            return False
        into = out[:, column : column + matrix.rows]
        try:
            q, scales, pairs = x
            tiles = [slice(begin, begin + ROWS) for begin in range(0, rows, ROWS)]
            done = [self._tile((q[t], scales[t], pairs[t]), matrix, placed[1]) for t in tiles]
            self.npu.succeeded()
        except NpuError as error:
            self.npu.failed(error)
            self.fallbacks += 1
            return False
        y = done[0] if len(done) == 1 else np.concatenate(done)
        if accumulate:
            into += y
        else:
            into[:] = y
        self.calls += 1
        return True

    def take_counts(self) -> tuple[int, int]:
        """Calls and fallbacks since the last time."""
        counts, self.calls, self.fallbacks = (self.calls, self.fallbacks), 0, 0
        return counts

    def _pays(self, matrix: Matrix, rows: int) -> bool:
        key = rows, matrix.rows * matrix.cols
        if key not in self._faster:
            self._faster[key] = self._measured(*key)
        return self._faster[key]

    def _lay_out(self) -> bool:
        """Lay the weights out on all cores, once; where there is no room, projections stay on the CPU."""
        try:
            self.npu.run([partial(self._place, core) for core in range(CORES)])
            self._laid_out = True
        except NpuError as error:
            self.refused = str(error)
            self.fallbacks += 1
            self._placed.clear()
            self._give_back()
        return self._laid_out

    def _place(self, core: int, contexts: CoreContexts) -> None:
        """On the core's thread."""
        scratch = self._scratch[core] = _Scratch(contexts, self._cols, max(self._bytes[core], PAGE))
        for matrix, cores in self._placed.values():
            for part in cores[core]:
                size = part.cols * round_up(matrix.cols, 32)
                section = scratch.weights.part(part.offset, size)
                kernels.npu_weights(matrix, part.first, part.outputs, part.cols, section.data)
        contexts.send(scratch.weights)

    def _give_back(self) -> None:
        def drop(core: int, contexts: CoreContexts) -> None:
            scratch = self._scratch.pop(core, None)
            if scratch is not None:
                contexts.drop(scratch.arena)

        with contextlib.suppress(NpuError):  # closing the NPU gives back what is left
            self.npu.run([partial(drop, core) for core in range(CORES)])

    def _tile(self, x: Quantized, matrix: Matrix, cores: list[list[_Part]]) -> F32:
        """The product of at most ROWS rows, each core's outputs into its columns."""
        jobs = [
            partial(self._multiply, core, x, matrix, parts) if parts else None
            for core, parts in enumerate(cores)
        ]
        shares = self.npu.run(jobs)
        return np.concatenate([y for share in shares for y in share], axis=1)

    def _multiply(
        self, core: int, x: Quantized, matrix: Matrix, parts: list[_Part], contexts: CoreContexts
    ) -> list[F32]:
        scratch, depth = self._scratch[core], x[0].shape[1]
        groups = -(-depth // GROUP)
        found = []
        for part in parts:
            y = np.empty((len(x[0]), part.outputs), np.float32)
            for first in range(0, groups, GROUPS_AT_ONCE):
                some = range(first, min(first + GROUPS_AT_ONCE, groups))
                c_bytes = Shape("int8", ROWS, GROUP, part.cols).nbytes("C")
                for i, group in enumerate(some):
                    wide = min(GROUP, depth - group * GROUP)
                    weights = scratch.weights.part(part.offset + group * GROUP * part.cols, wide * part.cols)
                    sums = scratch.c.part(i * c_bytes, c_bytes)
                    self._group(contexts, scratch.a, weights, sums, x, group, part)
                kernels.npu_combine(
                    scratch.c.data, c_bytes, first, len(some), *x, matrix, part.first, part.outputs, part.cols, ROWS,
                    scratch.acc, y,
                )  # fmt: skip
            found.append(y)
        return found

    def _group(
        self,
        contexts: CoreContexts,
        a: Section,
        b: Section,
        c: Section,
        x: Quantized,
        group: int,
        part: _Part,
    ) -> None:
        """One group's integer sums, into c."""
        depth = b.size // part.cols
        product = contexts.product(Shape("int8", ROWS, depth, part.cols))
        for operand, section in (("A", a), ("B", b), ("C", c)):
            product.bind(operand, section)
        kernels.npu_inputs(*x, group, depth, ROWS, product.data("A"))
        product.send("A")
        product.run()
        product.fetch()
        product.check(0, len(x[0]), part.outputs)
