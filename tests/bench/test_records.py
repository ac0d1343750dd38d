"""Results files: every line comes back, crashes cost the last line at most, wrong files are named."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mindnano.bench.records import (
    FILE,
    Divergence,
    Parting,
    Point,
    Results,
    Retrieval,
    Run,
    as_dict,
    read,
    read_folder,
)
from mindnano.errors import MindNanoError

RECORDS = [
    Run(command="perf", machine={"cpu": "x", "memory": 5}, at="2026-12-01T00:00:00Z"),
    Point(
        phase="perf", setting="s", input_tokens=4096, ttft_s=1.25, mla_calls={"cpu": 3}, disturbed=["swap"]
    ),
    Point(phase="capacity", setting="s", status="not_started", reason="too large"),
    Divergence(model="m", kv_layout="latent", length=512, kl=[0.0, 1e-5], same_top=[1, 0]),
    Retrieval(task="one_key", depth=0.5, right=True),
    Parting(tokens=64, position=None),
]


def test_every_record_comes_back(tmp_path):
    with Results(tmp_path) as results:
        for record in RECORDS:
            results.append(record)
    assert read(tmp_path / FILE) == RECORDS
    with Results(tmp_path) as results:
        assert results.records == RECORDS


def test_unknown_values_are_left_out():
    assert as_dict(Point(phase="perf", setting="s")) == {
        "phase": "perf", "setting": "s", "status": "ok", "at": "", "server": ""
    }  # fmt: skip


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_crash_in_the_middle_of_a_line_costs_that_line(tmp_path, cut):
    with Results(tmp_path) as results:
        for record in RECORDS:
            results.append(record)
    path = tmp_path / FILE
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    path.write_bytes(whole[: len(whole) - len(last)] + last[: min(cut, len(last) - 1)])
    assert read(path) == RECORDS[:-1]
    with Results(tmp_path) as results:
        results.append(RECORDS[-1])
    assert path.read_bytes() == whole


def test_two_benchmarks_do_not_share_a_folder(tmp_path):
    with Results(tmp_path), pytest.raises(MindNanoError, match="another benchmark"):
        Results(tmp_path)
    with Results(tmp_path):
        pass


def test_later_versions_are_read_as_far_as_they_are_known(tmp_path):
    path = tmp_path / FILE
    path.write_text(
        '{"phase": "energy", "joules": 3}\n{"phase": "perf", "setting": "s", "joules": 3, "ttft_s": 2}\n'
    )
    (point,) = read(path)
    assert (point.setting, point.ttft_s) == ("s", 2)


@pytest.mark.parametrize(
    "line, said",
    [
        ("not json", "no JSON"),
        ("[]", "expected an object"),
        ('{"phase": "perf"}', "setting"),
        ('{"phase": "perf", "setting": "s", "ttft_s": "fast"}', "ttft_s"),
        ('{"phase": "perf", "setting": "s", "status": "great"}', "status"),
        ("[" * 100_000, "no JSON"),
        ('{"phase": "divergence", "kl": [null]}', "kl"),
    ],
)
def test_what_is_no_result_is_named_with_its_line(tmp_path, line, said):
    path = tmp_path / FILE
    path.write_text('{"phase": "perf", "setting": "s"}\n' + line + "\n")
    with pytest.raises(MindNanoError, match=said) as error:
        read(path)
    assert f"{FILE}:2" in str(error.value)


def test_a_folder_without_results_is_an_error(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(MindNanoError, match="expected a results file"):
            read_folder(path)


ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["phase", "kl", "setting", "x"]), inner)
    ),
    max_leaves=10,
)


@settings(deadline=None)
@given(ANY)
def test_any_json_is_read_or_refused(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_text(json.dumps(value) + "\n")
    try:
        read(path)
    except MindNanoError as error:
        assert path.name in str(error)
