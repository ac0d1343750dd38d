"""POST /v1/chat/completions."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from mindnano.engine.completion import Completion
from mindnano.engine.sequence import Progress
from mindnano.server import ask as asking
from mindnano.server import reading, sse
from mindnano.server.answer import CallArguments, CallStarts, Content, Piece, Reasoning
from mindnano.server.ask import Ask, Running
from mindnano.server.decode import read
from mindnano.server.errors import from_exception, plain
from mindnano.server.openai import logprobs, params
from mindnano.server.reading import Ended, Said
from mindnano.server.schemas import chat as c
from mindnano.server.schemas.common import PromptDetails, Usage
from mindnano.server.service import Service, client_of, service_of


async def create(request: Request) -> Response:
    service, body = service_of(request), await read(request, c.ChatRequest)
    model = service.check_model(body.model)
    running = await sse.while_connected(request, asking.start(service, to_ask(service, request, body)))
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
    if body.stream:
        progress = bool(body.progress) or request.headers.get("x-mindnano-progress") == "1"
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        return sse.EventStream(_Stream(service, running, head, progress, usage).events())
    done = await sse.while_connected(request, _whole(service, running, head))
    return Response(msgspec.json.encode(done), media_type="application/json")


def to_ask(service: Service, request: Request, body: c.ChatRequest) -> Ask:
    tools = [params.tool(one.function, f"tools[{at}].function") for at, one in enumerate(body.tools or [])]
    choice = body.tool_choice.function.name if isinstance(body.tool_choice, c.NamedTool) else body.tool_choice
    kwargs = body.chat_template_kwargs
    thinking, budget = params.thinking(
        kwargs.enable_thinking if kwargs else None, body.reasoning_effort, service.settings.thinking
    )
    shown, required, only = params.chosen_tools(
        tools, choice, named=isinstance(body.tool_choice, c.NamedTool)
    )
    return Ask(
        messages=params.chat_messages(body.messages),
        sampling=params.sampling(body),
        thinking=thinking,
        thinking_budget=budget,
        choices=body.n or 1,
        format=params.answer_format(body.response_format),
        tools=shown,
        required=required,
        only=only,
        parallel=body.parallel_tool_calls is not False,
        client=client_of(request, body.user or body.safety_identifier),
        goes_on=params.goes_on(body),
    )


def usage_of(completions: list[Completion]) -> Usage:
    """Of all choices together."""
    prompt, cached = completions[0].usage.prompt_tokens, completions[0].timings.cached_tokens
    answer = sum(done.usage.completion_tokens for done in completions)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=answer,
        total_tokens=prompt + answer,
        prompt_tokens_details=PromptDetails(cached_tokens=cached),
    )


@dataclass
class Whole:
    """What one choice has said."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[tuple[CallStarts, list[str]]] = field(default_factory=list)
    tokens: list[Any] = field(default_factory=list)

    def add(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, Content):
                self.content.append(piece.text)
            elif isinstance(piece, Reasoning):
                self.reasoning.append(piece.text)
            elif isinstance(piece, CallStarts):
                self.calls.append((piece, []))
            else:
                self.calls[piece.index][1].append(piece.text)

    def message(self) -> c.AnswerMessage:
        content = "".join(self.content)
        calls = [
            c.AnswerToolCall(
                id=start.id, type="function", function=c.AnswerFunction(start.name, "".join(text))
            )
            for start, text in self.calls
        ]
        return c.AnswerMessage(
            role="assistant",
            content=content if content or not calls else None,
            reasoning_content="".join(self.reasoning) if self.reasoning else UNSET,
            tool_calls=calls or UNSET,
        )


async def _whole(service: Service, running: Running, head: dict[str, Any]) -> c.ChatCompletion:
    wholes = [Whole() for _ in range(running.ask.choices)]
    ended: dict[int, Ended] = {}
    async for event in reading.read(service, running):
        if isinstance(event, Said):
            wholes[event.choice].add(event.pieces)
            wholes[event.choice].tokens += event.tokens
        elif isinstance(event, Ended):
            ended[event.choice] = event
    wants = running.ask.sampling["logprobs"] is not None
    tokenizer = service.llm.tokenizer
    choices = [
        c.Choice(
            index=index,
            message=whole.message(),
            finish_reason=cast(c.FinishReason, ended[index].reason),
            logprobs=c.ChoiceLogprobs(content=logprobs.entries(tokenizer, whole.tokens)) if wants else None,
        )
        for index, whole in enumerate(wholes)
    ]
    completions = [ended[index].completion for index in range(len(choices))]
    return c.ChatCompletion(
        **head,
        object="chat.completion",
        choices=choices,
        usage=usage_of(completions),
        timings=completions[0].timings.rounded(),
    )


class _Stream:
    """The chunks of one answer."""

    def __init__(
        self, service: Service, running: Running, head: dict[str, Any], progress: bool, usage: bool
    ) -> None:
        self.service, self.running, self.head = service, running, head
        self.progress, self.usage = progress, usage
        self.wants = running.ask.sampling["logprobs"] is not None

    async def events(self) -> AsyncGenerator[bytes, None]:
        ended: list[Ended] = []
        source = reading.read(self.service, self.running)
        try:
            for index in range(self.running.ask.choices):
                yield self._chunk(index, c.Delta(role="assistant", content=""))
            async for event in source:
                if isinstance(event, Progress):
                    if self.progress:
                        yield sse.event(event, "mindnano.progress")
                elif isinstance(event, Said):
                    for chunk in self._said(event):
                        yield chunk
                else:
                    ended.append(event)
                    yield self._end(event, last=len(ended) == self.running.ask.choices)
            if self.usage:
                usage = usage_of([one.completion for one in ended])
                yield sse.event(self._body([], usage=usage))
            yield sse.DONE
        except Exception as error:
            yield sse.event(plain(from_exception(error)))
        finally:
            await source.aclose()

    def _body(self, choices: list[c.ChunkChoice], **more: Any) -> c.ChatChunk:
        return c.ChatChunk(**self.head, object="chat.completion.chunk", choices=choices, **more)

    def _chunk(self, index: int, delta: c.Delta, tokens: Any = UNSET) -> bytes:
        found = tokens
        if tokens is not UNSET:
            found = c.ChoiceLogprobs(content=logprobs.entries(self.service.llm.tokenizer, tokens))
        choice = c.ChunkChoice(index=index, delta=delta, finish_reason=None, logprobs=found)
        return sse.event(self._body([choice]))

    def _said(self, event: Said) -> list[bytes]:
        tokens: Any = event.tokens if self.wants and event.tokens else UNSET
        chunks = []
        for piece in event.pieces:
            if isinstance(piece, Content):
                chunks.append(self._chunk(event.choice, c.Delta(content=piece.text), tokens))
                tokens = UNSET
            else:
                chunks.append(self._chunk(event.choice, _delta(piece)))
        if tokens is not UNSET:
            chunks.append(self._chunk(event.choice, c.Delta(content=""), tokens))
        return chunks

    def _end(self, event: Ended, last: bool) -> bytes:
        choice = c.ChunkChoice(
            index=event.choice, delta=c.Delta(), finish_reason=cast(c.FinishReason, event.reason)
        )
        return sse.event(self._body([choice], timings=event.completion.timings.rounded() if last else UNSET))


def _delta(piece: Reasoning | CallStarts | CallArguments) -> c.Delta:
    if isinstance(piece, Reasoning):
        return c.Delta(reasoning_content=piece.text)
    if isinstance(piece, CallStarts):
        function = c.FunctionDelta(name=piece.name, arguments="")
        call = c.ToolCallDelta(index=piece.index, id=piece.id, type="function", function=function)
    else:
        call = c.ToolCallDelta(index=piece.index, function=c.FunctionDelta(arguments=piece.text))
    return c.Delta(tool_calls=[call])
