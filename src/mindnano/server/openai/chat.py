"""POST /v1/chat/completions."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from mindnano.engine.completion import Completion
from mindnano.engine.sequence import Progress
from mindnano.server import ask as asking
from mindnano.server import sse
from mindnano.server.ask import Ask, Running
from mindnano.server.decode import read
from mindnano.server.engine_thread import Failed, Finished, Tokens
from mindnano.server.errors import from_exception, plain, unsupported
from mindnano.server.openai.params import chat_messages, sampling, thinks
from mindnano.server.schemas import chat as c
from mindnano.server.schemas.common import PromptDetails, Usage
from mindnano.server.service import Service, client_of, service_of


async def create(request: Request) -> Response:
    service, body = service_of(request), await read(request, c.ChatRequest)
    model = service.check_model(body.model)
    for name in ("tools", "response_format", "session", "logprobs", "metadata"):
        if getattr(body, name):
            raise unsupported(name, "not in this version yet")
    ask = Ask(
        messages=chat_messages(body.messages),
        sampling=sampling(body),
        thinking=thinks(body, service.settings.thinking),
        choices=body.n or 1,
        client=client_of(request, body.user),
    )
    running = await sse.while_connected(request, asking.start(service, ask))
    head: dict[str, Any] = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
    if body.stream:
        progress = body.progress or request.headers.get("x-mindnano-progress") == "1"
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        return sse.EventStream(_stream(service, running, head, bool(progress), usage))
    done = await sse.while_connected(request, _whole(service, running, head))
    return Response(msgspec.json.encode(done), media_type="application/json")


def usage_of(completions: list[Completion]) -> Usage:
    prompt, cached = completions[0].usage.prompt_tokens, completions[0].timings.cached_tokens
    answer = sum(done.usage.completion_tokens for done in completions)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=answer,
        total_tokens=prompt + answer,
        prompt_tokens_details=PromptDetails(cached_tokens=cached),
    )


async def _whole(service: Service, running: Running, head: dict[str, Any]) -> c.ChatCompletion:
    job = running.job
    finished: dict[int, Completion] = {}
    try:
        while len(finished) < len(job.sequences):
            event = await job.events.get()
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Finished):
                finished[event.choice] = event.completion
    finally:
        service.engine.cancel(job)
    choices = []
    for index in sorted(finished):
        done = finished[index]
        reasoning, _, content = done.text.partition("</think>") if running.thinks else ("", "", done.text)
        message = c.AnswerMessage(
            role="assistant", content=content, reasoning_content=reasoning if running.thinks else UNSET
        )
        choices.append(
            c.Choice(index=index, message=message, finish_reason=done.finish_reason, logprobs=None)
        )
    return c.ChatCompletion(
        **head, object="chat.completion", choices=choices,
        usage=usage_of(list(finished.values())), timings=finished[0].timings,
    )  # fmt: skip


async def _stream(
    service: Service, running: Running, head: dict[str, Any], progress: bool, usage: bool
) -> AsyncGenerator[bytes, None]:
    job = running.job
    finished: dict[int, Completion] = {}
    thinking: dict[int, bool] = {}

    def chunk(index: int, delta: c.Delta, reason: Any = None, **more: Any) -> bytes:
        choice = c.ChunkChoice(index=index, delta=delta, finish_reason=reason)
        return sse.event(c.ChatChunk(**head, object="chat.completion.chunk", choices=[choice], **more))

    try:
        for index in range(len(job.sequences)):
            thinking[index] = running.thinks
            yield chunk(index, c.Delta(role="assistant", content=""))
        while len(finished) < len(job.sequences):
            event = await job.events.get()
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Progress):
                if progress:
                    yield sse.event(event, "mindnano.progress")
            elif isinstance(event, Tokens):
                text = event.text
                if thinking[event.choice]:
                    reasoning, closed, text = text.partition("</think>")
                    thinking[event.choice] = not closed
                    if reasoning:
                        yield chunk(event.choice, c.Delta(reasoning_content=reasoning))
                if text:
                    yield chunk(event.choice, c.Delta(content=text))
            elif isinstance(event, Finished):
                finished[event.choice] = event.completion
                more = (
                    {"timings": event.completion.timings.as_dict()}
                    if len(finished) == len(job.sequences)
                    else {}
                )
                yield chunk(event.choice, c.Delta(), event.completion.finish_reason, **more)
        if usage:
            yield sse.event(
                c.ChatChunk(
                    **head,
                    object="chat.completion.chunk",
                    choices=[],
                    usage=usage_of(list(finished.values())),
                )
            )
        yield sse.DONE
    except Exception as error:
        yield sse.event(plain(from_exception(error)))
    finally:
        service.engine.cancel(job)
