"""Text from a seed: prose, code and figures in turns, never the same twice.

One repeated token always takes the same experts, and a prompt that a server has seen may come from its cache: both give
speeds that no user has. The same seed gives the same text on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from mindnano.bench.prompts.words import ADJECTIVES, ADVERBS, FIELDS, NAMES, NOUNS, PAST, PLACES, VERBS

KINDS = ("text", "digits")  # digits: as the reference's benchmark sends


class Writer:
    """Paragraphs of prose, code and figures drawn from `seed`, for as long as they are asked for."""

    def __init__(self, seed: str) -> None:
        self.random = Random(f"text {seed}")
        self.title = f"{self.random.getrandbits(64):016x}"

    def paragraphs(self) -> Iterator[str]:
        """A first line that no other seed has, then paragraphs without end."""
        yield f"Record {self.title} from {self._place()}, {self._date()}."
        kinds: list[tuple[Callable[[], str], int]] = [(self.prose, 6), (self.code, 3), (self.figures, 3)]
        makers, weights = zip(*kinds, strict=True)
        while True:
            yield self.random.choices(makers, weights)[0]()

    def text(self, characters: int) -> str:
        """At least that many characters."""
        parts: list[str] = []
        size = 0
        for paragraph in self.paragraphs():
            parts.append(paragraph)
            size += len(paragraph) + 2
            if size >= characters:
                break
        return "\n\n".join(parts)

    def prose(self) -> str:
        return " ".join(self.sentence() for _ in range(self.random.randint(3, 8)))

    def sentence(self) -> str:
        r, noun, adjective = self.random, self._noun, self._adjective
        subject = r.choice([
            lambda: r.choice(NAMES), lambda: f"the {noun()}", lambda: f"the {adjective()} {noun()}",
            lambda: f"{r.choice(NAMES)} and the {noun()} of {self._place()}", lambda: f"nobody in {self._place()}",
            lambda: f"the {noun()} of the {noun()}", lambda: f"a {adjective()}, {adjective()} {noun()}",
        ])  # fmt: skip
        act = r.choice([
            lambda: f"{r.choice(PAST)} the {noun()}", lambda: f"{r.choice(ADVERBS)} {r.choice(PAST)} it",
            lambda: f"{r.choice(PAST)} {r.randint(2, 900)} {adjective()} {noun()}s",
            lambda: f"{r.choice(PAST)} what the {noun()} had {r.choice(PAST)}",
            lambda: f"was more {adjective()} than the {noun()}",
            lambda: f"{r.choice(PAST)} {r.choice(NAMES)}'s {noun()}",
        ])  # fmt: skip
        where = r.choice([
            lambda: "", lambda: "", lambda: f" near the {noun()}", lambda: f" before the {noun()} of {self._place()}",
            lambda: f" on {self._date()}", lambda: f", although the {noun()} was {adjective()}",
            lambda: f" because {subject()} {act()}", lambda: f"; {subject()} {act()}", lambda: f", and {act()}",
            lambda: f', and said: "The {noun()} {act()}"',
        ])  # fmt: skip
        sentence = f"{subject()} {act()}{where()}"
        return sentence[0].upper() + sentence[1:] + r.choice("....?!"[:5])

    def code(self) -> str:
        r = self.random
        verb, thing, field, other = r.choice(VERBS), self._noun(), r.choice(FIELDS), r.choice(FIELDS)
        number, limit = r.randint(2, 99), r.choice((8, 16, 64, 100, 255, 1024, 4096))
        return r.choice([
            f"def {verb}_{thing}({field}, {other}={number}):\n"
            f'    """{verb.capitalize()} every {thing} whose {other} is at most {limit}."""\n'
            f"    found = []\n    for i, {thing} in enumerate({field}):\n"
            f"        if {thing}.{other} > {limit} - i * {number}:\n            continue\n"
            f"        found.append(({thing}.{other}, {thing}))\n    return sorted(found)[:{number}]",
            f"struct {thing} {{\n    int {field}[{limit}];\n    double {other};\n}};\n\n"
            f"static int {verb}_{thing}(struct {thing} *p, size_t n) {{\n"
            f"    for (size_t i = 0; i < n && i < {limit}; ++i) {{\n"
            f"        p->{other} += {r.random():.4f} * p->{field}[i];\n    }}\n    return p->{other} > {number};\n}}",
            f"SELECT {field}, COUNT(*) AS {other}_count\nFROM {thing}s\nWHERE {other} < {limit}\n"
            f"GROUP BY {field}\nHAVING COUNT(*) > {number}\nORDER BY {other}_count DESC;",
            f"async function {verb}{thing.capitalize()}({field}) {{\n"
            f"  const {other} = await fetch(`/api/{thing}/${{{field}}}?limit={limit}`);\n"
            f"  if (!{other}.ok) throw new Error('{thing}: ' + {other}.status);\n"
            f"  return ({other}.{field} ?? []).map((x) => x * {number});\n}}",
            f"[{thing}]\n{field} = {number}\n{other} = \"{r.choice(PLACES).lower()}-{limit}\"\n"
            f"{verb}_every = {r.randint(1, 60)}m\n# {self.sentence()}",
        ])  # fmt: skip

    def figures(self) -> str:
        r = self.random
        first, second, third = r.sample(FIELDS, 3)
        rows = range(r.randint(4, 10))
        return r.choice([
            lambda: f"{first},{second},{third}\n" + "\n".join(
                f"{r.randint(1, 99999)},{r.random() * 1000:.2f},{r.choice(PLACES)}" for _ in rows),
            lambda: "\n".join(
                f"{self._clock()} {r.choice(('INFO', 'WARN', 'DEBUG', 'ERROR'))} {r.choice(VERBS)}_{self._noun()}: "
                f"{first}={r.randint(0, 65535)} {second}=0x{r.getrandbits(32):08x}" for _ in rows),
            lambda: "{" + ", ".join(
                f'"{field}": {r.choice((r.randint(0, 9999), round(r.random(), 5), repr(r.choice(NAMES)))) }'
                for field in r.sample(FIELDS, len(rows))).replace("'", '"') + "}",
            lambda: "\n".join(
                f"| {self._noun()} | {r.randint(1, 500)} | {r.random() * 100:.1f} % | {self._date()} |" for _ in rows),
            lambda: "\n".join(
                f"{r.choice(NAMES)}: +{r.randint(1, 99)} {r.randint(100, 999)} {r.randint(1000000, 9999999)}, "
                f"room {r.randint(1, 400)}" for _ in rows),
            lambda: f"{r.choice(NAMES)} paid {r.randint(1, 9999)}.{r.randint(0, 99):02d} for {r.randint(2, 60)} "
                f"{self._noun()}s and {r.randint(1, 9999)}.{r.randint(0, 99):02d} for the {self._noun()}.",
        ])()  # fmt: skip

    def _noun(self) -> str:
        return self.random.choice(NOUNS)

    def _adjective(self) -> str:
        return self.random.choice(ADJECTIVES)

    def _place(self) -> str:
        return self.random.choice(PLACES)

    def _date(self) -> str:
        r = self.random
        month = r.choice(("January", "March", "April", "June", "July", "September", "October", "December"))
        return f"{r.randint(1, 28)} {month} {r.randint(1780, 2030)}"

    def _clock(self) -> str:
        r = self.random
        return f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}.{r.randint(0, 999):03d}"


def digits(seed: str, characters: int) -> str:
    """ASCII digits drawn from `seed`."""
    return "".join(Random(f"digits {seed}").choices("0123456789", k=characters))


def write(kind: str, seed: str, characters: int) -> str:
    """At least that many characters of a kind; the same beginning whatever their number."""
    return digits(seed, characters) if kind == "digits" else Writer(seed).text(characters)
