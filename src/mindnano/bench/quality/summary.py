"""From samples to figures: a value, its interval, and how many samples it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindnano.bench import statistics
from mindnano.bench.records import Divergence, Judged, Parting, Record, Retrieval
from mindnano.bench.statistics import Estimate, Floats

# What is said of the positions of all segments together, [resamples, positions] -> [resamples].
_OF_KL: dict[str, Callable[[Floats], Floats]] = {
    "kl_mean": lambda kl: np.asarray(kl.mean(1)), "kl_p99": lambda kl: np.asarray(np.quantile(kl, 0.99, axis=1))
}  # fmt: skip


@dataclass(frozen=True)
class Quality:
    """One figure of one cache at one length.

    measure: "kl_mean", "kl_p99" (nats), "top1" (share), "retrieval/TASK" and "retrieval/TASK/DEPTH" (share),
    "first_difference" (median position, of which `censored` never came). samples in segments, where they depend on
    each other in there.
    """

    kind: str
    against: str
    measure: str
    length: int
    value: float
    low: float | None
    high: float | None
    samples: int
    segments: int | None = None
    censored: int | None = None
    synthetic: bool | None = None
    recipe: str | None = None
    kv_layout: str | None = None
    kv_format: str | None = None
    model: str | None = None


def summarize(records: Iterable[Record]) -> list[Quality]:
    """All figures that the samples give, in the order in which caches were first measured."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for record in records:
        if isinstance(record, Divergence | Retrieval | Parting):
            about = (type(record), record.model, record.kind, record.against, record.length)
            groups.setdefault((*about, getattr(record, "task", "")), []).append(record)
    found: list[Quality] = []
    for samples in groups.values():
        latest = list({_identity(one): one for one in samples}.values())
        if isinstance(latest[0], Divergence):
            found += _divergence(latest)
        elif isinstance(latest[0], Retrieval):
            found += _retrieval(latest)
        else:
            found += _parting(latest)
    return found


def _identity(one: Judged) -> tuple[Any, ...]:
    """Measured twice, the later one counts."""
    return (one.source, one.sample, getattr(one, "depth", 0.0))


def _make(of: Judged, measure: str, estimate: Estimate, samples: int, **more: Any) -> Quality:
    return Quality(
        kind=of.kind, against=of.against, measure=measure, length=of.length, value=estimate.value, low=estimate.low,
        high=estimate.high, samples=samples, synthetic=of.synthetic, recipe=of.recipe, kv_layout=of.kv_layout,
        kv_format=of.kv_format, model=of.model, **more,
    )  # fmt: skip


def _divergence(samples: list[Divergence]) -> list[Quality]:
    width = min(len(one.kl) for one in samples)
    if width == 0:
        return []
    kl = np.array([one.kl[:width] for one in samples], np.float64)
    top = np.array([one.same_top[:width] for one in samples], np.float64)
    figures = {name: statistics.over_segments(kl, statistic) for name, statistic in _OF_KL.items()}
    figures["top1"] = statistics.over_segments(top, _OF_KL["kl_mean"])
    return [_make(samples[0], name, one, kl.size, segments=len(kl)) for name, one in figures.items()]


def _retrieval(samples: list[Retrieval]) -> list[Quality]:
    name = f"retrieval/{samples[0].task}"
    found = [_make(samples[0], name, _share(samples), len(samples))]
    for depth in sorted({one.depth for one in samples}):
        here = [one for one in samples if one.depth == depth]
        found.append(_make(here[0], f"{name}/{depth:g}", _share(here), len(here)))
    return found


def _share(samples: list[Retrieval]) -> Estimate:
    return statistics.proportion(sum(one.right for one in samples), len(samples))


def _parting(samples: list[Parting]) -> list[Quality]:
    never = [one for one in samples if one.position is None]
    middle = statistics.median([math.inf if one.position is None else one.position for one in samples])
    return [_make(samples[0], "first_difference", middle, len(samples), censored=len(never))]
