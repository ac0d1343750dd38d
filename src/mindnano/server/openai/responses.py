"""POST /v1/responses."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mindnano.engine.sequence import Progress
from mindnano.server import ask as asking
from mindnano.server import reading, sse
from mindnano.server.ask import Ask, Running
from mindnano.server.decode import read
from mindnano.server.errors import invalid, told
from mindnano.server.openai import logprobs, params
from mindnano.server.openai.input import to_messages
from mindnano.server.openai.items import Items
from mindnano.server.openai.usage import wants_progress
from mindnano.server.reading import Ended, Said
from mindnano.server.schemas import chat as c
from mindnano.server.schemas import responses as r
from mindnano.server.service import Service, client_of, service_of
from mindnano.server.structured import Format, JsonFormat


async def create(request: Request) -> Response:
    service, body = service_of(request), await read(request, r.ResponseRequest)
    model = service.check_model(body.model)
    running = await sse.while_connected(request, asking.start(service, to_ask(service, request, body)))
    answer = _Answer(service, running, body, model)
    if body.stream:
        return sse.EventStream(answer.events(wants_progress(request, body.progress)), running.cancel)
    done = await sse.while_connected(request, answer.whole(), running.cancel)
    return Response(msgspec.json.encode(done), media_type="application/json")


def to_ask(service: Service, request: Request, body: r.ResponseRequest) -> Ask:
    tools = [
        params.tool(c.FunctionTool(one.name, one.description, one.parameters, one.strict), f"tools[{at}]")
        for at, one in enumerate(body.tools or [])
    ]
    named = isinstance(body.tool_choice, r.FunctionChoice)
    choice = body.tool_choice.name if isinstance(body.tool_choice, r.FunctionChoice) else body.tool_choice
    shown, required, only = params.chosen_tools(tools, choice, named=named)
    effort = body.reasoning.effort if body.reasoning else None
    thinking, budget = params.thinking(None, effort, service.settings.thinking)
    if body.top_logprobs is not None and not body.include:
        raise invalid("top_logprobs", "needs include: [message.output_text.logprobs]")
    return Ask(
        messages=to_messages(body.input, body.instructions),
        sampling={
            "max_tokens": body.max_output_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "logprobs": (body.top_logprobs or 0) if body.include else None,
        },
        thinking=thinking,
        thinking_budget=budget,
        format=_format(body.text),
        tools=shown,
        required=required,
        only=only,
        parallel=body.parallel_tool_calls is not False,
        client=client_of(request, body.user or body.safety_identifier),
    )


def _format(text: r.TextConfig | None) -> Format | None:
    given = text.format if text else None
    if isinstance(given, r.JsonSchema):
        return params.json_format(given.schema, given.strict, "text.format.schema")
    return JsonFormat() if isinstance(given, r.JsonObject) else None


class _Answer:
    """The response as it grows."""

    def __init__(self, service: Service, running: Running, request: r.ResponseRequest, model: str) -> None:
        self.service, self.running = service, running
        self.items, self.number = Items(), 0
        self.wants = bool(request.include)
        used = running.job.sequences[0].params
        self.body = r.ResponseBody(
            id=f"resp_{uuid.uuid4().hex}",
            created_at=int(time.time()),
            model=model,
            status="in_progress",
            output=self.items.output,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            temperature=used.temperature,
            top_p=used.top_p,
            tool_choice=request.tool_choice or "auto",
            tools=request.tools or [],
            text=request.text or r.TextConfig(format=r.PlainText()),
            reasoning=request.reasoning or r.ReasoningConfig(),
            instructions=request.instructions,
            max_output_tokens=request.max_output_tokens,
            top_logprobs=request.top_logprobs,
            metadata=request.metadata,
            user=request.user,
        )

    async def whole(self) -> r.ResponseBody:
        async for event in reading.read(self.running):
            self._take(event)
        return self.body

    async def events(self, progress: bool) -> AsyncGenerator[bytes, None]:
        source = reading.read(self.running)
        try:
            yield self._event({"type": "response.created", "response": self.body})
            yield self._event({"type": "response.in_progress", "response": self.body})
            async for event in source:
                if isinstance(event, Progress) and progress:
                    yield sse.event(event, "mindnano.progress")
                for change in self._take(event):
                    yield self._event(change)
            yield self._event({"type": f"response.{self.body.status}", "response": self.body})
        except Exception as error:
            found = told(error)
            yield self._event(
                {"type": "error", "code": found.code, "message": found.message, "param": found.param}
            )
        finally:
            await source.aclose()

    def _event(self, change: dict[str, Any]) -> bytes:
        numbered = change | {"sequence_number": self.number}
        self.number += 1
        return sse.event(numbered, change["type"])

    def _take(self, event: Progress | Said | Ended) -> list[dict[str, Any]]:
        if isinstance(event, Said):
            tokens = [sampled for _, sampled in event.tokens] if self.wants else []
            return self.items.add(event.pieces, logprobs.entries(self.service.llm.tokenizer, tokens))
        if isinstance(event, Ended):
            whole = event.reason != "length"
            self.body.status = "completed" if whole else "incomplete"
            self.body.incomplete_details = None if whole else r.Incomplete(reason="max_output_tokens")
            self.body.usage = _usage(event)
            self.body.timings = event.completion.timings.rounded()
            return self.items.finish(self.body.status)
        return []


def _usage(event: Ended) -> r.ResponseUsage:
    usage, cached = event.completion.usage, event.completion.timings.cached_tokens
    return r.ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=r.InputDetails(cached_tokens=cached, cache_write_tokens=0),
        output_tokens=usage.completion_tokens,
        output_tokens_details=r.OutputDetails(reasoning_tokens=event.reasoning_tokens),
        total_tokens=usage.total_tokens,
    )
