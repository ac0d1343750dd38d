"""The prediction's arithmetic, and that docs/rk3588.md shows it."""

from dataclasses import replace

import pytest

from mindnano.device.rknpu import cost
from mindnano.device.rknpu.contexts import Shape
from mindnano.device.rknpu.cost import BETTER, LIKELY, WORSE
from tests.npu.make_docs import DOCS, filled, ling, prefill, reference

# A board whose numbers are easy: 1 TOPS, 1 GB/s, nothing else takes time.
PLAIN = replace(
    LIKELY, cpu_ops=1e12, cpu_flops=1e12, npu_ops=1e12, npu_flops=0.5e12, cores=3.0, submit_s=0.0, score_s=0.0,
    host_s=0.0, stream=1e9, step_s=0.0, npu_bytes=1e9, sync=1e30, kda_s=0.0,
)  # fmt: skip
MLA = ling().mla


def test_the_page_is_current():
    assert DOCS.read_text() == filled(DOCS.read_text()), "run python -m tests.npu.make_docs"


def test_a_product():
    shape = Shape("int8", 1000, 32, 64)
    ops, moved = 2 * 1000 * 32 * 64, 1000 * 32 + 32 * 64 + 4 * 1000 * 64
    assert cost.product_s(PLAIN, shape) == pytest.approx(ops / 1e12 + moved / 1e9)
    assert cost.product_s(replace(PLAIN, submit_s=1e-3), shape) == pytest.approx(
        1e-3 + ops / 1e12 + moved / 1e9
    )
    half = replace(shape, format="fp16")
    assert cost.product_s(PLAIN, half) == pytest.approx(ops / 0.5e12 + (moved + 1000 * 32 + 32 * 64) / 1e9)


def test_the_models_numbers_are_the_facts():
    """Of Ling-3.0-tiny: 434.1 M weights of routed experts and 241.4 M of lm_head a token; expanding a cached token
    once takes 4.2 MFLOP; a query and a key 10,240 FLOP expanded and 34,816 absorbed."""
    weights = cost.other_weights(ling())
    assert weights["experts"] == pytest.approx(434.1e6, rel=1e-3)
    assert weights["lm_head"] == pytest.approx(241.4e6, rel=1e-3)
    assert weights["rest"] == pytest.approx((54.3 + 21.2 + 4.5) * 1e6, rel=0.01)
    projections = sum(item.rows * item.cols for item in cost._projections(ling()))
    assert projections + 6 * 512 * 4096 == pytest.approx(384.7e6, rel=5e-3)
    assert cost.expand_s(PLAIN, MLA, 1) * 1e12 == 512 * 4096 * 2
    one = cost.attention_cpu_s(PLAIN, MLA, "int8", 1, 999) - cost.attention_cpu_s(PLAIN, MLA, "int8", 1, 998)
    assert one * 1e12 == pytest.approx(10240 + 512 * 4096 * 2)
    decode = cost.decode_s(replace(PLAIN, stream=1e30), ling(), "int8", 1000)
    assert decode * 1e12 == pytest.approx(6 * 1000 * 34816)


def test_pairs_are_what_a_loop_counts():
    for rows, start in ((1, 0), (7, 0), (5, 11)):
        assert cost.pairs(rows, start) == sum(start + t + 1 for t in range(rows))


def test_attention_is_the_slower_of_both_sides():
    rows, start = 1024, 1024  # 4 tiles
    qk, pv = Shape("int8", 1024, 192, 512), Shape("int8", 1024, 512, 128)
    there = 16 * 4 * (cost.product_s(PLAIN, qk) + cost.product_s(PLAIN, pv)) / 3
    assert cost.products_s(PLAIN, MLA, "int8", rows, start, 1024) == pytest.approx(there)
    slow = replace(PLAIN, score_s=1e-6, host_s=1e-3)
    here = 16 * 4 * (1024 * 512 * 1e-6 + 2e-3) + cost.expand_s(slow, MLA, 2048)
    assert cost.products_s(slow, MLA, "int8", rows, start, 1024) == pytest.approx(here)
    assert cost.attention_npu_s(slow, MLA, "int8", rows, start) <= here


def test_a_prompt_is_the_sum_of_its_blocks():
    parts = cost.prefill_s(PLAIN, ling(), "int8", 6000, npu=False)
    attention = cost.attention_cpu_s(PLAIN, MLA, "int8", 4096, 0) + cost.attention_cpu_s(
        PLAIN, MLA, "int8", 1904, 4096
    )
    assert parts["attention"] == pytest.approx(6 * attention)
    weights = cost.other_weights(ling())
    assert parts["experts"] == pytest.approx(6000 * 2 * (weights["experts"] + weights["rest"]) / 1e12)
    assert parts["lm_head"] == pytest.approx(weights["lm_head"] / 1e9)


def test_boards_are_in_order_and_the_npu_never_costs():
    for row in reference():
        tokens = row["input_tokens"]
        for fmt in ("int8", "bf16"):
            times = [prefill(board, fmt, tokens) for board in (BETTER, LIKELY, WORSE)]
            assert times == sorted(times)
            assert prefill(LIKELY, fmt, tokens) <= prefill(LIKELY, fmt, tokens, npu=False)
            steps = [cost.decode_s(board, ling(), fmt, tokens) for board in (BETTER, LIKELY, WORSE)]
            assert steps == sorted(steps)


def test_the_model_is_near_the_reference_where_both_do_the_same():
    """Short prompts and short histories: the same products, the same bytes. A model that is off there is wrong."""
    first = reference()[0]
    assert first["input_tokens"] == 128
    assert prefill(BETTER, "int8", 128) < first["int8"]["ttft_s"] * 1.1
    assert prefill(WORSE, "int8", 128) > first["int8"]["ttft_s"]
    assert 0.75 < 1 / cost.decode_s(LIKELY, ling(), "int8", 128) / first["int8"]["decode_tok_s"] < 1.1
