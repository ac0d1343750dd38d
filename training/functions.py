"""Two operations with their own backward pass: autograd's costs more calls than a small model has arithmetic."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


class ShortConv(torch.autograd.Function):
    """silu of a causal depthwise convolution: x [B, T, C], weight [C, 1, taps]; the last tap is the token's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        taps, length = weight.shape[-1], x.shape[1]
        padded = F.pad(x, (0, 0, taps - 1, 0))
        before = padded[:, :length] * weight[:, 0, 0]
        for tap in range(1, taps):
            before.addcmul_(padded[:, tap : tap + length], weight[:, 0, tap])
        ctx.save_for_backward(padded, weight, before)
        return F.silu(before)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        padded, weight, before = ctx.saved_tensors
        taps, length = weight.shape[-1], before.shape[1]
        grad = torch.ops.aten.silu_backward(grad, before)
        inputs, weights = torch.zeros_like(padded), torch.empty_like(weight)
        for tap in range(taps):
            inputs[:, tap : tap + length].addcmul_(grad, weight[:, 0, tap])
            weights[:, 0, tap] = (grad * padded[:, tap : tap + length]).sum((0, 1))
        return inputs[:, taps - 1 :], weights


class Experts(torch.autograd.Function):
    """down(silu(gate x) * up x) of each row's expert; rows [R, H] sorted by expert, `counts` for each.

    gate_up [E, 2 I, H], down [E, H, I].
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, counts: list[int]
    ) -> torch.Tensor:
        ends = _ends(counts)
        both = x.new_empty(len(x), gate_up.shape[1])
        for expert, rows in enumerate(ends):
            torch.mm(x[rows], gate_up[expert].t(), out=both[rows])
        gate, up = both.chunk(2, -1)
        inner = F.silu(gate) * up
        out = torch.empty_like(x)
        for expert, rows in enumerate(ends):
            torch.mm(inner[rows], down[expert].t(), out=out[rows])
        ctx.save_for_backward(x, gate_up, down, both, inner)
        ctx.ends = ends
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        x, gate_up, down, both, inner = ctx.saved_tensors
        grad = grad.contiguous()
        d_inner, d_down = torch.empty_like(inner), torch.empty_like(down)
        for expert, rows in enumerate(ctx.ends):
            torch.mm(grad[rows], down[expert], out=d_inner[rows])
            torch.mm(grad[rows].t(), inner[rows], out=d_down[expert])
        gate, up = both.chunk(2, -1)
        d_gate = torch.ops.aten.silu_backward(d_inner * up, gate)
        d_both = torch.cat((d_gate, d_inner * F.silu(gate)), -1)
        d_x, d_gate_up = torch.empty_like(x), torch.empty_like(gate_up)
        for expert, rows in enumerate(ctx.ends):
            torch.mm(d_both[rows], gate_up[expert], out=d_x[rows])
            torch.mm(d_both[rows].t(), x[rows], out=d_gate_up[expert])
        return d_x, d_gate_up, d_down, None


def _ends(counts: list[int]) -> list[slice]:
    slices, begin = [], 0
    for count in counts:
        slices.append(slice(begin, begin + count))
        begin += count
    return slices
