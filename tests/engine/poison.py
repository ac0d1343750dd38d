"""Memory that nobody has written yet, or that its owner has given up, filled with NaN: who reads it shows."""

from __future__ import annotations

import numpy as np
import pytest

from mindnano.cache import copies
from mindnano.cache.slots import Slot, SlotPool
from mindnano.model.workspace import Workspace


def fill(array: np.ndarray) -> None:
    """NaN in every floating format that a cache has; -1 in its integers, whose scales are NaN then."""
    array.reshape(-1).view(np.uint8)[:] = 0xFF


def poison_slot(pool: SlotPool, slot: Slot) -> None:
    for kv in slot.kv.values():
        for array in kv.arrays().values():
            fill(array)
    for state in pool.states.values():
        fill(state.memory[slot.index])
        fill(state.conv[slot.index])


def poison_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots when they are made and when they are given back, copies before they are taken, scratch at each use."""
    make, give_back, arena, scratch = SlotPool.__init__, SlotPool.give_back, copies.arena, Workspace.__call__

    def made(pool, *arguments, **named):
        make(pool, *arguments, **named)
        for slot in pool.slots:
            poison_slot(pool, slot)

    def given_back(pool, slot):
        poison_slot(pool, slot)
        give_back(pool, slot)

    def poisoned_arena(shapes):
        arrays = arena(shapes)
        for array in arrays.values():
            fill(array)
        return arrays

    def poisoned_scratch(workspace, *arguments, **named):
        array = scratch(workspace, *arguments, **named)
        fill(array)
        return array

    monkeypatch.setattr(SlotPool, "__init__", made)
    monkeypatch.setattr(SlotPool, "give_back", given_back)
    monkeypatch.setattr(copies, "arena", poisoned_arena)
    monkeypatch.setattr(Workspace, "__call__", poisoned_scratch)
