"""Who runs next: pieces of one prefill, and between them one token of everyone who decodes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Literal

from mindnano.cache.prefix import Node, PrefixCache, Room
from mindnano.cache.slots import Slot, SlotPool
from mindnano.engine.memory.guard import MemoryGuard
from mindnano.engine.queue import FairQueue
from mindnano.engine.sequence import Phase, Progress, Sequence
from mindnano.engine.turns import Turns
from mindnano.errors import MindNanoError
from mindnano.model.decoder import Decoder
from mindnano.model.linear import F32
from mindnano.model.stages import StageClock
from mindnano.model.workspace import Workspace

# How much likelier a prompt is to go on from the end of another prompt (a follow-up, another try), or from the end of
# a message (an edit), than from somewhere inside a long one.
END, MESSAGE, STRIDE = 8.0, 4.0, 1.0
# Seconds between two tokens of a sequence while a prefill runs beside it, which the pieces are timed for.
GAP = 0.37
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
    def span(self) -> float:
        """Seconds that a prefill goes on after a decode step."""
        return min(PREFILL_SHARE * self._decode, GAP - self._decode - self._piece)

    @property
    def due(self) -> bool:
        """Whether those who decode have waited long enough."""
        return perf_counter() - self._since >= self.span


class Scheduler:
    """Continuous batching over the pool's slots. Not thread-safe: one thread calls `step`."""

    def __init__(
        self, model: Decoder, pool: SlotPool, block: int, prefixes: PrefixCache, guard: MemoryGuard
    ) -> None:
        self.model, self.pool, self.block, self.prefixes, self.guard = model, pool, block, prefixes, guard
        self.waiting = FairQueue()
        self.running: list[Sequence] = []
        self.seconds = {"prefill": 0.0, "decode": 0.0}  # of work, by kind
        self._pace = Pace()
        self._turns = Turns(partial(tokens_left, prefixes))  # not a method: a cycle would outlive `close`
        self._guest_scratch = Workspace()

    def submit(self, sequence: Sequence) -> None:
        self.waiting.push(sequence)

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def step(self) -> None:
        """Admit who fits, do a piece of one prefill, and a decode step of all that decode if it is due."""
        self._drop_cancelled()
        while self.waiting and self.pool.free:
            self._start(self.waiting.pop(self.running))
        waiting = [s for s in self.running if s.phase is Phase.PREFILL]
        prefilling = self._turns.choose(waiting, interruptible=not self.model.attending)
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
        sequence.phase = Phase.PREFILL  # first: nobody must count it as waiting and its slot as taken
        slot = sequence.slot = self.pool.take()
        try:
            others = [other.slot for other in self.running if other.slot is not None]
            self.guard.admit(slot, sequence.tokens_at_most(slot.capacity), others)
        except MindNanoError as error:  # this one's; the others go on
            sequence.error = error
            sequence.finish("cancelled")
        else:
            sequence.pieces = self._prefill(sequence, slot)
        self.running.append(sequence)

    def _prefill(self, sequence: Sequence, slot: Slot) -> Iterator[F32 | None]:
        """What no checkpoint has of the prompt, block by block, leaving checkpoints on the way; at last the logits
        [1, vocabulary]. They are looked for when the prompt's turn comes: what ran before may have left some.
        """
        prompt = sequence.prompt
        bounded = sequence.params.max_tokens is not None
        yield from slot.reserve(sequence.tokens_at_most(slot.capacity) if bounded else len(prompt))
        node = self._restore(sequence, slot)
        if slot.length == len(prompt) and node.states is not None and node.states.logits is not None:
            yield node.states.logits[None]
        while slot.length < len(prompt):
            begin, end = slot.length, min(slot.length + self.block, len(prompt))
            room = self.prefixes.room(sequence.node or node, end, checkpoints(sequence, begin, end))
            copies = room.copies if room is not None else {}
            rows: Literal["last", "none"] = "last" if end == len(prompt) else "none"
            sequence.block = end - begin
            scratch = self._guest_scratch if sequence is self._turns.guest else None
            try:
                for logits in self.model.prefill(
                    prompt[begin:end], slot, self.pool, sequence.clock, rows, copies, scratch
                ):
                    if logits is None:
                        yield None
            except BaseException:  # cancelled, or failed
                if room is not None:
                    self.prefixes.give_back(room)
                raise
            assert logits is not None
            if room is not None:
                self._keep(sequence, slot, room, logits)
            sequence.block = 0
            yield logits if len(logits) else None

    def _restore(self, sequence: Sequence, slot: Slot) -> Node:
        hit = self.prefixes.find(sequence.prompt)
        self.prefixes.restore(hit, slot)
        sequence.started = perf_counter()
        sequence.cached, sequence.cached_reason = hit.reused, hit.reason
        self._hold(sequence, hit.node)
        return hit.node

    def _keep(self, sequence: Sequence, slot: Slot, room: Room, logits: F32) -> None:
        assert sequence.node is not None
        for copy in room.copies.values():
            if copy.logits is not None:
                copy.logits[:] = logits[0]
        self._hold(sequence, self.prefixes.keep(room, sequence.node, sequence.prompt, slot))

    def _hold(self, sequence: Sequence, node: Node | None) -> None:
        """Let a sequence go on from `node`, which can't be evicted meanwhile; None when it has ended."""
        if node is not None:
            self.prefixes.pin(node)
        if sequence.node is not None:
            self.prefixes.unpin(sequence.node)
        sequence.node = node

    def _prefill_piece(self, sequence: Sequence) -> None:
        assert sequence.pieces is not None
        begin = perf_counter()
        try:
            logits = next(sequence.pieces)
        except Exception as error:  # of this prompt only: the others' slots are untouched
            sequence.error = error
            sequence.finish("cancelled")
            return
        seconds = perf_counter() - begin
        self.seconds["prefill"] += seconds
        self._pace.piece(seconds)
        self._turns.spent(sequence, seconds)
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
        seconds = perf_counter() - begin
        self.seconds["decode"] += seconds
        self._pace.decoded(seconds)

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
            if sequence.node is not None and sequence.node.end == len(sequence.prompt):
                self.prefixes.note_answer(sequence.node, [sampled.token for sampled in sequence.output])
            self._hold(sequence, None)
            if sequence.slot is not None:
                self.pool.give_back(sequence.slot)
                sequence.slot = None


def tokens_left(prefixes: PrefixCache, sequence: Sequence) -> int:
    """Tokens of a prompt that are still to be computed."""
    done = sequence.slot.length if sequence.slot is not None and sequence.started is not None else None
    if done is None:
        done = prefixes.find(sequence.prompt).reused
    return len(sequence.prompt) - done


def checkpoints(sequence: Sequence, begin: int, end: int) -> dict[int, tuple[float, bool]]:
    """Where to keep checkpoints in the block [begin, end) of a prompt: position -> (weight, with logits).

    After its first and its last message, since a later prompt has the system message, or all messages but the last, in
    common with this one; and at its end, so that a long prompt has some at a stride of a block. Which of them last is
    the budget's choice.
    """
    prompt = sequence.prompt
    messages = [at for at in range(begin + 1, end) if prompt[at - 1] in sequence.eos_token_ids]
    found = dict.fromkeys({*messages[:1], *messages[-1:]}, (MESSAGE, False))
    return found | {end: (END, True) if end == len(prompt) else (STRIDE, False)}
