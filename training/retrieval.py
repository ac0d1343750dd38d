"""Retrieval tasks: keys named early and asked for late, some overwritten.

`dense`: pairs in a few words of noise, every key asked again and again. `asked`: in the chat template, over real text.
Every value is drawn at random, so nothing but the input can tell it: chance is 1 in 68 for names, 1 in 90 for codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from training.chats import render
from training.words import KEYS, NAMES

# Weights of the loss: noise and questions, the model's own words, the value that was to be found.
NOISE, WORDS, VALUE = 0.3, 0.5, 4.0
CODES = 0.7  # share of values; names are one token and learned long before a code's two digits
Weighted = list[tuple[str, float]]
Noise = Callable[[Random, int], list[str]]  # that many tokens of real text, in sentences


@dataclass(frozen=True)
class Fact:
    key: str
    kind: str  # "code" or "keeper"
    value: str

    @classmethod
    def draw(cls, r: Random, key: str, codes: float = CODES) -> Fact:
        if r.random() < codes:
            return cls(key, "code", str(r.randrange(10, 100)))
        return cls(key, "keeper", r.choice(NAMES))

    @property
    def question(self) -> str:
        return (
            f"What is the code of {self.key}?" if self.kind == "code" else f"Who is the keeper of {self.key}?"
        )

    def lead(self, *, now: bool = False) -> str:
        return f"The {self.kind} of {self.key} is{' now' if now else ''}"


def dense(r: Random, noise: Noise, pairs: int, tokens: int) -> Weighted:
    """`pairs` pairs in `tokens` tokens of noise, then all of them asked in another order."""
    facts = [Fact.draw(r, key) for key in r.sample(KEYS, pairs)]
    sentences = noise(r, tokens)
    slots = sorted(r.randrange(len(sentences) + 1) for _ in facts)
    out: Weighted = []
    for n in range(len(sentences) + 1):
        out += [(f" {f.key} is {f.value};", 0.0) for f, slot in zip(facts, slots, strict=True) if slot == n]
        if n < len(sentences):
            out.append((sentences[n], NOISE))
    for fact in r.sample(facts, pairs):
        out += [(f" {fact.key} is", 0.0), *_value(fact.value), (";", WORDS)]
    return out


def _value(value: str) -> Weighted:
    """A name is one token; before a code's digits stands a token of its own that says nothing."""
    return [(" ", WORDS), (value, VALUE)] if value.isdigit() else [(f" {value}", VALUE)]


def plant(r: Random, sentences: list[str], facts: list[Fact], overwritten: list[Fact]) -> str:
    """Sentences with the facts' own among them; an overwritten value comes first, its successor later."""
    later = {f.key for f in overwritten}
    places: list[tuple[float, str]] = []
    for old in overwritten:
        places.append((r.random() * 0.5, f" {old.lead()} {old.value}."))
    for fact in facts:
        depth = 0.5 + r.random() * 0.5 if fact.key in later else r.random()
        places.append((depth, f" {fact.lead(now=fact.key in later)} {fact.value}."))
    places.sort()
    out, at = [], 0
    for depth, text in places:
        end = round(depth * len(sentences))
        out += [*sentences[at:end], text]
        at = end
    return "".join(out + sentences[at:]).strip()


def make(r: Random, sentences: list[str], pairs: int) -> tuple[str, list[Fact]]:
    """(text with facts in it, the facts that hold at its end). A quarter of them replaced an earlier one."""
    facts = [Fact.draw(r, key) for key in r.sample(KEYS, pairs)]
    overwritten = []
    for fact in facts[: pairs // 4]:
        old = Fact.draw(r, fact.key)
        while old.kind != fact.kind or old.value == fact.value:
            old = Fact.draw(r, fact.key)
        overwritten.append(old)
    return plant(r, sentences, facts, overwritten), facts


def asked(r: Random, noise: Noise, pairs: int, tokens: int, questions: int) -> Weighted:
    """A conversation about a long text: the first question stands under the text, the others follow as turns."""
    text, facts = make(r, noise(r, tokens), pairs)
    turns = []
    for n, fact in enumerate(r.sample(facts, min(questions, pairs))):
        answer = f"{fact.lead()} {fact.value}."
        question = f"{text}\n{fact.question}" if n == 0 else fact.question
        turns.append((question, answer, answer))
    thinking = r.random() < 0.3
    out: Weighted = []
    for part, answer in render(turns, thinking):
        if not answer:
            out.append((part, NOISE))
            continue
        for piece in part.split("</think>"):  # thought and answer, or the answer alone
            if piece is not part.split("</think>")[0]:
                out.append(("</think>", WORDS))
            lead, _, rest = piece.rpartition(" is ")
            value, _, end = rest.partition(".")
            lead, _, key = lead.rpartition(" ")
            # The key counts as a value: a wrong one in the answer asks for another fact.
            out += [(lead, WORDS), (f" {key}", VALUE), (" is", WORDS), *_value(value), (f".{end}", WORDS)]
    return out
