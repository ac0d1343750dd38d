"""Turns a checkpoint's matrices into the kernels' layouts, in pieces of a few megabytes.

`Packer.chunks(item, form)` yields the bytes of `layout.tensors(item, form)` in order; a piece never reaches
over a tensor's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mindnano.checkpoint.layout import (
    DENSE_DTYPES,
    Embedding,
    Experts,
    Format,
    Item,
    KVUp,
    Linear,
    Small,
    Vector,
)
from mindnano.checkpoint.parts import Int4Part, Part
from mindnano.checkpoint.sources import Source
from mindnano.kernels import packing

CHUNK_VALUES = 4 << 20  # 16 MiB of float32


def quantize_rows_int8(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric int8, one scale a row: scale = max|w| / 127. int8 [N, K] and float32 [N]."""
    scales = (np.abs(weights).max(axis=-1) / np.float32(127)).astype(np.float32)
    safe = np.where(scales > 0, scales, np.float32(1))
    return np.rint(weights / safe[..., None]).astype(np.int8), scales


def split_kv_heads(rows: np.ndarray, item: KVUp) -> tuple[np.ndarray, np.ndarray]:
    """Stored kv_b rows (per head k_nope then v) [H (Dn + Dv), R] -> [H, Dn, R] and [H, Dv, R]."""
    heads = rows.reshape(item.heads, item.nope + item.value, item.rank)
    return heads[:, : item.nope], heads[:, item.nope :]


def common_form(parts: Sequence[Part]) -> Format:
    """The dense format that holds all parts exactly."""
    forms = {part.form for part in parts}
    return forms.pop() if len(forms) == 1 else "fp32"


class Packer:
    """Packs what a Source holds."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def native_form(self, item: Item) -> Format:
        """The dense format `native` gives an item: the stored one, fp32 for int4 and for mixtures."""
        if isinstance(item, Experts):
            return common_form([p for parts in self.source.experts(item).values() for p in parts])
        if isinstance(item, Vector | Small):
            return "fp32"
        return common_form(self.source.parts(item))

    def chunks(self, item: Item, form: Format) -> Iterator[np.ndarray]:
        """The item's bytes in file order. Raises MindNanoError where weights are not finite."""
        if isinstance(item, Vector | Small):
            yield self.source.vector(item)
        elif isinstance(item, Experts):
            yield from self._experts(item, form)
        elif isinstance(item, Embedding):
            yield from self._embedding(item, form)
        elif isinstance(item, KVUp):
            yield from self._kv(item, form)
        elif isinstance(item, Linear):
            yield from self._linear(self.source.parts(item), item.cols, form)
        self.source.release()

    def _linear(self, parts: Sequence[Part], cols: int, form: Format) -> Iterator[np.ndarray]:
        scales: list[np.ndarray] = []
        for pieces in _row_blocks(parts, cols):
            if form in DENSE_DTYPES:
                yield from (part.dense(form, start, stop) for part, start, stop in pieces)
            elif form == "w4":
                yield _pack_w4(pieces)
            else:
                data, scale = packing.quantize_w8(_joined(pieces))
                scales.append(scale)
                yield data
            self.source.release()
        if form == "w8":
            yield np.concatenate(scales)

    def _embedding(self, item: Embedding, form: Format) -> Iterator[np.ndarray]:
        scales: list[np.ndarray] = []
        for pieces in _row_blocks(self.source.parts(item), item.cols):
            if form == "w8":
                values, scale = quantize_rows_int8(_joined(pieces))
                scales.append(scale)
                yield values
            else:
                yield from (part.dense(form, start, stop) for part, start, stop in pieces)
            self.source.release()
        if form == "w8":
            yield np.concatenate(scales)

    def _kv(self, item: KVUp, form: Format) -> Iterator[np.ndarray]:
        (part,) = self.source.parts(item)
        if form == "w8":
            values, scales = quantize_rows_int8(part.f32())
            yield from pack_kv(item, values, scales)
            return
        keys, value = split_kv_heads(part.dense(form), item)
        yield keys
        yield value
        yield keys.transpose(0, 2, 1)
        yield value

    def _experts(self, item: Experts, form: Format) -> Iterator[np.ndarray]:
        stored = self.source.experts(item)
        if form in DENSE_DTYPES:
            for kind in ("gate", "up", "down"):
                for part in stored[kind]:
                    yield part.dense(form)
                    self.source.release()
            return
        yield from self._expert_matrices(list(zip(stored["gate"], stored["up"], strict=True)), form)
        yield from self._expert_matrices([(part,) for part in stored["down"]], form)

    def _expert_matrices(self, experts: Sequence[tuple[Part, ...]], form: Format) -> Iterator[np.ndarray]:
        scales: list[np.ndarray] = []
        for parts in experts:
            if form == "w4":
                yield _expert_w4(parts)
            else:
                data, scale = packing.quantize_w8(_merged([part.f32() for part in parts]))
                scales.append(scale)
                yield data
            self.source.release()
        if form == "w8":
            yield np.stack(scales)


def pack_kv(item: KVUp, values: np.ndarray, scales: np.ndarray) -> Iterator[np.ndarray]:
    """The W8 tensors of kv_b from int8 rows as stored [H (Dn + Dv), R] and their scales.

    k_absorb multiplies Wk transposed, where kv_b's row scales lie along the contraction: it carries the same
    integers with scale 1, and the scales go to the query (k_absorb_scale).
    """
    keys, value = split_kv_heads(values, item)
    by_head = scales.reshape(item.heads, -1)
    key_scales = np.ascontiguousarray(by_head[:, : item.nope])
    value_scales = np.ascontiguousarray(by_head[:, item.nope :])
    stacked = np.concatenate((keys.reshape(-1, item.rank), value.reshape(-1, item.rank)))
    yield from packing.pack_w8(stacked, np.concatenate((key_scales.reshape(-1), value_scales.reshape(-1))))
    ones = np.ones(item.rank, np.float32)
    for heads in (
        [packing.pack_w8(np.ascontiguousarray(head.T), ones) for head in keys],
        [
            packing.pack_w8(np.ascontiguousarray(head), scale)
            for head, scale in zip(value, value_scales, strict=True)
        ],
    ):
        yield np.stack([data for data, _ in heads])
        yield np.stack([scale for _, scale in heads])
    yield key_scales


_Piece = tuple[Part, int, int]


def _row_blocks(parts: Sequence[Part], cols: int) -> Iterator[list[_Piece]]:
    """The stacked rows in blocks of a multiple of 16 (a panel), each as pieces (part, start, stop)."""
    block = max(16, CHUNK_VALUES // cols // 16 * 16)
    pieces: list[_Piece] = []
    room = block
    for part in parts:
        start = 0
        while start < part.rows:
            stop = min(part.rows, start + room)
            pieces.append((part, start, stop))
            room -= stop - start
            start = stop
            if room == 0:
                yield pieces
                pieces, room = [], block
    if pieces:
        yield pieces


def _joined(pieces: Sequence[_Piece]) -> np.ndarray:
    return np.concatenate([part.f32(start, stop) for part, start, stop in pieces])


def _pack_w4(pieces: Sequence[_Piece]) -> np.ndarray:
    """One block as W4; a block that is int4 throughout keeps its integers and scales."""
    stored = [(part, start, stop) for part, start, stop in pieces if isinstance(part, Int4Part)]
    if len(stored) < len(pieces):
        return packing.quantize_w4(_joined(pieces))
    values = np.concatenate([part.values(start, stop) for part, start, stop in stored])
    scales = np.concatenate([part.scale_bits(start, stop) for part, start, stop in stored])
    return packing.pack_w4(values, scales)


def _expert_w4(parts: tuple[Part, ...]) -> np.ndarray:
    """One expert's matrix, or its gate and up interleaved; int4 keeps its integers and scales."""
    int4 = [part for part in parts if isinstance(part, Int4Part)]
    if len(int4) == len(parts):
        values = _merged([part.values() for part in int4])
        return packing.pack_w4(values, _merged([part.scale_bits() for part in int4]))
    return packing.quantize_w4(_merged([part.f32() for part in parts]))


def _merged(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return packing.interleave_gate_up(*arrays) if len(arrays) == 2 else arrays[0]
