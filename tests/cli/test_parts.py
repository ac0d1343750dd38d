"""What the commands are made of, without starting the program."""

import io
from typing import get_args

import pytest

from mindnano.bench import reference
from mindnano.cache.kv import FORMATS, LAYOUTS
from mindnano.checkpoint import RECIPES
from mindnano.cli import machine, options, output
from mindnano.cli.demo import kv_table
from mindnano.cli.doctor import diagnose
from mindnano.cli.doctor_npu import Probe
from mindnano.device.choice import DEVICES
from tests.cli.make_docs import DOCS, markdown


def test_the_docs_are_current():
    assert DOCS.read_text() == markdown(), "run python tests/cli/make_docs.py"


def test_the_options_offer_what_there_is():
    assert get_args(options.KVFormat) == FORMATS
    assert get_args(options.KVLayout) == LAYOUTS
    assert get_args(options.Recipe) == tuple(RECIPES)
    assert get_args(options.Device) == DEVICES


def test_the_demos_table_is_the_references():
    """Expanded sizes in MiB by context, as the reference system has them."""
    ours = {row["context"]: row for row in kv_table()}
    for row in reference.tables()["capacity"]:
        for fmt in ("bf16", "int8"):
            assert ours[row["context"]][f"expanded_{fmt}"] == row[fmt]["kv_mib"]


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


def test_control_characters_cannot_reach_a_terminal():
    text = "a\tb\nc\x1b[2J\x07\x9b\x7f\r"
    assert output.printable(text, Screen(False)) == text
    assert output.printable(text, Screen(True)) == "a\tb\nc\u241b[2J\u2407\ufffd\u2421\u240d"
    assert output.one_line("a\tb\nc\x1b") == "a\u00b7b\u00b7c\u00b7"


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_board_with_an_npu(tmp_path):
    tree(
        tmp_path,
        {
            "proc/cpuinfo": "processor : 0\nFeatures : fp asimd asimddp aes\n",
            "proc/device-tree/model": "FriendlyElec NanoPi M6\0",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "408000\n",
            "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "2304000\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
            "sys/fs/cgroup/memory.max": str(4 << 30),
            "sys/fs/cgroup/memory.current": str(1 << 30),
            "usr/lib/librknnrt.so": "",
            "dev/rknpu": "",
        },
    )
    found = machine.read(tmp_path)
    assert found.cpu == "FriendlyElec NanoPi M6"
    assert found.cpu_flags == ("asimd", "asimddp")
    assert (found.frequency, found.largest_frequency, found.governors) == (408.0, 2304.0, ("powersave",))
    assert (found.cgroup_limit, found.cgroup_left) == (4 << 30, 3 << 30)
    assert found.huge_pages == "never"
    assert (found.librknnrt, found.npu.devices) == ("/usr/lib/librknnrt.so", ("/dev/rknpu",))
    problems = " ".join(finding.problem for finding in diagnose(found, Probe(trouble="no runtime")))
    for words in (
        "3.0 GiB of memory",
        "powersave",
        "huge pages are off",
        "the NPU can't be used: no runtime",
    ):
        assert words in problems


def test_a_machine_that_tells_nothing(tmp_path):
    found = machine.read(tmp_path)
    assert (found.cgroup_limit, found.huge_pages, found.governors, found.frequency) == (None, None, (), None)
    assert found.librknnrt is None
    assert not any("NPU" in finding.problem for finding in diagnose(found, Probe(trouble="not found")))


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_an_unlimited_container_has_no_limit(tmp_path, limit):
    tree(tmp_path, {"sys/fs/cgroup/memory.max": limit, "sys/fs/cgroup/memory.current": "5"})
    assert machine.read(tmp_path).cgroup_limit is None
