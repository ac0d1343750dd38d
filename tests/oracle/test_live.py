"""The engine and the NumPy model against the transformers classes, on models nobody has seen before.

MINDNANO_ORACLE_SEED=N repeats a run; the seed is part of the tests' names.
"""

from __future__ import annotations

import os

import pytest

from mindnano import LLM, SamplingParams
from tests.model.fixtures import LOGITS_BOUND, relative_error
from tests.model.running import decode_logits, prefill_logits
from tests.oracle.cases import random_case

pytestmark = pytest.mark.oracle
MODELS = 6
# New models every time, but for a build server, where a red run has to have a cause.
CI_SEED = 149_350 if os.environ.get("CI") else None
FIRST = int(os.environ.get("MINDNANO_ORACLE_SEED") or CI_SEED or int.from_bytes(os.urandom(3)))


@pytest.fixture(scope="module", params=range(FIRST, FIRST + MODELS))
def made(request, tmp_path_factory):
    """(model, folder, seed) of a random configuration with random weights."""
    from tests.oracle import models
    from tests.oracle.saving import save

    case = random_case(request.param)
    model = models.make_model(case, request.param)
    folder = tmp_path_factory.mktemp("live")
    save(model, case, folder)
    print(case)
    return model, folder, request.param


def open_llm(folder, **options):
    return LLM(folder, **({"recipe": "native", "kv": "fp32", "context": 512, "cache_budget": 0} | options))


@pytest.mark.parametrize("kv_layout", ["latent", "expanded"])
def test_logits(made, kv_layout):
    """Prefill whole and in pieces, and decode, at every length around the class's chunk of 64."""
    from tests.oracle import models

    model, folder, seed = made
    with open_llm(folder, kv_layout=kv_layout) as llm:
        for length in (1, 2, 3, 63, 64, 65, 150):
            tokens = models.decided_tokens(model, seed, length)
            wanted = models.logits_of(model, tokens)
            assert relative_error(llm.logits(tokens), wanted) < LOGITS_BOUND, length
            split = length // 3
            assert relative_error(prefill_logits(llm, tokens, [split]), wanted) < LOGITS_BOUND, length
            assert relative_error(decode_logits(llm, tokens, split), wanted[split:]) < LOGITS_BOUND, length


@pytest.mark.parametrize("kv_layout", ["latent", "expanded"])
def test_greedy_tokens(made, kv_layout):
    from tests.oracle import models

    model, folder, seed = made
    prompt, wanted = models.decided_greedy(model, seed)
    with open_llm(folder, kv_layout=kv_layout) as llm:
        params = SamplingParams(max_tokens=len(wanted), temperature=0, ignore_eos=True)
        assert llm.generate(prompt, params).token_ids == wanted


def test_numpy_model(made):
    """The equations in float64 lie where the class's fp32 lies."""
    from tests.model.reference import Reference
    from tests.oracle import models

    model, folder, seed = made
    tokens = models.decided_tokens(model, seed, 65)
    wanted = models.logits_of(model, tokens)
    assert relative_error(Reference(folder).logits(tokens), wanted) < LOGITS_BOUND
