"""Anthropic's requests as a conversation to answer."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from mindnano.server.ask import Ask
from mindnano.server.errors import invalid
from mindnano.server.openai import params
from mindnano.server.openai.params import EFFORTS
from mindnano.server.schemas import messages as m
from mindnano.server.service import Service, client_of
from mindnano.server.tools.form import Tool

Message = dict[str, Any]


def to_ask(service: Service, request: Request, body: m.MessageRequest | m.CountRequest) -> Ask:
    choice = body.tool_choice
    named = isinstance(choice, m.ToolChoice)
    word = {m.AnyChoice: "required", m.NoneChoice: "none"}.get(type(choice), "auto")  # type: ignore[arg-type]
    tools = [_tool(one, f"tools[{at}]") for at, one in enumerate(body.tools or [])]
    shown, required, only = params.chosen_tools(
        tools, choice.name if isinstance(choice, m.ToolChoice) else word, named=named
    )
    thinking, budget = _thinking(body, service.settings.thinking)
    output = body.output_config
    metadata = body.metadata if isinstance(body, m.MessageRequest) else None
    return Ask(
        messages=to_messages(body.messages, body.system),
        sampling=_sampling(body) if isinstance(body, m.MessageRequest) else {},
        thinking=thinking,
        thinking_budget=budget,
        format=(
            params.json_format(output.format.schema, None, "output_config.format.schema")
            if output and output.format
            else None
        ),
        tools=shown,
        required=required,
        only=only,
        parallel=not getattr(choice, "disable_parallel_tool_use", None),
        goes_on=_goes_on(body.messages),
        client=client_of(request, metadata.user_id if metadata else None),
    )


def _tool(given: m.Tool, param: str) -> Tool:
    schema = params.checked_schema(given.input_schema, f"{param}.input_schema")
    return Tool(given.name, given.description, schema, bool(given.strict))


def _sampling(body: m.MessageRequest) -> dict[str, Any]:
    return {
        "max_tokens": body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "stop": tuple(body.stop_sequences or ()),
        "logprobs": None,
    }


def _thinking(body: m.MessageRequest | m.CountRequest, default: bool) -> tuple[bool, int | None]:
    effort = body.output_config.effort if body.output_config else None
    budget = EFFORTS[effort] if effort else None
    if isinstance(body.thinking, m.ThinkingEnabled):
        own = body.thinking.budget_tokens
        return True, own if budget is None else min(own, budget)
    if isinstance(body.thinking, m.ThinkingAdaptive):
        return True, budget
    return (default if body.thinking is None else False), budget


def _goes_on(messages: list[m.Message]) -> bool:
    """Whether the last message is an answer to go on with."""
    final = messages[-1]
    if not isinstance(final, m.AssistantMessage):
        return False
    blocks = final.content if isinstance(final.content, list) else []
    if len(messages) < 2 or any(isinstance(block, m.ToolUseBlock) for block in blocks):
        raise invalid(
            f"messages[{len(messages) - 1}]", "an answer to go on with is text, and something is before it"
        )
    return True


def to_messages(given: list[m.Message], system: str | list[m.PlainBlock] | None) -> list[Message]:
    """Messages for the chat template."""
    messages: list[Message] = [{"role": "system", "content": _text(system)}] if system else []
    for message in given:
        if isinstance(message, m.AssistantMessage):
            messages.append(_assistant(message))
        elif isinstance(message, m.SystemMessage):
            messages.append({"role": "system", "content": _text(message.content)})
        else:
            messages += _user(message)
    return messages


def _assistant(message: m.AssistantMessage) -> Message:
    if isinstance(message.content, str):
        return {"role": "assistant", "content": message.content}
    made: Message = {"role": "assistant", "content": ""}
    for block in message.content:
        if isinstance(block, m.TextBlock):
            made["content"] += block.text
        elif isinstance(block, m.ThinkingBlock):
            made["reasoning_content"] = made.get("reasoning_content", "") + block.thinking
        else:
            call = {"name": block.name, "arguments": block.input}
            made.setdefault("tool_calls", []).append({"id": block.id, "type": "function", "function": call})
    return made


def _user(message: m.UserMessage) -> list[Message]:
    """Tool results are messages of their own, before the text."""
    if isinstance(message.content, str):
        return [{"role": "user", "content": message.content}]
    made: list[Message] = []
    for block in message.content:
        if isinstance(block, m.ToolResultBlock):
            text = _text(block.content or "")
            made.append(
                {
                    "role": "tool",
                    "tool_call_id": block.tool_use_id,
                    "content": f"Error: {text}" if block.is_error else text,
                }
            )
    texts = [block.text for block in message.content if isinstance(block, m.TextBlock)]
    return made + ([{"role": "user", "content": "".join(texts)}] if texts or not made else [])


def _text(content: str | list[m.PlainBlock]) -> str:
    return content if isinstance(content, str) else "".join(block.text for block in content)
