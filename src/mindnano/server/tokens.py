"""POST /tokenize and /detokenize."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from mindnano.server import ask as asking
from mindnano.server.about import reply
from mindnano.server.ask import Ask
from mindnano.server.decode import read
from mindnano.server.errors import invalid
from mindnano.server.openai import params
from mindnano.server.schemas.tokens import DetokenizeRequest, Text, TokenizeRequest, Tokens
from mindnano.server.service import Service, service_of


async def tokenize(request: Request) -> Response:
    service, body = service_of(request), await read(request, TokenizeRequest)
    service.check_model(body.model)
    async with service.preparing:
        tokens = await asyncio.to_thread(_tokens, service, body)
    pieces = None
    if body.with_pieces:
        tokenizer = service.llm.tokenizer
        pieces = [tokenizer.token_bytes(t, skip_special=False).decode("utf-8", "replace") for t in tokens]
    return reply(Tokens(tokens=tokens, count=len(tokens), max_model_len=service.llm.context, pieces=pieces))


def _tokens(service: Service, body: TokenizeRequest) -> list[int]:
    given = [one for one in (body.prompt, body.content, body.messages) if one is not None]
    if len(given) != 1:
        raise invalid("prompt", "expected one of prompt, content and messages")
    if body.messages is None:
        text = body.prompt if body.prompt is not None else body.content
        return service.llm.tokenizer.encode(text or "", special=bool(body.parse_special))
    kwargs = body.chat_template_kwargs
    wanted = kwargs.enable_thinking if kwargs else None
    ask = Ask(
        messages=params.chat_messages(body.messages),
        sampling={},
        thinking=service.settings.thinking if wanted is None else wanted,
        tools=[params.tool(one.function, f"tools[{at}].function") for at, one in enumerate(body.tools or [])],
    )
    return asking.encode(service, ask)[0]


async def detokenize(request: Request) -> Response:
    service, body = service_of(request), await read(request, DetokenizeRequest)
    service.check_model(body.model)
    vocabulary = service.llm.config.vocab_size
    beyond = next((token for token in body.tokens if token >= vocabulary), None)
    if beyond is not None:
        raise invalid("tokens", f"expected ids below {vocabulary}, got {beyond}")
    text = await asyncio.to_thread(service.llm.tokenizer.decode, body.tokens, False)
    return reply(Text(prompt=text, content=text))
