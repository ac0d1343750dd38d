"""Conversations to prompts by a checkpoint's chat template, or Ling's where it has none."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2.exceptions import TemplateError, TemplateSyntaxError

from mindnano.errors import MindNanoError, shorten
from mindnano.tokenizer.ling import TEMPLATE
from mindnano.tokenizer.sandbox import Sandbox
from mindnano.tokenizer.tokenizer import Tokenizer, unshield

TEMPLATE_LIMIT = 256 << 10  # characters; published ones have up to 20,000

Message = Mapping[str, Any]
# Text of these comes from outside: special tokens written in it are text. What the operator (system) and the
# model (assistant) wrote is taken as it is, as transformers does with everything.
_OUTSIDE = frozenset(("user", "tool"))
# What a wrong template makes Python raise, while compiling it or while it runs.
_FAILURES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError, SyntaxError,
    TypeError, ValueError,
)  # fmt: skip


class ChatTemplate:
    """Renders conversations in OpenAI's form: dicts of role, content, and tool_calls. Thread-safe.

    source: jinja2 text, None for Ling's format. Raises MindNanoError for a template that doesn't parse, does
    what a sandbox can't allow (sandbox.py has the limits), or refuses the conversation.
    """

    def __init__(self, source: str | None = None) -> None:
        self.source = TEMPLATE if source is None else source
        self.builtin = source is None
        if len(self.source) > TEMPLATE_LIMIT:
            raise MindNanoError(
                f"chat template: {len(self.source)} characters, expected at most {TEMPLATE_LIMIT}"
            )
        self._lock = threading.Lock()
        self._sandbox = Sandbox()
        try:
            self._template = self._sandbox.compiled(self.source)
        except (TemplateError, *_FAILURES) as error:
            line = f"line {error.lineno}: " if isinstance(error, TemplateSyntaxError) else ""
            raise MindNanoError(f"chat template: {line}{_reason(error)}") from None

    def render(
        self, messages: Sequence[Message], enable_thinking: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None, add_generation_prompt: bool = True,
    ) -> str:  # fmt: skip
        """The prompt as text, in which a user's special tokens look like the template's own: to run it,
        `encode`.
        """
        return unshield(self._render(messages, enable_thinking, tools, add_generation_prompt, None))

    def encode(
        self, tokenizer: Tokenizer, messages: Sequence[Message], enable_thinking: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None, add_generation_prompt: bool = True,
    ) -> list[int]:  # fmt: skip
        """The prompt as token ids. Special tokens that a user or a tool wrote are encoded as plain text."""
        text = self._render(messages, enable_thinking, tools, add_generation_prompt, tokenizer)
        return tokenizer.encode_shielded(text)

    def _render(
        self, messages: Sequence[Message], enable_thinking: bool,
        tools: Sequence[Mapping[str, Any]] | None, add_generation_prompt: bool, tokenizer: Tokenizer | None,
    ) -> str:  # fmt: skip
        values = {
            "messages": [_prepared(message, at, tokenizer) for at, message in enumerate(_checked(messages))],
            "tools": _plain(list(tools), unshield) if tools else None,
            "enable_thinking": enable_thinking,
            "add_generation_prompt": add_generation_prompt,
        } | _token_names(tokenizer)  # fmt: skip
        with self._lock:
            try:
                return self._sandbox.render(self._template, values)
            except TemplateError as error:
                raise MindNanoError(f"chat template: {_reason(error)}") from None
            except _FAILURES as error:
                raise MindNanoError(
                    f"chat template: fails on this conversation ({type(error).__name__}: {_reason(error)})"
                ) from None


def _reason(error: BaseException) -> str:
    return str(error)[:300]


def _checked(messages: Any) -> Sequence[Message]:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise MindNanoError(f"messages: expected a list of at least one message, got {shorten(messages)}")
    for at, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise MindNanoError(f"messages[{at}]: expected a role and a content, got {shorten(message)}")
    return messages


def _prepared(message: Message, at: int, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """A message as templates expect it: text content, arguments as objects, outside text shielded."""
    role = "system" if message["role"] == "developer" else message["role"]
    outside = role in _OUTSIDE and tokenizer is not None
    made: dict[str, Any] = _plain(
        dict(message), tokenizer.shield if outside and tokenizer is not None else unshield
    )
    made["role"] = role
    made["content"] = _text(made.get("content"), at, optional=role == "assistant")
    calls = made.get("tool_calls") or []
    if not isinstance(calls, list):
        raise MindNanoError(f"messages[{at}].tool_calls: expected a list, got {shorten(calls)}")
    for index, call in enumerate(calls):
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise MindNanoError(f"messages[{at}].tool_calls[{index}]: expected a function with a name")
        function["arguments"] = _arguments(function.get("arguments"), f"messages[{at}].tool_calls[{index}]")
    return made


def _plain(value: Any, text: Any) -> Any:
    """A deep copy with `text` applied to every string; a template can't reach the caller's objects."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one, text) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, text) for one in value]
    return value


def _text(content: Any, at: int, optional: bool) -> str:
    """Content as one text; OpenAI's list of text parts is joined."""
    if isinstance(content, str):
        return content
    if content is None and optional:
        return ""
    if isinstance(content, list):
        parts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
            for part in content
        ]
        if all(isinstance(part, str) for part in parts):
            return "".join(parts)  # type: ignore[arg-type]
        kinds = sorted({str(part.get("type")) for part in content if isinstance(part, dict)})
        raise MindNanoError(f"messages[{at}].content: expected parts of type text, got {shorten(kinds)}")
    raise MindNanoError(f"messages[{at}].content: expected text, got {shorten(content)}")


def _arguments(arguments: Any, where: str) -> dict[str, Any]:
    """OpenAI sends a call's arguments as JSON text; templates go through them as an object."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise MindNanoError(f"{where}.function.arguments: not valid JSON: {shorten(arguments)}") from None
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise MindNanoError(f"{where}.function.arguments: expected an object, got {shorten(arguments)}")
    return arguments


def _token_names(tokenizer: Tokenizer | None) -> dict[str, str]:
    """bos_token and eos_token, which some templates write out."""
    if tokenizer is None:
        return {}
    names = {number: name for name, number in tokenizer.special_tokens.items()}
    found = {
        "bos_token": names.get(tokenizer.bos_token_id) if tokenizer.bos_token_id is not None else None,
        "eos_token": names.get(tokenizer.eos_token_ids[0]) if tokenizer.eos_token_ids else None,
    }
    return {name: text for name, text in found.items() if text is not None}
