"""What was promised at the start, looked at again when a request starts: other programs may have taken it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mindnano.cache.slots import Slot, kv_bytes
from mindnano.engine.memory.available import Available, available
from mindnano.engine.memory.plan import MIB, Setup, plan_memory
from mindnano.errors import OutOfMemoryError


class MemoryGuard:
    """Admits a request only if all that it and the running ones may still take can be had now.

    Pages are taken as they are used, so between the plan's check and a request others may have taken them. A request
    that doesn't fit any more is refused before it computes anything, instead of failing, or killing all others, later.
    """

    def __init__(self, setup: Setup, have: Callable[[], Available] = available) -> None:
        self._setup, self._have = setup, have
        self._row = kv_bytes(setup.config, setup.layout, setup.fmt, 1)
        self._promised: dict[int, int] = {}  # slot -> tokens
        self._longest = 0  # tokens whose scratch is there already

    def admit(self, slot: Slot, tokens: int, running: Iterable[Slot]) -> None:
        """Promise a slot room for `tokens` tokens. Raises OutOfMemoryError where it isn't there."""
        self._promised[slot.index] = tokens
        rows = sum(max(0, self._promised[s.index] - s.touched) for s in (slot, *running))
        need = rows * self._row
        if tokens > self._longest:
            before = plan_memory(self._setup, self._longest).scratch if self._longest else 0
            need += plan_memory(self._setup, tokens).scratch - before
        have = self._have()
        if need > have.nbytes:
            raise OutOfMemoryError(
                f"this request may take {need / MIB:,.0f} MiB more, {have.nbytes / MIB:,.0f} MiB are available: other "
                "programs have taken memory since the engine started; close them, ask for fewer tokens, or try again",
                need=need,
                have=have.nbytes,
            )
        self._longest = max(self._longest, tokens)
