"""The compiled kernels and their NumPy twins. Imports nothing else of the package."""

import numpy as np
from numpy.typing import NDArray

from mindnano import _native
from mindnano._native import (
    ExpandedKV,
    HeadHistory,
    LatentKV,
    Matrix,
    apply,
    available_isas,
    cpus,
    embed,
    expanded_write,
    experts_dense,
    experts_quantized,
    head_gate,
    isa,
    kda_output,
    kda_prepare,
    kda_recurrence,
    latent_write,
    linear_dense,
    linear_heads,
    linear_heads_dense,
    linear_quantized,
    logsumexp,
    mla_decode_expanded,
    mla_decode_latent,
    npu_accumulate,
    npu_check,
    npu_combine,
    npu_inputs,
    npu_queries,
    npu_softmax,
    npu_weights,
    peak_compute,
    peak_read,
    quantize_rows,
    rms_norm,
    rope_inplace,
    route,
    scratch_bytes,
    set_isa,
    set_threads,
    threads,
    to_half,
)

__all__ = [
    "ExpandedKV",
    "HeadHistory",
    "LatentKV",
    "Matrix",
    "apply",
    "available_isas",
    "cpus",
    "embed",
    "expanded_write",
    "experts_dense",
    "experts_quantized",
    "head_gate",
    "isa",
    "kda_output",
    "kda_prepare",
    "kda_recurrence",
    "latent_write",
    "linear_dense",
    "linear_heads",
    "linear_heads_dense",
    "linear_quantized",
    "logsumexp",
    "mla_decode_expanded",
    "mla_decode_latent",
    "npu_accumulate",
    "npu_check",
    "npu_combine",
    "npu_inputs",
    "npu_queries",
    "npu_softmax",
    "npu_weights",
    "peak_compute",
    "peak_read",
    "quantize_rows",
    "rms_norm",
    "rope_inplace",
    "route",
    "scratch_bytes",
    "set_isa",
    "set_threads",
    "threads",
    "to_half",
    "top_logits",
]


def top_logits(logits: NDArray[np.float32], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Ids and values of the n largest of logits [V], descending; equal ones by ascending id, NaN as -inf.

    Raises ValueError where n is above V.
    """
    ids, values = np.empty(n, np.int64), np.empty(n, np.float32)
    _native.top_logits(logits, ids, values)
    return ids, values
