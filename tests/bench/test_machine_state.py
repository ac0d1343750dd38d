"""What is read from a board's /proc and /sys, and what counts as a disturbance."""

import os

import pytest

from mindnano.bench import machine_state
from mindnano.bench.machine_state import State, Watch

CPU = "sys/devices/system/cpu/"
BOARD = {
    CPU + "cpu0/cpufreq/scaling_governor": "performance\n",
    CPU + "cpu0/cpufreq/scaling_cur_freq": "1800000\n",
    CPU + "cpu0/cpufreq/cpuinfo_max_freq": "1800000\n",
    CPU + "cpu4/cpufreq/scaling_governor": "performance\n",
    CPU + "cpu4/cpufreq/scaling_cur_freq": "2304000\n",
    CPU + "cpu4/cpufreq/cpuinfo_max_freq": "2304000\n",
    CPU + "cpu0/thermal_throttle/core_throttle_count": "4\n",
    "sys/class/devfreq/fdab0000.npu/cur_freq": "1000000000\n",
    "sys/class/devfreq/dmc/cur_freq": "2400000000\n",
    "sys/class/thermal/thermal_zone0/temp": "61230\n",
    "sys/class/thermal/thermal_zone1/temp": "58000\n",
    "sys/class/thermal/cooling_device0/type": "thermal-cpufreq-0\n",
    "sys/class/thermal/cooling_device0/cur_state": "0\n",
}


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_board_that_runs_freely(tmp_path):
    write(tmp_path, BOARD)
    with Watch(None, tmp_path) as watch:
        pass
    state = watch.state
    assert state.governors == ["performance"]
    assert (state.cpu_mhz_low, state.cpu_mhz_high) == (2304.0, 2304.0)
    assert state.device_mhz == {"dmc": 2400.0, "fdab0000.npu": 1000.0}
    assert state.temperature_c == pytest.approx(61.23)
    assert state.throttled is None


@pytest.mark.parametrize(
    "name, text, said",
    [
        (CPU + "cpu4/cpufreq/scaling_cur_freq", "1608000", "clock fell to 1800 of 2304"),
        ("sys/class/thermal/cooling_device0/cur_state", "2", "thermal-cpufreq-0"),
        (CPU + "cpu0/thermal_throttle/core_throttle_count", "5", "counter rose"),
    ],
)
def test_throttling_during_a_run_is_seen(tmp_path, name, text, said):
    write(tmp_path, BOARD)
    with Watch(None, tmp_path) as watch:
        write(tmp_path, {name: text})
    assert said in watch.state.throttled
    assert any("throttled" in why for why in watch.state.disturbances())


def test_a_low_clock_under_another_governor_is_no_throttling(tmp_path):
    slow = {name: text.replace("performance", "schedutil") for name, text in BOARD.items()}
    write(tmp_path, slow | {CPU + "cpu4/cpufreq/scaling_cur_freq": "816000"})
    with Watch(None, tmp_path) as watch:
        pass
    assert watch.state.throttled is None


def test_a_machine_that_tells_nothing(tmp_path):
    with Watch(None, tmp_path) as watch:
        pass
    assert watch.state.as_dict().keys() <= {"seconds", "load", "mem_available_low_mib", "swap_used_mib"}
    assert watch.state.disturbances() == []


@pytest.mark.parametrize(
    "state, said",
    [
        (State(swap_grew_mib=40), "swap grew by 40 MiB"),
        (State(swapped_out_mib=2), "swap grew by 2 MiB"),
        (State(busiest="make", busiest_cores=0.5), "process make took 50% of a core"),
        (State(gone_cores=0.2), "short-lived"),
        (State(stolen_cores=0.2), "hypervisor"),
    ],
)
def test_disturbances(state, said):
    (why,) = state.disturbances()
    assert said in why


def test_little_is_no_disturbance():
    state = State(swap_grew_mib=0.5, busiest="x", busiest_cores=0.1, gone_cores=0.05, stolen_cores=0)
    assert state.disturbances() == []


def test_steal_and_swap_are_read_from_the_kernels_files(tmp_path):
    write(
        tmp_path, {"proc/stat": "cpu  100 0 50 1000 5 0 0 7 0 0\n", "proc/vmstat": "pswpin 1\npswpout 512\n"}
    )
    busy, stolen = machine_state._busy_seconds(tmp_path)
    ticks = os.sysconf("SC_CLK_TCK")
    assert (busy, stolen) == (150 / ticks, 7 / ticks)
    assert machine_state._swapped_out(tmp_path) == 512 * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
