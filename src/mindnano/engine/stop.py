"""Stop strings, matched on text and so across tokens."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text through until a stop string is complete.

    The text ends where the first stop string that becomes complete begins; of several that are complete at
    the same character, the longest counts. How the text is cut into pieces changes nothing. The longest end
    of the text that could become a stop string is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(dict.fromkeys(stops))
        self._held = ""
        self.stopped: str | None = None  # the stop string that was found

    def push(self, text: str) -> str:
        """What of the text so far can be shown now and wasn't yet; nothing after a stop string."""
        if self.stopped is not None or not text:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        found = [(at + len(stop), -len(stop), stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            end, _, self.stopped = min(found)
            self._held = ""
            return text[: end - len(self.stopped)]
        hold = max(open_end(text, stop) for stop in self._stops)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def finish(self) -> str:
        """The rest, when no more text comes."""
        held, self._held = self._held, ""
        return held


def open_end(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with; `text` doesn't contain `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
