"""The output items of a response, and the events that tell of their growth."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from mindnano.server.answer import CallArguments, CallStarts, Content, Piece, Reasoning
from mindnano.server.schemas.chat import TokenLogprob

Event = dict[str, Any]


class Items:
    """Grows by the pieces of an answer; every method returns the events of what it did, without their numbers."""

    def __init__(self) -> None:
        self.output: list[dict[str, Any]] = []
        self._kind = ""  # of the item that is open

    def add(self, pieces: list[Piece], logprobs: list[TokenLogprob]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            if isinstance(piece, Reasoning):
                events += self._text("reasoning", piece.text)
            elif isinstance(piece, Content):
                events += self._text("message", piece.text, logprobs)
                logprobs = []
            elif isinstance(piece, CallStarts):
                events += self.close("completed") + self._call(piece)
            else:
                events.append(self._arguments(piece))
        if logprobs:
            events += self._text("message", "", logprobs)
        return events

    def close(self, status: str) -> list[Event]:
        """End the item that is open, if one is."""
        if not self._kind:
            return []
        kind, self._kind, item = self._kind, "", self.output[-1]
        item["status"] = status
        at = {"item_id": item["id"], "output_index": len(self.output) - 1}
        events: list[Event] = []
        if kind == "function_call":
            name = {"name": item["name"], "arguments": item["arguments"]}
            events.append({"type": "response.function_call_arguments.done", **at, **name})
        else:
            part = item["content"][0]
            at["content_index"] = 0
            done = {"type": f"response.{part['type']}.done", **at, "text": part["text"]}
            events.append(done | ({"logprobs": part["logprobs"]} if kind == "message" else {}))
            events.append({"type": "response.content_part.done", **at, "part": dict(part)})
        events.append(
            {"type": "response.output_item.done", "output_index": len(self.output) - 1, "item": dict(item)}
        )
        return events

    def finish(self, status: str) -> list[Event]:
        """The end of the answer; one that said nothing has an empty message."""
        events = [] if self.output else self._text("message", "")
        return events + self.close(status)

    def _open(self, kind: str, item: dict[str, Any]) -> Event:
        self._kind = kind
        self.output.append(item)
        return {
            "type": "response.output_item.added",
            "output_index": len(self.output) - 1,
            "item": dict(item),
        }

    def _text(self, kind: str, text: str, logprobs: list[TokenLogprob] | None = None) -> list[Event]:
        events: list[Event] = []
        if self._kind != kind:
            events += self.close("completed")
            events += self._open_text(kind)
        part = self.output[-1]["content"][0]
        part["text"] += text
        at = {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1, "content_index": 0}
        delta = {"type": f"response.{part['type']}.delta", **at, "delta": text}
        if kind == "message":
            found = msgspec.to_builtins(logprobs or [])
            part["logprobs"] += found
            delta["logprobs"] = found
        return [*events, delta]

    def _open_text(self, kind: str) -> list[Event]:
        item: dict[str, Any] = {"type": kind, "status": "in_progress"}
        if kind == "message":
            item |= {"id": f"msg_{uuid.uuid4().hex}", "role": "assistant", "content": []}
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        else:
            item |= {"id": f"rs_{uuid.uuid4().hex}", "summary": [], "content": []}
            part = {"type": "reasoning_text", "text": ""}
        opened = self._open(kind, item)
        item["content"] = [part]
        at = {"item_id": item["id"], "output_index": len(self.output) - 1, "content_index": 0}
        return [opened, {"type": "response.content_part.added", **at, "part": dict(part)}]

    def _call(self, piece: CallStarts) -> list[Event]:
        item = {
            "type": "function_call", "id": f"fc_{uuid.uuid4().hex}", "call_id": piece.id, "name": piece.name,
            "arguments": "", "status": "in_progress",
        }  # fmt: skip
        return [self._open("function_call", item)]

    def _arguments(self, piece: CallArguments) -> Event:
        item = self.output[-1]
        item["arguments"] += piece.text
        at = {"item_id": item["id"], "output_index": len(self.output) - 1}
        return {"type": "response.function_call_arguments.delta", **at, "delta": piece.text}
