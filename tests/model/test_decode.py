"""Decode, token by token: its logits are the class's, and several sequences together get what each gets alone."""

import numpy as np
import pytest

from mindnano import LLM, SamplingParams
from tests.model import fixtures
from tests.model.fixtures import CASES, LOGITS_BOUND, relative_error, rows_kept
from tests.model.running import decode_logits, decode_together, prefill_logits

LAYOUTS = ("latent", "expanded")
FORMATS = ("fp32", "bf16", "fp16", "int8")


def open_llm(case, **options):
    return LLM(
        fixtures.folder(case),
        **({"recipe": "native", "kv": "fp32", "context": 1024, "cache_budget": 0} | options),
    )


@pytest.mark.parametrize("kv_layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_logits_of_decode(case, kv_layout):
    """From nothing, after one token, around the class's chunk of 64, and behind a long history."""
    with open_llm(case, kv_layout=kv_layout) as llm:
        for length, start in ((2, 0), (65, 0), (65, 1), (64, 63), (500, 480)):
            got = decode_logits(llm, fixtures.tokens(case, length), start)
            rows = [row for row in rows_kept(length) if row >= start]
            kept = np.searchsorted(rows_kept(length), rows)
            wanted = fixtures.expected(case)[f"logits.{length}"][kept]
            assert relative_error(got[np.subtract(rows, start)], wanted) < LOGITS_BOUND, (length, start)


@pytest.mark.parametrize("case", CASES)
def test_logits_of_prefill_in_pieces(case):
    with open_llm(case) as llm:
        tokens, wanted = fixtures.tokens(case, 500), fixtures.expected(case)["logits.500"]
        for cuts in ((1,), (7,), range(64, 500, 64), (1, 2, 3, 4, 131, 499)):
            got = prefill_logits(llm, tokens, list(cuts))[rows_kept(500)]
            assert relative_error(got, wanted) < LOGITS_BOUND, cuts


@pytest.mark.parametrize("kv_layout", LAYOUTS)
@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("case", ["bailing", "bailing-odd", "kimi-odd"])
def test_sequences_together_are_sequences_alone(case, kv, kv_layout):
    """Different lengths, one that starts empty, one that is over early: the same bits as alone."""
    whole = fixtures.tokens(case, 500)
    sequences = [whole[:40], whole[100:290], whole[300:330], whole[5:30]]
    starts = [20, 160, 0, 24]
    with open_llm(case, kv=kv, kv_layout=kv_layout, slots=4) as llm:
        together = decode_together(llm, sequences, starts)
        for tokens, start, rows in zip(sequences, starts, together, strict=True):
            assert np.array_equal(decode_logits(llm, tokens, start), rows)


@pytest.mark.parametrize("recipe", ["native", "mixed", "w4"])
def test_answers_together_are_answers_alone(recipe):
    """Through the scheduler: more requests than slots, prefills between the others' decode steps."""
    whole = fixtures.tokens("bailing", 500)
    prompts = [whole[:3], whole[3:200], whole[200:265], whole[265:266], whole[300:500]]
    params = SamplingParams(max_tokens=48, temperature=0, ignore_eos=True)
    with open_llm("bailing", recipe=recipe, kv="int8", slots=3, prefill_block=64) as llm:
        together = [done.token_ids for done in llm.generate_many(prompts, params)]
        assert together == [llm.generate(prompt, params).token_ids for prompt in prompts]
