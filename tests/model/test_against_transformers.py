"""The engine on native weights with fp32 caches against what the transformers classes computed."""

import numpy as np
import pytest

from mindnano import LLM, SamplingParams, kernels
from tests.model import fixtures
from tests.model.fixtures import CASES, LENGTHS, LOGITS_BOUND, relative_error, rms_error, rows_kept

GREEDY = SamplingParams(max_tokens=200, temperature=0, ignore_eos=True)


def open_llm(case, **options):
    return LLM(
        fixtures.folder(case),
        **({"recipe": "native", "kv": "fp32", "context": 1024, "cache_budget": 0} | options),
    )


@pytest.fixture(params=kernels.available_isas())
def isa(request):
    before = kernels.isa()
    kernels.set_isa(request.param)
    yield request.param
    kernels.set_isa(before)


@pytest.mark.parametrize("case", CASES)
def test_logits(case, isa):
    with open_llm(case) as llm:
        for length in LENGTHS:
            got = llm.logits(fixtures.tokens(case, length))[rows_kept(length)]
            assert relative_error(got, fixtures.expected(case)[f"logits.{length}"]) < LOGITS_BOUND, length


@pytest.mark.parametrize("kv_layout", ["latent", "expanded"])
@pytest.mark.parametrize("case", CASES)
def test_greedy_tokens(case, kv_layout):
    """200 steps of decode, absorbed or over expanded keys, choose the class's tokens."""
    with open_llm(case, kv_layout=kv_layout) as llm:
        done = llm.generate(fixtures.expected(case)["greedy.prompt"].tolist(), GREEDY)
    assert done.token_ids == fixtures.expected(case)["greedy.tokens"].tolist()


@pytest.mark.parametrize("kv_layout", ["latent", "expanded"])
@pytest.mark.parametrize("kv", ["fp32", "bf16", "fp16", "int8"])
@pytest.mark.parametrize("case", CASES)
def test_prefill_in_any_split_gives_the_same_bits(case, kv, kv_layout):
    """1 + n, 7 + n, blocks of 64, all at once; a row's logits don't depend on its company."""
    tokens = fixtures.tokens(case, 500)
    with open_llm(case, kv=kv, kv_layout=kv_layout, prefill_block=512) as llm:
        whole = llm.logits(tokens)
        for first in (1, 7):
            slot, clock = llm._pool.take(), _clock()
            for piece in (tokens[:first], tokens[first:]):
                rows = np.empty((len(piece), llm.config.vocab_size), np.float32)
                for _ in llm._model.prefill(piece, slot, llm._pool, clock, rows):
                    pass
            llm._pool.give_back(slot)
            assert np.array_equal(rows, whole[first:])
    with open_llm(case, kv=kv, kv_layout=kv_layout, prefill_block=64) as llm:
        assert np.array_equal(llm.logits(tokens), whole)


def _clock():
    from mindnano.model.stages import StageClock

    return StageClock()


@pytest.mark.parametrize("kv", ["fp32", "bf16", "fp16", "int8"])
def test_layouts_agree(kv):
    """Latent and expanded hold the same values, each rounded its own way."""
    bounds = {"fp32": 1e-5, "bf16": 0.02, "fp16": 0.004, "int8": 0.06}
    case = "bailing"
    tokens = fixtures.tokens(case, 500)
    with open_llm(case, kv=kv) as latent, open_llm(case, kv=kv, kv_layout="expanded") as expanded:
        error = rms_error(expanded.logits(tokens), latent.logits(tokens))
    print(f"{kv}: expanded against latent {error:.1e}")
    assert error < bounds[kv]


@pytest.mark.parametrize("recipe", ["native", "mixed"])
def test_results_do_not_depend_on_threads(recipe):
    case, before = "bailing-16-heads", kernels.threads()
    seen = []
    try:
        for threads in (1, 2, 3):
            with open_llm(case, recipe=recipe, kv="int8", threads=threads) as llm:
                logits = llm.logits(fixtures.tokens(case, 500))
                tokens = llm.generate(
                    fixtures.tokens(case, 65), SamplingParams(max_tokens=20, temperature=0)
                ).token_ids
            seen.append((logits.tobytes(), tokens))
    finally:
        kernels.set_threads(before)
    assert seen[0] == seen[1] == seen[2]
