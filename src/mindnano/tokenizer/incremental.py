"""Token ids to text as they come."""

from __future__ import annotations

import codecs

from mindnano.tokenizer.tokenizer import Tokenizer


class IncrementalDecoder:
    """Text of one answer, token by token: whole characters only, constant work a token.

    All that `push` and `finish` return, joined, equals `Tokenizer.decode` of all tokens. Bytes that can't
    become UTF-8 any more turn into U+FFFD at once; bytes that still can are held back, at most three.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Characters that `token` completes."""
        return self._decoder.decode(self._tokenizer.token_bytes(token, self._skip_special))

    def finish(self) -> str:
        """What a held-back beginning of a character comes to when no more tokens follow."""
        return self._decoder.decode(b"", final=True)
