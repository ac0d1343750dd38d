"""Time that a command may take: what wouldn't end within it isn't begun, and recorded as not measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from mindnano.bench.progress import duration


@dataclass
class Budget:
    """minutes: None for as long as it takes. clock: seconds, from any beginning."""

    minutes: float | None = None
    clock: Callable[[], float] = monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def refusal(self, seconds: float) -> str | None:
        """Why something of about that many seconds isn't begun any more; None if there is time."""
        if self.minutes is None:
            return None
        whole = f"the budget of {self.minutes:g} min"
        left = self.began + 60 * self.minutes - self.clock()
        if left <= 0:
            return f"{whole} was used up"
        if seconds > left:
            return f"it takes about {duration(seconds)}, and of {whole} {duration(left)} were left"
        return None
