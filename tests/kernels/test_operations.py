"""The benchmark's table in correctness mode: every operation, every instruction set, against the NumPy twins."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mindnano.bench import kernels as bench
from mindnano.bench.limits import LIMITS, Meter
from mindnano.bench.operations import TABLE, Compared
from mindnano.errors import MindNanoError
from mindnano.kernels import peak_compute, peak_read

from .products import ISAS, running

BY_NAME = {op.name: op for op in TABLE}
QUICK = ["RMSNorm 1 x 1536", "KDA recurrence, 1 tokens", "heads w8 1 x 16 x 512 x 128"]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", BY_NAME)
def test_operation_equals_its_twin(name, isa):
    with running(isa):
        comparisons = bench.check(BY_NAME[name])
    assert comparisons
    for what, error, tolerance in comparisons:
        assert error <= tolerance, what


def test_names_are_unique():
    assert len(BY_NAME) == len(TABLE)


@pytest.mark.parametrize("name", QUICK)
def test_timing(name):
    meter = Meter()
    meter._steps = 1000
    result = bench.time_operation(BY_NAME[name], meter, 0.01)
    assert 0 < result.best_ms <= result.median_ms and result.calls >= 3
    assert result.nbytes > 0
    if result.limit is not None:
        assert meter.limits.rate(result.limit) > 0


@pytest.mark.parametrize("isa", ISAS)
def test_limits(isa):
    """The loops count what they do, and do something."""
    with running(isa):
        for kind in ("fma", "int8", "int4"):
            one = peak_compute(kind, 1, 100)
            assert one > 0 and peak_compute(kind, 3, 200) == 6 * one
        assert peak_read(np.ones(1 << 20, np.uint8)) == 1 << 20
        meter = Meter()
        assert min(meter.look(name, rounds=1) for name in LIMITS) > 0
        assert 0 <= meter.spread() < 1
    for kind, tasks in (("int2", 1), ("fma", 0)):
        with pytest.raises(ValueError, match="expected"):
            peak_compute(kind, tasks, 1)
    with pytest.raises(ValueError, match="data: expected a multiple of 64 bytes"):
        peak_read(np.ones(65, np.uint8))


def test_a_wrong_kernel_stops_the_benchmark(monkeypatch, capsys):
    """No speed figure without a green gate."""
    op = BY_NAME["RMSNorm 1 x 1536"]

    def off_by_little(rng):
        return [replace(c, got=c.got * np.float32(1.00001)) for c in op.compared(rng)]

    def untimed(rng):
        raise AssertionError("timed although the gate failed")

    broken = replace(op, compared=off_by_little, timed=untimed)
    monkeypatch.setattr(bench, "TABLE", [broken])
    assert bench.run(json=True) == 1
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [f["isa"] for f in report["gate"]] == ISAS
    assert "results" not in report


def test_what_counts_as_an_error():
    one, nan = np.ones(3), np.array([1, np.nan, 1])
    assert Compared("", one, one, 0).error() == 0
    assert Compared("", nan, one, 0).error() == np.inf
    assert Compared("", one[:2], one, 0).error() == np.inf
    assert Compared("", one, 2 * one, 0).error() == 0.5
    assert Compared("", one, 0 * one, 0).error() == 1


def test_json_is_the_last_line(monkeypatch, capsys):
    monkeypatch.setattr(bench, "TABLE", [BY_NAME[name] for name in QUICK])
    assert bench.run(json=True, filter="norm", quick=True) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["gate"] == [] and [r["name"] for r in report["results"]] == QUICK[:1]
    assert set(report["limits"][str(report["threads"])]) == {"threads", *LIMITS}


def test_unusable_options_are_refused():
    with pytest.raises(MindNanoError, match="filter: expected a part of an operation's name, got 'nothing'"):
        bench.run(filter="nothing")
    with pytest.raises(MindNanoError, match="threads: expected 1 to 256, got 0"):
        bench.run(threads=0)
