"""The conversation behind `mindnano chat`: input lines, slash commands, streamed answers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mindnano.cli import output
from mindnano.errors import MindNanoError

if TYPE_CHECKING:
    from mindnano.engine.completion import Completion
    from mindnano.engine.llm import LLM
    from mindnano.engine.params import SamplingParams

QUOTES = '"""'
HELP = """\
/think on|off   think before answering, or not
/system [TEXT]  set the system message; without TEXT: none
/clear          forget the conversation
/save NAME      keep the conversation, and what was computed for it
/load NAME      bring a kept conversation back
/stats          speeds and memory of the last answer
/help           this list
/quit           leave (also Ctrl-D)
Ctrl-C stops an answer. A line that ends with \\ goes on in the next one.
\"\"\" at a line's beginning starts a text of several lines, and ends it."""


class Conversation:
    """Messages so far, and what the user's lines do to them."""

    def __init__(self, llm: LLM, params: SamplingParams, session_dir: str | None) -> None:
        self.llm, self.params, self.thinking = llm, params, False
        self.messages: list[dict[str, Any]] = []
        self._session_dir = Path(session_dir) if session_dir else default_session_dir()
        self._last: Completion | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            "/think": self.think,
            "/system": self.system,
            "/clear": self.clear,
            "/save": self.save,
            "/load": self.load,
            "/stats": self.stats,
            "/help": lambda _: output.note("\n" + HELP),
        }

    def run(self, interactive: bool) -> None:
        """Until /quit or the end of the input."""
        for text in _inputs(interactive):
            if text.startswith("/"):
                name, _, rest = text.partition(" ")
                if name in ("/quit", "/exit"):
                    return
                with _errors_noted():
                    self._commands.get(name, _unknown)(rest.strip() if name in self._commands else name)
            elif text.strip():
                with _errors_noted():
                    self.say(text)

    def say(self, text: str) -> None:
        """Ask, and print the answer as it comes. Interrupted, the answer so far counts."""
        asked = [*self.messages, {"role": "user", "content": text}]
        stream = self.llm.stream_chat(asked, self.params, self.thinking)
        shown = ""
        try:
            for delta in stream:
                sys.stdout.write(output.printable(delta.text, sys.stdout))
                sys.stdout.flush()
                shown += delta.text
            self._last = stream.result
            if self._last.finish_reason == "length":
                output.note("the answer was cut at --max-tokens or at the end of the context")
        except KeyboardInterrupt:
            output.note("stopped")
        print(flush=True)
        if self.thinking and "</think>" not in shown:
            shown += "</think>"  # stopped in thought: no part of it is an answer
        self.messages = [*asked, {"role": "assistant", "content": shown}]

    def think(self, value: str) -> None:
        if value not in ("on", "off"):
            raise MindNanoError(f"/think: expected on or off, got {value!r}")
        self.thinking = value == "on"

    def system(self, text: str) -> None:
        rest = [message for message in self.messages if message["role"] != "system"]
        self.messages = [{"role": "system", "content": text}, *rest] if text else rest

    def clear(self, _: str) -> None:
        self.messages = [message for message in self.messages if message["role"] == "system"]

    def save(self, name: str) -> None:
        info = self.llm.save_session(self._session_dir, name, self.messages)
        output.note(f"saved {info.name}: {info.tokens} tokens in {self._session_dir}")

    def load(self, name: str) -> None:
        session = self.llm.load_session(self._session_dir, name)
        self.messages = session.messages
        output.note(
            f"loaded {session.info.name}: {len(session.messages)} messages, {session.reusable} tokens won't be "
            "computed again"
        )

    def stats(self, _: str) -> None:
        if self._last is None:
            raise MindNanoError("/stats: no answer yet")
        timings = self._last.timings
        spent = sorted(timings.stage_s.items(), key=lambda item: -item[1])
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in spent if seconds >= 0.005)
        output.note(output.speeds(timings))
        if timings.cached_reason:
            output.note(f"prefix cache: {timings.cached_reason}")
        if stages:
            output.note(f"time: {stages}")


def _unknown(name: str) -> None:
    raise MindNanoError(f"{name}: no such command; /help lists them")


@contextlib.contextmanager
def _errors_noted() -> Iterator[None]:
    """A wrong command or a full context is said, and the conversation goes on."""
    try:
        yield
    except MindNanoError as error:
        output.note(str(error))


def _inputs(interactive: bool) -> Iterator[str]:
    """The user's messages. Ctrl-C empties the line, the end of the input ends the iterator."""
    if interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  # gives input() editing and history
    while True:
        try:
            yield _message(interactive)
        except EOFError:
            if interactive:
                print(file=sys.stderr)
            return
        except KeyboardInterrupt:
            if not interactive:
                raise
            output.note("Ctrl-D or /quit leaves")


def _message(interactive: bool) -> str:
    first, more = (">>> ", "... ") if interactive else ("", "")
    line = input(first)
    if line.startswith(QUOTES):
        lines = [line[len(QUOTES) :]]
        while not lines[-1].endswith(QUOTES):
            lines.append(input(more))
        return "\n".join(lines)[: -len(QUOTES)]
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input(more))
    return "\n".join(lines)


def default_session_dir() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "mindnano" / "sessions"
