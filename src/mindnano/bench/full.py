"""Everything in one plan: speed, capacity, comparisons, quality; hours on a full-size model, resumed at will.

The order is that of use: short inputs and small contexts of every cache come first, then longer ones, then more runs.
Wherever it is stopped, what is there makes a report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mindnano.bench import capacity, compare, perf
from mindnano.bench.campaign import Campaign, kind_of
from mindnano.bench.load import Load
from mindnano.bench.progress import Estimate, duration, total
from mindnano.bench.quality import Plan, Variant
from mindnano.bench.quality import run as run_quality
from mindnano.bench.servers import Setting

Kind = tuple[str, str]
FORMATS = ("int8", "bf16", "fp16")
LATENT: tuple[Kind, ...] = tuple(("latent", fmt) for fmt in FORMATS)
EXPANDED: tuple[Kind, ...] = tuple(("expanded", fmt) for fmt in FORMATS)
KINDS = (*LATENT, *EXPANDED)
YARDSTICK: Kind = ("latent", "bf16")
FORMATS_APART = (("latent", "bf16"), ("latent", "int8"))
LAYOUTS_APART = (("expanded", "int8"), ("latent", "int8"))


@dataclass(frozen=True)
class Speed:
    """Inputs on each cache, in those rounds."""

    kinds: tuple[Kind, ...]
    inputs: tuple[int, ...]
    rounds: range
    output: int = 64
    clients: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Memory:
    """Contexts of each cache. fill: a prompt of half the context, too."""

    kinds: tuple[Kind, ...]
    contexts: tuple[int, ...]
    fill: bool


@dataclass(frozen=True)
class Pairs:
    """Two caches against each other."""

    sides: tuple[Kind, Kind]
    inputs: tuple[int, ...]
    pairs: int
    output: int = 64


@dataclass(frozen=True)
class Quality:
    """Every cache against the yardstick; retrieval only of trained models."""

    lengths: tuple[int, ...]
    segments: int
    positions: int
    retrieval_lengths: tuple[int, ...]
    retrieval_samples: int
    prompts: int
    tokens: int


Part = Speed | Memory | Pairs | Quality
SHORT = (128, 256, 512, 1024, 2048, 4096)
SCALES: dict[str, dict[str, Part]] = {
    "full": {
        "inputs to 4K, latent": Speed(LATENT, SHORT, range(1)),
        "inputs of 1K and 4K, expanded": Speed(EXPANDED, (1024, 4096), range(1)),
        "contexts of 8K, half filled": Memory(KINDS, (8192,), True),
        "pairs at 1K, bf16 and int8": Pairs(FORMATS_APART, (1024,), 6),
        "contexts of 16K, half filled": Memory(KINDS, (16384,), True),
        "contexts from 32K, when ready": Memory(KINDS, (32768, 65536, 131072, 262144), False),
        "inputs of 8K, latent": Speed(LATENT, (8192,), range(1)),
        "inputs of 16K, latent": Speed(LATENT, (16384,), range(1)),
        "inputs to 4K, latent, again": Speed(LATENT, SHORT, range(1, 2)),
        "inputs of 1K and 4K, expanded, again": Speed(EXPANDED, (1024, 4096), range(1, 2)),
        "contexts of 32K, half filled": Memory(KINDS, (32768,), True),
        "inputs of 8K and 16K, latent, again": Speed(LATENT, (8192, 16384), range(1, 2)),
        "pairs at 4K, bf16 and int8": Pairs(FORMATS_APART, (4096,), 6),
        "pairs at 1K, expanded and latent": Pairs(LAYOUTS_APART, (1024,), 6),
        "clients at once": Speed((("latent", "int8"),), (1024,), range(2), clients=(1, 2, 4)),
        "context of 64K, half filled": Memory((("latent", "int8"),), (65536,), True),
        "quality": Quality((512, 1024, 2048, 4096), 4, 16, (1024, 4096), 2, 6, 64),
        "context of 128K, half filled": Memory((("latent", "int8"),), (131072,), True),
        "pairs at 4K, expanded and latent": Pairs(LAYOUTS_APART, (4096,), 6),
        "inputs to 4K, latent, for intervals": Speed(LATENT, SHORT, range(2, 4)),
        "inputs of 1K and 4K, expanded, for intervals": Speed(EXPANDED, (1024, 4096), range(2, 4)),
        "inputs of 8K and 16K, latent, for intervals": Speed(LATENT, (8192, 16384), range(2, 4)),
    },
    "quick": {
        "inputs, latent": Speed(LATENT, (256, 512, 1024, 2048), range(1), 32),
        "inputs, expanded": Speed(EXPANDED, (512, 2048), range(1), 32),
        "contexts, half filled": Memory(KINDS, (4096, 8192), True),
        "a context that doesn't fit": Memory(KINDS, (1 << 30,), False),
        "inputs, latent, for intervals": Speed(LATENT[:2], (256, 512, 1024, 2048), range(1, 4), 32),
        "clients at once": Speed((("latent", "int8"),), (512,), range(1), 32, (1, 2)),
        "pairs, bf16 and int8": Pairs(FORMATS_APART, (1024,), 5, 32),
        "pairs, expanded and latent": Pairs(LAYOUTS_APART, (1024,), 5, 32),
        "quality": Quality((256, 1024), 4, 16, (1024,), 1, 6, 32),
    },
}


@dataclass(frozen=True)
class Step:
    """A part of the plan: what it is, seconds by an estimate, and how it is done."""

    name: str
    seconds: float
    run: Callable[[], None]


def steps(
    campaign: Campaign | None, base: Setting, scale: dict[str, Part], note: Callable[[str], None]
) -> list[Step]:
    """The plan in order. campaign: None only to look at it."""
    estimate = campaign.estimate if campaign is not None else Estimate()
    return [_step(name, part, campaign, estimate, base, note) for name, part in scale.items()]


def _step(
    name: str,
    part: Part,
    campaign: Campaign | None,
    estimate: Estimate,
    base: Setting,
    note: Callable[[str], None],
) -> Step:
    def setting(kind: Kind) -> Setting:
        return replace(base, kv_layout=kind[0], kv=kind[1])

    def need() -> Campaign:
        assert campaign is not None
        return campaign

    if isinstance(part, Memory):
        settings = [
            replace(setting(kind), context=context) for context in part.contexts for kind in part.kinds
        ]
        fills = [(kind_of(one), capacity.fill_load(one)) for one in settings] if part.fill else []
        return Step(name, total(estimate, fills, len(settings)),
                    lambda: capacity.run(need(), settings, None if part.fill else 0))  # fmt: skip
    if isinstance(part, Speed):
        loads = [Load(tokens, part.output, clients) for clients in part.clients for tokens in part.inputs]
        plan = perf.visits([setting(kind) for kind in part.kinds], loads, part.rounds)
        return Step(name, perf.seconds(plan, estimate), lambda: perf.run(need(), plan))
    if isinstance(part, Pairs):
        a, b = map(setting, part.sides)
        loads = [Load(tokens, part.output) for tokens in part.inputs]
        seconds = total(estimate, [(kind_of(one), load) for one in (a, b) for load in loads] * part.pairs, 2)
        return Step(name, seconds, lambda: compare.run(need(), a, b, loads, part.pairs))
    return Step(name, _quality_seconds(part, estimate), lambda: _quality(need(), base, part, note))


def _quality(campaign: Campaign, base: Setting, part: Quality, note: Callable[[str], None]) -> None:
    plan = Plan(
        base.model, [Variant(*kind) for kind in KINDS if kind != YARDSTICK], lengths=part.lengths,
        segments=part.segments, positions=part.positions, retrieval_lengths=part.retrieval_lengths,
        retrieval_samples=part.retrieval_samples, greedy_prompts=part.prompts, greedy_tokens=part.tokens,
        threads=base.threads,
    )  # fmt: skip
    run_quality(plan, campaign.results, campaign.progress, note, campaign.budget)


def _quality_seconds(part: Quality, estimate: Estimate) -> float:
    """Of divergence and greedy answers; retrieval isn't counted, synthetic models have none."""
    text = Load(max(part.lengths), part.positions * len(part.lengths))
    answer = Load(512, part.tokens)
    return len(KINDS) * (
        part.segments * estimate.seconds("", text) + part.prompts * estimate.seconds("", answer)
    )


def describe(plan: Sequence[Step]) -> str:
    """The plan as lines, with the time of each part and up to its end."""
    lines, sum_of = [f"{'':46} {'takes':>11} {'until then':>11}"], 0.0
    for step in plan:
        sum_of += step.seconds
        lines.append(f"{step.name:46} {duration(step.seconds):>11} {duration(sum_of):>11}")
    return "\n".join(lines)
