"""Sampling against plain definitions and known distributions."""

import numpy as np
import pytest

from mindnano.engine.params import SamplingParams
from mindnano.engine.sampling import Sampler
from mindnano.errors import EngineError, MindNanoError


def logits_of(probabilities):
    return np.log(np.asarray(probabilities, np.float32))


def frequencies(params, logits, draws=20_000, prompt=(0,)):
    counts = np.zeros(len(logits))
    sampler = Sampler(params, prompt, len(logits))
    for _ in range(draws):
        sampler._counts.clear()
        counts[sampler.sample(logits).token] += 1
    return counts / draws


def chi_square_bound(expected, draws):
    """|observed - expected| that a right sampler exceeds less than once in a billion (6 sigma)."""
    return 6 * np.sqrt(np.maximum(expected * (1 - expected), 1e-12) / draws) + 1e-9


P = np.array([0.4, 0.3, 0.15, 0.1, 0.05])


def naive(p, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    p = p ** (1 / temperature)
    p = p / p.sum()
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    if top_k:
        order = order[:top_k]
    kept = {i: p[i] / sum(p[j] for j in order) for i in order}
    if top_p < 1:
        total, nucleus = 0.0, []
        for i in order:
            nucleus.append(i)
            total += kept[i]
            if total >= top_p:
                break
        kept = {i: kept[i] for i in nucleus}
    if min_p:
        most = max(kept.values())
        kept = {i: v for i, v in kept.items() if v >= min_p * most}
    out = np.zeros(len(p))
    for i, v in kept.items():
        out[i] = v / sum(kept.values())
    return out


@pytest.mark.parametrize(
    "options",
    [
        {}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 2}, {"top_p": 0.65}, {"min_p": 0.3},
        {"top_k": 4, "top_p": 0.8}, {"top_k": 4, "top_p": 0.9, "min_p": 0.4, "temperature": 1.5},
    ],
)  # fmt: skip
def test_draws_follow_the_filtered_distribution(options):
    expected = naive(P, **options)
    seen = frequencies(SamplingParams(seed=1, **options), logits_of(P))
    assert np.all(np.abs(seen - expected) <= chi_square_bound(expected, 20_000))
    assert np.all(seen[expected == 0] == 0)


def test_top_p_over_many_flat_candidates():
    """More candidates than the first look holds."""
    count = 2000
    expected = naive(np.full(count, 1 / count), top_p=0.5)
    sampler = Sampler(SamplingParams(seed=3, top_p=0.5), [0], count)
    tokens = {sampler.sample(np.zeros(count, np.float32)).token for _ in range(4000)}
    assert max(tokens) < np.flatnonzero(expected).max() + 2
    assert len(tokens) > 700


def test_greedy_takes_the_lowest_of_equals():
    assert Sampler(SamplingParams(temperature=0), [0], 4).sample(np.array([1, 3, 3, 0], np.float32)).token == 1


def test_penalties_are_the_published_formulas():
    logits = np.array([2.0, -1.0, 1.9, 0.0], np.float32)
    repetition = Sampler(SamplingParams(temperature=0, repetition_penalty=2.0), [0, 1], 4)
    assert np.array_equal(repetition._adjusted(logits), np.array([1.0, -2.0, 1.9, 0.0], np.float32))
    assert repetition.sample(logits).token == 2
    assert repetition._adjusted(logits)[2] == np.float32(1.9) / np.float32(2)
    frequency = Sampler(SamplingParams(temperature=0, presence_penalty=0.5, frequency_penalty=0.25), [0], 4)
    assert frequency.sample(logits).token == 0
    assert frequency._adjusted(logits)[0] == np.float32(1.25)
    assert frequency.sample(logits).token == 2


def test_bias_can_force_and_forbid():
    logits = np.zeros(5, np.float32)
    assert Sampler(SamplingParams(temperature=0, logit_bias={3: 5.0}), [0], 5).sample(logits).token == 3
    banned = Sampler(SamplingParams(seed=0, logit_bias={i: -100.0 for i in range(4)}), [0], 5)
    assert {banned.sample(logits).token for _ in range(50)} == {4}


def test_logprobs_are_of_the_models_distribution():
    params = SamplingParams(temperature=0.1, logprobs=2, logit_bias={4: 50.0})
    got = Sampler(params, [0], 5).sample(logits_of(P))
    assert got.token == 4
    assert got.logprob == pytest.approx(np.log(0.05), abs=1e-6)
    assert [i for i, _ in got.top] == [0, 1]
    assert got.top[0][1] == pytest.approx(np.log(0.4), abs=1e-6)


def test_the_seed_alone_decides():
    logits = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    runs = [
        [s.sample(logits).token for _ in range(20)]
        for s in (Sampler(SamplingParams(seed=seed, top_k=50), [0], 1000) for seed in (5, 5, 6))
    ]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_an_error(bad):
    logits = np.zeros(8, np.float32)
    logits[5] = bad
    with pytest.raises(EngineError, match="not finite"):
        Sampler(SamplingParams(temperature=0), [0], 8).sample(logits)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"top_p": 1.5}, {"top_k": -1}, {"min_p": 2},
        {"max_tokens": 0}, {"seed": -1}, {"stop": ""}, {"stop": ("",)}, {"logprobs": -1}, {"repetition_penalty": 0},
        {"logit_bias": {-1: 0.0}}, {"logit_bias": {1: float("inf")}}, {"max_tokens": True}, {"top_k": 1.5},
    ],
)  # fmt: skip
def test_bad_params_are_named(options):
    with pytest.raises(MindNanoError, match=next(iter(options))):
        SamplingParams(**options)
