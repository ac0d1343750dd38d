"""Who runs next: one piece of one prefill, then one token of everyone who decodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from mindnano.cache.slots import SlotPool
from mindnano.engine.sequence import Phase, Sequence
from mindnano.model.decoder import Decoder
from mindnano.model.linear import F32
from mindnano.model.stages import StageClock


class Scheduler:
    """Continuous batching over the pool's slots. Not thread-safe: one thread calls `step`."""

    def __init__(self, model: Decoder, pool: SlotPool, block: int) -> None:
        self.model, self.pool, self.block = model, pool, block
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def submit(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def step(self) -> None:
        """Admit who fits, do one piece of the oldest prefill and one decode step of all that decode."""
        self._drop_cancelled()
        while self.waiting and self.pool.free:
            self._start(self.waiting.popleft())
        prefilling = next((s for s in self.running if s.phase is Phase.PREFILL), None)
        if prefilling is not None:
            self._prefill_piece(prefilling)
        decoding = [s for s in self.running if s.phase is Phase.DECODE and not s.cancelled]
        if decoding:
            self._decode(decoding)
        self._retire()

    def abort(self, error: BaseException) -> None:
        """End everything with `error`, e.g. when a step failed; all slots are free afterwards."""
        for sequence in [*self.waiting, *self.running]:
            sequence.error = error
            sequence.finish("cancelled")
        self.waiting.clear()
        self._retire()

    def _start(self, sequence: Sequence) -> None:
        sequence.slot = self.pool.take()
        sequence.phase = Phase.PREFILL
        sequence.pieces = self._prefill(sequence)
        self.running.append(sequence)

    def _prefill(self, sequence: Sequence) -> Iterator[F32 | None]:
        assert sequence.slot is not None
        prompt = sequence.prompt
        for begin in range(0, len(prompt), self.block):
            tokens = prompt[begin : begin + self.block]
            rows = "last" if begin + len(tokens) == len(prompt) else "none"
            for logits in self.model.prefill(tokens, sequence.slot, self.pool, sequence.clock, rows):
                if logits is not None:
                    sequence.prefilled += len(tokens)
                yield logits if logits is not None and len(logits) else None

    def _prefill_piece(self, sequence: Sequence) -> None:
        assert sequence.pieces is not None
        logits = next(sequence.pieces)
        if logits is not None:
            sequence.phase = Phase.DECODE
            sequence.pieces = None
            self._sample(sequence, logits[0], sequence.clock)

    def _decode(self, sequences: list[Sequence]) -> None:
        clock = StageClock()
        tokens = [s.output[-1].token for s in sequences]
        slots = [s.slot for s in sequences if s.slot is not None]
        logits = self.model.decode(tokens, slots, self.pool, clock)
        for sequence, row in zip(sequences, logits, strict=True):
            self._sample(sequence, row, clock)
        for sequence in sequences:
            sequence.clock.add(clock)

    def _sample(self, sequence: Sequence, logits: F32, clock: StageClock) -> None:
        assert sequence.slot is not None
        room = sequence.slot.length < sequence.slot.capacity
        sequence.accept(sequence.sampler.sample(logits), room)
        clock.lap("sampling")

    def _drop_cancelled(self) -> None:
        for sequence in [s for s in self.waiting if s.cancelled]:
            self.waiting.remove(sequence)
            sequence.finish("cancelled")
        for sequence in self.running:
            if sequence.cancelled and not sequence.finished:
                sequence.finish("cancelled")
        self._retire()

    def _retire(self) -> None:
        for sequence in [s for s in self.running if s.finished]:
            self.running.remove(sequence)
            if sequence.pieces is not None:
                sequence.pieces.close()  # type: ignore[attr-defined]
                sequence.pieces = None
            if sequence.slot is not None:
                self.pool.give_back(sequence.slot)
                sequence.slot = None
