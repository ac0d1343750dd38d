"""Pieces of an answer as OpenAI's message, whole or as a delta."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import UNSET

from mindnano.engine.sampling import Sampled
from mindnano.server.answer import CallStarts, Content, Piece, Reasoning
from mindnano.server.schemas import chat as c


@dataclass
class Whole:
    """What one choice has said."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[tuple[CallStarts, list[str]]] = field(default_factory=list)
    tokens: list[Sampled] = field(default_factory=list)

    def add(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, Content):
                self.content.append(piece.text)
            elif isinstance(piece, Reasoning):
                self.reasoning.append(piece.text)
            elif isinstance(piece, CallStarts):
                self.calls.append((piece, []))
            else:
                self.calls[piece.index][1].append(piece.text)

    def message(self) -> c.AnswerMessage:
        content = "".join(self.content)
        calls = [
            c.AnswerToolCall(
                id=start.id, type="function", function=c.AnswerFunction(start.name, "".join(text))
            )
            for start, text in self.calls
        ]
        return c.AnswerMessage(
            role="assistant",
            content=content if content or not calls else None,
            reasoning_content="".join(self.reasoning) if self.reasoning else UNSET,
            tool_calls=calls or UNSET,
        )


def delta(piece: Piece) -> c.Delta:
    if isinstance(piece, Content):
        return c.Delta(content=piece.text)
    if isinstance(piece, Reasoning):
        return c.Delta(reasoning_content=piece.text)
    if isinstance(piece, CallStarts):
        function = c.FunctionDelta(name=piece.name, arguments="")
        call = c.ToolCallDelta(index=piece.index, id=piece.id, type="function", function=function)
    else:
        call = c.ToolCallDelta(index=piece.index, function=c.FunctionDelta(arguments=piece.text))
    return c.Delta(tool_calls=[call])
