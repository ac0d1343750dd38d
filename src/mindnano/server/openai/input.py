"""The input of a response as a conversation."""

from __future__ import annotations

from typing import Any

from mindnano.server.decode import convert
from mindnano.server.errors import invalid
from mindnano.server.schemas import responses as r

Message = dict[str, Any]


def to_messages(given: str | list[dict[str, Any]], instructions: str | None) -> list[Message]:
    """Messages for the chat template. Reasoning, text and calls in a row are one answer of the assistant."""
    messages: list[Message] = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    for at, raw in enumerate(given):
        kind = raw.get("type", "message")
        if not isinstance(kind, str) or kind not in r.ITEMS:
            raise invalid(
                f"input[{at}].type", f"expected one of {', '.join(r.ITEMS)}, got {str(kind)[:60]!r}"
            )
        _add(messages, convert(raw, r.ITEMS[kind], f"input[{at}]"))
    return messages


def _add(messages: list[Message], item: Any) -> None:
    if isinstance(item, r.InputCallOutput):
        messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output)})
    elif isinstance(item, r.InputMessage) and item.role != "assistant":
        messages.append({"role": item.role, "content": _text(item.content)})
    elif isinstance(item, r.InputMessage):
        answer = _answer(messages, new="content")
        answer["content"] = _text(item.content)
    elif isinstance(item, r.InputReasoning):
        answer = _answer(messages, new="reasoning_content")
        answer["reasoning_content"] = "".join(part.text for part in item.content or [])
    elif isinstance(item, r.InputCall):
        answer = _answer(messages, new=None)
        call = {"name": item.name, "arguments": item.arguments}
        answer.setdefault("tool_calls", []).append({"id": item.call_id, "type": "function", "function": call})


def _answer(messages: list[Message], new: str | None) -> Message:
    """The assistant's message that is going on, or a new one; it has no field `new` yet, and no calls before text."""
    last = messages[-1] if messages else {}
    if last.get("role") == "assistant" and (new is None or (new not in last and "tool_calls" not in last)):
        return last
    messages.append({"role": "assistant"})
    return messages[-1]


def _text(content: str | list[Any]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.refusal if isinstance(part, r.InputRefusal) else part.text for part in content)
