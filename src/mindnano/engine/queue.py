"""Requests that wait for a slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from mindnano.engine.sequence import Sequence


class FairQueue:
    """Each client's requests in order; between clients, who has fewest running, then who waited longest for a turn."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Sequence]] = {}  # clients in the order of their turn

    def push(self, sequence: Sequence) -> None:
        self._waiting.setdefault(sequence.client, deque()).append(sequence)

    def pop(self, running: Iterable[Sequence]) -> Sequence:
        """The next to start. Raises IndexError where nobody waits."""
        if not self._waiting:
            raise IndexError("nobody waits")
        busy = dict.fromkeys(self._waiting, 0)
        for sequence in running:
            if sequence.client in busy:
                busy[sequence.client] += 1
        client = min(busy, key=busy.__getitem__)  # min keeps the first of equals
        mine = self._waiting.pop(client)
        sequence = mine.popleft()
        if mine:
            self._waiting[client] = mine
        return sequence

    def remove(self, sequence: Sequence) -> None:
        mine = self._waiting[sequence.client]
        mine.remove(sequence)
        if not mine:
            del self._waiting[sequence.client]

    def clear(self) -> None:
        self._waiting.clear()

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for mine in self._waiting.values() for sequence in mine)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))
