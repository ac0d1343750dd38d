"""An end to reasoning that takes too long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mindnano.engine.sampling import TokenMask
from mindnano.tokenizer import Tokenizer


class ThinkingBudget:
    """A TokenMask that, after `budget` tokens without the closing text, forces `closing` token by token.

    close: the text that ends the reasoning. inner: a further mask, which must allow the closing.
    """

    def __init__(
        self, budget: int, closing: Sequence[int], close: str, tokenizer: Tokenizer, inner: TokenMask | None
    ) -> None:
        self._left, self._forced = budget, list(closing)
        self._close, self._tail = close.encode(), b""
        self._tokenizer, self._inner = tokenizer, inner
        self._thinking, self._forcing = True, False

    def allowed(self) -> NDArray[np.bool_] | None:
        inner = None if self._inner is None else self._inner.allowed()
        if not self._thinking or self._left > 0:
            return inner
        if inner is not None and not self._forcing and not inner[self._forced[0]]:
            return inner  # inside a character of several tokens, say
        self._forcing = True
        only = np.zeros(self._tokenizer.vocab_size, np.bool_)
        only[self._forced[0]] = True
        return only

    def accept(self, token: int) -> None:
        if self._inner is not None:
            self._inner.accept(token)
        if not self._thinking:
            return
        self._left -= 1
        if self._forcing:
            self._forced.pop(0)
            self._thinking = bool(self._forced)
            return
        self._tail += self._tokenizer.token_bytes(token, skip_special=False)
        self._thinking = self._close not in self._tail
        self._tail = self._tail[-len(self._close) :]
