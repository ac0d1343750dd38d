"""What doctor tells of a board, from a made-up /proc, /sys and /dev."""

from dataclasses import replace

import pytest

from mindnano.cli import machine
from mindnano.cli.doctor_npu import Probe, facts, probe, problems
from mindnano.device.rknpu import system

BOARD = {
    "proc/device-tree/model": "FriendlyElec NanoPi M6\0",
    "sys/module/rknpu/version": "RKNPU driver: v0.9.8\n",
    "sys/class/devfreq/fdab0000.npu/cur_freq": "1000000000\n",
    "sys/class/devfreq/fdab0000.npu/max_freq": "1000000000\n",
    "sys/class/devfreq/fdab0000.npu/governor": "rknpu_ondemand\n",
    "sys/class/devfreq/dmc/cur_freq": "2400000000\n",
    "sys/class/devfreq/dmc/max_freq": "2400000000\n",
    "sys/class/devfreq/dmc/governor": "performance\n",
    "sys/class/thermal/thermal_zone0/type": "soc-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "52700\n",
    "sys/class/thermal/thermal_zone6/type": "npu-thermal\n",
    "sys/class/thermal/thermal_zone6/temp": "49000\n",
    "proc/rknpu/load": "NPU load:  Core0:  0%, Core1:  3%, Core2:  0%,\n",
    "usr/lib/librknnrt.so": "",
    "dev/rknpu": "",
}
GOOD = Probe("2.3.2 (429f97ae6b)", "0.9.8", False, 3, 3 << 30, 3 << 30, calibrated="/some/file.json")


def board(root, **changed):
    for name, text in (BOARD | {name.replace("__", "/"): text for name, text in changed.items()}).items():
        if text is not None:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return machine.read(root)


def test_a_board_is_read(tmp_path):
    found = board(tmp_path).npu
    assert (found.devices, found.readable, found.driver) == (("/dev/rknpu",), ("/dev/rknpu",), "0.9.8")
    assert (found.npu_mhz, found.npu_largest_mhz, found.npu_governor) == (1000, 1000, "rknpu_ondemand")
    assert (found.dmc_mhz, found.dmc_largest_mhz, found.dmc_governor) == (2400, 2400, "performance")
    assert found.temperatures == {"soc-thermal": 52.7, "npu-thermal": 49.0}
    assert "Core1:  3%" in found.load


def test_a_render_node_is_the_npus_by_its_driver(tmp_path):
    node = tmp_path / "sys/class/drm/renderD129/device"
    node.mkdir(parents=True)
    (tmp_path / "sys/bus/platform/drivers/RKNPU").mkdir(parents=True)
    (node / "driver").symlink_to(tmp_path / "sys/bus/platform/drivers/RKNPU")
    other = tmp_path / "sys/class/drm/renderD128/device"
    other.mkdir(parents=True)
    (tmp_path / "sys/bus/platform/drivers/panthor").mkdir()
    (other / "driver").symlink_to(tmp_path / "sys/bus/platform/drivers/panthor")
    found = system.read(tmp_path)
    assert (found.devices, found.readable) == (("/dev/dri/renderD129",), ())


def test_what_is_shown(tmp_path):
    shown = dict(facts(board(tmp_path), GOOD))
    assert shown["RKNN"] == "runtime 2.3.2 (429f97ae6b), driver 0.9.8, 3 cores tested"
    assert shown["NPU memory"] == "at least 3.0 GiB free of 4 GiB of address space"
    less = replace(GOOD, mappable=1 << 30)
    assert dict(facts(board(tmp_path), less))["NPU memory"] == "1.0 GiB free of 4 GiB of address space"
    assert shown["NPU clock"] == "1000 of 1000 MHz, governor rknpu_ondemand"
    assert shown["DMC clock"] == "2400 of 2400 MHz, governor performance"
    assert shown["Temperature"] == "soc 53, npu 49 degrees C"
    assert shown["NPU load"] == "NPU load: Core0: 0%, Core1: 3%, Core2: 0%,"
    assert problems(board(tmp_path), GOOD) == []


@pytest.mark.parametrize(
    ("changed", "found", "words"),
    [
        ({"sys__class__devfreq__dmc__cur_freq": "528000000"}, GOOD, "DMC) is 528 of 2400 MHz"),
        (
            {
                "sys__class__devfreq__fdab0000.npu__cur_freq": "300000000",
                "sys__class__devfreq__fdab0000.npu__governor": "powersave",
            },
            GOOD,
            "held at 300 of 1000 MHz",
        ),
        ({"sys__class__thermal__thermal_zone0__temp": "88000"}, GOOD, "soc-thermal 88 degrees"),
        ({}, Probe(trouble="all zeros"), "the NPU can't be used: all zeros"),
        ({}, Probe("2.3.2 (emulated)", "0.9.8", emulated=True, calibrated="x"), "it is an emulation"),
        ({}, Probe("2.3.2", "0.9.8"), "here but not calibrated"),
        ({}, Probe("2.3.2", "0.9.8", calibration_trouble="a broken file"), "a broken file"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, changed, found, words):
    told = problems(board(tmp_path, **changed), found)
    assert len(told) == 1 and words in told[0][0] and told[0][1]


def test_a_device_that_may_not_be_opened_is_told(tmp_path):
    (tmp_path / "dev/rknpu").mkdir(parents=True)  # root may open anything but this
    told = problems(board(tmp_path, dev__rknpu=None), GOOD)
    assert "may not open the NPU's device /dev/rknpu" in told[0][0] and "render" in told[0][1]


def test_a_machine_without_an_npu_hears_nothing_of_it(tmp_path):
    assert problems(machine.read(tmp_path), Probe(trouble="not found")) == []
    assert dict(facts(machine.read(tmp_path), Probe(trouble="not found"))) == {
        "NPU": "no device node", "librknnrt": "not found",
    }  # fmt: skip


def test_the_probe_opens_tests_and_closes(emulator):
    found = probe()
    assert (found.runtime, found.driver, found.emulated, found.cores) == (
        "2.3.2 (emulated)",
        "0.9.8",
        True,
        3,
    )
    assert found.mappable == found.mapped_for_test == 128 << 20
    assert found.uses == "cpu" and found.trouble is None
    emulator.fault("zeros@1+")
    assert "all zeros" in probe().trouble


def test_a_full_address_space_is_told(emulator, monkeypatch):
    monkeypatch.setenv("RKNN_EMU_ADDRESS_SPACE", str(100 << 20))
    emulator.expected = True
    assert probe().mappable == 64 << 20
