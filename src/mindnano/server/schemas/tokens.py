"""POST /tokenize and /detokenize."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mindnano.server.schemas.chat import Message, TemplateKwargs, Tool
from mindnano.server.schemas.common import Body, Request
from mindnano.server.schemas.completions import TokenId
from mindnano.server.settings import MAX_MESSAGES, MAX_TOOLS


class TokenizeRequest(Request):
    """Of a text (prompt, or content, its name elsewhere), or of a conversation as it would be asked.

    parse_special: special tokens written in the text are meant as such. with_pieces: also what each token stands for.
    """

    prompt: str | None = None
    content: str | None = None
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    chat_template_kwargs: TemplateKwargs | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None
    model: str | None = None


class Tokens(Body):
    """max_model_len: the context, in tokens."""

    tokens: list[int]
    count: int
    max_model_len: int
    pieces: list[str] | None = None


class DetokenizeRequest(Request):
    tokens: list[TokenId]
    model: str | None = None


class Text(Body):
    """The text, under the names that it has elsewhere too."""

    prompt: str
    content: str
