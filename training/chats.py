"""Short chats in the chat template, with thinking on and off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from training import data
from training.stories import story
from training.words import ANIMALS, COLORS, FOODS, NAMES, THINGS

# Parts of a prompt and whether they are what the model should say: [(text, is answer)].
Parts = list[tuple[str, bool]]
Turn = tuple[str, str, str]  # question, thought, answer

SYSTEMS = (
    "You are a helpful assistant.",
    "Answer in short sentences.",
    "You tell stories and answer questions.",
)
WHO = (
    "I am a very small language model. I was trained to tell simple stories, to answer short questions and to find "
    "things in long texts."
)


def render(turns: Sequence[Turn], thinking: bool, system: str = "") -> Parts:
    """A conversation as the template of src/mindnano/tokenizer/ling.py writes it (a test compares them).

    Only the last answer keeps its thought, as in a prompt whose history was generated.
    """
    head = f"<role>SYSTEM</role>{system}{chr(10) if system else ''}detailed thinking {'on' if thinking else 'off'}"
    parts: Parts = [(head + "<|role_end|>", False)]
    for n, (question, thought, answer) in enumerate(turns):
        last = n == len(turns) - 1
        parts.append((f"<role>HUMAN</role>{question}<|role_end|><role>ASSISTANT</role>\n<think>", False))
        if thinking and last:
            parts.append((f"{thought}</think>{answer}<|role_end|>", True))
        else:
            parts += [("</think>", False), (f"{answer}<|role_end|>", True)]
    return parts


def _hello(r: Random, folder: Path) -> Turn:
    name = r.choice(NAMES)
    return r.choice((
        ("Hello!", "They say hello.", "Hello! What can I do for you?"),
        (f"Hi, my name is {name}.", f"The name is {name}.", f"Hello, {name}! Nice to meet you."),
        ("How are you?", "A polite question.", "I am fine, thank you. How are you?"),
        ("Who are you?", "They ask who I am.", WHO),
        ("What can you do?", "They ask what I can do.", "I can tell you a story or answer a short question."),
        ("Thank you!", "They say thank you.", "You are welcome."),
        ("Good night.", "They say good night.", "Good night! Sleep well."),
    ))  # fmt: skip


def _story(r: Random, folder: Path) -> Turn:
    name, animal = r.choice(NAMES), r.choice(ANIMALS)
    kind = r.randrange(4)
    if kind == 0:
        return "Tell me a story.", "A story. Any will do.", story(r)
    if kind == 1:
        return f"Tell me a story about {name}.", f"A story about {name}.", story(r, name=name)
    if kind == 2:
        return f"Tell me a story about a {animal}.", f"A story about a {animal}.", story(r, animal=animal)
    return (
        f"Tell me a story about {name} the {animal}.", f"A story about {name}, a {animal}.", story(r, name, animal)
    )  # fmt: skip


def _capital(r: Random, folder: Path) -> Turn:
    state, capital = r.choice(list(data.capitals(folder).items()))
    return (
        f"What is the capital of {state}?",
        f"{state}. Its capital is {capital}.",
        f"The capital of {state} is {capital}.",
    )


def _sum(r: Random, folder: Path) -> Turn:
    a, b = r.randrange(1, 10), r.randrange(1, 10)
    if r.random() < 0.5:
        return f"What is {a} plus {b}?", f"{a} and {b} make {a + b}.", f"{a} plus {b} is {a + b}."
    a, b = max(a, b), min(a, b)
    return f"What is {a} minus {b}?", f"{a} without {b} is {a - b}.", f"{a} minus {b} is {a - b}."


def _recall(r: Random, folder: Path) -> Turn:
    """A question about what was just said."""
    name, other = r.sample(NAMES, 2)
    thing, second = r.sample(THINGS, 2)
    color, food = r.choice(COLORS), r.choice(FOODS)
    fact = f"{name} has a {color} {thing}. {other} has a {second} and likes {food}."
    return r.choice((
        (f"{fact} Who has a {thing}?", f"{name} has a {thing}.", f"{name} has a {thing}."),
        (f"{fact} Who likes {food}?", f"{other} likes {food}.", f"{other} likes {food}."),
        (f"{fact} What does {other} have?", f"{other} has a {second}.", f"{other} has a {second}."),
        (f"{fact} What color is the {thing}?", f"The {thing} is {color}.", f"The {thing} is {color}."),
    ))  # fmt: skip


def _repeat(r: Random, folder: Path) -> Turn:
    words = " ".join(r.sample(THINGS + ANIMALS + COLORS, r.randrange(2, 6)))
    return f"Say: {words}.", f"I should say: {words}.", f"{words}."


def chat(r: Random, folder: Path) -> Parts:
    """One conversation of one to four turns."""
    makers = (_hello, _story, _story, _capital, _sum, _recall, _recall, _repeat)
    turns = [r.choice(makers)(r, folder) for _ in range(r.choice((1, 1, 2, 3, 4)))]
    return render(turns, r.random() < 0.4, r.choice(SYSTEMS) if r.random() < 0.4 else "")
