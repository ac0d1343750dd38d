"""Checkpoints with outlier channels, as trained models have them, that compute the same function.

A power of two goes onto some channels of a norm (or rows of a projection) and off the columns that read them, which
no dense format notices, not even in its last bit, and every quantized one does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors.numpy

assert ml_dtypes.bfloat16  # NumPy knows BF16 from here on


def write(source: Path, target: Path, factor: int = 32) -> None:
    """The checkpoint folder `source` (one file, official layout) with outliers of `factor`, a power of two, in the
    inputs of attention, experts and expert outputs, and in the latent."""
    tensors = safetensors.numpy.load_file(source / "model.safetensors")
    layers = json.loads((source / "config.json").read_text())["num_hidden_layers"]
    for i in range(layers):
        layer = f"model.layers.{i}."
        names = [name for name in tensors if name.startswith(layer)]
        hidden = len(tensors[layer + "input_layernorm.weight"])
        attention = [
            name
            for name in names
            if ".attention." in name and tensors[name].ndim == 2 and tensors[name].shape[1] == hidden
            and name.split(".")[-2].removesuffix("_proj") not in ("o", "dense", "q_b", "kv_b")
        ]  # fmt: skip
        assert len(attention) >= 3
        _move(tensors, layer + "input_layernorm.weight", attention, (3, 17, hidden - 1), factor)
        ffn = [
            name
            for name in names
            if ".mlp." in name and name.endswith(("gate_proj.weight", "up_proj.weight", "gate.weight"))
        ]
        _move(tensors, layer + "post_attention_layernorm.weight", ffn, (0, 29, hidden - 2), factor)
        for up in [name for name in names if name.endswith("up_proj.weight")]:
            _move(tensors, up, [up.replace("up_proj", "down_proj")], (5,), factor)
        latent = layer + "attention.kv_a_layernorm.weight"
        if latent in tensors:
            rank = len(tensors[latent])
            _move(tensors, latent, [layer + "attention.kv_b_proj.weight"], (1, rank // 2, rank - 1), factor)
    target.mkdir(parents=True, exist_ok=True)
    safetensors.numpy.save_file(tensors, target / "model.safetensors")
    (target / "config.json").write_bytes((source / "config.json").read_bytes())


def _move(
    tensors: dict[str, np.ndarray], onto: str, off: Iterable[str], channels: Iterable[int], factor: int
) -> None:
    """Multiply `channels` of `onto` (entries of a vector, rows of a matrix) and divide those columns of `off`."""
    picked = list(channels)
    for name, by in ((onto, float(factor)), *((name, 1 / factor) for name in off)):
        tensor = tensors[name].copy()
        part = tensor[picked] if name == onto else tensor[:, picked]
        scaled = (part.astype(np.float32) * by).astype(tensor.dtype)
        assert np.array_equal(scaled.astype(np.float32), part.astype(np.float32) * by), f"{name}: not exact"
        if name == onto:
            tensor[picked] = scaled
        else:
            tensor[:, picked] = scaled
        tensors[name] = tensor
