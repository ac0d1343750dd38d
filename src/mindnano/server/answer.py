"""An answer's text taken apart as it comes: reasoning, content, tool calls."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from mindnano.engine.stop import open_end
from mindnano.server.tools.form import Arguments, Called, CallReader, Tool, ToolForm

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class CallStarts:
    """Call number `index` of the answer."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments' JSON text."""

    index: int
    text: str


Piece = Reasoning | Content | CallStarts | CallArguments


class Splitter:
    """Takes one answer apart. `push` text as it comes, `finish` at its end.

    thinks: the prompt left the model inside its reasoning. form: how calls are written; None where there are no tools.
    plain: everything is content.
    A call may come before the reasoning ends; then the reasoning goes on after it. `content_at` says, by position in
    the text so far, what was content: pairs of begin and end.
    """

    def __init__(
        self,
        thinks: bool,
        form: ToolForm | None = None,
        tools: list[Tool] | None = None,
        plain: bool = False,
    ) -> None:
        self._form, self._tools = form, tools or []
        self.thinking, self._undecided = thinks, not thinks and not plain
        self._text = ""  # that isn't decided yet
        self._call: CallReader | None = None
        self._quiet = thinks  # line ends at the beginning of reasoning, and of content after it, are dropped
        self._kept = ""  # line ends that may be the reasoning's last
        self.position = 0  # characters that are decided
        self.content_at: list[tuple[int, int]] = []
        self.calls = 0

    def push(self, text: str) -> list[Piece]:
        self._text += text
        return list(self._decide(final=False))

    def finish(self) -> list[Piece]:
        return list(self._decide(final=True))

    def _decide(self, final: bool) -> Iterator[Piece]:
        while self._text:
            before = len(self._text)
            if self._call is not None:
                yield from self._read_call()
            elif self._undecided and not self._decide_thinking(final):
                return
            else:
                yield from self._read_text(final)
            if len(self._text) == before:
                return

    def _decide_thinking(self, final: bool) -> bool:
        """Whether it is known if the answer begins with its own opening of the reasoning."""
        bare = self._text.lstrip()
        if not final and THINK_OPEN.startswith(bare) and bare != THINK_OPEN:
            return False
        self._undecided = False
        if bare.startswith(THINK_OPEN):
            self._take(len(self._text) - len(bare) + len(THINK_OPEN))
            self.thinking = self._quiet = True
        return True

    def _read_text(self, final: bool) -> Iterator[Piece]:
        markers = [THINK_CLOSE] if self.thinking else []
        markers += [self._form.opening] if self._form is not None else []
        found = [(at, marker) for marker in markers if (at := self._text.find(marker)) >= 0]
        if found:
            at, marker = min(found)
            yield from self._show(at, ends=True)
            self._take(len(marker))
            if marker == THINK_CLOSE:
                self.thinking, self._quiet = False, True
            elif self._form is not None:
                self._call = self._form.reader(self._tools)
            return
        hold = 0 if final else max((open_end(self._text, marker) for marker in markers), default=0)
        yield from self._show(len(self._text) - hold, ends=False)

    def _show(self, count: int, ends: bool) -> Iterator[Piece]:
        """Give out `count` characters as reasoning or content. `ends`: it ends here."""
        begin, text = self.position, self._take(count)
        if self._quiet:
            bare = text.lstrip("\n")
            begin, text = begin + len(text) - len(bare), bare
            self._quiet = not bare
        if self.thinking:
            text = self._kept + text
            bare = text.rstrip("\n")
            self._kept = "" if ends else text[len(bare) :]
            if bare:
                yield Reasoning(bare)
        elif text:
            self.content_at.append((begin, begin + len(text)))
            yield Content(text)

    def _read_call(self) -> Iterator[Piece]:
        assert self._call is not None
        text = self._take(len(self._text))
        for event in self._call.push(text):
            if isinstance(event, Called):
                self.calls += 1
                yield CallStarts(self.calls - 1, event.id or f"call_{uuid.uuid4().hex[:24]}", event.name)
            elif isinstance(event, Arguments):
                yield CallArguments(self.calls - 1, event.text)
        if self._call.done:
            self._text = self._call.rest
            self.position -= len(self._text)
            self._call, self._quiet = None, True

    def _take(self, count: int) -> str:
        text, self._text = self._text[:count], self._text[count:]
        self.position += count
        return text
