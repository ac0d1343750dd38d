"""Comparisons over records: pairs, files, disturbed runs, and the reference's tables."""

import random

import pytest

from mindnano.bench import compare, reference
from mindnano.bench.compare import by_kind, by_side, parse_setting
from mindnano.bench.records import Point
from mindnano.bench.servers import Setting
from mindnano.errors import MindNanoError


def run(ttft, decode=20.0, fmt="bf16", tokens=1024, **more):
    return Point(
        phase="perf", setting=f"x {fmt}", kv_layout="latent", kv_format=fmt, input_tokens=tokens, output_tokens=64,
        concurrency=1, prompts="text", ttft_s=ttft, decode_tok_s=decode, **more,
    )  # fmt: skip


def rounds(factor, count=6, seed=1, fmt="int8", **more):
    """BF16 and another format in rounds, with noise of half a percent and a machine that gets slower all the time."""
    r = random.Random(seed)
    made = []
    for at in range(count):
        drift = 1 + 0.2 * at
        made.append(run(10 * drift * r.gauss(1, 0.005), repeat=at, **more))
        made.append(run(factor * 10 * drift * r.gauss(1, 0.005), fmt=fmt, repeat=at, **more))
    return made


def test_a_difference_shows_through_drift():
    found = compare.compare(rounds(0.95), by_kind("latent bf16", "latent int8"))
    ttft = next(one for one in found if one.measure == "ttft_s")
    assert ttft.verdict == "faster"
    assert ttft.ratio.paired
    assert ttft.ratio.low < 0.95 < ttft.ratio.high
    assert next(one for one in found if one.measure == "decode_tok_s").verdict == "no difference shown"


def test_files_of_two_days_have_no_pairs():
    """The same rounds as two files: the drift is noise now."""
    both = rounds(0.95)
    a, b = ([p for p in both if p.kv_format == fmt] for fmt in ("bf16", "int8"))
    (ttft, _) = compare.files(a, b)
    assert not ttft.ratio.paired
    assert ttft.verdict == "no difference shown"


def test_files_compare_equal_caches_or_those_named():
    a, b = rounds(0.95), rounds(0.95, seed=2)
    found = compare.files(a, b)
    assert {one.cache for one in found} == {"latent bf16", "latent int8"}
    assert {one.verdict for one in found} == {"no difference shown"}
    found = compare.files(a, b, ("latent bf16", "latent int8"))
    assert len(found) == 2
    with pytest.raises(MindNanoError, match="no load in common"):
        compare.files(a, [run(1.0, tokens=77)])


def test_disturbed_runs_are_left_out_where_others_are_enough():
    spoiled = run(1.0, repeat=0, disturbed=["process make took 90% of a core"])
    found = compare.compare([spoiled, *rounds(0.95)], by_kind("latent bf16", "latent int8"))
    assert found[0].verdict == "faster"
    assert found[0].marked == ""


def test_where_all_are_disturbed_they_are_used_and_said():
    found = compare.compare(
        rounds(0.95, disturbed=["process make took 90% of a core", "swap grew by 3 MiB"]),
        by_kind("latent bf16", "latent int8"),
    )
    assert found[0].verdict == "faster"
    assert found[0].marked == "other processes; swap grew"


def test_failed_runs_and_other_comparisons_do_not_count():
    runs = rounds(0.95)
    other = [run(1.0, pair=0, side=side, comparison="a | b") for side in "AB"]
    failed = run(1.0, repeat=0, status="failed")
    assert compare.compare([*runs, *other, failed], by_kind("latent bf16", "latent int8")) == compare.compare(
        runs, by_kind("latent bf16", "latent int8")
    )
    assert compare.compare(runs, by_side()) == []
    assert [one.ratio.n for one in compare.compare(other, by_side("a | b"))] == [1, 1]


def test_settings_are_parsed():
    base = Setting(model="m.mn", kv="bf16", kv_layout="latent")
    assert parse_setting("kv=int8,kv-layout=expanded", base) == Setting(
        model="m.mn", kv="int8", kv_layout="expanded"
    )
    assert parse_setting("binary=/opt/llama-server,model=m.gguf", base).preset == "llama-server"
    url = parse_setting("url=http://127.0.0.1:1", base)
    assert (url.url, url.kv, url.model) == ("http://127.0.0.1:1", None, None)
    for text in ("int8", "format=int8", "kv=", "threads=many", "url=localhost"):
        with pytest.raises(MindNanoError, match="expected"):
            parse_setting(text, base)


def test_the_references_own_ratios():
    """TTFT at 32K over that at 4K: 986.87 / 32.731 and 772.622 / 28.834; decode 2.32 / 10.64."""
    records = [
        run(1.0 * tokens, tokens=tokens, fmt=fmt) for fmt in ("bf16", "int8") for tokens in (4096, 32768)
    ]
    bf16, int8 = reference.growth(records)
    assert bf16.reference_growth == pytest.approx(30.15, abs=0.005)
    assert int8.reference_growth == pytest.approx(26.80, abs=0.005)
    assert bf16.reference_left == pytest.approx(0.2180, abs=5e-5)
    assert bf16.growth.ratio == pytest.approx(8.0)
    assert (bf16.growth.low, bf16.base) == (None, 4096)  # one run each: no interval
    gains = reference.gains()
    assert gains["ttft_s"][32768] == pytest.approx(772.622 / 986.87)
    assert 65536 not in gains["ttft_s"]  # BF16 wasn't measured there


def test_no_seconds_of_the_reference_are_compared():
    fields = set(reference.Row.__dataclass_fields__)
    assert not any("ttft_s" in name or "seconds" in name for name in fields)
