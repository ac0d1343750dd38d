"""Token ids to text as they come."""

from __future__ import annotations

import codecs
from collections.abc import Collection

from mindnano.tokenizer.tokenizer import Tokenizer


class IncrementalDecoder:
    """Text of one answer, token by token: whole characters only, constant work a token.

    All that `push` and `finish` return, joined, equals `Tokenizer.decode` of all tokens. Bytes that can't
    become UTF-8 any more turn into U+FFFD at once; bytes that still can are held back, at most three.
    shown: special tokens that are text all the same.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True, shown: Collection[int] = ()) -> None:
        self._tokenizer, self._skip_special, self._shown = tokenizer, skip_special, shown
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Characters that `token` completes."""
        skip = self._skip_special and token not in self._shown
        return self._decoder.decode(self._tokenizer.token_bytes(token, skip))

    def finish(self) -> str:
        """What a held-back beginning of a character comes to when no more tokens follow."""
        return self._decoder.decode(b"", final=True)
