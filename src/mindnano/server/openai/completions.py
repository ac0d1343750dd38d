"""POST /v1/completions."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from mindnano.engine.sampling import Sampled
from mindnano.engine.sequence import Progress
from mindnano.server import ask as asking
from mindnano.server import reading, sse
from mindnano.server.answer import Content
from mindnano.server.ask import RawAsk, Running
from mindnano.server.decode import read
from mindnano.server.errors import invalid, openai_body, told, unsupported
from mindnano.server.openai import logprobs, params
from mindnano.server.openai.usage import usage_of, wants_progress, wants_usage
from mindnano.server.reading import Ended, Said
from mindnano.server.schemas import completions as c
from mindnano.server.service import Service, client_of, service_of
from mindnano.server.settings import MAX_ANSWERS, MAX_PROMPTS


async def create(request: Request) -> Response:
    service, body = service_of(request), await read(request, c.CompletionRequest)
    model = service.check_model(body.model)
    if body.echo and body.logprobs is not None:
        raise unsupported(
            "echo", "the prompt's own log-probabilities aren't computed; leave out echo or logprobs"
        )
    ask = RawAsk(
        prompts=_prompts(body.prompt),
        sampling=params.sampling(body, logprobs=body.logprobs),
        choices=body.n or 1,
        format=params.answer_format(body.response_format),
        client=client_of(request, body.user),
    )
    if (answers := len(ask.prompts) * ask.choices) > MAX_ANSWERS:
        raise invalid("n", f"{answers} answers (prompts times n), the limit is {MAX_ANSWERS}")
    running = await sse.while_connected(request, asking.start(service, ask))
    head = {"id": f"cmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
    echoes = (
        [_text(service, prompt) for prompt in ask.prompts for _ in range(ask.choices)] if body.echo else []
    )
    answer = _Answer(service, running, ask, head, echoes)
    if body.stream:
        return sse.EventStream(
            answer.events(wants_progress(request, body.progress), wants_usage(body)), running.cancel
        )
    done = await sse.while_connected(request, answer.whole(), running.cancel)
    return Response(msgspec.json.encode(done), media_type="application/json")


def _prompts(given: c.Prompt) -> list[str | list[int]]:
    if isinstance(given, str):
        return [given]
    kinds = {type(one) for one in given}
    if kinds == {int}:
        return [cast(list[int], given)]
    if len(kinds) != 1:
        raise invalid("prompt", "expected a text, token ids, or a list of texts or of lists of token ids")
    if len(given) > MAX_PROMPTS:
        raise invalid("prompt", f"{len(given)} prompts, the limit is {MAX_PROMPTS}")
    return cast(list[str | list[int]], given)


def _text(service: Service, prompt: str | list[int]) -> str:
    return prompt if isinstance(prompt, str) else service.llm.tokenizer.decode(prompt)


class _Answer:
    """The choices of one request, whole or as chunks."""

    def __init__(
        self, service: Service, running: Running, ask: RawAsk, head: dict[str, Any], echoes: list[str]
    ) -> None:
        self.service, self.running, self.head, self.echoes = service, running, head, echoes
        self.wants, self.per_prompt = ask.sampling["logprobs"] is not None, ask.choices
        self.count = len(running.splitters)

    async def whole(self) -> c.TextCompletion:
        texts: list[list[str]] = [self.echoes[i : i + 1] for i in range(self.count)]
        tokens: list[list[tuple[int, Sampled]]] = [[] for _ in range(self.count)]
        ended: dict[int, Ended] = {}
        async for event in reading.read(self.running):
            if isinstance(event, Said):
                texts[event.choice] += [piece.text for piece in event.pieces if isinstance(piece, Content)]
                tokens[event.choice] += event.tokens
            elif isinstance(event, Ended):
                ended[event.choice] = event
        completions = [ended[index].completion for index in range(self.count)]
        choices = [
            self._choice(index, "".join(texts[index]), tokens[index], ended[index].reason)
            for index in range(self.count)
        ]
        timings = completions[0].timings.rounded()
        return self._body(choices, usage=usage_of(list(ended.values()), self.per_prompt), timings=timings)

    async def events(self, progress: bool, usage: bool) -> AsyncGenerator[bytes, None]:
        ended: list[Ended] = []
        source = reading.read(self.running)
        try:
            for index, echo in enumerate(self.echoes):
                yield sse.event(self._body([self._choice(index, echo, [], None)]))
            async for event in source:
                if isinstance(event, Progress):
                    if progress:
                        yield sse.event(event, "mindnano.progress")
                elif isinstance(event, Said):
                    text = "".join(piece.text for piece in event.pieces if isinstance(piece, Content))
                    yield sse.event(self._body([self._choice(event.choice, text, event.tokens, None)]))
                else:
                    ended.append(event)
                    last = len(ended) == self.count
                    timings = event.completion.timings.rounded() if last else UNSET
                    choice = self._choice(event.choice, "", [], event.reason)
                    yield sse.event(self._body([choice], timings=timings))
            if usage:
                yield sse.event(self._body([], usage=usage_of(ended, self.per_prompt)))
            yield sse.DONE
        except Exception as error:
            yield sse.event(openai_body(told(error)))
        finally:
            await source.aclose()

    def _body(self, choices: list[c.TextChoice], **more: Any) -> c.TextCompletion:
        return c.TextCompletion(**self.head, object="text_completion", choices=choices, **more)

    def _choice(
        self, index: int, text: str, tokens: list[tuple[int, Sampled]], reason: str | None
    ) -> c.TextChoice:
        found = self._logprobs(tokens) if self.wants and (tokens or reason is not None or text) else None
        return c.TextChoice(index=index, text=text, logprobs=found, finish_reason=cast(Any, reason))

    def _logprobs(self, tokens: list[tuple[int, Sampled]]) -> c.TextLogprobs:
        entries = logprobs.entries(self.service.llm.tokenizer, [sampled for _, sampled in tokens])
        return c.TextLogprobs(
            tokens=[entry.token for entry in entries],
            token_logprobs=[entry.logprob for entry in entries],
            top_logprobs=[{top.token: top.logprob for top in entry.top_logprobs} for entry in entries],
            text_offset=[start for start, _ in tokens],
        )
