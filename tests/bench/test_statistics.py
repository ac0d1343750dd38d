"""The statistics on known distributions: equal settings aren't called different, differences are found."""

import math

import numpy as np
import pytest

from mindnano.bench import statistics
from mindnano.bench.statistics import FASTER, SLOWER, UNCLEAR, paired_ratio, unpaired_ratio

# What times of runs look like: even, heavy-tailed, skewed, two clocks, and now and then something in between.
NOISE = {
    "normal": lambda r, shape: r.standard_normal(shape),
    "laplace": lambda r, shape: r.laplace(size=shape),
    "skewed": lambda r, shape: np.exp(r.standard_normal(shape)),
    "two clocks": lambda r, shape: 5.0 * r.integers(0, 2, shape) + 0.3 * r.standard_normal(shape),
    "spikes": lambda r, shape: r.standard_normal(shape) + (r.random(shape) < 0.1) * r.exponential(10, shape),
}


@pytest.mark.parametrize(
    "make, noise",
    [(paired_ratio, noise) for noise in NOISE] + [(unpaired_ratio, "normal"), (unpaired_ratio, "two clocks")],
)
def test_equal_settings_are_called_different_in_at_most_one_run_of_twenty(make, noise):
    """A whole A/A run: five loads, two figures each, five pairs; any verdict but "no difference" is false."""
    random = np.random.default_rng(11)
    runs, wrong, false_faster = 120, 0, 0
    for _ in range(runs):
        a, b = np.exp(0.03 * NOISE[noise](random, (2, 10, 5)))
        ratios = [make(list(x), list(y)) for x, y in zip(a, b, strict=True)]
        said = statistics.verdicts(ratios, [True, False] * 5)
        wrong += any(one != UNCLEAR for one in said)
        false_faster += FASTER in said
    assert wrong <= 0.05 * runs
    assert false_faster <= 0.05 * runs


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("pairs", [4, 6, 9])
def test_one_comparison_alone_keeps_its_level(noise, pairs):
    random = np.random.default_rng(12)
    runs = 200
    a, b = np.exp(0.02 * NOISE[noise](random, (2, runs, pairs)))
    wrong = sum(paired_ratio(list(x), list(y)).p <= 0.05 for x, y in zip(a, b, strict=True))
    # Two standard deviations of a binomial count above 5 %, as the level itself may be reached.
    assert wrong <= 0.05 * runs + 2 * math.sqrt(runs * 0.05 * 0.95)


def test_intervals_hold_the_true_ratio():
    random = np.random.default_rng(13)
    held = 0
    for _ in range(200):
        base = np.exp(0.2 * random.standard_normal(6))  # what both runs of a pair have in common
        a, b = (
            base * np.exp(0.02 * random.standard_normal(6)),
            0.9 * base * np.exp(0.02 * random.standard_normal(6)),
        )
        found = paired_ratio(list(a), list(b))
        held += found.low <= 0.9 <= found.high
    assert held >= 0.93 * 200  # 95 %, less than two standard deviations of the count


def test_pairs_see_through_a_drift_that_hides_a_difference_from_independent_runs():
    random = np.random.default_rng(14)
    drift = np.linspace(1.0, 2.0, 8)
    a = drift * np.exp(0.005 * random.standard_normal(8))
    b = 0.97 * drift * np.exp(0.005 * random.standard_normal(8))
    assert statistics.verdicts([paired_ratio(list(a), list(b))], [True]) == [FASTER]
    assert statistics.verdicts([unpaired_ratio(list(a), list(b))], [True]) == [UNCLEAR]


def test_a_difference_is_shown_with_its_direction():
    random = np.random.default_rng(15)
    a = np.exp(0.01 * random.standard_normal(6))
    b = 1.1 * np.exp(0.01 * random.standard_normal(6))
    found = paired_ratio(list(a), list(b))
    assert 1.05 < found.low < found.ratio < found.high < 1.15
    assert statistics.verdicts([found, found], [True, False]) == [SLOWER, FASTER]


@pytest.mark.parametrize("pairs", [1, 2, 3])
def test_three_pairs_cannot_show_anything(pairs):
    found = paired_ratio([1.0, 1.01, 0.99][:pairs], [2.0, 2.01, 2.0][:pairs])
    assert (found.low, found.high) == (None, None)
    assert statistics.verdicts([found], [True]) == [UNCLEAR]


def test_four_runs_on_each_side_cannot_show_anything():
    assert unpaired_ratio([1.0, 1.01, 0.99, 1.02], [2.0, 2.01, 2.0, 2.03]).p == 1.0
    assert unpaired_ratio([1.0, 1.01, 0.99, 1.02, 1.0], [2.0, 2.01, 2.0, 2.03, 2.0]).p < 0.01


def test_equal_values_are_no_proof():
    assert paired_ratio([2.0] * 6, [3.0] * 6).p == 1.0
    assert paired_ratio([2.0] * 6, [2.0] * 6).ratio == 1.0


@pytest.mark.parametrize(
    "a, b", [([], []), ([1.0], []), ([1.0], [0.0]), ([1.0], [math.nan]), ([1.0, 1.0], [1.0])]
)
def test_what_has_no_ratio_is_refused(a, b):
    with pytest.raises(ValueError, match="expected"):
        paired_ratio(a, b)


def test_drawn_resamples_agree_with_all_of_them(monkeypatch):
    random = np.random.default_rng(16)
    a, b = (list(np.exp(0.02 * random.standard_normal(6))) for _ in range(2))
    every = paired_ratio(a, b)
    monkeypatch.setattr(statistics, "EXHAUSTIVE", 10)
    drawn = paired_ratio(a, b)
    # A drawn share of 9,999 varies by half a percent at most; the interval's end by the spread between quantiles.
    assert drawn.p == pytest.approx(every.p, abs=0.02)
    assert math.log(drawn.high) == pytest.approx(math.log(every.high), rel=0.1)
    assert paired_ratio(a, b) == drawn  # the same every time


def test_holm():
    """Worked by hand: 0.01 * 3, then 0.02 * 2, then 0.04, never falling."""
    assert statistics.holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert statistics.holm([]) == []


def test_wilsons_interval():
    """Newcombe 1998, table I: 81 of 263 and 0 of 20."""
    found = statistics.proportion(81, 263)
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    found = statistics.proportion(0, 20)
    assert (found.low, found.high) == pytest.approx((0.0, 0.1611), abs=5e-5)


@pytest.mark.parametrize(
    "freedom, quantile", [(1, 12.706), (2, 4.3027), (3, 3.1824), (4, 2.7764), (7, 2.3646), (30, 2.0423)]
)
def test_students_quantiles(freedom, quantile):
    """Printed tables, which have five digits."""
    assert statistics.t_quantile(0.975, freedom) == pytest.approx(quantile, rel=2e-5)
    assert statistics.t_within(quantile, freedom) == pytest.approx(0.95, rel=2e-5)


def test_segments_are_resampled_whole():
    """Positions of a segment are equal, so 8 segments of 50 are 8 values, not 400."""
    random = np.random.default_rng(17)
    held = 0
    for _ in range(150):
        values = np.repeat(random.standard_normal((8, 1)), 50, axis=1)
        found = statistics.over_segments(values, lambda x: x.mean(1), resamples=500)
        held += found.low <= 0.0 <= found.high
    assert held >= 0.85 * 150  # as if 400 values were independent, 30 % would hold
    assert statistics.over_segments(values[:3], lambda x: x.mean(1)).low is None


def test_the_median_and_its_interval():
    """Conover 1999: of ten values, the second and the ninth bound the median with 97.9 %."""
    found = statistics.median(list(range(1, 11)))
    assert (found.value, found.low, found.high) == (5.5, 2, 9)
    assert statistics.median([1, 2, 3, 4, 5]).low is None
    assert statistics.median([1.0, math.inf, math.inf]).value == math.inf
