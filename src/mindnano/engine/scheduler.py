"""Who runs next: pieces of one prefill, and between them one token of everyone who decodes."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np

from mindnano.cache.prefix import PrefixCache, StateCopy
from mindnano.cache.slots import Slot, SlotPool
from mindnano.engine.queue import FairQueue
from mindnano.engine.sequence import Phase, Progress, Sequence
from mindnano.errors import MindNanoError
from mindnano.model.decoder import Decoder
from mindnano.model.linear import F32
from mindnano.model.stages import StageClock

# Seconds between two tokens of a sequence while a prefill runs beside it: what the pieces are timed for.
GAP = 0.33
# Seconds of prefill for one of decode, where the gap allows it.
PREFILL_SHARE = 2.0


class Pace:
    """How long a prefill goes on between two decode steps, from how long both took lately."""

    def __init__(self) -> None:
        self._decode = self._piece = 0.0
        self._since = perf_counter()

    def piece(self, seconds: float) -> None:
        self._piece = max(seconds, 0.9 * self._piece)

    def decoded(self, seconds: float) -> None:
        self._decode += 0.3 * (seconds - self._decode) if self._decode else seconds
        self._since = perf_counter()

    @property
    def due(self) -> bool:
        """Whether those who decode have waited long enough."""
        span = min(PREFILL_SHARE * self._decode, GAP - self._decode - self._piece)
        return perf_counter() - self._since >= span


class Scheduler:
    """Continuous batching over the pool's slots. Not thread-safe: one thread calls `step`."""

    def __init__(self, model: Decoder, pool: SlotPool, block: int, prefixes: PrefixCache) -> None:
        self.model, self.pool, self.block, self.prefixes = model, pool, block, prefixes
        self.waiting = FairQueue()
        self.running: list[Sequence] = []
        self._pace = Pace()

    def submit(self, sequence: Sequence) -> None:
        self.waiting.push(sequence)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def step(self) -> None:
        """Admit who fits, do one piece of the oldest prefill, and a decode step of all that decode if it is due."""
        self._drop_cancelled()
        while self.waiting and self.pool.free:
            self._start(self.waiting.pop(self.running))
        prefilling = next((s for s in self.running if s.phase is Phase.PREFILL), None)
        if prefilling is not None:
            self._prefill_piece(prefilling)
        decoding = [s for s in self.running if s.phase is Phase.DECODE and not s.cancelled]
        if decoding and (prefilling is None or self._pace.due):
            self._decode(decoding)
        self._retire()

    def progress(self, sequence: Sequence) -> Progress | None:
        """How far the prompt of a sequence is; None unless it is in prefill."""
        slot, total = sequence.slot, len(sequence.prompt)
        if sequence.phase is not Phase.PREFILL or slot is None or sequence.started is None:
            return None
        start = sequence.cached
        done = slot.length + sequence.block * slot.layer // len(self.model.layers)
        if done <= start:
            return Progress(done, total, None)
        # Attention costs a token in proportion to what is before it, everything else the same for each.
        seconds = sequence.clock.seconds
        spent, attention = sum(seconds.values()), seconds["mla"]
        left = (spent - attention) * (total - done) / (done - start)
        left += attention * (total**2 - done**2) / (done**2 - start**2)
        wall = perf_counter() - sequence.started
        return Progress(done, total, left * wall / spent if spent else None)

    def abort(self, error: BaseException) -> None:
        """End everything with `error`, e.g. when a step failed; all slots are free afterwards."""
        for sequence in [*self.waiting, *self.running]:
            sequence.error = error
            sequence.finish("cancelled")
        self.waiting.clear()
        self._retire()

    def _start(self, sequence: Sequence) -> None:
        slot = sequence.slot = self.pool.take()
        sequence.phase, sequence.started = Phase.PREFILL, perf_counter()
        hit = self.prefixes.find(sequence.prompt)
        self.prefixes.restore(hit, slot)
        sequence.cached, sequence.cached_reason = hit.reused, hit.reason
        sequence.node = hit.node
        self.prefixes.pin(hit.node)
        sequence.pieces = self._prefill(sequence, slot)
        self.running.append(sequence)

    def _prefill(self, sequence: Sequence, slot: Slot) -> Iterator[F32 | None]:
        """The rest of the prompt block by block, leaving checkpoints on the way; at last the logits [1, vocabulary]."""
        prompt = sequence.prompt
        if slot.length == len(prompt) and sequence.node is not None and sequence.node.logits is not None:
            yield np.asarray(sequence.node.logits, np.float32)[None]
        while slot.length < len(prompt):
            begin, end = slot.length, min(slot.length + self.block, len(prompt))
            marks = {at: StateCopy() for at in self._marks(sequence, begin, end)}
            rows = "last" if end == len(prompt) else "none"
            sequence.block = end - begin
            for logits in self.model.prefill(prompt[begin:end], slot, self.pool, sequence.clock, rows, marks):
                if logits is not None:
                    for at, states in marks.items():
                        self._checkpoint(sequence, slot, at, states, logits[0] if at == len(prompt) else None)
                yield logits if logits is not None and len(logits) else None

    def _marks(self, sequence: Sequence, begin: int, end: int) -> list[int]:
        """Where to copy states in the block [begin, end): after its first and last message, and at its end.

        A later prompt has the system message in common with this one, or all messages, or everything.
        """
        if not self.prefixes.budget:
            return []
        prompt = sequence.prompt
        messages = [at for at in range(begin + 1, end) if prompt[at - 1] in sequence.eos_token_ids]
        return sorted({*messages[:1], *messages[-1:], end})

    def _checkpoint(
        self, sequence: Sequence, slot: Slot, at: int, states: StateCopy, logits: F32 | None
    ) -> None:
        assert sequence.node is not None
        node = self.prefixes.keep(sequence.node, sequence.prompt, at, slot, states, logits)
        self.prefixes.pin(node)
        self.prefixes.unpin(sequence.node)
        sequence.node = node

    def _prefill_piece(self, sequence: Sequence) -> None:
        assert sequence.pieces is not None
        begin = perf_counter()
        logits = next(sequence.pieces)
        self._pace.piece(perf_counter() - begin)
        if logits is not None:
            sequence.phase = Phase.DECODE
            sequence.pieces = None
            self._sample(sequence, logits[0], sequence.clock)

    def _decode(self, sequences: list[Sequence]) -> None:
        clock, begin = StageClock(), perf_counter()
        tokens = [s.output[-1].token for s in sequences]
        slots = [s.slot for s in sequences if s.slot is not None]
        logits = self.model.decode(tokens, slots, self.pool, clock)
        for sequence, row in zip(sequences, logits, strict=True):
            self._sample(sequence, row, clock)
        for sequence in sequences:
            sequence.clock.add(clock)
        self._pace.decoded(perf_counter() - begin)

    def _sample(self, sequence: Sequence, logits: F32, clock: StageClock) -> None:
        assert sequence.slot is not None
        room = sequence.slot.length < sequence.slot.capacity
        try:
            sequence.accept(sequence.sampler.sample(logits), room)
        except MindNanoError as error:  # this answer's mask or logits; the others go on
            sequence.error = error
            sequence.finish("cancelled")
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
            if sequence.node is not None:
                self.prefixes.unpin(sequence.node)
                sequence.node = None
            if sequence.slot is not None:
                self.pool.give_back(sequence.slot)
                sequence.slot = None
