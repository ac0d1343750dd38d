"""Markers such as `<tool_call>` in Lark rules: text in most tokenizers, a special token in some."""

from __future__ import annotations

import json
from collections.abc import Collection

TEXT = r"/(.|\n)*/"


class Markers:
    """special: the tokenizer's special tokens; a marker among them can't be written as text."""

    def __init__(self, special: Collection[str] = ()) -> None:
        self._special = frozenset(special)

    def literal(self, marker: str) -> str:
        return marker if marker in self._special else json.dumps(marker)

    def until(self, rule: str, marker: str, text: str = TEXT) -> str:
        """A rule for text up to the first `marker`, and the marker."""
        lazy = "" if marker in self._special else "[lazy]"
        return f"{rule}{lazy}: {text} {self.literal(marker)}"

    def free(self, rule: str, allowed: Collection[str], forbidden: str) -> str:
        """A rule for text in which the markers `allowed` may stand, and `forbidden` may not."""
        tokens = [marker for marker in allowed if marker in self._special]
        name, text = rule.upper(), TEXT
        if forbidden not in self._special:
            text = f"{TEXT} & ~({TEXT} {json.dumps(forbidden)} {TEXT})"
        more = f" (({' | '.join(tokens)}) {name})*" if tokens else ""
        return f"{rule}: {name}{more}\n{name}: {text}"
