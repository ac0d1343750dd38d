"""A product at start whose result is known: some runtime versions return success and zeros."""

from __future__ import annotations

import numpy as np

from mindnano.device.rknpu.binding import NpuUnavailable
from mindnano.device.rknpu.contexts import PAGE, CoreContexts, Product, Section, Shape, round_up
from mindnano.kernels.reference import npu as layouts

SHAPES = (Shape("int8", 64, 192, 64), Shape("int8", 32, 512, 128), Shape("fp16", 32, 192, 64))


def self_test(contexts: CoreContexts) -> None:
    """Raises NpuUnavailable where this core computes a small product wrong."""
    for shape in SHAPES:
        sizes = [shape.nbytes(operand) for operand in "ABBC"]
        arena = contexts.arena(sum(round_up(size, PAGE) for size in sizes))
        _test(contexts.product(shape), [arena.section(size) for size in sizes])
        contexts.close_products()
        contexts.drop(arena)


def _test(product: Product, sections: list[Section]) -> None:
    """Two products that differ in B: what is really read is seen, and that it changes with the slice."""
    shape, rng = product.shape, np.random.default_rng(1)
    unit = 1 if shape.format == "int8" else 64  # FP16 gets 64ths, which it holds exactly
    a = rng.integers(-127, 128, (shape.rows, shape.depth))
    product.bind("A", _place(sections[0], layouts.a_operand(shape.format, a / unit, *a.shape)))
    product.bind("C", sections[3])
    product.send("A")
    for section in sections[1:3]:
        b = rng.integers(-127, 128, (shape.depth, shape.cols))
        product.bind("B", _place(section, layouts.b_operand(shape.format, b / unit)))
        product.send("B")
        product.run()
        product.fetch()
        got = layouts.c_rows(product.data("C").view(layouts.SUM[shape.format]).reshape(shape.operands["C"]))
        want = a @ b  # in integers: a threaded float product would take longer than all else
        error = np.abs(got.astype(np.float64) * unit**2 - want).max()
        if not error <= (0 if shape.format == "int8" else 0.01 * np.abs(want).max()):
            raise NpuUnavailable(
                f"the NPU computes a {shape.format} product of {shape.rows} x {shape.depth} x {shape.cols} wrong"
                f"{'' if got.any() else ' (all zeros)'}; install another version of the RKNN runtime, 2.3.2 is best"
            )


def _place(section: Section, operand: np.ndarray) -> Section:
    section.data[:] = operand.view(np.uint8).reshape(-1)
    return section
