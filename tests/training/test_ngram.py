"""The n-gram yardstick against its formulas, written out for one history at a time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from training.ngram import KneserNey


def slow(tokens, vocabulary, order, history, token):
    """Modified Kneser-Ney by dictionaries."""
    probability = 1 / vocabulary
    for n in range(1, order + 1):
        grams = Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
        if n < order:
            longer = {tuple(tokens[i : i + n + 1]) for i in range(len(tokens) - n)}
            grams = Counter(gram[1:] for gram in longer)
        number = Counter(grams.values())
        y = number[1] / max(1, number[1] + 2 * number[2])
        discounts = [0.0] + [
            min(max(k - (k + 1) * y * number[k + 1] / max(1, number[k]), 0.0), float(k)) for k in (1, 2, 3)
        ]
        h = tuple(history[len(history) - n + 1 :])
        followers = {g[-1]: c for g, c in grams.items() if g[:-1] == h}
        if not followers:
            continue
        total = sum(followers.values())
        count = followers.get(token, 0)
        freed = sum(discounts[min(c, 3)] for c in followers.values())
        probability = (count - discounts[min(count, 3)] + freed * probability) / total
    return probability


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_against_dictionaries(order):
    r = np.random.RandomState(order)
    tokens = (r.geometric(0.3, 400) % 9).tolist()
    model = KneserNey(tokens, 10, order)
    held = (r.geometric(0.3, 40) % 10).tolist()
    wanted = [-np.log(slow(tokens, 10, order, held[:i], held[i])) for i in range(order - 1, 40)]
    assert np.allclose(model.losses(held), wanted, rtol=1e-10)


def test_sums_to_one():
    tokens = (np.random.RandomState(0).geometric(0.4, 300) % 7).tolist()
    model = KneserNey(tokens, 8)
    for start in range(20):
        history = tokens[start : start + 4]
        assert sum(np.exp(-model.losses([*history, t])[0]) for t in range(8)) == pytest.approx(1)
