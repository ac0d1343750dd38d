"""Big cores from a made-up /sys, lists of processors, and what the options make of both."""

import os
import platform
from pathlib import Path

import pytest

from mindnano import LLM, kernels
from mindnano.engine import cores
from mindnano.errors import MindNanoError

RK3588 = {"capacity": [414] * 4 + [1024] * 4, "clock": [1800000] * 4 + [2400000, 2400000, 2352000, 2352000]}
PHONE = {"capacity": [325] * 4 + [830] * 3 + [1024]}
ALL = tuple(range(8))


def made(tmp_path: Path, capacity=(), clock=()) -> Path:
    for name, values in (("cpu_capacity", capacity), ("cpufreq/cpuinfo_max_freq", clock)):
        for cpu, value in enumerate(values):
            path = tmp_path / f"sys/devices/system/cpu/cpu{cpu}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
    return tmp_path


@pytest.fixture
def eight(monkeypatch):
    monkeypatch.setattr(cores, "usable", lambda: ALL)


@pytest.fixture
def arm(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


def test_capacity(tmp_path):
    assert cores.big(ALL, made(tmp_path, **RK3588)) == (4, 5, 6, 7)
    assert cores.big((0, 1, 5), tmp_path) == (5,)
    assert cores.big((0, 1, 2, 3), tmp_path) == (0, 1, 2, 3)  # only little ones: all are the best there are


def test_middle_cores_count_as_big(tmp_path):
    assert cores.big(ALL, made(tmp_path, **PHONE)) == (4, 5, 6, 7)


def test_clock_where_no_capacity_is_known(tmp_path, arm):
    made(tmp_path, clock=RK3588["clock"])
    assert cores.big(ALL, tmp_path) == (4, 5, 6, 7)
    made(tmp_path, capacity=[1024])  # one of eight: not usable
    assert cores.big(ALL, tmp_path) == (4, 5, 6, 7)


def test_clocks_of_x86_say_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert cores.big(ALL, made(tmp_path, clock=[5800000, 5800000] + [4300000] * 6)) == ALL


@pytest.mark.parametrize("content", ["", "fast", "-1", "0", "10 24", "\xff"])
def test_unreadable_figures_are_no_figures(tmp_path, content):
    made(tmp_path, capacity=[1024] * 7 + [400])
    (tmp_path / "sys/devices/system/cpu/cpu3/cpu_capacity").write_text(content, encoding="latin-1")
    assert cores.big(ALL, tmp_path) == ALL


def test_nothing_known(tmp_path):
    assert cores.big(ALL, tmp_path) == ALL


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("4-7", (4, 5, 6, 7)), ("0", (0,)), ("2, 0-1,1", (0, 1, 2)), ("6,4", (4, 6))],
)
def test_lists(text, wanted):
    assert cores.parse(text) == wanted
    assert cores.parse(cores.numbers(wanted)) == wanted


def test_numbers():
    assert cores.numbers((0, 1, 2, 4, 6, 7)) == "0-2,4,6-7"
    assert cores.numbers(()) == ""


@pytest.mark.parametrize("text", ["", "big", "7-4", "1,", "-1", "1-2-3", "99999", "0x1", "1;2"])
def test_bad_lists_are_refused(text, eight):
    with pytest.raises(MindNanoError, match="cpus: expected auto, all or numbers such as 4-7 or 0,2, got"):
        cores.choose(None, text)


def test_choice_on_big_little(tmp_path, eight):
    made(tmp_path, **RK3588)
    assert cores.choose(None, "auto", tmp_path) == (4, (4, 5, 6, 7))
    assert cores.choose(2, "auto", tmp_path) == (2, (4, 5, 6, 7))
    assert cores.choose(8, "auto", tmp_path) == (8, ())  # more than the big ones hold: all, and no pinning
    assert cores.choose(None, "all", tmp_path) == (None, ())
    assert cores.choose(None, "0-3", tmp_path) == (4, (0, 1, 2, 3))
    assert cores.choose(1, "0-3", tmp_path) == (1, (0, 1, 2, 3))


def test_choice_where_cores_are_alike(tmp_path, eight):
    assert cores.choose(None, "auto", tmp_path) == (None, ())
    assert cores.choose(3, "auto", tmp_path) == (3, ())


def test_choices_that_cannot_be(tmp_path, eight):
    with pytest.raises(MindNanoError, match="cpus: 8-9 can't be used here; usable are 0-7"):
        cores.choose(None, "7-9", tmp_path)
    with pytest.raises(MindNanoError, match="threads: expected at most 2, as many as cpus 4-5 are, got 3"):
        cores.choose(3, "4-5", tmp_path)
    with pytest.raises(MindNanoError, match="threads: expected 1 to 256, got 0"):
        cores.use(0)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")
def test_the_engine_keeps_to_the_processors_it_is_given():
    before, one = (kernels.threads(), kernels.cpus()), min(cores.usable())
    try:
        with LLM(cpus=str(one)) as llm:
            assert (llm.describe()["cpus"], llm.describe()["threads"]) == (str(one), 1)
            llm.logits([1, 2, 3])
            assert os.sched_getaffinity(0) == {one}
        with LLM(cpus="all") as llm:
            assert (llm.describe()["cpus"], llm.describe()["threads"]) == ("any", len(cores.usable()))
            llm.logits([1, 2, 3])
            assert os.sched_getaffinity(0) == set(cores.usable())
    finally:
        kernels.set_threads(*before)
