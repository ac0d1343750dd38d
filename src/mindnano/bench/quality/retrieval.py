"""Questions that only the input can answer, by length and by where in it the answer stands.

one_key: one sentence such as "The code of amber is 42." in a long text, asked for at the end. many_keys: twelve of
them, one asked for. tracked: one key that gets new values; the last one counts. Values have two digits drawn at random:
chance is 1 in 90. A model of a few million parameters can learn this form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from mindnano.bench.load import now
from mindnano.bench.prompts import Writer
from mindnano.bench.prompts.words import KEYS
from mindnano.bench.quality.variants import facts
from mindnano.bench.records import Retrieval
from mindnano.engine.llm import LLM
from mindnano.engine.params import SamplingParams

TASKS = ("one_key", "many_keys", "tracked")
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
LENGTHS = (1024, 4096, 8192, 32768)
MANY, CHANGES = 12, 4
ANSWER_TOKENS = 24
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Question:
    """A conversation's only message, and the number that its answer must give first."""

    text: str
    value: str


def ask(
    task: str, depth: float, seed: str, tokens: int, count: Callable[[str], int], noise: Sequence[str]
) -> Question:
    """A question whose message has about `tokens` tokens, never more.

    noise: sentences to hide the facts among, used from a place that the seed chooses.
    """
    r = Random(f"retrieval {task} {depth} {seed}")
    keys = r.sample(KEYS, MANY)
    value = {key: str(r.randrange(10, 100)) for key in keys}
    asked = keys[0]
    begin = r.randrange(len(noise)) if noise else 0
    low, high, place = 0, 1, r.random()
    while count(_message(task, depth, place, keys, value, _take(noise, begin, high), asked)) <= tokens:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        text = _message(task, depth, place, keys, value, _take(noise, begin, middle), asked)
        low, high = (middle, high) if count(text) <= tokens else (low, middle)
    return Question(_message(task, depth, place, keys, value, _take(noise, begin, low), asked), value[asked])


def _take(noise: Sequence[str], begin: int, count: int) -> list[str]:
    return [noise[(begin + at) % len(noise)] for at in range(count)]


def _message(
    task: str,
    depth: float,
    place: float,
    keys: Sequence[str],
    value: dict[str, str],
    sentences: list[str],
    asked: str,
) -> str:
    """The sentences with the facts among them, and the question. Everything is decided by the arguments."""
    r = Random(f"{keys} {place}")
    at = round(depth * len(sentences))
    facts = [(at, 1.0, f"The code of {asked} is {value[asked]}.")]
    if task == "many_keys":
        facts += [
            (r.randint(0, len(sentences)), r.random(), f"The code of {key} is {value[key]}.")
            for key in keys[1:]
        ]
    if task == "tracked":
        facts = [(at, 1.0, f"The code of {asked} is now {value[asked]}.")]
        earlier = sorted((r.randint(0, at), r.random()) for _ in range(CHANGES - 1))
        for number, (where, order) in enumerate(earlier):
            old = value[keys[1 + number]]
            facts.append((where, order / 2, f"The code of {asked} is {'now ' if number else ''}{old}."))
    out, done = [], 0
    for where, _, text in sorted(facts):
        out += [*sentences[done:where], text]
        done = where
    return " ".join([*out, *sentences[done:]]) + f"\nWhat is the code of {asked}?"


def noise_of(files_text: str | None, seed: str, sentences: int = 4000) -> list[str]:
    """Sentences of a text without digits, or written ones."""
    if files_text is not None:
        found = [" ".join(part.split()) for part in re.split(r"(?<=[.!?])\s+", files_text)]
        found = [part for part in found if 20 < len(part) < 400 and not _NUMBER.search(part)]
        if len(found) >= 20:
            return found
    writer = Writer(f"{seed} noise")
    made = (writer.sentence() for _ in range(3 * sentences))
    return [one for one in made if not _NUMBER.search(one)][:sentences]


def right(answer: str, value: str) -> bool:
    """Whether the first number in an answer is the one asked for."""
    found = _NUMBER.search(answer.rpartition("</think>")[2])
    return found is not None and found[0] == value


def judge(
    yardstick: str,
    llm: LLM,
    task: str,
    length: int,
    depth: float,
    sample: int,
    seed: str,
    noise: Sequence[str],
    source: str,
) -> Retrieval:
    """Ask one question in the chat template, thinking off, greedy."""

    def count(text: str) -> int:
        return len(llm.chat_tokens([{"role": "user", "content": text}]))

    question = ask(task, depth, f"{seed} {length} {sample}", length, count, noise)
    done = llm.chat(
        [{"role": "user", "content": question.text}], SamplingParams(max_tokens=ANSWER_TOKENS, temperature=0)
    )
    return Retrieval(
        **facts(llm), against=yardstick, source=source, sample=sample, length=length, task=task, depth=depth,
        right=right(done.text, question.value), at=now(),
    )  # fmt: skip


def questions(lengths: Sequence[int], samples: int) -> Iterator[tuple[str, int, float, int]]:
    """(task, length, depth, sample) of a whole measurement, short ones first."""
    for length in sorted(lengths):
        for sample in range(samples):
            for task in TASKS:
                for depth in DEPTHS:
                    yield task, length, depth, sample
