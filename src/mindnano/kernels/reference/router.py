"""What route computes: DeepSeek-V3's choice of experts (arXiv 2412.19437, section 2.1.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mindnano.kernels.reference.elementwise import F64, sigmoid

F32 = NDArray[np.float32]


def _best(x: F64, n: int) -> NDArray[np.int64]:
    """Indices of the n largest along the last axis, descending; equal ones by ascending index."""
    return np.argsort(-x, axis=-1, kind="stable")[..., :n]


def route(
    logits: F32,
    bias: F32,
    n_group: int,
    topk_group: int,
    top_k: int,
    norm_topk: bool,
    scale: float,
    score: str,
) -> tuple[NDArray[np.int32], F64]:
    """ids [T, top_k], in descending order of s + bias, and weights [T, top_k], of logits [T, E].

    s = sigmoid or softmax of the logits. A group's score is the sum of its two best s + bias; experts outside
    the topk_group best groups are out (-inf). Weights are s of the chosen, over their sum + 1e-20 if norm_topk,
    times scale.
    """
    x = logits.astype(np.float64)
    if score == "sigmoid":
        s = sigmoid(x)
    else:
        e = np.exp(x - x.max(-1, keepdims=True))
        s = e / e.sum(-1, keepdims=True)
    choice = s + bias
    rows, experts = x.shape
    if topk_group < n_group:
        groups = choice.reshape(rows, n_group, -1)
        best = np.sort(groups, axis=-1)[..., -2:].sum(-1)
        kept = np.zeros((rows, n_group), bool)
        np.put_along_axis(kept, _best(best, topk_group), True, axis=-1)
        choice = np.where(np.repeat(kept, experts // n_group, axis=1), choice, -np.inf)
    ids = _best(choice, top_k)
    weights = np.take_along_axis(s, ids, axis=-1)
    if norm_topk:
        weights = weights / (weights.sum(-1, keepdims=True) + 1e-20)
    return ids.astype(np.int32), weights * scale
