"""Sampling against plain definitions and known distributions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mindnano.engine.params import SamplingParams
from mindnano.engine.sampling import Sampler, candidates, largest, pick
from mindnano.errors import EngineError, MindNanoError


def logits_of(probabilities):
    return np.log(np.asarray(probabilities, np.float32))


def frequencies(params, logits, draws=20_000, prompt=(0,)):
    counts = np.zeros(len(logits))
    sampler = Sampler(params, prompt, len(logits))
    for _ in range(draws):
        counts[sampler.sample(logits).token] += 1
    return counts / draws


P = np.array([0.4, 0.3, 0.15, 0.1, 0.05])


def naive(p, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    """The definition, token by token."""
    p = p ** (1 / temperature)
    p = p / p.sum()
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    if top_k:
        order = order[:top_k]
    mass = sum(p[j] for j in order)
    kept = {i: p[i] / mass for i in order}
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
        out[i] = v
    out /= out.sum()
    return out


def distribution(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    ids, weights = candidates(logits, temperature, top_k, top_p, min_p, np.empty_like(logits))
    out = np.zeros(len(logits))
    out[slice(None) if ids is None else ids] = weights / weights.sum()
    return out


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 2},
        {"top_p": 0.65},
        {"min_p": 0.3},
        {"top_k": 4, "top_p": 0.8},
        {"top_k": 4, "top_p": 0.9, "min_p": 0.4, "temperature": 1.5},
    ],
)
def test_draws_follow_the_filtered_distribution(options):
    draws, expected = 10_000, naive(P, **options)
    seen = frequencies(SamplingParams(seed=1, **options), logits_of(P), draws)
    assert np.all(seen[expected == 0] == 0)
    kept = expected > 0
    chi_square = draws * np.sum((seen[kept] - expected[kept]) ** 2 / expected[kept])
    assert chi_square < 35  # 4 degrees of freedom: a right sampler exceeds it once in two million


@given(
    st.integers(0, 2**32),
    st.integers(1, 300),
    st.floats(0.05, 4),
    st.integers(0, 320),
    st.one_of(st.just(1.0), st.floats(0.01, 1)),
    st.one_of(st.just(0.0), st.floats(0.001, 1)),
)
@settings(max_examples=300, deadline=None)
def test_filters_equal_their_definition(seed, size, temperature, top_k, top_p, min_p):
    """Random logits with many equal ones. A token whose sum is within rounding of a threshold may go either
    way.
    """
    logits = np.random.default_rng(seed).integers(-12, 12, size).astype(np.float32) / 4
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    got = distribution(logits, **options)
    p = np.exp(logits.astype(np.float64) / 1.0)
    variants = [
        naive(p, temperature, top_k, min(top_p * a, 1.0) if top_p < 1 else 1.0, min_p * b)
        for a in (1, 1 - 1e-5, 1 + 1e-5)
        for b in (1, 1 - 1e-5, 1 + 1e-5)
    ]
    assert min(np.abs(got - expected).max() for expected in variants) < 1e-5


@pytest.mark.parametrize("size", [1, 3, 511, 512, 513, 5000])
def test_pick_is_the_inverse_distribution_function(size):
    random = np.random.default_rng(size)
    weights = random.choice(np.array([0, 0, 1e-20, 0.5, 1], np.float32), size)
    weights[random.integers(size)] = 1
    edges = np.concatenate(([0], weights.cumsum(dtype=np.float64)))
    for uniform in (0.0, *random.random(200), np.nextafter(1.0, 0.0)):
        at = pick(weights, uniform)
        assert weights[at] > 0
        wanted = uniform * edges[-1]
        assert edges[at] - 1e-9 <= wanted <= edges[at + 1] + 1e-9


@pytest.mark.parametrize("count", [1, 20, 128, 129, 1024, 5000])
def test_largest_equals_sorting(count):
    random = np.random.default_rng(count)
    scores = random.choice(np.array([-np.inf, -3, -0.0, 0.0, 1e-30, 2.5, 7], np.float32), 5000)
    scores += random.choice(np.array([0, 0, 1e-3], np.float32), 5000)
    assert largest(scores, count).tolist() == sorted(range(5000), key=lambda i: (-scores[i], i))[:count]


def test_top_p_over_many_flat_candidates():
    """More candidates than the first look holds."""
    count = 2000
    expected = naive(np.full(count, 1 / count), top_p=0.5)
    sampler = Sampler(SamplingParams(seed=3, top_p=0.5), [0], count)
    tokens = {sampler.sample(np.zeros(count, np.float32)).token for _ in range(4000)}
    assert max(tokens) < np.flatnonzero(expected).max() + 2
    assert len(tokens) > 700


def test_greedy_takes_the_lowest_of_equals():
    assert (
        Sampler(SamplingParams(temperature=0), [0], 4).sample(np.array([1, 3, 3, 0], np.float32)).token == 1
    )


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
    banned = Sampler(SamplingParams(seed=0, logit_bias=dict.fromkeys(range(4), -100.0)), [0], 5)
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


@pytest.mark.parametrize("options", [{"temperature": 0}, {}, {"top_k": 2, "top_p": 0.5}])
@pytest.mark.parametrize("bad", [[np.nan], [np.inf], [np.nan, np.inf], [-np.inf] * 8])
def test_logits_that_are_not_finite_are_an_error(bad, options):
    logits = np.zeros(8, np.float32)
    logits[-len(bad) :] = bad
    with pytest.raises(EngineError, match="not finite"):
        Sampler(SamplingParams(**options), [0], 8).sample(logits)


def test_logits_are_left_as_they_are():
    logits = np.random.default_rng(1).normal(size=64).astype(np.float32)
    before = logits.copy()
    params = SamplingParams(
        seed=1,
        top_k=9,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.3,
        presence_penalty=1,
        logit_bias={1: 5},
        logprobs=3,
    )
    sampler = Sampler(params, [1, 2, 3], 64)
    for _ in range(5):
        sampler.sample(logits)
    assert np.array_equal(logits, before)


def test_many_counted_tokens():
    """More tokens than the counts start with, some of them again."""
    sampler = Sampler(
        SamplingParams(temperature=0, frequency_penalty=1.0, repetition_penalty=2.0), range(150), 400
    )
    tokens = []
    for step in range(300):
        logits = np.zeros(400, np.float32)
        logits[step % 200] = 50
        tokens.append(sampler.sample(logits).token)
    assert tokens == [step % 200 for step in range(300)]
    adjusted = sampler._adjusted(np.full(400, 8, np.float32))
    assert np.array_equal(
        adjusted[:100], np.full(100, 4 - 2, np.float32)
    )  # in the prompt, twice in the answer
    assert np.array_equal(adjusted[100:200], np.full(100, 4 - 1, np.float32))
    assert np.array_equal(adjusted[200:], np.full(200, 8, np.float32))


def test_logprobs_zero_reports_the_chosen_one_only():
    got = Sampler(SamplingParams(temperature=0, logprobs=0), [0], 5).sample(logits_of(P))
    assert got.logprob == pytest.approx(np.log(0.4), abs=1e-6)
    assert got.top == []
    assert Sampler(SamplingParams(temperature=0), [0], 5).sample(logits_of(P)).logprob is None


def test_tokens_beyond_the_vocabulary_are_named():
    for options in ({"logit_bias": {5: 1.0}}, {"stop_token_ids": (5,)}):
        with pytest.raises(MindNanoError, match=f"{next(iter(options))}.*5.*0 to 4"):
            Sampler(SamplingParams(**options), [0], 5)


def test_the_models_settings_fill_what_is_not_given():
    generation = {"temperature": 0.7, "top_p": 0.95, "top_k": 20, "eos_token_id": [3]}
    params = SamplingParams.for_model(generation, top_k=None, top_p=0.5, max_tokens=9)
    assert (params.temperature, params.top_k, params.top_p, params.max_tokens) == (0.7, 20, 0.5, 9)
    assert SamplingParams.for_model({"do_sample": False, "temperature": 0.7}).greedy
    assert not SamplingParams.for_model({"do_sample": False}, temperature=1.0).greedy


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.5},
        {"top_k": -1},
        {"min_p": 2},
        {"max_tokens": 0},
        {"seed": -1},
        {"stop": ""},
        {"stop": ("",)},
        {"logprobs": -1},
        {"repetition_penalty": 0},
        {"logit_bias": {-1: 0.0}},
        {"logit_bias": {1: float("inf")}},
        {"max_tokens": True},
        {"top_k": 1.5},
    ],
)
def test_bad_params_are_named(options):
    with pytest.raises(MindNanoError, match=next(iter(options))):
        SamplingParams(**options)
