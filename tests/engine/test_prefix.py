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
