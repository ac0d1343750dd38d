"""Tokens into text one at a time, whole characters only."""

from __future__ import annotations

import codecs

from mindnano.tokenizer.tokenizer import Tokenizer


class IncrementalDecoder:
    """`push` gives the characters that are complete after a token; together with `finish` they are decode(all)."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._tokenizer.token_bytes(token, self._skip_special))

    def finish(self) -> str:
        """U+FFFD for a character that was begun and not ended, else nothing."""
        return self._decoder.decode(b"", final=True)
