"""Everything in one plan: capacity, long inputs, comparisons, quality; hours on a full-size model, resumed at will."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mindnano.bench import capacity, compare, perf
from mindnano.bench.campaign import Campaign
from mindnano.bench.load import Load
from mindnano.bench.progress import Estimate, duration, total
from mindnano.bench.quality import Plan, Variant
from mindnano.bench.quality import run as run_quality
from mindnano.bench.servers import Setting

KINDS = tuple((layout, fmt) for layout in ("latent", "expanded") for fmt in ("bf16", "int8", "fp16"))
MAIN = (("latent", "bf16"), ("latent", "int8"))
# Settings that are held against each other in pairs: formats in our layout, and layouts with the reference's format.
PAIRS = ((("latent", "bf16"), ("latent", "int8")), (("expanded", "int8"), ("latent", "int8")))


@dataclass(frozen=True)
class Scale:
    """How much is measured. inputs and rounds: of the main caches; few_inputs and few_rounds: of all of them."""

    contexts: tuple[int, ...]
    fill_up_to: int
    inputs: tuple[int, ...]
    rounds: int
    few_inputs: tuple[int, ...]
    few_rounds: int
    output: int
    together: tuple[int, ...]
    together_input: int
    pair_inputs: tuple[int, ...]
    pairs: int
    lengths: tuple[int, ...]
    segments: int
    positions: int
    retrieval_lengths: tuple[int, ...]
    retrieval_samples: int
    greedy_prompts: int
    greedy_tokens: int


SCALES = {
    "full": Scale(
        contexts=(8192, 16384, 32768, 65536, 131072, 262144), fill_up_to=65536,
        inputs=(128, 256, 512, 1024, 2048, 4096, 8192, 16384), rounds=5, few_inputs=(1024, 4096, 16384), few_rounds=4,
        output=64, together=(2, 4), together_input=1024, pair_inputs=(1024, 4096), pairs=6,
        lengths=(512, 1024, 2048, 4096, 8192), segments=4, positions=16, retrieval_lengths=(1024, 4096, 8192),
        retrieval_samples=4, greedy_prompts=6, greedy_tokens=64,
    ),
    "quick": Scale(
        contexts=(4096, 8192, 262144), fill_up_to=8192, inputs=(256, 512, 1024, 2048), rounds=4, few_inputs=(512, 2048),
        few_rounds=1, output=32, together=(2,), together_input=512, pair_inputs=(1024,), pairs=5,
        lengths=(256, 1024), segments=4, positions=16, retrieval_lengths=(1024,), retrieval_samples=1, greedy_prompts=6,
        greedy_tokens=32,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A part of the plan: what it is, seconds by an estimate, and how it is done."""

    name: str
    seconds: float
    run: Callable[[], None]


def steps(campaign: Campaign | None, base: Setting, scale: Scale, note: Callable[[str], None]) -> list[Step]:
    """The plan in order. campaign: None only to look at it."""
    estimate = campaign.estimate if campaign is not None else Estimate()

    def setting(layout: str, fmt: str) -> Setting:
        return replace(base, kv_layout=layout, kv=fmt)

    def need() -> Campaign:
        assert campaign is not None
        return campaign

    settings = [replace(setting(*kind), context=context) for kind in KINDS for context in scale.contexts]
    fills = [(one.label, capacity.fill_load(one)) for one in settings if one.context <= scale.fill_up_to]
    made = [
        Step("capacity", total(estimate, fills, len(settings)),
             lambda: capacity.run(need(), settings, scale.fill_up_to)),
    ]  # fmt: skip
    for name, kinds, loads, rounds in (
        ("long inputs", MAIN, [Load(n, scale.output) for n in scale.inputs], scale.rounds),
        ("all caches", KINDS, [Load(n, scale.output) for n in scale.few_inputs], scale.few_rounds),
        ("clients at once", MAIN[1:], [Load(scale.together_input, scale.output, n) for n in (1, *scale.together)],
         scale.few_rounds),
    ):  # fmt: skip
        plan = perf.visits([setting(*kind) for kind in kinds], loads, rounds)
        if (
            campaign is None and name == "all caches"
        ):  # what the step before has measured isn't measured again
            plan = [visit for visit in plan if (visit.setting.kv_layout, visit.setting.kv) not in MAIN]
        made.append(Step(name, perf.seconds(plan, estimate), lambda plan=plan: perf.run(need(), plan)))  # type: ignore[misc]
    for a, b in PAIRS:
        loads = [Load(n, scale.output) for n in scale.pair_inputs]
        seconds = 2 * scale.pairs * sum(estimate.seconds("", load) for load in loads)
        made.append(Step(
            f"pairs of {' '.join(a)} and {' '.join(b)}", seconds,
            lambda a=a, b=b, loads=loads: compare.run(need(), setting(*a), setting(*b), loads, scale.pairs),  # type: ignore[misc]
        ))  # fmt: skip
    made.append(
        Step("quality", _quality_seconds(scale, estimate), lambda: _quality(need(), base, scale, note))
    )
    return made


def _quality(campaign: Campaign, base: Setting, scale: Scale, note: Callable[[str], None]) -> None:
    plan = Plan(
        base.model, [Variant(*kind) for kind in KINDS if kind != KINDS[0]], lengths=scale.lengths,
        segments=scale.segments, positions=scale.positions, retrieval_lengths=scale.retrieval_lengths,
        retrieval_samples=scale.retrieval_samples, greedy_prompts=scale.greedy_prompts,
        greedy_tokens=scale.greedy_tokens, threads=base.threads,
    )  # fmt: skip
    run_quality(plan, campaign.results, campaign.progress, note)


def _quality_seconds(scale: Scale, estimate: Estimate) -> float:
    """Of divergence and greedy answers; retrieval isn't counted, synthetic models have none."""
    models = len(KINDS)
    text = Load(max(scale.lengths), scale.positions * len(scale.lengths))
    answer = Load(512, scale.greedy_tokens)
    return models * (
        scale.segments * estimate.seconds("", text) + scale.greedy_prompts * estimate.seconds("", answer)
    )


def describe(plan: Sequence[Step]) -> str:
    """The plan as lines, with its time."""
    lines = [f"{step.name:42} {duration(step.seconds)}" for step in plan]
    return "\n".join([*lines, f"{'in all':42} {duration(sum(step.seconds for step in plan))}"])
