"""The engine's model driven by hand: prefill in chosen pieces, decode one token a step, several sequences at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mindnano import LLM
from mindnano.cache.slots import Slot
from mindnano.model.stages import StageClock

Tamper = Callable[[Slot], None]


def _prefill(llm: LLM, slot: Slot, tokens: Sequence[int]) -> np.ndarray:
    rows = np.empty((len(tokens), llm.config.vocab_size), np.float32)
    for _ in llm._model.prefill(tokens, slot, llm._pool, StageClock(), rows):
        pass
    return rows


def prefill_logits(llm: LLM, tokens: Sequence[int], cuts: Sequence[int]) -> np.ndarray:
    """Logits after each token [T, vocabulary], prefilled in pieces that end at `cuts`."""
    slot = llm._pool.take()
    try:
        ends = sorted({len(tokens), *(cut for cut in cuts if 0 < cut < len(tokens))})
        pieces = [tokens[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        return np.concatenate([_prefill(llm, slot, piece) for piece in pieces])
    finally:
        llm._pool.give_back(slot)


def decode_logits(llm: LLM, tokens: Sequence[int], start: int, tamper: Tamper | None = None) -> np.ndarray:
    """Logits after tokens[start:], each decoded by itself; tokens[:start] are prefilled, then `tamper` has its way."""
    return decode_together(llm, [tokens], [start], tamper)[0]


def decode_together(
    llm: LLM, sequences: Sequence[Sequence[int]], starts: Sequence[int], tamper: Tamper | None = None
) -> list[np.ndarray]:
    """The same for several sequences in one batch; a sequence that is over leaves it, the others go on."""
    slots = [llm._pool.take() for _ in sequences]
    out: list[list[np.ndarray]] = [[] for _ in sequences]
    try:
        for slot, tokens, start in zip(slots, sequences, starts, strict=True):
            if start:
                _prefill(llm, slot, tokens[:start])
            if tamper:
                tamper(slot)
        while running := [i for i, tokens in enumerate(sequences) if slots[i].length < len(tokens)]:
            logits = llm._model.decode(
                [sequences[i][slots[i].length] for i in running],
                [slots[i] for i in running],
                llm._pool,
                StageClock(),
            )
            for i, row in zip(running, logits, strict=True):
                out[i].append(row.copy())
    finally:
        for slot in slots:
            llm._pool.give_back(slot)
    return [np.array(rows) for rows in out]
