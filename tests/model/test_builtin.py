"""The trained built-in model: its native checkpoint gives the tokens that the class gave, on every backend."""

import json
from pathlib import Path

import pytest

from mindnano import LLM, SamplingParams, data, kernels
from mindnano.checkpoint import builtin

pytestmark = pytest.mark.skipif(not builtin.trained(), reason="this package has no trained model")
FOLDER = Path(__file__).parents[1] / "data/builtin"


@pytest.fixture(scope="module")
def golden():
    entries = json.loads((FOLDER / "golden.json").read_text())
    assert len(entries) == 5 and sum(len(entry["tokens"]) for entry in entries) > 500
    return entries


@pytest.fixture(params=kernels.available_isas())
def isa(request):
    before = kernels.isa()
    kernels.set_isa(request.param)
    yield request.param
    kernels.set_isa(before)


def greedy(llm, entry, most=None):
    count = len(entry["tokens"][:most])
    params = SamplingParams(max_tokens=count, temperature=0, ignore_eos=True)
    return llm.generate(entry["prompt"], params).token_ids


@pytest.mark.parametrize("layout", ["latent", "expanded"])
def test_golden_tokens(golden, isa, layout):
    """fp32 cache: the class keeps none in a smaller format."""
    with LLM(FOLDER, recipe="native", kv="fp32", kv_layout=layout, context=512) as llm:
        for entry in golden:
            assert greedy(llm, entry) == entry["tokens"]


def test_the_package_has_the_same_model_packed(golden):
    assert data.TRAINED.stat().st_size < 12e6
    with LLM(None, context=512) as llm, LLM(FOLDER, context=512) as native:
        assert not llm.synthetic and llm.config == native.config
        told = [greedy(each, golden[0], 24) for each in (llm, native)]
    assert told[0] == told[1]  # how a story begins is learned by heart
