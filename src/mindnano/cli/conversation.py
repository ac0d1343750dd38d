"""The conversation behind `mindnano chat`: messages, slash commands, streamed answers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from mindnano.cli import output
from mindnano.cli.talk import lines
from mindnano.cli.talk.partner import Ended, Messages, Partner, Said
from mindnano.cli.talk.screen import Screen
from mindnano.errors import MindNanoError

if TYPE_CHECKING:
    from mindnano.engine.timings import Timings

HELP = """\
/think on|off   think before answering, or not
/system [TEXT]  set the system message; without TEXT: none
/again          answer the last question again
/clear          forget the conversation
/save NAME      keep the conversation, and what was computed for it
/load NAME      bring a kept conversation back
/sessions       list the kept conversations
/delete NAME    remove a kept conversation
/stats          speeds and memory of the last answer
/help           this list
/quit           leave (also Ctrl-D)
Ctrl-C stops an answer. Several lines: Alt-Enter or a \\ at a line's end goes on in the next one, and what is
between \"\"\" and \"\"\" is one text. Arrow keys bring back what was typed, Tab completes commands and names."""


class Conversation:
    """Messages so far, and what the user's lines do to them."""

    def __init__(self, partner: Partner, thinking: bool = False, markdown: bool = True) -> None:
        self.partner, self.thinking, self.markdown = partner, thinking, markdown
        self.messages: Messages = []
        self._last: Timings | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            "/think": self.think,
            "/system": self.system,
            "/again": self.again,
            "/clear": self.clear,
            "/save": self.save,
            "/load": self.load,
            "/sessions": self.sessions,
            "/delete": self.delete,
            "/stats": self.stats,
            "/help": lambda _: output.note("\n" + HELP),
        }

    def run(self, interactive: bool) -> None:
        """Until /quit or the end of the input."""
        for text in lines.messages(interactive, self._complete):
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
        """Ask, and show the answer as it comes. Interrupted, the answer so far counts."""
        self._answer([*self.messages, {"role": "user", "content": text}])

    def again(self, _: str) -> None:
        asked = self.messages
        while asked and asked[-1]["role"] != "user":
            asked = asked[:-1]
        if not asked:
            raise MindNanoError("/again: no question yet")
        self._answer(asked)

    def _answer(self, asked: Messages) -> None:
        shown, said = Screen(self.markdown), ""
        try:
            with closing(self.partner.answer(asked, self.thinking)) as events:  # type: ignore[type-var]
                for event in events:
                    shown.show(event)
                    if isinstance(event, Said):
                        said += event.text
                    elif isinstance(event, Ended):
                        self._last = event.timings
                        cut = event.reason == "length"
        except KeyboardInterrupt:
            shown.close()
            output.note("stopped")
        except BaseException:
            shown.close()
            raise
        else:
            shown.close()
            if cut:
                output.note("the answer was cut at --max-tokens or at the end of the context")
        self.messages = [*asked, {"role": "assistant", "content": said}]

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
        if not self.messages:
            raise MindNanoError("/save: there is nothing to keep yet")
        tokens = self.partner.save(_named("/save", name), self.messages)
        output.note(f"saved {name}: {tokens} tokens")

    def load(self, name: str) -> None:
        self.messages, reusable = self.partner.load(_named("/load", name))
        output.note(
            f"loaded {name}: {len(self.messages)} messages, {reusable} tokens won't be computed again"
        )

    def sessions(self, _: str) -> None:
        found = self.partner.sessions()
        for one in found:
            size = f"{one.nbytes / (1 << 20):.1f} MiB"
            output.note(f"{one.name}: {one.problem or f'{one.tokens} tokens, {size}'}")
        if not found:
            output.note("no conversation is kept yet; /save NAME keeps this one")

    def delete(self, name: str) -> None:
        self.partner.delete(_named("/delete", name))
        output.note(f"deleted {name}")

    def stats(self, _: str) -> None:
        if self._last is None:
            raise MindNanoError("/stats: no answer yet")
        timings = self._last
        spent = sorted(timings.stage_s.items(), key=lambda item: -item[1])
        stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in spent if seconds >= 0.005)
        output.note(output.speeds(timings))
        if timings.cached_reason:
            output.note(f"prefix cache: {timings.cached_reason}")
        if stages:
            output.note(f"time: {stages}")

    def _complete(self, text: str) -> list[str]:
        command, space, rest = text.partition(" ")
        if not space:
            return [f"{name} " for name in (*self._commands, "/quit") if text and name.startswith(text)]
        if command in ("/load", "/delete", "/save"):
            with contextlib.suppress(MindNanoError):
                names = [one.name for one in self.partner.sessions() if not one.problem]
                return [f"{command} {name}" for name in names if name.startswith(rest)]
        if command == "/think":
            return [f"/think {value}" for value in ("on", "off") if value.startswith(rest)]
        return []


def default_session_dir() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "mindnano" / "sessions"


def _unknown(name: str) -> None:
    raise MindNanoError(f"{name}: no such command; /help lists them")


def _named(command: str, name: str) -> str:
    if not name:
        raise MindNanoError(f"{command}: expected a name")
    return name


@contextlib.contextmanager
def _errors_noted() -> Iterator[None]:
    """A wrong command or a full context is said, and the conversation goes on."""
    try:
        yield
    except MindNanoError as error:
        output.note(str(error))
