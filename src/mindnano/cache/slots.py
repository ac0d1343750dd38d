"""Slots: room for one sequence each, made once, reused by one sequence after another."""

from __future__ import annotations

from collections.abc import Iterator

from mindnano.cache.kv import KVCache, check_kind, kv_bytes_per_token, make_kv_cache
from mindnano.cache.pages import touch
from mindnano.cache.states import KDAState
from mindnano.checkpoint.config import ModelConfig


class Slot:
    """One sequence's place: KV rows of every MLA layer and an index into the layers' KDA states.

    `length` tokens are valid; rows beyond are not. KDA states stand at `length` and can't go back.
    """

    def __init__(self, index: int, kv: dict[int, KVCache], capacity: int) -> None:
        self.index = index
        self.kv = kv  # by layer
        self.capacity = capacity
        self.length = 0
        self.layer = 0  # how many layers the block in prefill has gone through
        self._reserved = 0

    @property
    def touched(self) -> int:
        """Tokens whose rows have taken memory, now or in an earlier sequence."""
        self._reserved = max(self._reserved, self.length)
        return self._reserved

    def reserve(self, tokens: int) -> Iterator[None]:
        """Take the memory of the rows of `tokens` tokens now, layer by layer; rows that are in use stay as they are."""
        begin, end = self.touched, min(tokens, self.capacity)
        if begin >= end:
            return
        for kv in self.kv.values():
            for array in kv.arrays().values():
                for part in (array,) if kv.axis == 0 else array:  # a head's rows lie together
                    touch(part[begin:end])
            yield
        self._reserved = end


class SlotPool:
    """All slots of a model: KDA states as one array a layer (a batch of decodes is one call), KV apart."""

    def __init__(self, config: ModelConfig, layout: str, fmt: str, capacity: int, slots: int = 1) -> None:
        check_kind(layout, fmt)
        self.config, self.layout, self.fmt, self.capacity = config, layout, fmt, capacity
        self.states = {
            layer: KDAState(config.kda, slots)
            for layer, kind in enumerate(config.layer_types)
            if kind == "kda" and config.kda is not None
        }
        self.slots = [
            Slot(index, {
                layer: make_kv_cache(config.mla, layout, fmt, capacity)
                for layer, kind in enumerate(config.layer_types)
                if kind == "mla" and config.mla is not None
            }, capacity)
            for index in range(slots)
        ]  # fmt: skip
        self._free = list(range(slots))[::-1]

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def taken(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.index not in self._free]

    def take(self) -> Slot:
        """A free slot, empty. Raises IndexError when there is none: ask `free` first."""
        slot = self.slots[self._free.pop()]
        self.clear(slot)
        return slot

    def give_back(self, slot: Slot) -> None:
        assert slot.index not in self._free, "slot given back twice"
        self._free.append(slot.index)

    def clear(self, slot: Slot) -> None:
        slot.length = slot.layer = 0
        for state in self.states.values():
            state.reset(slot.index)


def kv_bytes(config: ModelConfig, layout: str, fmt: str, tokens: int) -> int:
    """Bytes of KV that `tokens` tokens take in all MLA layers."""
    layers = config.layer_types.count("mla")
    return tokens * layers * kv_bytes_per_token(config.mla, layout, fmt) if config.mla and layers else 0


def state_bytes(config: ModelConfig) -> int:
    """Bytes of KDA and convolution state that one slot takes, whatever its length."""
    layers = config.layer_types.count("kda")
    return layers * KDAState.slot_bytes(config.kda) if config.kda and layers else 0
