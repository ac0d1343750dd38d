"""The engine on its own thread: jobs come in from the event loop, events of their answers go back."""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import TypeVar

from mindnano.engine.completion import Completion
from mindnano.engine.llm import LLM
from mindnano.engine.sampling import Sampled
from mindnano.engine.sequence import Phase, Progress, Sequence
from mindnano.server.counters import Metrics
from mindnano.server.logs import trouble

T = TypeVar("T")
PROGRESS_SECONDS = 0.5  # between two reports of a prefill


@dataclass(frozen=True, slots=True)
class Tokens:
    """New tokens of a choice, `starts` the characters before each, and the text that may be shown now."""

    choice: int
    text: str
    sampled: list[Sampled]
    starts: list[int]


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice has ended; `stop` is the stop string that ended it."""

    choice: int
    completion: Completion
    stop: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine failed; nothing more comes."""

    error: BaseException


Event = Progress | Tokens | Finished | Failed


class QueueFull(Exception):
    """As many requests wait as may; seconds until one of them probably starts."""

    def __init__(self, waiting: int, retry_after: int) -> None:
        super().__init__(f"{waiting} requests wait already")
        self.waiting, self.retry_after = waiting, retry_after


class Stopping(Exception):
    """The server takes no more work."""


@dataclass(eq=False)
class Job:
    """One request: the sequences of its choices, and the events of their answers, in order.

    The choices of one prompt reuse what the first of them computes.
    """

    sequences: list[Sequence]
    loop: asyncio.AbstractEventLoop
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    cancelled: bool = False
    ended: int = 0
    reported: tuple[float, int] = (0.0, -1)  # when and what the last progress said

    def __post_init__(self) -> None:
        self.sent = [0] * len(self.sequences)  # tokens by choice; -1: its end was sent too
        self.last = [0.0] * len(self.sequences)  # when a choice's last token came

    @property
    def waiting(self) -> int:
        """How many of its sequences wait for a slot."""
        return sum(sequence.phase is Phase.WAITING for sequence in self.sequences)

    @property
    def done(self) -> bool:
        return self.ended == len(self.sequences)

    def fail(self, error: BaseException) -> list[Event]:
        """End all choices; the event that tells why."""
        for sequence in self.sequences:
            sequence.cancel()
        self.ended = len(self.sequences)
        return [Failed(error)]


class EngineThread:
    """Runs an LLM. What has no underscore is for the event loop; the rest happens on the thread."""

    def __init__(self, llm: LLM, queue_limit: int, metrics: Metrics) -> None:
        self.llm, self.queue_limit, self.metrics = llm, queue_limit, metrics
        self.jobs: set[Job] = set()  # of the event loop: not answered yet
        self.stopping = False
        self._running: set[Job] = set()  # of the thread
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._seconds = 5.0  # that a request takes, lately
        self._visitors = 0  # threads that may wait for the LLM's lock

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        return sum(job.waiting for job in self.jobs)

    def submit(self, sequences: list[Sequence]) -> Job:
        """Queue a request. Raises QueueFull or Stopping."""
        if self.stopping:
            raise Stopping
        waiting = self.waiting
        if waiting + len(sequences) > self.queue_limit + self.llm.free_slots:
            self.metrics.refused.inc()
            raise QueueFull(waiting, max(1, min(600, math.ceil(self._seconds / self.llm.slots))))
        job = Job(sequences, asyncio.get_running_loop())
        self.jobs.add(job)
        self._commands.put(lambda: self._admit(job))
        return job

    def cancel(self, job: Job) -> None:
        """End a request; its slots are free after the piece of work that runs now."""
        job.cancelled = True
        for sequence in job.sequences:
            sequence.cancel()
        self.jobs.discard(job)
        self._commands.put(_wake)

    async def aside(self, work: Callable[[], T]) -> T:
        """The result of `work`, run on a thread of its own beside the engine's; it may use what the LLM locks."""
        self._visitors += 1
        try:
            return await asyncio.to_thread(work)
        finally:
            self._visitors -= 1

    async def drain(self, seconds: float) -> None:
        """Take no more requests; wait for those that there are, and cancel what isn't done in time."""
        self.stopping = True
        until = perf_counter() + seconds
        while self.jobs and perf_counter() < until:
            await asyncio.sleep(0.02)
        for job in list(self.jobs):
            for sequence in job.sequences:
                sequence.cancel()
        self._commands.put(_wake)

    def stop(self) -> None:
        """End the thread, and whatever runs."""
        self.stopping = True
        self._commands.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._obey(block=self.llm.idle):
            try:
                self.llm.step()
            except Exception as error:  # every sequence has it as its own error, and is told below
                self.metrics.failures.inc()
                trouble("the engine failed", error)
            if self._visitors:
                sleep(
                    0.002
                )  # a lock isn't fair: who waits for the LLM's gets it only while nobody else wants it
            for job in list(self._running):
                try:
                    events = self._news(job)
                except Exception as error:
                    trouble("an answer failed", error)
                    events = job.fail(error)
                self._publish(job, events)
                if job.done or job.cancelled:
                    self._running.discard(job)

    def _obey(self, block: bool) -> bool:
        """Carry out what was asked for; False when the thread shall end."""
        with contextlib.suppress(queue.Empty):
            while True:
                command = self._commands.get(block=block)
                if command is None:
                    return False
                command()
                block = False
        return True

    def _admit(self, job: Job) -> None:
        if not job.cancelled:
            self._running.add(job)
            for sequence in job.sequences:
                self.llm.submit(sequence)

    def _news(self, job: Job) -> list[Event]:
        """What happened to a job since the last time."""
        events: list[Event] = []
        first = next((s for s in job.sequences if s.phase is Phase.PREFILL), None)
        if first is not None:
            events += self._progress(job, first)
        for choice, sequence in enumerate(job.sequences):
            if job.sent[choice] >= 0:
                events += self._choice_news(job, choice, sequence)
        error = next((s.error for s in job.sequences if s.error is not None), None)
        return events if error is None else job.fail(error)

    def _publish(self, job: Job, events: list[Event]) -> None:
        """Send events to the event loop."""
        started = job.sequences[0].started
        if job.done and started is not None:
            self._seconds += 0.2 * (perf_counter() - started - self._seconds)
        if events:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
                job.loop.call_soon_threadsafe(self._deliver, job, events)

    def _progress(self, job: Job, first: Sequence) -> list[Event]:
        now, (then, done) = perf_counter(), job.reported
        if now - then < PROGRESS_SECONDS:
            return []
        progress = self.llm.progress(first)
        if progress is None or progress.tokens_done == done:
            return []
        job.reported = now, progress.tokens_done
        return [progress]

    def _choice_news(self, job: Job, choice: int, sequence: Sequence) -> list[Event]:
        sent = job.sent[choice]
        text, sampled = sequence.text.take(), sequence.output[sent:]
        job.sent[choice] += len(sampled)
        events: list[Event] = []
        if sampled:
            self._time(job, choice, sequence)
        if text or sampled:
            events.append(Tokens(choice, text, sampled, sequence.starts[sent:]))
        if sequence.finished and sequence.error is None:
            job.sent[choice] = -1
            job.ended += 1
            completion = self.llm.result(sequence)
            self.metrics.ended(completion)
            events.append(Finished(choice, completion, sequence.text.stop))
        return events

    def _time(self, job: Job, choice: int, sequence: Sequence) -> None:
        """Book when tokens came: one a step, or the first two in the step that ends a prompt."""
        first, last, now = sequence.first_token or 0.0, job.last[choice], sequence.last_token or 0.0
        if not last:
            self.metrics.ttft.observe(first - sequence.submitted)
            if sequence.started is not None:
                self.metrics.queued.observe(sequence.started - sequence.submitted)
        if now > (last or first):
            self.metrics.gaps.observe(now - (last or first))
        job.last[choice] = now

    def _deliver(self, job: Job, events: list[Event]) -> None:
        """On the event loop."""
        for event in events:
            job.events.put_nowait(event)
        if job.done:
            self.jobs.discard(job)


def _wake() -> None:
    """So that a thread without work looks at what was cancelled."""
