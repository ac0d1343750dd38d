"""Weights as the model asks for them: by canonical name, as arrays and kernel matrices, in place."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mindnano.checkpoint import layout
from mindnano.checkpoint.config import ModelConfig
from mindnano.checkpoint.layout import Embedding, Experts, Format, Item, KVUp, Linear, Small, Vector
from mindnano.checkpoint.pack import Packer, common_form, split_kv_heads
from mindnano.checkpoint.parts import Part
from mindnano.checkpoint.sources import Source
from mindnano.kernels import Matrix


@dataclass(frozen=True)
class ExpertMatrices:
    """The matrices of a gated MLP or of all experts of a layer. Quantized: `gate_up` [2 I, hidden], rows
    interleaved in eights; dense: `gate` and `up` [I, hidden]. `down` is [hidden, I]."""

    gate_up: Matrix | None
    gate: Matrix | None
    up: Matrix | None
    down: Matrix

    @property
    def quantized(self) -> bool:
        return self.gate_up is not None


class WeightStore(Protocol):
    """What the model needs to know of weights. Names are canonical; an unknown one is a KeyError."""

    def vector(self, name: str) -> np.ndarray:
        """Small fp32 data; `layers.N.mla.k_absorb_scale` [H Dn] is all ones for dense weights."""

    def linear(self, name: str) -> list[Matrix]:
        """Parts stacked along the rows, all with the same input; one where the weights are packed."""

    def heads(self, name: str) -> Matrix:
        """`layers.N.mla.k_absorb` (count H, [R, Dn]) and `layers.N.mla.v_absorb` (count H, [Dv, R])."""

    def experts(self, name: str) -> ExpertMatrices:
        """`layers.N.mlp`, `layers.N.moe.experts`, `layers.N.moe.shared`."""

    def embedding(self) -> tuple[np.ndarray, np.ndarray | None, str]:
        """(rows [V, hidden], scales [V] or None, "fp32" | "bf16" | "fp16" | "int8"); 16-bit ones as bits."""

    def read_all(self) -> None:
        """Brings all weights into memory, where they otherwise come as they are used."""

    def close(self) -> None:
        """Drops the store's own references; it cannot be asked for anything afterwards."""


class _Items:
    """Looks canonical names up."""

    def __init__(self, config: ModelConfig) -> None:
        self._items: dict[str, Item] = {item.name: item for item in layout.items(config)}

    def _kv(self, name: str) -> KVUp:
        base, _, label = name.rpartition(".")
        item = self._items.get(f"{base}.kv_b")
        if not isinstance(item, KVUp) or label not in ("k_absorb", "v_absorb", "k_absorb_scale"):
            raise KeyError(name)
        return item


class PackedStore(_Items):
    """Tensors in the packed layout: a mapped file's, or arrays in memory."""

    def __init__(
        self, config: ModelConfig, tensors: Mapping[str, np.ndarray], dtypes: Mapping[str, str]
    ) -> None:
        super().__init__(config)
        self._tensors = tensors
        self._dtypes = dtypes

    def _form(self, name: str) -> Format:
        return layout.FORMAT_OF_DTYPE[self._dtypes[name]]

    def _matrix(self, name: str, rows: int, cols: int) -> Matrix:
        form, data = self._form(name), self._tensors[name]
        if form == "w4":
            return Matrix.w4(data, rows, cols)
        if form == "w8":
            return Matrix.w8(data, self._tensors[name + ".scales"], rows, cols)
        return _dense(data, form)

    def vector(self, name: str) -> np.ndarray:
        if name in self._tensors and self._dtypes[name] == "F32":
            return self._tensors[name]
        item = self._kv(name)
        return np.ones(item.heads * item.nope, np.float32)

    def linear(self, name: str) -> list[Matrix]:
        item = self._items[name]
        if isinstance(item, KVUp):
            return [self._matrix(name, item.heads * (item.nope + item.value), item.rank)]
        if not isinstance(item, Linear | Small):
            raise KeyError(name)
        return [self._matrix(name, item.rows, item.cols)]

    def heads(self, name: str) -> Matrix:
        item = self._kv(name)
        if name.endswith("k_absorb"):
            return self._matrix(name, item.rank, item.nope)
        return self._matrix(name, item.value, item.rank)

    def experts(self, name: str) -> ExpertMatrices:
        item = self._items[name]
        if not isinstance(item, Experts):
            raise KeyError(name)
        down = self._matrix(name + ".down", item.hidden, item.intermediate)
        if self._form(name + ".down") in layout.DENSE_DTYPES:
            gate = self._matrix(name + ".gate", item.intermediate, item.hidden)
            return ExpertMatrices(
                None, gate, self._matrix(name + ".up", item.intermediate, item.hidden), down
            )
        rows = layout.gate_up_rows(item.intermediate)
        return ExpertMatrices(self._matrix(name + ".gate_up", rows, item.hidden), None, None, down)

    def read_all(self) -> None:
        for array in self._tensors.values():
            read_pages(array)

    def close(self) -> None:
        self._tensors = {}

    def embedding(self) -> tuple[np.ndarray, np.ndarray | None, str]:
        data, form = self._tensors["embed"], self._form("embed")
        if form == "w8":
            return data, self._tensors["embed.scales"], "int8"
        return data.view(np.uint16) if form == "fp16" else data, None, form


class NativeStore(_Items):
    """A checkpoint folder used as it lies: dense matrices in place, products with fp32 activations.

    int4 matrices are expanded to fp32, in which q * scale is exact: this is the yardstick, not the way to
    run a large int4 model (that is recipe mixed or w4, which takes the integers over).
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source.config)
        self._source = source
        self._packer = Packer(source)

    def read_all(self) -> None:
        for array in self._source.arrays():
            read_pages(array)

    def close(self) -> None:
        self._source.close()

    def vector(self, name: str) -> np.ndarray:
        item = self._items.get(name)
        if isinstance(item, Vector | Small):
            return self._source.vector(item)
        item = self._kv(name)
        return np.ones(item.heads * item.nope, np.float32)

    def linear(self, name: str) -> list[Matrix]:
        item = self._items[name]
        if isinstance(item, Small):
            return [_dense(self._source.vector(item), "fp32")]
        if isinstance(item, KVUp):
            form = self._packer.native_form(item)
            keys, values = self._kv_halves(item, form)
            both = np.concatenate((keys.reshape(-1, item.rank), values.reshape(-1, item.rank)))
            return [_dense(both, form)]
        if not isinstance(item, Linear):
            raise KeyError(name)
        return [_part(part) for part in self._source.parts(item)]

    def _kv_halves(self, item: KVUp, form: Format) -> tuple[np.ndarray, np.ndarray]:
        (part,) = self._source.parts(item)
        return split_kv_heads(part.dense(form), item)

    def heads(self, name: str) -> Matrix:
        item = self._kv(name)
        form = self._packer.native_form(item)
        keys, values = self._kv_halves(item, form)
        chosen = keys.transpose(0, 2, 1) if name.endswith("k_absorb") else values
        return _dense(np.ascontiguousarray(chosen), form)

    def experts(self, name: str) -> ExpertMatrices:
        item = self._items[name]
        if not isinstance(item, Experts):
            raise KeyError(name)
        stored = self._source.experts(item)
        gate, up, down = (_stacked(stored[kind]) for kind in ("gate", "up", "down"))
        return ExpertMatrices(None, gate, up, down)

    def embedding(self) -> tuple[np.ndarray, np.ndarray | None, str]:
        item = self._items["embed"]
        assert isinstance(item, Embedding)
        (part,) = self._source.parts(item)
        return part.dense(part.form), None, part.form


def read_pages(array: np.ndarray) -> None:
    """Reads one byte of each page."""
    flat = array.reshape(-1).view(np.uint8)
    flat[:: mmap.PAGESIZE].max(initial=0)


def _part(part: Part) -> Matrix:
    return _dense(part.dense(part.form), part.form)


def _stacked(parts: list[Part]) -> Matrix:
    form = common_form(parts)
    arrays = [part.dense(form) for part in parts]
    return Matrix.dense(arrays, dtype=form)


def _dense(array: np.ndarray, form: Format) -> Matrix:
    return Matrix.dense(array.view(np.uint16) if form == "fp16" else array, dtype=form)
