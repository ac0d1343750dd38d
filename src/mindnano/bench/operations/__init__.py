"""One table of the kernels at the shapes of Ling-3.0-tiny. It drives correctness (small shapes, every instruction set,
against the NumPy twins) and speed (real shapes, against the machine's limits). Imports kernels only."""

from mindnano.bench.operations import attention, kda, npu, products, rows
from mindnano.bench.operations.base import Compared, Operation, Timed

TABLE: list[Operation] = [
    *products.OPERATIONS,
    *attention.OPERATIONS,
    *kda.OPERATIONS,
    *rows.OPERATIONS,
    *npu.OPERATIONS,
]

__all__ = ["TABLE", "Compared", "Operation", "Timed"]
