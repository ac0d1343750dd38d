"""Muon for matrices, AdamW for the rest.

Muon (K. Jordan, 2024, kellerjordan.github.io/posts/muon): momentum, made orthogonal by five Newton-Schulz steps.
"""

from __future__ import annotations

import math
from typing import Any

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
MOMENTUM, BETAS, EPS = 0.95, (0.9, 0.95), 1e-8
SMALLEST = 32  # rows or columns; narrower matrices (router, gates a head) are AdamW's
LEARNING_RATE = {"muon": 0.02, "adam": 3e-3}
DECAY = 0.02  # of matrices, times the learning rate


def is_matrix(name: str, p: torch.Tensor) -> bool:
    """Whether Muon takes it: a matrix or a stack of them, no embedding, no convolution."""
    outside = ("word_embeddings", "lm_head", "conv1d", "gate.weight")
    return p.dim() >= 2 and min(p.shape[-2:]) >= SMALLEST and not any(part in name for part in outside)


def orthogonal(x: torch.Tensor) -> torch.Tensor:
    """Singular values of [N, rows, cols] (rows <= cols) moved to about 1."""
    a, b, c = NEWTON_SCHULZ
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.transpose(-1, -2)
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    return x


class Optimizer:
    """Updates the parameters it was given, in place; `state` is what has to be kept to go on."""

    def __init__(self, parameters: dict[str, torch.Tensor]) -> None:
        self.parameters = parameters
        self.count = 0
        self.state: dict[str, dict[str, torch.Tensor]] = {}
        for name, p in parameters.items():
            names = ("momentum",) if is_matrix(name, p) else ("mean", "square")
            self.state[name] = {key: torch.zeros_like(p) for key in names}

    @torch.no_grad()
    def step(self, gradients: dict[str, torch.Tensor], scale: float) -> None:
        """One update; `scale`: of the learning rates."""
        self.count += 1
        stacks: dict[tuple[int, int], list[tuple[str, torch.Tensor]]] = {}
        for name, p in self.parameters.items():
            gradient = gradients[name]
            if not is_matrix(name, p):
                self._adam(name, p, gradient, LEARNING_RATE["adam"] * scale)
                continue
            momentum = self.state[name]["momentum"].lerp_(gradient, 1 - MOMENTUM)
            update = _matrices(name, gradient.lerp(momentum, MOMENTUM))
            stacks.setdefault((min(update.shape[-2:]), max(update.shape[-2:])), []).append((name, update))
        for entries in stacks.values():
            self._muon(entries, LEARNING_RATE["muon"] * scale)

    def _muon(self, entries: list[tuple[str, torch.Tensor]], rate: float) -> None:
        wide = [u.mT if u.shape[-2] > u.shape[-1] else u for _, u in entries]
        made = orthogonal(torch.cat(wide)).split([len(u) for u in wide])
        for (name, update), direction in zip(entries, made, strict=True):
            rows, cols = update.shape[-2:]
            direction = (direction.mT if rows > cols else direction).reshape(self.parameters[name].shape)
            factor = rate * math.sqrt(max(1.0, rows / cols))
            self.parameters[name].mul_(1 - rate * DECAY).add_(direction, alpha=-factor)

    def _adam(self, name: str, p: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        mean, square = self.state[name]["mean"], self.state[name]["square"]
        mean.lerp_(gradient, 1 - BETAS[0])
        square.lerp_(gradient.square(), 1 - BETAS[1])
        corrected = (square / (1 - BETAS[1] ** self.count)).sqrt_().add_(EPS)
        p.addcdiv_(mean, corrected, value=-rate / (1 - BETAS[0] ** self.count))

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "state": self.state}

    def load(self, saved: dict[str, Any]) -> None:
        """Takes what belongs to its parameters from a saved state of all."""
        self.count = saved["count"]
        for name, own in self.state.items():
            for key, tensor in own.items():
                tensor.copy_(saved["state"][name][key])


def _matrices(name: str, x: torch.Tensor) -> torch.Tensor:
    """As [N, rows, cols]; gate and up of an expert are two matrices."""
    if name.endswith("experts_gate_up"):
        return x.reshape(2 * x.shape[0], x.shape[1] // 2, x.shape[2])
    return x if x.dim() == 3 else x.unsqueeze(0)
