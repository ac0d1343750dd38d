"""The whole measurement: which variants, how much of what, resumed where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from mindnano.bench.budget import Budget
from mindnano.bench.load import now
from mindnano.bench.progress import Progress
from mindnano.bench.quality import divergence, retrieval
from mindnano.bench.quality.variants import Variant, facts, label
from mindnano.bench.records import Divergence, Judged, Parting, Point, Results, Retrieval
from mindnano.engine.llm import LLM
from mindnano.engine.params import SamplingParams
from mindnano.errors import MindNanoError
from mindnano.textfile import read_text

MARGIN = 256  # tokens of context beyond the longest length: answers, the chat template


@dataclass(frozen=True)
class Plan:
    """What is measured. yardstick: the variant that others are held against, of `native` where that is given, otherwise
    of the model itself."""

    model: str | None
    variants: Sequence[Variant]
    yardstick: Variant = field(default_factory=Variant)
    native: str | None = None
    lengths: Sequence[int] = divergence.LENGTHS
    segments: int = 8
    positions: int = divergence.POSITIONS
    retrieval_lengths: Sequence[int] = retrieval.LENGTHS
    retrieval_samples: int = 4  # of each task, depth and length
    greedy_prompts: int = 8
    greedy_tokens: int = 128
    text: Sequence[Path] = ()
    threads: int | None = None
    seed: str = "mindnano"

    @property
    def context(self) -> int:
        return max([*self.lengths, *self.retrieval_lengths, 512]) + max(MARGIN, self.greedy_tokens + 1)


def run(
    plan: Plan,
    results: Results,
    progress: Progress,
    note: Callable[[str], None],
    budget: Budget | None = None,
) -> None:
    """Measure what isn't measured yet. Variants of one recipe are open together, other recipes one after another."""
    budget = budget or Budget()
    if (reason := budget.refusal(0.0)) is not None:
        say_left_out(results, plan, f"all of it; {reason}")
        return
    recipes = dict.fromkeys(variant.recipe for variant in plan.variants)
    with plan.yardstick.open(plan.native or plan.model, plan.context, plan.threads) as yardstick:
        for recipe in recipes:
            if recipe is not None and yardstick.synthetic:
                note(f"recipe {recipe}: left out, random weights of another recipe are another model")
                continue
            with ExitStack() as stack:
                others = [
                    stack.enter_context(variant.open(plan.model, plan.context, plan.threads))
                    for variant in plan.variants
                    if variant.recipe == recipe
                ]
                _check(yardstick, others)
                _Session(plan, results, progress, yardstick, others).run(note, budget)


def say_left_out(results: Results, plan: Plan, reason: str | None) -> None:
    """Record that time didn't allow all of it; None: it did, which takes back what was recorded before."""
    name = Path(plan.model).name if plan.model else "built-in"
    point = Point(phase="quality", setting=f"quality of {name}", model=name, at=now())
    if reason is not None:
        point.status, point.reason = "not_measured", reason
    elif not results.of(point.key):
        return
    results.append(point)


def _check(yardstick: LLM, others: Sequence[LLM]) -> None:
    for llm in others:
        if llm.config.vocab_size != yardstick.config.vocab_size:
            raise MindNanoError(
                f"the models don't belong together: vocabularies of {llm.config.vocab_size} and "
                f"{yardstick.config.vocab_size} tokens"
            )


class _Session:
    """One yardstick and some variants, all open."""

    def __init__(
        self, plan: Plan, results: Results, progress: Progress, yardstick: LLM, others: Sequence[LLM]
    ) -> None:
        self.plan, self.results, self.progress, self.yardstick, self.others = (
            plan,
            results,
            progress,
            yardstick,
            others,
        )
        self.against = label(yardstick)
        self._have = {
            _key(record) for record in results.records if isinstance(record, Divergence | Retrieval | Parting)
        }
        self._seconds: dict[str, float] = {}  # of a part's last step

    def run(self, note: Callable[[str], None], budget: Budget) -> None:
        parts: list[tuple[str, list[Callable[[], None]]]] = [("divergence", list(self._divergence()))]
        if self.yardstick.synthetic:
            note(
                "synthetic model: retrieval is left out, the rest is numerical error and says nothing about quality"
            )
        elif not self.yardstick.tokenizer.available:
            note("this model has no tokenizer: retrieval is left out")
        else:
            parts.append(("retrieval", list(self._retrieval())))
        parts.append(("greedy answers", list(self._parting())))
        steps = [(name, step) for name, members in parts for step in members]
        for at, (name, step) in enumerate(steps):
            if (reason := budget.refusal(self._seconds.get(name, 0.0))) is not None:
                say_left_out(self.results, self.plan, f"{len(steps) - at} of {len(steps)} parts; {reason}")
                return
            self.progress.doing(f"{name} {at + 1} of {len(steps)}", self._left(steps[at:]))
            begin = perf_counter()
            step()
            self._seconds[name] = perf_counter() - begin
            self.progress.did(
                f"{name} {at + 1} of {len(steps)}", self._seconds[name], self._left(steps[at + 1 :])
            )
        say_left_out(self.results, self.plan, None)

    def _left(self, steps: Sequence[tuple[str, Any]]) -> float:
        """By the last step's time of each part; a part that hasn't begun counts as the one that has."""
        guess = max(self._seconds.values(), default=0.0)
        return sum(self._seconds.get(name, guess) for name, _ in steps)

    def _add(self, record: Divergence | Retrieval | Parting) -> None:
        self.results.append(record)
        self._have.add(_key(record))

    def _divergence(self) -> Iterator[Callable[[], None]]:
        plan, longest = self.plan, max(self.plan.lengths, default=0)
        if not longest:
            return
        source, segments = divergence.segments(self.yardstick, plan.text, plan.segments, longest, plan.seed)
        for sample, tokens in enumerate(segments):
            missing = [
                llm for llm in self.others
                if any(_wanted(llm, Divergence, self.against, source, length, sample) not in self._have
                       for length in plan.lengths)
            ]  # fmt: skip
            if not missing:
                continue

            def step(tokens: list[int] = tokens, sample: int = sample, missing: list[LLM] = missing) -> None:
                for record in divergence.compare(
                    self.yardstick, missing, tokens, plan.lengths, plan.positions, source, sample
                ):
                    if _key(record) not in self._have:
                        self._add(record)

            yield step

    def _retrieval(self) -> Iterator[Callable[[], None]]:
        plan = self.plan
        text = (
            "\n".join(read_text(path, divergence.MOST_TEXT, "--text") for path in plan.text)
            if plan.text
            else None
        )
        source = ", ".join(path.name for path in plan.text) or f"generated text, seed {plan.seed}"
        noise = retrieval.noise_of(text, plan.seed)
        for task, length, depth, sample in retrieval.questions(
            plan.retrieval_lengths, plan.retrieval_samples
        ):
            for llm in (self.yardstick, *self.others):
                key = _wanted(llm, Retrieval, self.against, source, length, sample, task, depth)
                if key in self._have:
                    continue

                def step(
                    llm: LLM = llm,
                    task: str = task,
                    length: int = length,
                    depth: float = depth,
                    sample: int = sample,
                ) -> None:
                    self._add(
                        retrieval.judge(
                            self.against, llm, task, length, depth, sample, plan.seed, noise, source
                        )
                    )

                yield step

    def _parting(self) -> Iterator[Callable[[], None]]:
        plan = self.plan
        if not plan.greedy_prompts:
            return
        length = min([*plan.lengths, 512])
        source, prompts = divergence.segments(
            self.yardstick, plan.text, plan.greedy_prompts, length, f"{plan.seed} greedy"
        )
        params = SamplingParams(max_tokens=plan.greedy_tokens, temperature=0, ignore_eos=True)
        for sample, tokens in enumerate(prompts):
            missing = [
                llm for llm in self.others
                if _wanted(llm, Parting, self.against, source, length, sample) not in self._have
            ]  # fmt: skip
            if not missing:
                continue

            def step(tokens: list[int] = tokens, sample: int = sample, missing: list[LLM] = missing) -> None:
                wanted = self.yardstick.generate(tokens, params).token_ids
                for llm in missing:
                    got = llm.generate(tokens, params).token_ids
                    at = next((i for i, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b), None)
                    self._add(Parting(**facts(llm), against=self.against, source=source, length=length, sample=sample,
                                      tokens=plan.greedy_tokens, position=at, at=now()))  # fmt: skip

            yield step


def _key(record: Judged) -> tuple[Any, ...]:
    return (type(record), record.model, record.kind, record.against, record.source, record.length, record.sample,
            getattr(record, "task", ""), getattr(record, "depth", 0.0))  # fmt: skip


def _wanted(
    llm: LLM,
    kind: type[Judged],
    against: str,
    source: str,
    length: int,
    sample: int,
    task: str = "",
    depth: float = 0.0,
) -> tuple[Any, ...]:
    about = kind(**facts(llm))
    return (kind, about.model, about.kind, against, source, length, sample, task, depth)
