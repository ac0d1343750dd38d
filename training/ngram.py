"""The yardstick: an interpolated modified Kneser-Ney n-gram model over the same tokens.

Chen and Goodman, "An Empirical Study of Smoothing Techniques for Language Modeling", 1998, equations 24 to 29.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BITS = 12  # of a token: five fit into 60 bits


class KneserNey:
    """Trained on token sequences (concatenated), with ids below 4096. `losses` are nats a token."""

    def __init__(self, tokens: Sequence[int], vocabulary: int, order: int = 5) -> None:
        if vocabulary > 1 << BITS or order > 5:
            raise ValueError(f"{vocabulary} tokens, order {order}; expected at most {1 << BITS} and 5")
        self.order, self.vocabulary = order, vocabulary
        stream = np.asarray(tokens, np.int64)
        self.levels = [_Level(*self._counts(stream, n)) for n in range(1, order + 1)]

    def _counts(self, stream: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """(n-grams as numbers, counts): raw ones for the highest order, of different predecessors below."""
        if n == self.order:
            return np.unique(_windows(stream, n), return_counts=True)
        longer = np.unique(_windows(stream, n + 1))
        return np.unique(longer & ((1 << BITS * n) - 1), return_counts=True)

    def losses(self, tokens: Sequence[int]) -> np.ndarray:
        """Of every token but the first order - 1, whose history isn't whole."""
        stream = np.asarray(tokens, np.int64)
        if len(stream) < self.order:
            return np.zeros(0)
        probability = np.full(len(stream) - self.order + 1, 1 / self.vocabulary)
        for n, level in enumerate(self.levels, 1):
            grams = _windows(stream, n)[self.order - n :]
            probability = level.interpolated(grams, probability)
        return -np.log(probability)


class _Level:
    """One order: n-grams with their counts, and of each history the total and how many were seen 1, 2, 3+ times."""

    def __init__(self, grams: np.ndarray, counts: np.ndarray) -> None:
        self.grams, self.counts = grams, counts
        ones, twos, threes, fours = ((counts == c).sum() for c in (1, 2, 3, 4))
        y = ones / max(1, ones + 2 * twos)
        ratios = ((twos, ones), (threes, twos), (fours, threes))
        raw = [k + 1 - (k + 2) * y * more / max(1, less) for k, (more, less) in enumerate(ratios)]
        self.discounts = np.clip(np.array([0.0, *raw]), 0.0, np.array([0.0, 1.0, 2.0, 3.0]))
        self.histories, begins = np.unique(grams >> BITS, return_index=True)  # grams are sorted by history
        self.totals = np.add.reduceat(counts, begins)
        discounted = self.discounts[np.minimum(counts, 3)]
        self.freed = np.add.reduceat(discounted, begins)

    def interpolated(self, grams: np.ndarray, lower: np.ndarray) -> np.ndarray:
        """Probabilities of the n-grams' last tokens, given those of the order below."""
        at = np.minimum(np.searchsorted(self.grams, grams), len(self.grams) - 1)
        count = np.where(self.grams[at] == grams, self.counts[at], 0)
        history = grams >> BITS
        where = np.minimum(np.searchsorted(self.histories, history), len(self.histories) - 1)
        known = self.histories[where] == history
        total, freed = self.totals[where], self.freed[where]
        own = (count - self.discounts[np.minimum(count, 3)] + freed * lower) / total
        return np.where(known, own, lower)


def _windows(stream: np.ndarray, n: int) -> np.ndarray:
    """Every n consecutive tokens as one number, the last token in the lowest bits."""
    codes = np.zeros(len(stream) - n + 1, np.int64)
    for k in range(n):
        codes = codes << BITS | stream[k : len(stream) - n + 1 + k]
    return codes
