"""What comes from the cache is what a cold engine computes: tokens and log-probabilities, bit for bit.

All memory is poisoned before its first use, so that a row, state or copy that is read without having been written
can't pass.
"""

import numpy as np
import pytest

from mindnano import LLM, SamplingParams
from mindnano.cache.prefix import PrefixCache
from mindnano.checkpoint import tiny

from .poison import poison_everything

KINDS = [(layout, kv) for layout in ("latent", "expanded") for kv in ("fp32", "bf16", "fp16", "int8")]
SHORT = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True, logprobs=1)
LONG = SamplingParams(max_tokens=200, temperature=0, ignore_eos=True, logprobs=1)
BUDGET = 3 << 20


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("tiny") / "model.mn"
    tiny.build(target, seed=5)
    return target


def open_llm(path, kind, **options):
    layout, kv = kind
    return LLM(path, context=1024, prefill_block=64, kv_layout=layout, kv=kv, **options)


def same(a, b):
    assert a.token_ids == b.token_ids
    assert [s.logprob for s in a.logprobs] == [s.logprob for s in b.logprobs]


class History:
    """Random prompts that go on from each other as conversations do."""

    def __init__(self, end, seed):
        self.end, self.random = end, np.random.default_rng(seed)
        self.prompts = [self._new(150)]

    def _new(self, most):
        return [int(t) for t in self.random.integers(0, 255, self.random.integers(1, most))]

    def next(self):
        base = self.prompts[self.random.integers(len(self.prompts))]
        at = int(self.random.integers(1, len(base) + 1))
        kind = self.random.integers(5)
        if kind == 0:  # regenerate
            prompt = list(base)
        elif kind == 1:  # go on
            prompt = [*base, self.end, *self._new(60)]
        elif kind == 2:  # edit
            prompt = [*base[:at], int(self.random.integers(0, 255)), *base[at:]]
        elif kind == 3:  # branch
            prompt = [*base[:at], *self._new(80)]
        else:
            prompt = self._new(300)
        self.prompts.append(prompt[:800])
        return self.prompts[-1]

    def some(self):
        return [self.next() for _ in range(self.random.integers(1, 5))]


def leave(llm, history):
    """A request that is cancelled on the way, beside one that goes on; returns the latter."""
    prompt = history.next()
    left = llm.submit(llm.request(history.next(), SHORT))
    stays = llm.submit(llm.request(prompt, SHORT))
    for _ in range(history.random.integers(0, 30)):
        llm.step()
    left.cancel()
    while not stays.finished:
        llm.step()
    llm.step()
    return prompt, llm.result(stays)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 5), *(pytest.param(seed, 40, marks=pytest.mark.slow) for seed in range(2, 8))]
)
def test_cached_equals_cold(path, kind, seed, rounds, tmp_path, monkeypatch):
    """Edits, branches, repetitions, evictions, several at once, some cancelled, a session saved and loaded between:
    every answer equals that of an engine that keeps nothing and does one thing at a time. At the end 200 tokens."""
    poison_everything(monkeypatch)
    evicted, evict = [], PrefixCache._evict
    monkeypatch.setattr(PrefixCache, "_evict", lambda *a: evicted.append(a[1]) or evict(*a))
    with (
        open_llm(path, kind, slots=3, cache_budget=BUDGET) as warm,
        open_llm(path, kind, cache_budget=0) as cold,
    ):
        history = History(warm.config.eos_token_ids[0], seed)
        reused = 0
        for _ in range(rounds):
            prompts = history.some()
            answers = warm.generate_many(prompts, SHORT)
            last, answer = leave(warm, history)
            for prompt, a in zip([*prompts, last], [*answers, answer], strict=True):
                b = cold.generate(prompt, SHORT)
                assert b.timings.cached_tokens == 0
                reused += a.timings.cached_tokens
                same(a, b)
            warm._prefixes.check_integrity()
            assert not warm._prefixes._pinned and warm.free_slots == 3
        assert reused > 0 and evicted
        talk = [{"role": "user", "content": "Where is the key? " * 8}]
        prompt = warm.chat_tokens(talk)
        expected = cold.generate(prompt, LONG)
        same(warm.generate(prompt, LONG), expected)
        again = warm.generate(prompt, LONG)
        assert again.timings.cached_tokens == len(prompt)
        same(again, expected)
        warm.save_session(tmp_path, "key", talk)
        longer = [*prompt, *history._new(60)]
        same(warm.generate(longer, LONG), cold.generate(longer, LONG))
    with open_llm(path, kind, cache_budget=BUDGET) as other:
        other.generate(history.next(), SHORT)
        assert other.load_session(tmp_path, "key").reusable == len(prompt)
        loaded = other.generate(prompt, LONG)
        assert loaded.timings.cached_tokens == len(prompt)
        same(loaded, expected)


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_markers_never_leak(path, kind, monkeypatch):
    """Twelve requests over three slots, the same but for a marker: nobody gets more from another than what came before
    the marker, and nobody's answer depends on the others."""
    poison_everything(monkeypatch)
    shared = [int(t) for t in np.random.default_rng(3).integers(0, 255, 130)]
    prompts = [[*shared, 60 + i, 90 + i, *range(20 + i, 60 + i)] for i in range(12)]
    with (
        open_llm(path, kind, slots=3, cache_budget=64 << 20) as warm,
        open_llm(path, kind, cache_budget=0) as cold,
    ):
        answers = warm.generate_many(prompts, SHORT)
        again = warm.generate_many(prompts[::-1], SHORT)[::-1]
        for prompt, first, second in zip(prompts, answers, again, strict=True):
            assert first.timings.cached_tokens <= len(shared)
            assert second.timings.cached_tokens == len(prompt)
            expected = cold.generate(prompt, SHORT)
            same(first, expected)
            same(second, expected)
        for node in warm._prefixes.nodes():
            way = [int(t) for part in warm._prefixes.chain(node) for t in part.tokens]
            assert any(prompt[: len(way)] == way for prompt in prompts)


def test_poison_shows(path, monkeypatch):
    """A row that is left unwritten, a state that isn't cleared: the answer says so."""
    prompt = list(range(100))
    with open_llm(path, ("latent", "int8"), cache_budget=0) as llm:
        good = llm.generate(prompt, SHORT)
    poison_everything(monkeypatch)
    with open_llm(path, ("latent", "int8"), cache_budget=0) as llm:
        same(llm.generate(prompt, SHORT), good)
        monkeypatch.setattr(llm._pool, "clear", lambda slot: setattr(slot, "length", 0))
        with pytest.raises(ValueError, match=r"logits|NaN|finite"):
            llm.generate(prompt, SHORT)
