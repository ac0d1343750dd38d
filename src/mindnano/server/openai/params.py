"""OpenAI's parameters as the engine's."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from mindnano.server.errors import invalid
from mindnano.server.schemas import chat as c
from mindnano.server.schemas.completions import CompletionRequest
from mindnano.server.settings import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH
from mindnano.server.structured import Format, JsonFormat, LarkFormat, RegexFormat
from mindnano.server.tools.form import Tool
from mindnano.server.tools.schema import depth_of

# Tokens of reasoning at most, by reasoning_effort; None: as many as the model likes.
EFFORTS: dict[str, int | None] = {
    "minimal": 256,
    "low": 1024,
    "medium": 4096,
    "high": None,
    "xhigh": None,
    "max": None,
}
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
assert {"none", *EFFORTS} == set(get_args(c.Effort))


def chat_messages(messages: list[c.Message]) -> list[dict[str, Any]]:
    """Messages as chat templates expect them: only the fields that were given."""
    made = []
    for message in messages:
        values = msgspec.to_builtins(message)
        if isinstance(values.get("content"), list):
            values["content"] = "".join(
                part.get("text", part.get("refusal", "")) for part in values["content"]
            )
        made.append({name: value for name, value in values.items() if value is not None})
    return made


def sampling(body: c.ChatRequest | CompletionRequest, *, logprobs: int | None) -> dict[str, Any]:
    """SamplingParams' fields. logprobs: how many of the likeliest tokens to report, None for no report at all."""
    newer = body.max_completion_tokens if isinstance(body, c.ChatRequest) else None
    if body.max_tokens is not None and newer not in (None, body.max_tokens):
        raise invalid("max_tokens", "differs from max_completion_tokens, its newer name; give one of them")
    return {
        "max_tokens": newer if body.max_tokens is None else body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "min_p": body.min_p,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "repetition_penalty": body.repetition_penalty,
        "seed": seed(body.seed),
        "stop": stops(body.stop),
        "ignore_eos": body.ignore_eos,
        "logit_bias": biases(body.logit_bias),
        "logprobs": logprobs,
    }


def top_logprobs(body: c.ChatRequest) -> int | None:
    """How many alternatives a chat wants with each token."""
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs", "needs logprobs: true")
    return (body.top_logprobs or 0) if body.logprobs else None


def seed(given: int | None) -> int | None:
    return None if given is None else given % (1 << 64)


def stops(stop: str | list[str] | None) -> tuple[str, ...]:
    return () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)


def biases(given: dict[str, float] | None) -> dict[int, float] | None:
    if not given:
        return None
    found = {}
    for token, bias in given.items():
        if not token.isascii() or not token.isdigit() or len(token) > 9:
            raise invalid("logit_bias", f"expected token ids as keys, got {token[:40]!r}")
        found[int(token)] = bias
    return found


def thinking(wanted: bool | None, effort: c.Effort | None, default: bool) -> tuple[bool, int | None]:
    """Whether to think first, and for how many tokens at most: enable_thinking, reasoning_effort, or the default."""
    if effort is None:
        return (default if wanted is None else wanted), None
    if wanted not in (None, effort != "none"):
        raise invalid("reasoning_effort", f"{effort} contradicts enable_thinking: {str(wanted).lower()}")
    return effort != "none", EFFORTS.get(effort)


def checked_schema(schema: dict[str, Any], param: str) -> dict[str, Any]:
    """A schema within the limits on its size."""
    if depth_of(schema) > MAX_SCHEMA_DEPTH:
        raise invalid(param, f"nested more deeply than the limit of {MAX_SCHEMA_DEPTH}")
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise invalid(param, f"larger than the limit of {MAX_SCHEMA_BYTES} bytes")
    return schema


def answer_format(given: c.ResponseFormat | None) -> Format | None:
    """The response format as a grammar's."""
    if isinstance(given, c.JsonObjectFormat):
        return JsonFormat()
    if isinstance(given, c.JsonSchemaFormat):
        named = given.json_schema
        if named.schema is None:
            return JsonFormat()
        return json_format(named.schema, named.strict, "response_format.json_schema.schema")
    if isinstance(given, c.GrammarFormat):
        return LarkFormat(_bounded(given.grammar, "response_format.grammar"))
    if isinstance(given, c.RegexFormat):
        return RegexFormat(_bounded(given.regex, "response_format.regex"))
    return None


def json_format(schema: dict[str, Any], strict: bool | None, param: str) -> JsonFormat:
    """Strict unless told otherwise: half a schema isn't what was asked for."""
    return JsonFormat(checked_schema(schema, param), strict is not False)


def _bounded(text: str, param: str) -> str:
    if len(text) > MAX_SCHEMA_BYTES:
        raise invalid(param, f"larger than the limit of {MAX_SCHEMA_BYTES} characters")
    return text


def tool(given: c.FunctionTool, param: str) -> Tool:
    parameters = checked_schema(given.parameters or NO_PARAMETERS, f"{param}.parameters")
    return Tool(given.name, given.description, parameters, bool(given.strict))


def chosen_tools(tools: list[Tool], choice: str | None, named: bool) -> tuple[list[Tool], bool, str | None]:
    """Tools to show, whether one must be called, and which alone may be. `named`: the choice is a function's name."""
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise invalid("tools", f"two tools are named {twice!r}")
    if not named:
        if choice == "required" and not tools:
            raise invalid("tool_choice", "required, but there are no tools")
        return ([] if choice == "none" else tools), choice == "required", None
    if choice not in names:
        raise invalid("tool_choice", "names a function that is not among the tools")
    return tools, True, choice


def goes_on(body: c.ChatRequest) -> bool:
    """Whether the last message is an answer that is continued."""
    if not body.continue_final_message:
        return False
    final = body.messages[-1]
    if len(body.messages) < 2 or not isinstance(final, c.AssistantMessage) or final.tool_calls:
        raise invalid(
            "continue_final_message", "the last message must be an assistant's text, after another message"
        )
    return True
