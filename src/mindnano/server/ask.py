"""One request in a form that all interfaces are turned into, and its way to the engine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from mindnano.engine.budget import ThinkingBudget
from mindnano.engine.params import SamplingParams
from mindnano.engine.sampling import TokenMask
from mindnano.engine.sequence import Sequence
from mindnano.errors import MindNanoError
from mindnano.server import structured
from mindnano.server.answer import THINK_CLOSE, THINK_OPEN, Splitter
from mindnano.server.engine_thread import Job, QueueFull, Stopping
from mindnano.server.errors import ApiError, invalid
from mindnano.server.service import Service
from mindnano.server.structured import Format, ToolUse
from mindnano.server.tools.form import Tool

CLOSING = f"\n{THINK_CLOSE}\n\n"  # what ends a reasoning that has used up its budget


@dataclass(frozen=True)
class Ask:
    """A conversation to answer.

    sampling: SamplingParams' fields; what is None is left to the model. thinking_budget: tokens of reasoning at most,
    None for any. tools are shown to the model; required: it must call one; only: it may call no other; parallel: it
    may call several. client: for turns in the queue. goes_on: the last message is an answer whose text is continued.
    """

    messages: list[dict[str, Any]]
    sampling: dict[str, Any]
    thinking: bool
    thinking_budget: int | None = None
    choices: int = 1
    format: Format | None = None
    tools: list[Tool] = field(default_factory=list)
    required: bool = False
    only: str | None = None
    parallel: bool = True
    client: str = ""
    goes_on: bool = False


@dataclass(frozen=True)
class Running:
    """An answer on its way, and how to read it."""

    job: Job
    ask: Ask
    thinks: bool
    prompt: list[int]

    def splitter(self, service: Service) -> Splitter:
        """Takes one choice's text apart."""
        return Splitter(self.thinks, service.form if self.ask.tools else None, self.ask.tools)


async def start(service: Service, ask: Ask) -> Running:
    """Check, encode and queue a request. Raises ApiError or MindNanoError; nothing is queued then."""
    async with (
        service.preparing
    ):  # templates and tokenizing are Python: a few at a time leave the engine its time
        sequences, thinks = await asyncio.to_thread(_prepare, service, ask)
    return Running(submit(service, sequences), ask, thinks, sequences[0].prompt)


def submit(service: Service, sequences: list[Sequence]) -> Job:
    """Queue sequences; a full queue is 429, a server that stops 503."""
    try:
        return service.engine.submit(sequences)
    except QueueFull as full:
        raise ApiError(
            429,
            f"{full.waiting} requests wait already, the limit is {service.settings.queue}; try again later",
            kind="rate_limit_error",
            code="queue_full",
            headers={"retry-after": str(full.retry_after)},
        ) from None
    except Stopping:
        raise ApiError(
            503, "the server is stopping", kind="server_error", code="stopping", headers={"retry-after": "30"}
        ) from None


def encode(service: Service, ask: Ask) -> list[int]:
    """The prompt of a conversation as token ids. For a worker thread: a template may take seconds."""
    tools = [tool.as_dict() for tool in ask.tools]
    messages, thinking = ask.messages, ask.thinking
    if ask.goes_on:
        messages, thinking = messages[:-1], thinking or bool(messages[-1].get("reasoning_content"))
    return service.llm.chat_tokens(messages, thinking, tools or None)


def answer_so_far(message: dict[str, Any], thinks: bool) -> str:
    """An answer as the model wrote it, to stand after the prompt it was asked with."""
    reasoning, content = message.get("reasoning_content") or "", message.get("content") or ""
    return reasoning + (THINK_CLOSE + content if content else "") if thinks else content


def _prepare(service: Service, ask: Ask) -> tuple[list[Sequence], bool]:
    """On a worker thread."""
    llm = service.llm
    prompt = encode(service, ask)
    thinks = opens_thinking(llm.tokenizer.decode(prompt[-64:], skip_special=False))
    if ask.goes_on:
        so_far = answer_so_far(ask.messages[-1], thinks)
        prompt += llm.tokenizer.encode(so_far)
        thinks = thinks and THINK_CLOSE not in so_far
    masks = _masks(service, ask, thinks)
    sequences = []
    for choice, mask in enumerate(masks):
        sampling = dict(ask.sampling)
        if sampling.get("seed") is not None:
            sampling["seed"] = (sampling["seed"] + choice) % (1 << 64)
        params = SamplingParams.for_model(llm.generation, **sampling)
        if params.ignore_eos and mask is not None:
            raise invalid("ignore_eos", "a grammar, tools or a thinking budget need the end token")
        sequences.append(
            llm.request(
                prompt,
                params,
                mask=mask,
                stop_after=THINK_CLOSE if thinks else "",
                shown=service.shown,
                client=ask.client,
            )
        )
    return sequences, thinks


def _masks(service: Service, ask: Ask, thinks: bool) -> list[TokenMask | None]:
    """What each choice may say."""
    use = None
    if ask.tools:
        if service.form is None:
            raise invalid("tools", "this model's chat template has no form of tool calls that is known here")
        callable_ = [tool for tool in ask.tools if ask.only in (None, tool.name)]
        use = ToolUse(service.form, callable_, ask.required, ask.parallel)
    text = structured.grammar(ask.format, use, thinks, service.markers)
    masks: list[TokenMask | None] = [None] * ask.choices
    if text is not None:
        try:
            first = service.grammars.compile(text)
        except MindNanoError as error:
            raise invalid("tools" if use and not ask.format else "response_format", str(error)) from None
        masks = [first, *(first.copy() for _ in range(ask.choices - 1))]
    if ask.thinking_budget is not None and thinks:
        tokenizer = service.llm.tokenizer
        closing = tokenizer.encode(CLOSING, special=True)
        masks = [ThinkingBudget(ask.thinking_budget, closing, THINK_CLOSE, tokenizer, mask) for mask in masks]
    return masks


def opens_thinking(end: str) -> bool:
    """Whether a prompt with this end leaves the model inside its reasoning."""
    return end.rfind(THINK_OPEN) > end.rfind(THINK_CLOSE)
