"""A time budget: what has no time isn't begun, is recorded and shown with the reason, and made up for later."""

import math

import pytest

from mindnano.bench import capacity, compare, full, perf
from mindnano.bench.budget import Budget
from mindnano.bench.load import Load
from mindnano.bench.progress import Estimate
from mindnano.bench.quality import Plan
from mindnano.bench.quality import run as run_quality
from mindnano.bench.records import Point, Results, points, read_folder, unmeasured
from mindnano.bench.report import groups, summary, tables, write
from mindnano.bench.servers import Setting
from mindnano.cli import main
from tests.bench.conftest import INT8, LATENT, campaign


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def used_up():
    clock = Clock()
    budget = Budget(1.0, clock)
    clock.now = 61.0
    return budget


def test_what_would_not_end_in_time_is_not_begun():
    clock = Clock()
    budget = Budget(2.0, clock)
    assert budget.refusal(119.0) is None
    clock.now = 60.0
    assert budget.refusal(59.0) is None
    assert budget.refusal(600.0) == "it takes about 10 min, and of the budget of 2 min 60 s were left"
    clock.now = 120.0
    assert budget.refusal(0.0) == "the budget of 2 min was used up"
    assert Budget(None, clock).refusal(math.inf) is None


def test_everything_left_out_is_recorded_once_and_starts_no_server(tmp_path):
    never = [Setting(preset="custom", command="/no/such/program {port}", kv=fmt, context=2048)
             for fmt in ("bf16", "int8")]  # fmt: skip
    with Results(tmp_path) as results:
        for _ in range(2):
            ours = campaign(results, budget=used_up())
            perf.run(ours, perf.visits(never, [Load(256, 8), Load(512, 8)], rounds=2))
            capacity.run(ours, never)
            compare.run(ours, *never, [Load(256, 8)], pairs=2)
            run_quality(Plan(None, []), results, ours.progress, print, ours.budget)
        found = unmeasured(results.records)
        assert len(found) == 2 * 2 * 2 + 2 + 2 * 2 + 1
        assert {point.reason for point in found if point.phase != "quality"} == {
            "the budget of 1 min was used up"
        }
    assert len([p for p in points(read_folder(tmp_path)) if p.phase == "perf"]) == 12  # said once, not twice
    assert groups.cells(read_folder(tmp_path)) == []
    assert groups.capacity(read_folder(tmp_path)) == []


def test_what_was_left_out_is_made_up_for(tmp_path):
    plan = perf.visits([LATENT], [Load(256, 4), Load(300, 4)], rounds=1)
    with Results(tmp_path) as results:
        perf.run(campaign(results), perf.visits([LATENT], [Load(256, 4)], rounds=1))
        perf.run(campaign(results, budget=used_up()), plan)
        (left,) = unmeasured(results.records)
        assert (left.input_tokens, left.kv_format, left.context_tokens) == (300, "bf16", 8192)
        records = read_folder(tmp_path)
        written = write(records, tmp_path / "report")
        for path in written[:2]:
            assert "Left out" in path.read_text()
            assert "the budget of 1 min was used up" in path.read_text()
        assert any("1 planned run, listed" in text for text in summary.warnings(records))
        perf.run(campaign(results), plan)
        assert unmeasured(results.records) == []
        assert [p.attempt for p in points(results.records, "perf") if p.status == "ok"] == [0, 0]
    assert tables.missing(read_folder(tmp_path)) is None


def test_a_context_looked_at_is_measured_again_to_be_filled(tmp_path):
    with Results(tmp_path) as results:
        capacity.run(campaign(results), [INT8], 0)
        capacity.run(campaign(results, budget=used_up()), [INT8])
        (left,) = unmeasured(results.records)
        assert left.filled_tokens == 1024
        for fill_up_to in (0, None, None, 0):
            capacity.run(campaign(results), [INT8], fill_up_to)
        assert unmeasured(results.records) == []
        runs = [p for p in points(results.records, "capacity") if p.status == "ok"]
        assert [p.filled_tokens for p in runs] == [None, 1024]
        assert [p.filled_tokens for p in groups.capacity(results.records)] == [1024]


def test_rounds_that_were_chosen():
    plan = perf.visits([LATENT, INT8], [Load(256, 8)], range(2, 4))
    assert [visit.round for visit in plan] == [2, 2, 3, 3]


@pytest.mark.parametrize("scale", full.SCALES)
def test_short_and_small_comes_first(scale):
    plan = full.steps(None, Setting(model="m"), full.SCALES[scale], print)
    assert all(step.seconds > 0 for step in plan)
    first = next(iter(full.SCALES[scale].values()))
    assert max(first.inputs) <= 4096
    assert first.rounds == range(1)
    rounds: dict[tuple[object, ...], list[int]] = {}
    for name, part in full.SCALES[scale].items():
        if isinstance(part, full.Speed) and name != "clients at once":  # asks for one client again
            for key in ((k, n, c) for k in part.kinds for n in part.inputs for c in part.clients):
                rounds.setdefault(key, []).extend(part.rounds)
    assert all(numbers == list(range(len(numbers))) for numbers in rounds.values())


def test_longer_inputs_are_expected_to_take_more_than_their_share():
    seconds = [Estimate().seconds("", Load(tokens, 0)) for tokens in (4096, 16384, 65536)]
    assert seconds[1] > 4 * seconds[0]
    assert seconds[2] > 4 * seconds[1]


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_a_budget_is_positive(tmp_path, capsys, minutes):
    assert main(["bench", "perf", "--budget", minutes, "--output-dir", str(tmp_path)]) == 2
    assert "--budget: expected minutes above 0" in capsys.readouterr().err


def test_the_plan_says_how_long(capsys):
    assert main(["bench", "all", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(full.SCALES["full"])
    assert "until then" in lines[0]


def test_unmeasured_is_only_what_nothing_measured():
    asked = {"phase": "perf", "setting": "s", "input_tokens": 4}
    missing, good = Point(**asked, status="not_measured"), Point(**asked)
    assert unmeasured([missing, good]) == []
    assert unmeasured([good, missing]) == []
    assert unmeasured([missing, missing]) == [missing]
