"""What each KV format and each recipe costs against fp32 caches and native weights: printed, and bounded so that a
wrong scale, a dropped group or a swapped layout would be seen.

Random weights amplify rounding (a gate near its edge, another expert chosen), a few rows by much. So recipes are
judged by the median row after the first layers, formats by the root mean square of all logits.
"""

import json

import numpy as np
import pytest

from mindnano import LLM
from mindnano.cache.kv import kv_bytes_per_token
from mindnano.cache.slots import kv_bytes
from mindnano.checkpoint import load_config
from mindnano.model.decoder import Decoder
from mindnano.model.stages import StageClock
from tests.model import fixtures
from tests.model.fixtures import CASES, rms_error

DATA = fixtures.FOLDER.parent
KV_BOUNDS = {"bf16": 0.05, "fp16": 0.03, "int8": 0.15}
RECIPE_BOUNDS = {  # random, heavy-tailed
    "bf16": (1e-6, 1e-6),
    "w8": (0.04, 0.1),
    "mixed": (0.15, 0.2),  # one case has routed experts in its first layer
    "w4": (0.3, 0.5),
}


def open_llm(case, **options):
    return LLM(fixtures.folder(case), **({"recipe": "native", "kv": "fp32", "context": 1024} | options))


@pytest.mark.parametrize("kv_layout", ["latent", "expanded"])
@pytest.mark.parametrize("kv", ["bf16", "fp16", "int8"])
def test_kv_formats(kv, kv_layout):
    for case in CASES:
        tokens = fixtures.tokens(case, 500)
        with open_llm(case) as exact, open_llm(case, kv=kv, kv_layout=kv_layout) as rounded:
            error = rms_error(rounded.logits(tokens), exact.logits(tokens))
        print(f"{case}: {kv_layout} {kv} {error:.4f}")
        assert 0 < error < KV_BOUNDS[kv], case


def rows_after(llm, layers, tokens):
    """Hidden rows [T, hidden] after the first `layers` layers."""
    model: Decoder = llm._model
    kept = model.layers
    model.layers = kept[:layers]
    slot = llm._pool.take()
    try:
        for _ in model.prefill(tokens, slot, llm._pool, StageClock(), rows="none"):
            pass
        return model.prefill_scratch("x", (len(tokens), llm.config.hidden_size)).copy()
    finally:
        model.layers = kept
        llm._pool.give_back(slot)


@pytest.mark.parametrize("heavy", [False, True], ids=["random", "heavy-tailed"])
@pytest.mark.parametrize("recipe", RECIPE_BOUNDS)
def test_recipes(recipe, heavy):
    """Heavy-tailed: three embedding channels are 30 times the others, as trained models have them."""
    for case in CASES:
        tokens = fixtures.tokens(case, 65)
        with open_llm(case) as exact, open_llm(case, recipe=recipe) as rounded:
            if heavy:
                for llm in (exact, rounded):
                    _make_heavy(llm)
            wanted, got = rows_after(exact, 1, tokens), rows_after(rounded, 1, tokens)
        errors = np.linalg.norm(got - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
        print(
            f"{case}: {recipe} median row error {np.median(errors):.4f}, 90 % {np.quantile(errors, 0.9):.4f}"
        )
        assert np.median(errors) < RECIPE_BOUNDS[recipe][heavy], case


def _make_heavy(llm):
    layer = llm._model.layers[0]
    weight = layer.attention_norm.copy()
    weight[[3, 17, 40]] *= 30.0
    layer.attention_norm = weight


def test_expanded_sizes_are_the_reference_tables():
    config = load_config(DATA / "ling-3.0-tiny.config.json")
    table = json.loads((DATA / "rk3588-tables.json").read_text())
    assert len(table["capacity"]) == 6
    for row in table["capacity"]:
        for fmt in ("bf16", "int8"):
            assert kv_bytes(config, "expanded", fmt, row["context"]) == row[fmt]["kv_mib"] << 20


def test_bytes_a_token():
    """facts: expanded BF16 61,440 and INT8 31,488, latent BF16 6,912; latent INT8 512 + 4 scales + 64 rope in BF16."""
    mla = load_config(DATA / "ling-3.0-tiny.config.json").mla
    assert 6 * kv_bytes_per_token(mla, "expanded", "bf16") == 61_440
    assert 6 * kv_bytes_per_token(mla, "expanded", "int8") == 31_488
    assert 6 * kv_bytes_per_token(mla, "latent", "bf16") == 6_912
    assert 6 * kv_bytes_per_token(mla, "latent", "int8") == 6 * (512 + 4 * 4 + 64 * 2)


@pytest.mark.parametrize("kv_layout", ["latent", "expanded"])
@pytest.mark.parametrize("kv", ["fp32", "bf16", "fp16", "int8"])
def test_a_cache_takes_what_the_plan_says(kv, kv_layout):
    with open_llm("bailing", kv=kv, kv_layout=kv_layout, context=512) as llm:
        arrays = [array for cache in llm._pool.slots[0].kv.values() for array in cache.arrays().values()]
        assert sum(array.nbytes for array in arrays) == kv_bytes(llm.config, kv_layout, kv, 512)
