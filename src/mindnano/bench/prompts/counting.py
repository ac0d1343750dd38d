"""Text of exactly N tokens, for any tokenizer that can count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mindnano.bench.prompts.text import write

Count = Callable[[str], int]

# What is put at the end to reach the number: most tokenizers make one token of each.
FILL = {"text": (" a", " I", ".", "x", "\n", " 1", ","), "digits": ("7", "1", "0")}
TRIES = 24  # shorter beginnings to try before giving up on an exact number


@dataclass(frozen=True)
class Prompt:
    """text of `tokens` tokens by the counter that was asked."""

    text: str
    tokens: int


def exact(kind: str, seed: str, tokens: int, count: Count) -> Prompt:
    """Text of `tokens` tokens, or of the nearest smaller number where the tokenizer allows no exact cut.

    count: tokens of a text by the server's or the model's own tokenizer.
    """
    if tokens <= 0:
        return Prompt("", 0)
    characters = 4 * tokens + 64
    text = write(kind, seed, characters)
    while count(text) < tokens:
        characters *= 2
        text = write(kind, seed, characters)
    end = _longest(text, tokens, count)
    best = Prompt("", 0)
    for shorter in range(TRIES):
        if end - shorter < 0:
            break
        found = _filled(text[: end - shorter], tokens, count, FILL[kind])
        if found.tokens == tokens:
            return found
        best = max(best, found, key=lambda prompt: prompt.tokens)
    return best


def _longest(text: str, tokens: int, count: Count) -> int:
    """Characters of the longest beginning found that has at most that many tokens: regula falsi, then bisection, as
    tokens grow nearly evenly with characters and a count of a long text takes time."""
    low, high = 0, len(text)
    have_low, have_high = 0, count(text)
    if have_high <= tokens:
        return high
    even = True
    while high - low > 1:
        share = (tokens - have_low) / (have_high - have_low) if have_high > have_low else 0.5
        middle = low + int((high - low) * share) if even else (low + high) // 2
        middle = min(max(middle, low + 1), high - 1)
        found = count(text[:middle])
        # The next guess is even only if this one took away most of what was left.
        before = high - low
        if found <= tokens:
            low, have_low = middle, found
        else:
            high, have_high = middle, found
        even = high - low < before // 2 or not even
        if found == tokens:
            break
    return low


def _filled(text: str, tokens: int, count: Count, fill: tuple[str, ...]) -> Prompt:
    have = count(text)
    while have < tokens:
        for piece in fill:
            longer = count(text + piece)
            if have < longer <= tokens:
                text, have = text + piece, longer
                break
        else:
            break
    return Prompt(text, have)
