"""Curves: interpolation, choice, the file they are kept in."""

import json

import pytest

from mindnano import kernels
from mindnano.device import curves
from mindnano.device.choice import Attention, Devices
from mindnano.device.curves import Curve, Machine, Point, attention_work
from mindnano.engine import cores
from mindnano.errors import MindNanoError
from mindnano.model.stages import StageClock
from tests.npu.attending import LING, SMALL, Case
from tests.npu.curving import DRIVER, RUNTIME, calibration, keep


def power(rows, sizes, exponent=(1.0, 1.0), factor=1e-6):
    return Curve([Point(r, s, factor * r ** exponent[0] * s ** exponent[1]) for r in rows for s in sizes])


@pytest.mark.parametrize(("rows", "size"), [(16, 512), (40, 1000), (1024, 32768), (3, 100), (5000, 200000)])
def test_a_power_law_is_met_everywhere(rows, size):
    curve = power((16, 128, 1024), (512, 4096, 32768), (0.7, 1.1))
    assert curve.seconds(rows, size) == pytest.approx(1e-6 * rows**0.7 * size**1.1, rel=1e-9)


def test_points_are_met_and_between_them_nothing_overshoots():
    points = [
        Point(r, s, t)
        for (r, s), t in zip(((1, 1), (1, 8), (4, 1), (4, 8)), (1.0, 5.0, 2.0, 3.0), strict=True)
    ]
    curve = Curve(points)
    for p in points:
        assert curve.seconds(p.rows, p.size) == pytest.approx(p.seconds)
    for rows in range(1, 5):
        for size in range(1, 9):
            assert 1.0 <= curve.seconds(rows, size) <= 5.0001


@pytest.mark.parametrize(
    "points",
    [
        [],
        [Point(1, 1, 1.0), Point(2, 1, 1.0)],
        [Point(1, 1, 1.0), Point(1, 2, 1.0), Point(2, 1, 1.0)],
        [Point(1, 1, 1.0), Point(1, 2, 0.0), Point(2, 1, 1.0), Point(2, 2, 1.0)],
        [Point(1, 1, 1.0), Point(1, 2, float("inf")), Point(2, 1, 1.0), Point(2, 2, 1.0)],
    ],
)
def test_incomplete_curves_are_refused(points):
    with pytest.raises(ValueError, match="a curve needs"):
        Curve(points)


def test_the_faster_device_is_chosen():
    kept = calibration(SMALL, attention=1e-3)  # the CPU takes 1 ms for 1,000 rows times keys
    work = attention_work(SMALL, "int8")
    assert kept.faster(work, 10, 50) == "cpu"
    assert kept.faster(work, 100, 50) == "rknpu"
    assert kept.faster(attention_work(LING, "int8"), 1000, 1000) == "cpu", "a shape that wasn't measured"
    assert attention_work(SMALL, "bf16") == attention_work(SMALL, "fp16") != work


def test_a_file_keeps_them(emulator):
    kept = calibration(SMALL, attention=1e-3, linear=1e-3)
    assert curves.load(kept.machine) is None
    path = curves.save(kept)
    assert curves.load(kept.machine) == kept
    assert path.parent == curves.folder() and [p.name for p in path.parent.iterdir()] == [path.name]
    for other in (kept.machine._replace(runtime="2.3.0"), kept.machine._replace(threads=99)):
        assert curves.load(other) is None
        assert curves.path_for(other) != path


def bent(change):
    def bend(text):
        values = json.loads(text)
        change(values)
        return json.dumps(values)

    return bend


@pytest.mark.parametrize(
    "bend",
    [
        lambda text: text[:100],
        lambda text: "[]",
        lambda text: "",
        bent(lambda v: v.update(more=1)),
        bent(lambda v: v.pop("machine")),
        bent(lambda v: v.update(format=99)),
        bent(lambda v: v["machine"].__setitem__(0, "another board")),
        bent(lambda v: v["curves"]["linear"]["cpu"]["points"].pop()),
        bent(lambda v: v["curves"]["linear"]["cpu"]["points"][0].update(seconds=-1)),
        bent(lambda v: v["curves"]["linear"]["cpu"]["points"][0].update(seconds="fast")),
        bent(lambda v: v.update(rows_per_product=100)),
    ],
)
def test_a_bad_file_is_told_and_not_used(emulator, bend):
    kept = calibration(SMALL, linear=1e-3)
    path = curves.save(kept)
    path.write_text(bend(path.read_text()))
    with pytest.raises(MindNanoError, match=r"\.json .*run mindnano calibrate again"):
        curves.load(kept.machine)
    devices = Devices.open("auto", "int8")
    assert devices.name == "cpu"
    assert ".json" in devices.reason and "run mindnano calibrate again" in devices.reason


def test_a_folder_that_cannot_be_written_is_told(emulator, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(MindNanoError, match="set XDG_STATE_HOME"):
        curves.save(calibration(SMALL))


def test_auto_serves_each_call_where_it_is_faster(emulator):
    keep(SMALL, attention=5e-3)
    devices = Devices.open("auto", "int8")
    assert devices.describe() == {
        "device": "rknpu (emulated)", "emulated": True, "device_reason": "by this machine's curves",
    }  # fmt: skip
    on = Attention(SMALL, "int8", devices)
    assert on.npu.most_rows == 64
    for rows, start, device in ((10, 0, "cpu"), (100, 200, "rknpu"), (2, 3000, "rknpu"), (2, 100, "cpu")):
        case, clock = Case(SMALL, "latent", "int8", start, rows), StageClock()
        case.run(on, clock)
        assert {name for name, calls in clock.mla_calls.items() if calls} == {device}, (rows, start)
    devices.close()


def test_another_threads_curves_are_not_this_ones(emulator):
    keep(SMALL)
    from tests.kernels.products import REST, running

    with running(REST, threads=5):
        assert Devices.open("auto", "int8").name == "cpu"
    assert Machine.here(RUNTIME, DRIVER).threads != 5


def test_the_engines_threads_find_what_calibrating_kept(emulator, monkeypatch, tmp_path, capsys):
    """big.LITTLE: the pool begins with a thread for every core, the engine takes the big ones."""
    from mindnano import LLM
    from mindnano.checkpoint import summarize, tiny
    from mindnano.cli import main
    from tests.kernels.products import REST, running

    path = tmp_path / "tiny.mn"
    tiny.build(path, seed=3)
    first = min(cores.usable())
    monkeypatch.setattr(cores, "choose", lambda threads, cpus, root=None: (threads or 1, (first,)))
    before = kernels.cpus()
    try:
        with running(REST, threads=2):
            assert main(["calibrate", str(path), "--quick", "--json"]) == 0
            assert json.loads(capsys.readouterr().out.splitlines()[-1])["machine"]["threads"] == 1
        with running(REST, threads=2):
            summary = summarize(path, None)
            planned = Devices.planned_bytes("auto", summary.config, "int8", summary.recipe, cores.count())
            assert planned > 0 == Devices.planned_bytes("auto", summary.config, "int8", summary.recipe, 2)
            assert main(["doctor", "--json"]) == 0
            shown = json.loads(capsys.readouterr().out.splitlines()[-1])
            assert shown["npu"]["calibrated"] and shown["engine"]["threads"] == 1
            assert main(["plan", str(path), "--kv", "int8", "--json"]) == 0
            assert f'"device": {planned}' in capsys.readouterr().out
            assert kernels.threads() == 2, "looking changes nothing"
            with LLM(path, context=512, kv="int8") as llm:
                assert llm.device == "rknpu (emulated)" and llm.plan.device == planned
    finally:
        kernels.set_threads(kernels.threads(), list(before))
