"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mindnano.engine.sequence import Progress
from mindnano.server import ask as asking
from mindnano.server import reading, sse
from mindnano.server.about import reply
from mindnano.server.answer import CallArguments, CallStarts, Piece, Reasoning
from mindnano.server.anthropic.input import to_ask
from mindnano.server.ask import Running
from mindnano.server.decode import read
from mindnano.server.errors import anthropic_body, told
from mindnano.server.openai.usage import wants_progress
from mindnano.server.reading import Ended, Said
from mindnano.server.schemas import messages as m
from mindnano.server.service import Service, service_of


async def create(request: Request) -> Response:
    service, body = service_of(request), await read(request, m.MessageRequest)
    model = service.check_model(body.model)
    running = await sse.while_connected(request, asking.start(service, to_ask(service, request, body)))
    shows = getattr(body.thinking, "display", None) != "omitted"
    answer = _Answer(service, running, model, shows)
    if body.stream:
        return sse.EventStream(answer.events(wants_progress(request, body.progress)), running.cancel)
    done = await sse.while_connected(request, answer.whole(), running.cancel)
    return Response(msgspec.json.encode(done), media_type="application/json")


async def count(request: Request) -> Response:
    service, body = service_of(request), await read(request, m.CountRequest)
    service.check_model(body.model)
    ask = to_ask(service, request, body)
    async with service.preparing:
        prompt, _ = await asyncio.to_thread(asking.encode, service, ask)
    return reply(m.TokenCount(input_tokens=len(prompt)))


class _Answer:
    """The message as it grows, and the events that tell of it."""

    def __init__(self, service: Service, running: Running, model: str, shows_thinking: bool) -> None:
        self.service, self.running, self.shows = service, running, shows_thinking
        prompt = len(running.job.sequences[0].prompt)
        self.body = m.MessageBody(
            id=f"msg_{uuid.uuid4().hex}", model=model, content=[],
            usage=m.MessageUsage(input_tokens=prompt, output_tokens=0),
        )  # fmt: skip
        self._kind: type[Piece] | None = None  # of the block that is open
        self._json = ""  # arguments of the call that is open

    async def whole(self) -> m.MessageBody:
        async for event in reading.read(self.running):
            self._take(event)
        return self.body

    async def events(self, progress: bool) -> AsyncGenerator[bytes, None]:
        source = reading.read(self.running)
        try:
            yield _event({"type": "message_start", "message": self.body})
            yield _event({"type": "ping"})
            async for event in source:
                if isinstance(event, Progress) and progress:
                    yield sse.event(event, "mindnano.progress")
                for change in self._take(event):
                    yield _event(change)
            delta = {"stop_reason": self.body.stop_reason, "stop_sequence": self.body.stop_sequence}
            yield _event(
                {
                    "type": "message_delta",
                    "delta": delta,
                    "usage": self.body.usage,
                    "timings": self.body.timings,
                }
            )
            yield _event({"type": "message_stop"})
        except Exception as error:
            yield sse.event(anthropic_body(told(error)), "error")
        finally:
            await source.aclose()

    def _take(self, event: Progress | Said | Ended) -> list[dict[str, Any]]:
        changes: list[dict[str, Any]] = []
        if isinstance(event, Said):
            for piece in event.pieces:
                if self.shows or not isinstance(piece, Reasoning):
                    changes += self._piece(piece)
        elif isinstance(event, Ended):
            changes += self._close()
            self._end(event)
        return changes

    def _piece(self, piece: Piece) -> list[dict[str, Any]]:
        if isinstance(piece, CallStarts):
            return self._open(piece, m.AnswerToolUse(id=piece.id, name=piece.name, input={}))
        if isinstance(piece, CallArguments):
            self._json += piece.text
            return [self._delta({"type": "input_json_delta", "partial_json": piece.text})]
        changes = []
        if self._kind is not type(piece):
            block = m.AnswerThinking(thinking="") if isinstance(piece, Reasoning) else m.AnswerText(text="")
            changes += self._open(piece, block)
        last = self.body.content[-1]
        if isinstance(last, m.AnswerThinking):
            last.thinking += piece.text
            return [*changes, self._delta({"type": "thinking_delta", "thinking": piece.text})]
        assert isinstance(last, m.AnswerText)
        last.text += piece.text
        return [*changes, self._delta({"type": "text_delta", "text": piece.text})]

    def _open(
        self, piece: Piece, block: m.AnswerText | m.AnswerThinking | m.AnswerToolUse
    ) -> list[dict[str, Any]]:
        changes = self._close()
        self._kind = type(piece)
        self.body.content.append(block)
        start = msgspec.to_builtins(block)
        return [
            *changes,
            {
                "type": "content_block_start",
                "index": len(self.body.content) - 1,
                "content_block": start,
            },
        ]

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": len(self.body.content) - 1, "delta": delta}

    def _close(self) -> list[dict[str, Any]]:
        if self._kind is None:
            return []
        self._kind, block = None, self.body.content[-1]
        if isinstance(block, m.AnswerToolUse):
            block.input, self._json = _whole_json(self._json), ""
        return [{"type": "content_block_stop", "index": len(self.body.content) - 1}]

    def _end(self, event: Ended) -> None:
        body, done = self.body, event.completion
        if done.finish_reason == "length":
            body.stop_reason = "max_tokens"
        elif event.calls:
            body.stop_reason = "tool_use"
        else:
            body.stop_reason = "end_turn" if event.stop is None else "stop_sequence"
            body.stop_sequence = event.stop
        cached = done.timings.cached_tokens
        body.usage = m.MessageUsage(
            input_tokens=done.usage.prompt_tokens - cached,
            output_tokens=done.usage.completion_tokens,
            cache_read_input_tokens=cached,
        )
        body.timings = done.timings.rounded()


def _event(data: dict[str, Any]) -> bytes:
    return sse.event(data, data["type"])


def _whole_json(text: str) -> dict[str, Any]:
    """A call's arguments; none where the answer was cut inside them."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
