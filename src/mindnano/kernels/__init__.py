"""The compiled kernels and their NumPy twins. Imports nothing else of the package."""

from mindnano._native import (
    Matrix,
    available_isas,
    isa,
    linear_heads,
    linear_quantized,
    quantize_rows,
    scratch_bytes,
    set_isa,
    set_threads,
    threads,
)

__all__ = [
    "Matrix",
    "available_isas",
    "isa",
    "linear_heads",
    "linear_quantized",
    "quantize_rows",
    "scratch_bytes",
    "set_isa",
    "set_threads",
    "threads",
]
