"""Stop strings, found in text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until a stop string begins; holds back what could be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Text that is safe to show after `text` came. After a match: what stood before it, then nothing more."""
        if self.stopped:
            return ""
        if not self._stops:
            return text
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            shown, self._held = self._held[: min(found)], ""
            return shown
        keep = self._longest_beginning()
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def finish(self) -> str:
        """What was held back for a stop string that didn't come."""
        shown, self._held = self._held, ""
        return "" if self.stopped else shown

    def _longest_beginning(self) -> int:
        """Length of the longest suffix of the held text that a stop string begins with."""
        most = min(len(self._held), max(map(len, self._stops)) - 1)
        for length in range(most, 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
