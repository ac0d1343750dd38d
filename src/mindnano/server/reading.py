"""A running request as it is answered: pieces of each choice, tokens with their log-probabilities, ends."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from mindnano.engine.completion import Completion
from mindnano.engine.sampling import Sampled
from mindnano.engine.sequence import Progress
from mindnano.server.answer import Piece, Splitter
from mindnano.server.ask import Running
from mindnano.server.engine_thread import Failed, Finished, Tokens
from mindnano.server.errors import ApiError


@dataclass(frozen=True, slots=True)
class Said:
    """New pieces of a choice, and the tokens of content among them, each with the position where its text begins."""

    choice: int
    pieces: list[Piece]
    tokens: list[tuple[int, Sampled]]


@dataclass(frozen=True, slots=True)
class Ended:
    """A choice is complete. stop: the stop string that ended it. calls: tool calls in it."""

    choice: int
    completion: Completion
    stop: str | None
    calls: int
    reasoning_tokens: int

    @property
    def reason(self) -> str:
        """OpenAI's finish reason."""
        reason = self.completion.finish_reason
        return "tool_calls" if self.calls and reason == "stop" else reason


class ChoiceReader:
    """Takes one choice apart, and finds which tokens are content."""

    def __init__(self, splitter: Splitter) -> None:
        self.splitter = splitter
        self.reasoning_tokens = 0
        self._tokens: deque[tuple[int, Sampled]] = deque()

    def push(self, event: Tokens) -> tuple[list[Piece], list[tuple[int, Sampled]]]:
        if self.splitter.thinking:
            self.reasoning_tokens += len(event.sampled)
        self._tokens.extend(zip(event.starts, event.sampled, strict=True))
        pieces = self.splitter.push(event.text)
        return pieces, self._content()

    def finish(self) -> tuple[list[Piece], list[tuple[int, Sampled]]]:
        pieces = self.splitter.finish()
        return pieces, self._content()

    def _content(self) -> list[tuple[int, Sampled]]:
        """Tokens whose place is decided by now, if it is content."""
        found, spans = [], self.splitter.content_at
        while self._tokens and self._tokens[0][0] < self.splitter.position:
            start, sampled = self._tokens.popleft()
            while spans and spans[0][1] <= start:
                spans.pop(0)
            if spans and spans[0][0] <= start:
                found.append((start, sampled))
        return found


async def read(running: Running) -> AsyncGenerator[Progress | Said | Ended, None]:
    """What happens to a request until all choices have ended.

    Raises what the engine failed with, and ApiError where the server stops.
    """
    job = running.job
    readers = [ChoiceReader(splitter) for splitter in running.splitters]
    left = len(readers)
    while left:
        event = await job.events.get()
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Progress):
            yield event
            continue
        reader = readers[event.choice]
        if isinstance(event, Tokens):
            pieces, tokens = reader.push(event)
            if pieces or tokens:
                yield Said(event.choice, pieces, tokens)
        elif isinstance(event, Finished):
            if event.completion.finish_reason == "cancelled":
                raise ApiError(503, "the server is stopping", kind="server_error", code="stopping")
            pieces, tokens = reader.finish()
            if pieces or tokens:
                yield Said(event.choice, pieces, tokens)
            left -= 1
            calls, reasoning = reader.splitter.calls, reader.reasoning_tokens
            yield Ended(event.choice, event.completion, event.stop, calls, reasoning)
