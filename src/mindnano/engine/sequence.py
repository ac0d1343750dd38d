"""The state of a request: its tokens, its phase, its slot, and what it has said so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from time import perf_counter

from mindnano.cache.prefix import Node
from mindnano.cache.slots import Slot
from mindnano.engine.params import SamplingParams
from mindnano.engine.sampling import Sampled, Sampler
from mindnano.engine.text import TextStream
from mindnano.model.linear import F32
from mindnano.model.stages import StageClock


class Phase(Enum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a prompt in prefill: tokens done, the reused ones among them, and in all; seconds left, if known yet."""

    tokens_done: int
    tokens_total: int
    seconds_left: float | None


@dataclass(eq=False)
class Sequence:
    """One request on its way through the engine."""

    prompt: list[int]
    params: SamplingParams
    sampler: Sampler
    text: TextStream
    eos_token_ids: frozenset[int]
    phase: Phase = Phase.WAITING
    slot: Slot | None = None
    pieces: Iterator[F32 | None] | None = None  # what is left of the prefill
    node: Node | None = None  # the checkpoint that the slot's prefix ends at
    cached: int = 0  # tokens of the prompt that came from checkpoints
    cached_reason: str = ""
    client: str = ""  # who asks: clients wait in turn
    output: list[Sampled] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # by token: characters of the answer before it
    finish_reason: str | None = None
    error: BaseException | None = None  # why it ended early, if not by the model or the caller
    cancelled: bool = False
    clock: StageClock = field(default_factory=StageClock)
    block: int = 0  # tokens of the prompt that are in prefill together now
    submitted: float = field(default_factory=perf_counter)
    started: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    @property
    def finished(self) -> bool:
        return self.phase is Phase.FINISHED

    def tokens_at_most(self, capacity: int) -> int:
        """Tokens of prompt and answer together, in a slot of `capacity`."""
        most = self.params.max_tokens
        return capacity if most is None else min(capacity, len(self.prompt) + most)

    def cancel(self) -> None:
        """End this request at the next piece of work; its text so far stays."""
        self.cancelled = True

    def accept(self, sampled: Sampled, room: bool) -> None:
        """Take a sampled token; finish on EOS, a stop string, the token limit or a full context (`room` false)."""
        now = perf_counter()
        if self.first_token is None:
            self.first_token = now
        self.last_token = now
        self.output.append(sampled)
        self.starts.append(self.text.decoded)
        ends = not self.params.ignore_eos and sampled.token in self.eos_token_ids
        if ends or sampled.token in self.params.stop_token_ids:
            self.finish("stop")
            return
        self.text.push(sampled.token)
        if self.text.stopped:
            self.finish("stop")
        elif len(self.output) == self.params.max_tokens or not room:
            self.finish("length")

    def finish(self, reason: str) -> None:
        self.finish_reason = reason
        self.phase = Phase.FINISHED
        self.text.finish()
