"""Grammars as token masks, by llguidance: the answer can't leave the language."""

from __future__ import annotations

import threading
from collections.abc import Collection

import llguidance
import numpy as np
from numpy.typing import NDArray

from mindnano.errors import MindNanoError
from mindnano.tokenizer import Tokenizer

_LIMITS = llguidance.LLParserLimits(verbose_errors=False)  # errors mustn't quote the answer


class Grammars:
    """Compiles grammars for one tokenizer. Thread-safe; llguidance's own tables are made at the first use."""

    def __init__(self, tokenizer: Tokenizer, eos_token_ids: Collection[int]) -> None:
        self._tokenizer, self._eos = tokenizer, sorted(eos_token_ids)
        self._lock = threading.Lock()
        self._tables: llguidance.LLTokenizer | None = None

    def compile(self, grammar: str) -> GrammarMask:
        """A mask for one answer. `grammar`: llguidance's Lark dialect, or its JSON of several grammars.

        Raises MindNanoError, with llguidance's words, for a grammar that is wrong or too large.
        """
        matcher = llguidance.LLMatcher(self._ready(), grammar, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise MindNanoError(f"grammar: {_reason(matcher)}")
        return GrammarMask(matcher, self._tokenizer.vocab_size)

    def _ready(self) -> llguidance.LLTokenizer:
        with self._lock:
            if self._tables is None:
                data = self._tokenizer.data
                if data is None:
                    raise MindNanoError("this model has no tokenizer.json, so no grammar can be enforced")
                self._tables = llguidance.LLTokenizer(
                    data.decode("utf-8"), n_vocab=self._tokenizer.vocab_size, eos_token=self._eos
                )
            return self._tables


class GrammarMask:
    """A TokenMask that follows a grammar."""

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary: int) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary

    def allowed(self) -> NDArray[np.bool_]:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._vocabulary, bitorder="little").view(np.bool_)

    def accept(self, token: int) -> None:
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
        self._check()

    def copy(self) -> GrammarMask:
        """A mask for another answer, at the same place."""
        return GrammarMask(self._matcher.deep_copy(), self._vocabulary)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise MindNanoError(f"grammar: can't be followed further: {_reason(self._matcher)}")


def _reason(matcher: llguidance.LLMatcher) -> str:
    return str(matcher.get_error()).strip().splitlines()[0][:300]
