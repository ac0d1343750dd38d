"""The engine on a tiny model: what a caller sees of generation, cancelling, limits and errors."""

import gc
import weakref

import numpy as np
import pytest

from mindnano import LLM, SamplingParams
from mindnano.checkpoint import tiny
from mindnano.errors import MindNanoError, OutOfMemoryError

GREEDY = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
PROMPT = "The small machine read the long input, and "


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("tiny") / "model.mn"
    tiny.build(target, seed=3)
    return target


@pytest.fixture(scope="module")
def llm(path):
    with LLM(path, context=512, kv="bf16", slots=3) as engine:
        yield engine


def greedy_by_logits(llm, tokens, steps):
    """Greedy decoding without a cache: the whole sequence again for each token."""
    tokens = list(tokens)
    for _ in range(steps):
        tokens.append(int(np.argmax(llm.logits(tokens)[-1])))
    return tokens[-steps:]


def test_generate_is_what_greedy_over_logits_gives(path):
    with LLM(path, context=512, kv="fp32", recipe=None) as llm:
        prompt = llm.tokenizer.encode(PROMPT)
        done = llm.generate(prompt, SamplingParams(max_tokens=8, temperature=0, ignore_eos=True))
        assert done.token_ids == greedy_by_logits(llm, prompt, 8)


def test_stream_concatenates_to_the_completion(llm):
    stream = llm.stream(PROMPT, GREEDY)
    deltas = list(stream)
    done = stream.result
    assert "".join(d.text for d in deltas) == done.text
    assert [t for d in deltas for t in d.token_ids] == done.token_ids
    assert len(done.token_ids) == 24
    assert done.finish_reason == "length"
    assert done.usage.prompt_tokens == len(llm.tokenizer.encode(PROMPT))


def test_requests_in_parallel_get_what_each_gets_alone(llm):
    prompts = ["alpha", "a longer second prompt with more words in it", "third", "a fourth has to wait", "5"]
    alone = [llm.generate(p, GREEDY).token_ids for p in prompts]
    together = [c.token_ids for c in llm.generate_many(prompts, GREEDY)]
    assert together == alone


def test_a_sampled_answer_depends_on_its_seed_only(llm):
    params = [SamplingParams(max_tokens=16, temperature=1.0, seed=s, ignore_eos=True) for s in (1, 2, 1)]
    first, other, again = llm.generate_many([PROMPT] * 3, params)
    assert first.token_ids == again.token_ids
    assert first.token_ids != other.token_ids
    assert llm.generate(PROMPT, params[1]).token_ids == other.token_ids


def test_leaving_a_stream_frees_its_slot_and_nobody_elses(llm):
    before = llm.generate(PROMPT, GREEDY).token_ids
    for _ in range(2 * 3):
        for delta in llm.stream("something else entirely", GREEDY):
            if delta.token_ids:
                break
    assert llm._pool.free == 3
    assert llm.generate(PROMPT, GREEDY).token_ids == before


def test_a_slot_keeps_nothing_of_its_last_sequence(path):
    with LLM(path, context=256, slots=1, kv="int8") as llm:
        fresh = llm.generate(PROMPT, GREEDY).token_ids
        slot = llm._pool.slots[0]
        for state in llm._pool.states.values():  # poison what a reset must clear and what nobody may read
            state.memory[:] = np.nan
            state.conv[:] = np.nan
        for cache in slot.kv.values():
            for array in cache.arrays().values():
                array[:] = np.nan if array.dtype.kind == "f" else 127
        assert llm.generate(PROMPT, GREEDY).token_ids == fresh


def test_a_full_context_ends_the_answer(path):
    with LLM(path, context=64) as llm:
        prompt = llm.tokenizer.encode("x" * 60)
        done = llm.generate(prompt, SamplingParams(max_tokens=100, temperature=0, ignore_eos=True))
        assert done.finish_reason == "length"
        assert len(prompt) + len(done.token_ids) == 64 + 1  # the last token needs no place of its own


def test_a_stop_string_ends_and_is_cut(llm):
    text = llm.generate(PROMPT, GREEDY).text
    stop = text[5:8]
    done = llm.generate(PROMPT, SamplingParams(max_tokens=24, temperature=0, ignore_eos=True, stop=(stop,)))
    assert done.finish_reason == "stop"
    assert done.text == text[: text.index(stop)]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "at least one token"),
        ([1, 2, 10**9], "token 2"),
        ([1, -1], "token 1"),
        ([1.5], "token 0"),
        ([1] * 512, "512 tokens"),
    ],
)
def test_bad_prompts_are_named(llm, prompt, words):
    with pytest.raises(MindNanoError, match=words):
        llm.generate(prompt, GREEDY)
    assert llm._pool.free == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv": "int4"}, "kv"),
        ({"kv_layout": "flat"}, "kv-layout"),
        ({"device": "rknpu"}, "device"),
        ({"context": 1 << 29}, "trained"),
        ({"threads": 0}, "threads"),
        ({"recipe": "w3"}, "recipe"),
    ],
)
def test_bad_options_are_named(path, options, words):
    with pytest.raises(MindNanoError, match=words):
        LLM(path, **({"context": 64} | options))


def test_what_does_not_fit_is_refused_with_the_sum(path):
    with pytest.raises(
        OutOfMemoryError, match=r"needs weights .* = .* MiB .* available .* largest context that fits is \d+"
    ):
        LLM(path, context=131072, slots=1 << 9)


def test_auto_context_fits_and_leaves_the_reserve(path):
    with LLM(path, context="auto") as llm:
        assert 0 < llm.context <= llm.config.max_position_embeddings


def test_timings_add_up(llm):
    done = llm.generate("A prompt that nobody asked for before. ", GREEDY)
    timings = done.timings
    assert timings.prompt_tokens == done.usage.prompt_tokens
    assert timings.completion_tokens == 24
    assert timings.cached_tokens == 0
    total = timings.ttft_s + 23 / timings.decode_tok_s
    assert 0 < sum(timings.stage_s.values()) <= total
    assert timings.mla_calls["cpu"] > 0


def test_close_gives_everything_back_at_once(path):
    """Without the garbage collector: what an engine holds is gigabytes, which can't wait for it."""
    gc.collect()
    gc.disable()
    try:
        llm = LLM(path, context=512, slots=2, cache_budget=4 << 20)
        llm.generate(PROMPT, GREEDY)
        for _ in llm.stream(PROMPT + "then", GREEDY):
            break
        waiting = llm.submit(llm.request(llm.tokenizer.encode(PROMPT), GREEDY))
        kept = [llm._scheduler, llm._pool, llm._prefixes, llm._model, llm._files, *llm._prefixes.nodes()]
        held = [weakref.ref(thing) for thing in kept]
        del kept
        llm.close()
        llm.close()
        assert [ref() for ref in held if ref() is not None] == []
        with pytest.raises(MindNanoError, match="closed"):
            llm.result(waiting)
    finally:
        gc.enable()
