"""Copies of what a slot holds: the states at one position, the KV rows of a stretch of tokens."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mindnano.cache.kv import KVCache
from mindnano.cache.pages import PAGE, Array, arena, arena_bytes
from mindnano.cache.slots import Slot, SlotPool
from mindnano.cache.states import KDAState

Shapes = dict[str, tuple[tuple[int, ...], np.dtype]]


class StateCopy:
    """Room for all KDA layers' states of one slot, taken layer by layer while a block passes, and for the logits
    [vocabulary] after the same token where `logits` is set. `nbytes` in whole pages."""

    def __init__(self, pool: SlotPool, logits: bool) -> None:
        shapes = state_shapes(pool, logits)
        self.arrays = arena(shapes)
        self.nbytes = arena_bytes(shapes) if shapes else 0

    @property
    def logits(self) -> NDArray[np.float32] | None:
        return self.arrays.get("logits")

    def take(self, layer: int, state: KDAState, slot: int) -> None:
        self.arrays[f"memory.{layer}"][:] = state.memory[slot]
        self.arrays[f"conv.{layer}"][:] = state.conv[slot]

    def put(self, pool: SlotPool, slot: int) -> None:
        for layer, state in pool.states.items():
            state.memory[slot] = self.arrays[f"memory.{layer}"]
            state.conv[slot] = self.arrays[f"conv.{layer}"]


def state_shapes(pool: SlotPool, logits: bool) -> Shapes:
    """What a StateCopy holds, by name."""
    shapes: Shapes = {}
    for layer, state in pool.states.items():
        shapes[f"memory.{layer}"] = state.memory.shape[1:], state.memory.dtype
        shapes[f"conv.{layer}"] = state.conv.shape[1:], state.conv.dtype
    if logits:
        shapes["logits"] = (pool.config.vocab_size,), np.dtype(np.float32)
    return shapes


class Rows:
    """The KV rows of `count` tokens in all MLA layers, an array of its own for each layer and name."""

    def __init__(self, pool: SlotPool, count: int) -> None:
        self.count = count
        self.axes = {f"{layer}.{name}": kv.axis for layer, kv, name, _ in _arrays(pool.slots[0])}
        self.arrays = {name: arena({"": shape})[""] for name, shape in row_shapes(pool, count).items()}

    def take(self, slot: Slot, begin: int) -> None:
        """Copy the rows of tokens [begin, begin + count) from a slot."""
        for layer, kv, name, array in _arrays(slot):
            self.arrays[f"{layer}.{name}"][:] = between(array, kv.axis, begin, begin + self.count)

    def put(self, slot: Slot, begin: int) -> None:
        """Copy them to where tokens [begin, begin + count) are in a slot."""
        for layer, kv, name, array in _arrays(slot):
            between(array, kv.axis, begin, begin + self.count)[:] = self.arrays[f"{layer}.{name}"]

    def view(self) -> Rows:
        """The same arrays, held apart: a later `split` of this object doesn't take them from the view."""
        other = copy.copy(self)
        other.arrays = dict(self.arrays)
        return other

    def split(self, pool: SlotPool, at: int) -> tuple[Rows, Rows]:
        """The first `at` tokens and the rest, moved array by array: this object is empty afterwards."""
        first, rest = Rows(pool, at), Rows(pool, self.count - at)
        for name in list(self.arrays):
            whole, axis = self.arrays.pop(name), self.axes[name]
            first.arrays[name][:] = between(whole, axis, 0, at)
            rest.arrays[name][:] = between(whole, axis, at, self.count)
        return first, rest


def row_shapes(pool: SlotPool, count: int) -> Shapes:
    """The arrays of `count` tokens' rows, by layer and name."""
    shapes: Shapes = {}
    for layer, kv, name, array in _arrays(pool.slots[0]):
        shape = list(array.shape)
        shape[kv.axis] = count
        shapes[f"{layer}.{name}"] = tuple(shape), array.dtype
    return shapes


def row_bytes(pool: SlotPool, count: int) -> int:
    """Bytes of `Rows`, each array in whole pages."""
    return sum(arena_bytes({"": shape}) for shape in row_shapes(pool, count).values())


def rounding(pool: SlotPool) -> int:
    """What `row_bytes` of two stretches may be more than that of both together."""
    return PAGE * len(row_shapes(pool, 1))


def between(array: Array, axis: int, begin: int, end: int) -> Array:
    return array[begin:end] if axis == 0 else array[:, begin:end]


def _arrays(slot: Slot) -> Iterable[tuple[int, KVCache, str, Array]]:
    for layer, kv in slot.kv.items():
        for name, array in kv.arrays().items():
            yield layer, kv, name, array
