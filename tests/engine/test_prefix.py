"""Prefix checkpoints: what is reused is exact, and the budget holds."""

import numpy as np
import pytest

from mindnano import LLM, SamplingParams
from mindnano.checkpoint import tiny

GREEDY = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("tiny") / "model.mn"
    tiny.build(target, seed=5)
    return target


def open_llm(path, **options):
    return LLM(path, **({"context": 1024, "prefill_block": 64, "cache_budget": 64 << 20} | options))


@pytest.mark.parametrize("kv_layout", ["latent", "expanded"])
@pytest.mark.parametrize("kv", ["fp32", "bf16", "fp16", "int8"])
def test_cached_equals_cold(path, kv, kv_layout):
    """Random edits, branches, repetitions and evictions: tokens and log-probabilities equal a cold engine's."""
    random = np.random.default_rng(11)
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True, logprobs=1)
    with (
        open_llm(path, kv=kv, kv_layout=kv_layout, cache_budget=3 << 20) as warm,
        open_llm(path, kv=kv, kv_layout=kv_layout, cache_budget=0) as cold,
    ):
        end = warm.config.eos_token_ids[0]
        prompts = [[int(t) for t in random.integers(0, 255, 150)]]
        reused = 0
        for _ in range(14):
            base = prompts[random.integers(len(prompts))]
            at = int(random.integers(1, len(base) + 1))
            kind = random.integers(4)
            if kind == 0:  # regenerate
                prompt = list(base)
            elif kind == 1:  # go on
                prompt = [*base, end, *(int(t) for t in random.integers(0, 255, 30))]
            elif kind == 2:  # edit
                prompt = [*base[:at], int(random.integers(0, 255)), *base[at:]]
            else:  # branch
                prompt = [*base[:at], *(int(t) for t in random.integers(0, 255, 50))]
            prompts.append(prompt[:800])
            a, b = warm.generate(prompts[-1], params), cold.generate(prompts[-1], params)
            reused += a.timings.cached_tokens
            assert b.timings.cached_tokens == 0
            assert a.token_ids == b.token_ids
            assert [s.logprob for s in a.logprobs] == [s.logprob for s in b.logprobs]
            warm._prefixes.check_integrity()
        assert reused > 0


def test_a_repeated_prompt_costs_nothing_and_a_longer_one_its_tail(path):
    with open_llm(path) as llm:
        prompt = list(range(200))
        first = llm.generate(prompt, GREEDY)
        again = llm.generate(prompt, GREEDY)
        longer = llm.generate([*prompt, 7, 8, 9], GREEDY)
    assert (first.timings.cached_tokens, again.timings.cached_tokens, longer.timings.cached_tokens) == (
        0,
        200,
        200,
    )
    assert first.token_ids == again.token_ids


def test_the_reason_is_reported_where_reuse_stops(path):
    with open_llm(path, prefill_block=512) as llm:
        llm.generate(list(range(200)), GREEDY)
        other = llm.generate([*range(100), *range(50)], GREEDY)
    assert other.timings.cached_tokens == 0
    assert "100 tokens in common" in other.timings.cached_reason


def test_zero_switches_it_off(path):
    with open_llm(path, cache_budget=0) as llm:
        llm.generate(list(range(200)), GREEDY)
        again = llm.generate(list(range(200)), GREEDY)
        assert again.timings.cached_tokens == 0
        assert llm._prefixes.nbytes == 0


def test_the_budget_is_never_exceeded(path):
    random = np.random.default_rng(2)
    with open_llm(path, cache_budget=2 << 20) as llm:
        for _ in range(20):
            llm.generate(
                [int(t) for t in random.integers(0, 255, random.integers(10, 600))],
                SamplingParams(max_tokens=1),
            )
            llm._prefixes.check_integrity()
            assert not llm._prefixes._pinned
