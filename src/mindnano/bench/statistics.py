"""Ratios with intervals, and when a difference may be called one.

Times vary by factors, so everything is done on logarithms: the ratio of two settings is a geometric mean. Intervals and
p-values are a symmetric studentized bootstrap (Efron and Tibshirani 1993, chapter 12.5; Hall 1988): resample, divide
the difference by its own standard error, see how often that is as large as what was measured. Small samples are
resampled exhaustively; a resample without any variation counts as larger than everything, so fewer than four pairs
can't show a difference at all; of independent runs five on each side are asked for. Several comparisons in one run
are corrected together (Holm 1979), so that a run of two equal settings says "faster" anywhere at most one time in
twenty. Intervals are never wider than Student's of 99 %, which only matters for four or five values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations_with_replacement
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ALPHA = 0.05
# Where a machine runs at one of two clocks, four runs are all fast and four others all slow too often by chance.
LEAST_UNPAIRED = 5
LEAST = 4  # pairs, or runs of one mean: of three, resamples say next to nothing
EXHAUSTIVE = 20_000  # at most so many different resamples are all taken
DRAWN = 9_999
SEED = 20261201  # drawn resamples are the same every time, so a report says the same twice
FASTER, SLOWER, UNCLEAR = "faster", "slower", "no difference shown"


@dataclass(frozen=True)
class Ratio:
    """B over A. low, high: 95 % interval, None where there are too few runs for one. p: of the two being equal.
    n: pairs, or runs on the smaller side."""

    ratio: float
    low: float | None
    high: float | None
    p: float
    n: int
    paired: bool


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; n samples (or segments that were resampled)."""

    value: float
    low: float | None
    high: float | None
    n: int


def paired_ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """Ratio b / a of runs measured in pairs; positive numbers, equally many."""
    if len(a) != len(b) or not a:
        raise ValueError(f"expected pairs, got {len(a)} and {len(b)} values")
    return _ratio([_logs(b) - _logs(a)], len(a), paired=True)


def unpaired_ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """Ratio b / a of runs that were measured independently; variances may differ (Welch)."""
    if not a or not b:
        raise ValueError(f"expected values on both sides, got {len(a)} and {len(b)}")
    found = _ratio([_logs(b), -_logs(a)], min(len(a), len(b)), paired=False)
    return found if found.n >= LEAST_UNPAIRED else replace(found, low=None, high=None, p=1.0)


def geometric_mean(values: Sequence[float]) -> Estimate:
    """Geometric mean of positive numbers with its interval."""
    found = _ratio([_logs(values)], len(values), paired=False)
    return Estimate(found.ratio, found.low, found.high, len(values))


def holm(ps: Sequence[float]) -> list[float]:
    """p-values corrected for having been looked at together (Holm's step-down)."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected, largest = [1.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = largest
    return corrected


def verdicts(ratios: Sequence[Ratio], smaller_is_faster: Sequence[bool]) -> list[str]:
    """For each comparison of one run: is B faster, slower, or was no difference shown?"""
    said = []
    for found, p, smaller in zip(ratios, holm([r.p for r in ratios]), smaller_is_faster, strict=True):
        if p > ALPHA:
            said.append(UNCLEAR)
        else:
            said.append(FASTER if (found.ratio < 1) == smaller else SLOWER)
    return said


def over_segments(values: Floats, statistic: Callable[[Floats], Floats], resamples: int = 2_000) -> Estimate:
    """`statistic` of all values, its interval from resampling whole segments.

    values: [segments, positions]. statistic: from [resamples, values] to [resamples]. Positions of one text depend on
    each other, segments don't. The percentiles are taken further out for few segments, as a t interval would be
    (Hesterberg 2015, "What teachers should know about the bootstrap", section 5.3).
    """
    segments = len(values)
    whole = float(statistic(values.reshape(1, -1))[0])
    if segments < 4:
        return Estimate(whole, None, None, segments)
    picked = np.random.default_rng(SEED).integers(0, segments, (resamples, segments))
    spread = statistic(values[picked].reshape(resamples, -1))
    tail = NormalDist().cdf(-math.sqrt(segments / (segments - 1)) * t_quantile(1 - ALPHA / 2, segments - 1))
    low, high = np.quantile(spread, [tail, 1 - tail])
    return Estimate(whole, float(low), float(high), segments)


def proportion(successes: int, n: int) -> Estimate:
    """A share with Wilson's interval (Wilson 1927)."""
    if n == 0:
        raise ValueError("expected at least one sample")
    z, share = NormalDist().inv_cdf(1 - ALPHA / 2), successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half), n)


def median(values: Sequence[float]) -> Estimate:
    """Median with the interval between two of the values that a binomial distribution allows (Conover 1999, 3.2);
    values may be infinite. None where fewer than six values can't give 95 %."""
    ordered, n = sorted(values), len(values)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    below, tail = 0, 0.0  # values that may be left out at each end
    while below < n // 2 and tail + math.comb(n, below) / 2.0**n <= ALPHA / 2:
        tail += math.comb(n, below) / 2.0**n
        below += 1
    if below == 0:
        return Estimate(middle, None, None, n)
    return Estimate(middle, ordered[below - 1], ordered[n - below], n)


@lru_cache(maxsize=64)
def t_quantile(probability: float, freedom: int) -> float:
    """Quantile above 1/2 of Student's t with a whole number of degrees of freedom, by bisection."""
    low, high = 0.0, 1.0
    while t_within(high, freedom) < 2 * probability - 1:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, freedom) < 2 * probability - 1 else (low, middle)
    return (low + high) / 2


def t_within(t: float, freedom: int) -> float:
    """Probability that Student's t lies between -t and t (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    term, total = 1.0, 1.0
    for k in range(1 + freedom % 2, freedom - 2, 2):
        term *= square * k / (k + 1)
        total += term
    if freedom % 2 == 0:
        return sine * total
    return 2 / math.pi * (angle + (sine * math.cos(angle) * total if freedom > 1 else 0.0))


def _logs(values: Sequence[float]) -> Floats:
    array = np.asarray(values, np.float64)
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError(f"expected positive numbers, got {array.min()}")
    return np.log(array)


def _ratio(groups: list[Floats], n: int, paired: bool) -> Ratio:
    """exp of the sum of the groups' means."""
    difference = float(sum(group.mean() for group in groups))
    error = math.sqrt(sum(_variance_of_mean(group) for group in groups))
    if min(len(group) for group in groups) < LEAST or error <= 1e-12:
        return Ratio(math.exp(difference), None, None, 1.0, n, paired)
    sizes, weights = _studentized(groups, error)
    p = float(weights[sizes >= abs(difference) / error - 1e-12].sum())
    quantile = _quantile(sizes, weights, 1 - ALPHA)
    if math.isinf(quantile):
        return Ratio(math.exp(difference), None, None, 1.0, n, paired)
    # Of four or five values some resamples hardly vary, which says little about the interval.
    width = min(quantile, t_quantile(1 - ALPHA / 10, sum(len(group) - 1 for group in groups))) * error
    return Ratio(
        math.exp(difference),
        math.exp(difference - width),
        math.exp(difference + width),
        min(p, 1.0),
        n,
        paired,
    )


def _variance_of_mean(group: Floats) -> float:
    return float(group.var(ddof=1)) / len(group) if len(group) > 1 else 0.0


def _studentized(groups: list[Floats], error: float) -> tuple[Floats, Floats]:
    """|difference| / its standard error of every resample around no difference, and the resamples' weights."""
    numbers = [len(group) for group in groups]
    different = math.prod(math.comb(2 * n - 1, n) for n in numbers)
    drawn = different > EXHAUSTIVE
    total: Floats | None = None
    for stream, group in enumerate(groups):
        centred, n = group - group.mean(), len(group)
        counts, weight = _draws(n, stream) if drawn else _multisets(n)
        mean = counts @ centred / n
        variance = np.maximum(counts @ np.square(centred) / n - np.square(mean), 0) / (n - 1)
        part = np.stack([mean, variance, weight])  # [3, resamples]
        if total is None:
            total = part
        elif not drawn:  # every resample of one group with every one of the other
            total = np.stack([
                np.add.outer(total[0], part[0]), np.add.outer(total[1], part[1]), np.multiply.outer(total[2], part[2])
            ]).reshape(3, -1)  # fmt: skip
        else:
            total = np.stack([total[0] + part[0], total[1] + part[1], weight])
    assert total is not None
    sizes = np.full(total.shape[1], np.inf)
    np.divide(np.abs(total[0]), np.sqrt(total[1]), out=sizes, where=total[1] > (1e-9 * error) ** 2)
    weights = total[2] / (DRAWN + 1) if drawn else total[2]
    if drawn:  # what was measured is one of the possible resamples
        sizes, weights = np.append(sizes, np.inf), np.append(weights, 1 / (DRAWN + 1))
    return sizes, weights


@lru_cache(maxsize=16)
def _multisets(n: int) -> tuple[Floats, Floats]:
    """All resamples of n things: how often each is taken [R, n], and the resample's probability [R]."""
    counts = np.array(
        [np.bincount(picked, minlength=n) for picked in combinations_with_replacement(range(n), n)],
        np.float64,
    )
    ways = [math.factorial(n) / math.prod(math.factorial(int(k)) for k in row) for row in counts]
    return counts, np.array(ways) / float(n) ** n


@lru_cache(maxsize=16)
def _draws(n: int, stream: int) -> tuple[Floats, Floats]:
    """DRAWN random ones, with weights of 1; another stream gives others."""
    counts = np.random.default_rng([SEED, stream]).multinomial(n, np.full(n, 1 / n), DRAWN)
    return counts.astype(np.float64), np.ones(DRAWN)


def _quantile(values: Floats, weights: Floats, probability: float) -> float:
    """The smallest value that at least `probability` of the weight doesn't exceed."""
    order = np.argsort(values)
    reached = np.searchsorted(np.cumsum(weights[order]), probability - 1e-12)
    return float(values[order[min(int(reached), len(order) - 1)]])
