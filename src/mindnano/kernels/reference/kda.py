"""What kda_prepare, kda_recurrence and kda_output compute, in float64.

Kimi Linear (arXiv 2510.26692), section 3. Rows are sequence-major: S sequences of T / S consecutive tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mindnano.kernels.reference.elementwise import F64, rms_norm, sigmoid, silu

F32 = NDArray[np.float32]
L2_EPS = 1e-6  # inside the root of q's and k's norm, whatever the model's eps


def convolve(rows: F64, state: F64, taps: F64) -> tuple[F64, F64]:
    """Causal depthwise convolution of rows [n, C] after the rows of state [taps - 1, C], with taps [C, taps].

    The last tap is the current row's. Returns (out [n, C], the last taps - 1 rows).
    """
    count = taps.shape[1]
    joined = np.concatenate([state, rows])
    out = sum(joined[i : i + len(rows)] * taps[:, i] for i in range(count))
    return np.asarray(out), joined[len(joined) - (count - 1) :]


def forget_gate(f: F64, a_log: F64, dt_bias: F64, gate: str, lower_bound: float) -> F64:
    """decay = exp(g) of f [T, H, D], with rate = exp(A_log).

    sigmoid: g = lower_bound sigmoid(rate (f + dt_bias)); softplus: g = -rate softplus(f + dt_bias).
    """
    x = f + dt_bias.reshape(f.shape[1:])
    rate = np.exp(a_log)[:, None]
    g = lower_bound * sigmoid(rate * x) if gate == "sigmoid" else -rate * np.logaddexp(0, x)
    return np.asarray(np.exp(g))


def l2_normalize(x: F64) -> F64:
    return np.asarray(x / np.sqrt((x * x).sum(-1, keepdims=True) + L2_EPS))


def kda_prepare(
    y: F32, columns: tuple[int, int, int, int], forget: F32, b: F32, conv: F32, conv_states: F32,
    slots: NDArray[np.int32], a_log: F32, dt_bias: F32, gate: str, lower_bound: float,
) -> tuple[F64, F64, F64, F64, F64, F64]:  # fmt: skip
    """q, k, v, decay [T, H*D], beta [T, H] and the new conv_states, from projected rows y [T, W].

    columns: where q, k, v begin in y and the gate's input in forget. conv [3, taps, H*D] is for q, k, v;
    conv_states [slots, taps - 1, 3*H*D] has the channels q | k | v.
    """
    rows, heads = b.shape
    width = dt_bias.size
    dim, n = width // heads, rows // len(slots)
    states = conv_states.astype(np.float64)
    taps = conv.transpose(0, 2, 1).reshape(3 * width, -1).astype(np.float64)
    joined = np.concatenate([y[:, c : c + width] for c in columns[:3]], axis=1).astype(np.float64)
    mixed = np.empty_like(joined)
    for s, slot in enumerate(slots):
        at = slice(s * n, (s + 1) * n)
        mixed[at], states[slot] = convolve(joined[at], states[slot], taps)
    q, k, v = (silu(mixed[:, i * width : (i + 1) * width]).reshape(rows, heads, dim) for i in range(3))
    f = forget[:, columns[3] : columns[3] + width].astype(np.float64).reshape(rows, heads, dim)
    decay = forget_gate(f, a_log.astype(np.float64), dt_bias.astype(np.float64), gate, lower_bound)
    flat = (rows, width)
    return (
        (l2_normalize(q) * dim**-0.5).reshape(flat), l2_normalize(k).reshape(flat), v.reshape(flat),
        decay.reshape(flat), sigmoid(b.astype(np.float64)), states,
    )  # fmt: skip


def kda_recurrence(
    q: F32, k: F32, v: F32, decay: F32, beta: F32, states: F32, slots: NDArray[np.int32]
) -> tuple[F64, F64]:
    """Token by token, per head: S <- diag(decay) S;  u = beta (v - S^T k);  S <- S + k u^T;  o = S^T q.

    q, k, v, decay [T, H*D], beta [T, H], states [slots, H, D (K), D (V)] -> (o [T, H*D], new states).
    """
    rows, heads = beta.shape
    n = rows // len(slots)
    states64 = states.astype(np.float64)
    parts = [a.astype(np.float64).reshape(rows, heads, -1) for a in (q, k, v, decay)]
    out = np.empty_like(parts[2])
    for s, slot in enumerate(slots):
        state = states64[slot]
        for t in range(s * n, (s + 1) * n):
            qt, kt, vt, dt = (part[t] for part in parts)
            state = dt[:, :, None] * state
            u = beta[t][:, None] * (vt - np.einsum("hkv,hk->hv", state, kt))
            state = state + kt[:, :, None] * u[:, None, :]
            out[t] = np.einsum("hkv,hk->hv", state, qt)
        states64[slot] = state
    return out.reshape(rows, -1), states64


def kda_output(o: F32, gate: F32, column: int, weight: F32, eps: float) -> F64:
    """RMSNorm of each head of o [T, H*D], times weight [D], times sigmoid(gate[:, column : column + H*D])."""
    heads = o.reshape(len(o), -1, len(weight))
    normed = rms_norm(heads, weight, eps).reshape(o.shape)
    return np.asarray(normed * sigmoid(gate[:, column : column + o.shape[1]].astype(np.float64)))
