"""Whose prefill goes on."""

from __future__ import annotations

from collections.abc import Callable

from mindnano.engine.sequence import Sequence

# A prompt with no more tokens than this left needn't wait until a long one's block is done.
SHORT = 512


class Turns:
    """Blocks are what prompts take turns in; inside a long prompt's block a short one may come between, as a guest.

    Between blocks the prompt with the fewest tokens left goes first, but the oldest gets every second block. Guests
    get at most as much time as their host. A guest needs scratch of its own, and the host's block must not be inside
    an attention, whose expanded history is the device's.
    """

    def __init__(self, tokens_left: Callable[[Sequence], int]) -> None:
        self._left = tokens_left
        self.host: Sequence | None = None
        self.guest: Sequence | None = None
        self._passed = False  # the oldest was, at the last block
        self._owed = 0.0  # seconds that guests took and the host hasn't had since

    def choose(self, prefilling: list[Sequence], interruptible: bool) -> Sequence | None:
        """The next to do a piece of, of the prompts in prefill, oldest first. interruptible: a guest may begin."""
        if self.guest not in prefilling:
            self.guest = None
        if self.host not in prefilling:
            self.host = None
        if self.guest is not None:
            return self.guest
        if self.host is None or not self.host.block:
            self.host = self._next_block(prefilling)
            self._owed = 0.0
        elif interruptible and self._owed <= 0:
            short = (s for s in prefilling if s is not self.host and self._left(s) <= SHORT)
            self.guest = next(short, None)
            return self.guest or self.host
        return self.host

    def spent(self, sequence: Sequence, seconds: float) -> None:
        """Book a piece of work."""
        self._owed += seconds if sequence is self.guest else -seconds

    def _next_block(self, prefilling: list[Sequence]) -> Sequence | None:
        if not prefilling:
            return None
        oldest = prefilling[0]
        chosen = oldest if self._passed else min(prefilling, key=self._left)
        self._passed = chosen is not oldest
        return chosen
