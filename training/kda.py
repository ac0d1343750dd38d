"""The KDA recurrence in chunked matmul form, with its own backward pass over the chunks.

For one head, with decay e^g per channel, write strength beta and a state S [K, V] that starts at zero:
    S <- diag(e^g) S;  u = beta (v - S^T k);  S <- S + k u^T;  o = S^T q
(Kimi Linear, arXiv 2510.26692, section 3; the chunked form follows its appendix.) Inside a chunk, with G the running
sum of g, all u come from one unit lower triangular system, so only one step a chunk is sequential.
"""

from __future__ import annotations

from typing import Any

import torch

CHUNK = 16  # 16 x -5 = -80: e^+-40 around the chunk's middle stays far inside fp32


class _UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 of strictly lower triangular A [..., 16, 16], as (I - A)(I + A^2)(I + A^4)(I + A^8)."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
        eye = torch.eye(a.shape[-1], dtype=a.dtype)
        inverse, power = eye - a, a
        for _ in range((a.shape[-1] - 1).bit_length() - 1):
            power = power @ power
            inverse = inverse + inverse @ power
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (inverse,) = ctx.saved_tensors
        turned = inverse.transpose(-1, -2)
        return -(turned @ grad @ turned).tril(-1)


class _Recurrence(torch.autograd.Function):
    """Over chunks n: u = U - W S;  o = Q S + P u;  S <- d S + Kd^T u.

    Shapes: Q, W, Kd [N, H, C, K]; U [N, H, C, V]; P [N, H, C, C]; d [N, H, K]; o [N, H, C, V]. H: batch x heads.
    """

    @staticmethod
    def forward(ctx: Any, q, w, u0, p, kd, d):  # type: ignore[no-untyped-def]
        count, heads, _, keys = q.shape
        states = q.new_zeros(count + 1, heads, keys, u0.shape[-1])
        u = torch.empty_like(u0)
        turned = kd.transpose(-1, -2)
        for n in range(count):
            torch.baddbmm(u0[n], w[n], states[n], alpha=-1, out=u[n])
            torch.baddbmm(d[n].unsqueeze(-1) * states[n], turned[n], u[n], out=states[n + 1])
        states = states[:count]
        ctx.save_for_backward(q, w, p, kd, d, u, states)
        return q @ states + p @ u

    @staticmethod
    def backward(ctx: Any, do):  # type: ignore[no-untyped-def]
        q, w, p, kd, d, u, states = ctx.saved_tensors
        count = len(q)
        after = torch.zeros(
            count + 1, *states.shape[1:], dtype=do.dtype
        )  # gradients of the states, [n]: before n
        after[:count] = q.transpose(-1, -2) @ do
        du = p.transpose(-1, -2) @ do
        turned = w.transpose(-1, -2)
        for n in range(count - 1, -1, -1):
            du[n].baddbmm_(kd[n], after[n + 1])
            after[n].addcmul_(d[n].unsqueeze(-1), after[n + 1]).baddbmm_(turned[n], du[n], alpha=-1)
        later = after[1:]
        back = states.transpose(-1, -2)
        return (
            do @ back,
            -(du @ back),
            du,
            do @ u.transpose(-1, -2),
            u @ later.transpose(-1, -2),
            (states * later).sum(-1),
        )


def chunked(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    """Outputs [B, T, H, V] of the recurrence from a zero state.

    q (normalized and scaled), k (normalized), g (log decay, within [-5, 0]): [B, T, H, K]; v [B, T, H, V]; beta
    [B, T, H]. T a multiple of 16.
    """
    batch, length, heads, _ = q.shape
    count = length // CHUNK
    if length % CHUNK:
        raise ValueError(f"{length} tokens, expected a multiple of {CHUNK}")

    def chunks(x: torch.Tensor) -> torch.Tensor:  # [B, T, H, D] -> [N, B H, C, D]
        x = x.reshape(batch, count, CHUNK, heads, -1).permute(1, 0, 3, 2, 4)
        return x.reshape(count, batch * heads, CHUNK, -1)

    q, k, v, total, beta = chunks(q), chunks(k), chunks(v), chunks(g).cumsum(2), chunks(beta.unsqueeze(-1))
    last = total[:, :, -1:]
    middle = last.detach() / 2
    grown, shrunk = (total - middle).exp(), (middle - total).exp()
    q_up, k_up, k_down = q * grown, k * (beta * grown), k * shrunk
    turned = k_down.transpose(-1, -2)
    inverse = _UnitLowerInverse.apply((k_up @ turned).tril(-1))
    scores = (q_up @ turned).tril()
    base = middle.exp()  # takes the centring out again
    w = inverse @ (k_up * base)
    u = inverse @ (v * beta)
    out = _Recurrence.apply(q_up * base, w, u, scores, k * (last - total).exp(), last.squeeze(2).exp())
    out = out.view(count, batch, heads, CHUNK, -1).permute(1, 0, 3, 2, 4)
    return out.reshape(batch, length, heads, -1)
