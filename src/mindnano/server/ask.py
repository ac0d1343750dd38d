"""One request in a form that all interfaces are turned into, and its way to the engine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from mindnano.engine.params import SamplingParams
from mindnano.engine.sequence import Sequence
from mindnano.server.engine_thread import Job, QueueFull, Stopping
from mindnano.server.errors import ApiError
from mindnano.server.service import Service

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


@dataclass(frozen=True)
class Ask:
    """A conversation to answer. `sampling` holds SamplingParams' fields; None is left to the model."""

    messages: list[dict[str, Any]]
    sampling: dict[str, Any]
    thinking: bool
    choices: int = 1
    tools: list[dict[str, Any]] = field(default_factory=list)
    client: str = ""


@dataclass(frozen=True)
class Running:
    """An answer on its way. `thinks`: its text begins inside the reasoning."""

    job: Job
    thinks: bool
    prompt_tokens: int


async def start(service: Service, ask: Ask) -> Running:
    """Check, encode and queue a request. Raises ApiError or MindNanoError; nothing is queued then."""
    async with (
        service.preparing
    ):  # templates and tokenizing are Python: a few at a time leave the engine its time
        sequences, thinks = await asyncio.to_thread(_prepare, service, ask)
    return Running(submit(service, sequences), thinks, len(sequences[0].prompt))


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


def _prepare(service: Service, ask: Ask) -> tuple[list[Sequence], bool]:
    """On a worker thread."""
    llm = service.llm
    prompt = llm.chat_tokens(ask.messages, ask.thinking, ask.tools or None)
    thinks = opens_thinking(llm.tokenizer.decode(prompt[-64:], skip_special=False))
    sequences = []
    for choice in range(ask.choices):
        sampling = dict(ask.sampling)
        if sampling.get("seed") is not None:
            sampling["seed"] = (sampling["seed"] + choice) % (1 << 64)
        params = SamplingParams.for_model(llm.generation, **sampling)
        sequences.append(
            llm.request(
                prompt,
                params,
                stop_after=THINK_CLOSE if thinks else "",
                client=ask.client,
            )
        )
    return sequences, thinks


def opens_thinking(end: str) -> bool:
    """Whether a prompt with this end leaves the model inside its reasoning."""
    return end.rfind(THINK_OPEN) > end.rfind(THINK_CLOSE)
