"""One request in a form that all interfaces are turned into, and its way to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
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
    may call several. goes_on: the last message is an answer that is continued. client: for turns in the queue.
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
    goes_on: bool = False
    client: str = ""


@dataclass(frozen=True)
class RawAsk:
    """Prompts to complete as they are: text or token ids, `choices` times each."""

    prompts: list[str | list[int]]
    sampling: dict[str, Any]
    choices: int = 1
    format: Format | None = None
    client: str = ""


@dataclass(frozen=True)
class Running:
    """A request on its way: one sequence and one splitter a choice. Whoever has it calls `cancel` when done with it."""

    job: Job
    splitters: list[Splitter]
    cancel: Callable[[], None]


async def start(service: Service, ask: Ask | RawAsk) -> Running:
    """Check, encode and queue a request. Raises ApiError or MindNanoError; nothing is queued then."""
    async with (
        service.preparing
    ):  # templates and tokenizing are Python: a few at a time leave the engine its time
        if isinstance(ask, RawAsk):
            sequences, splitters = await asyncio.to_thread(_prepare_raw, service, ask)
        else:
            sequences, splitters = await asyncio.to_thread(_prepare, service, ask)
    job = submit(service, sequences)
    return Running(job, splitters, partial(service.engine.cancel, job))


def submit(service: Service, sequences: list[Sequence]) -> Job:
    """Queue sequences; a full queue is 429, a server that stops 503."""
    most = service.settings.queue + service.llm.slots
    if len(sequences) > most:
        raise invalid("n", f"{len(sequences)} answers at once; slots and queue of this server hold {most}")
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


def encode(service: Service, ask: Ask) -> tuple[list[int], bool]:
    """The prompt of a conversation as token ids, and whether it leaves the model inside its reasoning.

    For a worker thread: a template may take seconds.
    """
    tools = [tool.as_dict() for tool in ask.tools] or None
    if not ask.goes_on:
        prompt = service.llm.chat_tokens(ask.messages, ask.thinking, tools)
        return prompt, _thinks(service, prompt)
    final = ask.messages[-1]
    thinking = ask.thinking or bool(final.get("reasoning_content"))
    prompt = service.llm.chat_tokens(ask.messages[:-1], thinking, tools)
    thinks = _thinks(service, prompt)
    tokenizer, content = service.llm.tokenizer, final.get("content") or ""
    if thinks:
        prompt += tokenizer.encode(final.get("reasoning_content") or "")
        prompt += tokenizer.encode(THINK_CLOSE, special=True) if content else []
    return prompt + tokenizer.encode(content), thinks and not content


def _thinks(service: Service, prompt: list[int]) -> bool:
    """Whether nothing closed the reasoning that a prompt's end opens."""
    end = service.llm.tokenizer.decode(prompt[-64:], skip_special=False)
    return end.rfind(THINK_OPEN) > end.rfind(THINK_CLOSE)


def _prepare(service: Service, ask: Ask) -> tuple[list[Sequence], list[Splitter]]:
    """On a worker thread."""
    prompt, thinks = encode(service, ask)
    masks = _masks(service, ask, thinks)
    sequences = [
        service.llm.request(
            prompt,
            _params(service, ask.sampling, choice, masked=mask is not None),
            mask=mask,
            stop_after=THINK_CLOSE if thinks else "",
            shown=service.shown,
            client=ask.client,
        )
        for choice, mask in enumerate(masks)
    ]
    form = service.form if ask.tools else None
    return sequences, [Splitter(thinks, form, ask.tools) for _ in sequences]


def _prepare_raw(service: Service, ask: RawAsk) -> tuple[list[Sequence], list[Splitter]]:
    """On a worker thread."""
    sequences: list[Sequence] = []
    for prompt in ask.prompts:
        tokens = service.llm.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        for mask in _grammar_masks(service, ask.choices, "response_format", ask.format, None, False):
            params = _params(service, ask.sampling, len(sequences), masked=mask is not None)
            sequences.append(service.llm.request(tokens, params, mask=mask, client=ask.client))
    return sequences, [Splitter(False, plain=True) for _ in sequences]


def _params(service: Service, sampling: dict[str, Any], choice: int, masked: bool) -> SamplingParams:
    """Of one choice; each has a seed of its own."""
    values = dict(sampling)
    if values.get("seed") is not None:
        values["seed"] = (values["seed"] + choice) % (1 << 64)
    params = SamplingParams.for_model(service.llm.generation, **values)
    if params.ignore_eos and masked:
        raise invalid("ignore_eos", "a grammar, tools or a thinking budget need the end token")
    return params


def _masks(service: Service, ask: Ask, thinks: bool) -> list[TokenMask | None]:
    """What each choice may say."""
    use = None
    if ask.tools:
        if service.form is None:
            raise invalid("tools", "this model's chat template has no form of tool calls that is known here")
        callable_ = [tool for tool in ask.tools if ask.only in (None, tool.name)]
        use = ToolUse(service.form, callable_, ask.required, ask.parallel)
    if ask.goes_on and (ask.format is not None or ask.required):
        raise invalid(
            None, "an answer that is continued can't be held to a response format or to a tool call"
        )
    param = "tools" if use and not ask.format else "response_format"
    masks = _grammar_masks(service, ask.choices, param, ask.format, use, thinks)
    if ask.thinking_budget is None or not thinks:
        return masks
    tokenizer = service.llm.tokenizer
    closing = tokenizer.encode(CLOSING, special=True)
    return [ThinkingBudget(ask.thinking_budget, closing, THINK_CLOSE, tokenizer, mask) for mask in masks]


def _grammar_masks(
    service: Service, count: int, param: str, form: Format | None, use: ToolUse | None, thinks: bool
) -> list[TokenMask | None]:
    try:
        text = structured.grammar(form, use, thinks, service.markers)
        if text is None:
            return [None] * count
        first = service.grammars.compile(text)
    except MindNanoError as error:
        raise invalid(param, str(error)) from None
    return [first, *(first.copy() for _ in range(count - 1))]
