"""POST /v1/chat/completions."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from mindnano.cache.sessions import check_name
from mindnano.engine.sampling import Sampled
from mindnano.engine.sequence import Progress
from mindnano.server import ask as asking
from mindnano.server import reading, sse
from mindnano.server.answer import Content
from mindnano.server.ask import Ask, Running
from mindnano.server.decode import read
from mindnano.server.errors import openai_body, told
from mindnano.server.openai import logprobs, params
from mindnano.server.openai.message import Whole, delta
from mindnano.server.openai.usage import usage_of, wants_progress, wants_usage
from mindnano.server.reading import Ended, Said
from mindnano.server.schemas import chat as c
from mindnano.server.service import Service, client_of, service_of
from mindnano.server.sessions import store_of


async def create(request: Request) -> Response:
    service, body = service_of(request), await read(request, c.ChatRequest)
    model = service.check_model(body.model)
    ask = to_ask(service, request, body)
    if body.session is not None:
        store_of(service)
        check_name(body.session)
    running = await sse.while_connected(request, asking.start(service, ask))
    head: dict[str, Any] = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
    answer = _Answer(service, running, ask, head, body.session)
    if body.stream:
        return sse.EventStream(
            answer.events(wants_progress(request, body.progress), wants_usage(body)), running.cancel
        )
    done = await sse.while_connected(request, answer.whole(), running.cancel)
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
        sampling=params.sampling(body, logprobs=params.top_logprobs(body)),
        thinking=thinking,
        thinking_budget=budget,
        choices=body.n or 1,
        format=params.answer_format(body.response_format),
        tools=shown,
        required=required,
        only=only,
        parallel=body.parallel_tool_calls is not False,
        goes_on=params.goes_on(body),
        client=client_of(request, body.user or body.safety_identifier),
    )


class _Answer:
    """The choices of one request, whole or as chunks. session: the name to save the conversation under at the end."""

    def __init__(
        self, service: Service, running: Running, ask: Ask, head: dict[str, Any], session: str | None
    ) -> None:
        self.service, self.running, self.ask, self.head, self.session = service, running, ask, head, session
        self.wants = ask.sampling["logprobs"] is not None
        self.choices = [Whole() for _ in range(ask.choices)]
        self.ended: list[Ended] = []

    async def whole(self) -> c.ChatCompletion:
        async for event in reading.read(self.running):
            self._take(event)
        reasons = {event.choice: event.reason for event in self.ended}
        choices = [
            c.Choice(
                index=index,
                message=choice.message(),
                finish_reason=cast(c.FinishReason, reasons[index]),
                logprobs=self._logprobs(choice.tokens) if self.wants else None,
            )
            for index, choice in enumerate(self.choices)
        ]
        first = next(event for event in self.ended if event.choice == 0)
        return c.ChatCompletion(
            **self.head,
            object="chat.completion",
            choices=choices,
            usage=usage_of(self.ended, len(choices)),
            timings=first.completion.timings.rounded(),
        )

    async def events(self, progress: bool, usage: bool) -> AsyncGenerator[bytes, None]:
        source = reading.read(self.running)
        try:
            for index in range(len(self.choices)):
                yield self._chunk(index, c.Delta(role="assistant", content=""))
            async for event in source:
                self._take(event)
                if isinstance(event, Progress):
                    if progress:
                        yield sse.event(event, "mindnano.progress")
                elif isinstance(event, Said):
                    for chunk in self._said(event):
                        yield chunk
                else:
                    yield self._end(event)
            if usage:
                yield sse.event(self._body([], usage=usage_of(self.ended, len(self.choices))))
            yield sse.DONE
        except Exception as error:
            yield sse.event(openai_body(told(error)))
        finally:
            await source.aclose()

    def _take(self, event: Progress | Said | Ended) -> None:
        if isinstance(event, Said):
            self.choices[event.choice].add(event.pieces)
            if self.wants:
                self.choices[event.choice].tokens += [sampled for _, sampled in event.tokens]
        elif isinstance(event, Ended):
            self.ended.append(event)
            if self.session is not None and event.choice == 0:
                self._mark(self.session)

    def _mark(self, session: str) -> None:
        answer = msgspec.to_builtins(self.choices[0].message())
        messages = [*self.ask.messages, {name: value for name, value in answer.items() if value is not None}]
        settings: dict[str, Any] = {"thinking": self.ask.thinking}
        if self.ask.tools:
            settings["tools"] = [tool.as_dict() for tool in self.ask.tools]
        self.service.mark(session, messages, settings)

    def _body(self, choices: list[c.ChunkChoice], **more: Any) -> c.ChatChunk:
        return c.ChatChunk(**self.head, object="chat.completion.chunk", choices=choices, **more)

    def _logprobs(self, tokens: list[Sampled]) -> c.ChoiceLogprobs:
        return c.ChoiceLogprobs(content=logprobs.entries(self.service.llm.tokenizer, tokens))

    def _chunk(self, index: int, change: c.Delta, tokens: list[Sampled] | None = None) -> bytes:
        found = self._logprobs(tokens) if tokens else UNSET
        choice = c.ChunkChoice(index=index, delta=change, finish_reason=None, logprobs=found)
        return sse.event(self._body([choice]))

    def _said(self, event: Said) -> list[bytes]:
        tokens = [sampled for _, sampled in event.tokens] if self.wants else []
        chunks = []
        for piece in event.pieces:
            has, tokens = (tokens, []) if isinstance(piece, Content) else ([], tokens)
            chunks.append(self._chunk(event.choice, delta(piece), has))
        if tokens:  # their text is still held back
            chunks.append(self._chunk(event.choice, c.Delta(content=""), tokens))
        return chunks

    def _end(self, event: Ended) -> bytes:
        choice = c.ChunkChoice(
            index=event.choice, delta=c.Delta(), finish_reason=cast(c.FinishReason, event.reason)
        )
        last = len(self.ended) == len(self.choices)
        return sse.event(self._body([choice], timings=event.completion.timings.rounded() if last else UNSET))
