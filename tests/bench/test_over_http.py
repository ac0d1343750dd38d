"""Against the real server: what a benchmark records, resumes, marks, and leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from mindnano.bench import campaign as campaign_module
from mindnano.bench import perf
from mindnano.bench.compare import by_side, comparisons, name_of
from mindnano.bench.compare import compare as held_together
from mindnano.bench.curves import curves
from mindnano.bench.load import Driver, Load, local_counter
from mindnano.bench.machine_state import Watch
from mindnano.bench.records import Point, Results, Run, points, read_folder
from mindnano.bench.servers import Setting, open_server
from mindnano.bench.servers.client import Client, RequestError
from mindnano.bench.servers.process import StartError
from mindnano.cache.slots import kv_bytes
from mindnano.checkpoint import tiny
from mindnano.errors import MindNanoError
from tests.bench.conftest import INT8, LATENT, campaign

MIB = 1 << 20


def speed_runs(folder):
    return [p for p in points(read_folder(folder), "perf") if not p.side and p.concurrency == 1]


def test_a_run_has_what_the_reference_records_and_more(measured):
    for point in speed_runs(measured):
        assert (point.status, point.finish_reason) == ("ok", "length")
        assert point.prompt_tokens == point.input_tokens  # exact, chat template included
        assert (point.completion_tokens, point.cached_tokens, point.fallbacks) == (8, 0, 0)
        assert (point.synthetic, point.device, point.server) == (True, "cpu", "mindnano")
        assert 0 < point.engine_ttft_s < point.ttft_s < point.total_s
        assert point.decode_tok_s > 0
        assert point.inter_token_p50_s <= point.inter_token_p95_s <= point.inter_token_p99_s
        assert sum(point.stage_s.values()) > 0
        assert point.mla_calls["cpu"] > 0
        assert 10 < point.rss_mib <= point.peak_rss_mib < 500
        assert point.vm_swap_mib == 0
        assert point.machine["load"] >= 0
        assert point.warmup_s > 0


def test_kv_bytes_are_those_of_the_layout_and_format(measured):
    config = tiny.config()
    for point in speed_runs(measured):
        expected = kv_bytes(config, point.kv_layout, point.kv_format, point.context_tokens) / MIB
        assert point.kv_capacity_mib == pytest.approx(expected, rel=1e-5)


def test_several_clients_at_once(measured):
    (point,) = [p for p in points(read_folder(measured), "perf") if p.concurrency == 2]
    assert point.slots == 2
    assert [one["prompt_tokens"] for one in point.requests] == [256, 256]
    assert point.throughput_tok_s == pytest.approx(16 / point.total_s, rel=1e-4)
    assert point.stage_s is None  # a step that both share would count twice


def test_capacity_and_what_does_not_fit(measured):
    fits, refused = points(read_folder(measured), "capacity")
    assert fits.status == "ok"
    assert fits.filled_tokens == LATENT.context // 2
    assert fits.rss_mib < fits.peak_rss_mib
    assert fits.predicted_from == "plan"
    assert fits.predicted_filled_rss_mib > fits.kv_capacity_mib
    assert fits.mem_available_mib > 100
    assert refused.status == "not_started"
    assert refused.context_tokens == 1 << 30
    assert "beyond" in refused.reason
    assert refused.rss_mib is None


def test_pairs_are_compared(measured):
    records = read_folder(measured)
    name = name_of(LATENT, INT8)
    assert comparisons(records) == [name]
    runs = [p for p in points(records, "perf") if p.comparison == name]
    assert [(p.pair, p.side) for p in runs] == [(0, "A"), (0, "B"), (1, "B"), (1, "A")]
    assert {p.kv_format for p in runs if p.side == "A"} == {"bf16"}
    found = held_together(records, by_side(name))
    assert [one.measure for one in found] == ["ttft_s", "decode_tok_s"]
    assert all(one.ratio.n == 2 and one.verdict == "no difference shown" for one in found)


def test_curves_for_the_page(measured):
    found = curves(measured)
    assert [(p["kv_format"], p["context_tokens"]) for p in found] == [
        ("bf16", 256), ("bf16", 512), ("int8", 256), ("int8", 512)
    ]  # fmt: skip
    assert all(p["kv_layout"] == "latent" and p["ttft_s"] > 0 and p["decode_tok_s"] > 0 for p in found)


def test_results_hold_no_path(measured):
    text = (measured / "results.jsonl").read_text()
    assert str(measured.parent) not in text
    assert str(Path.home()) + "/" not in text


def test_nothing_is_measured_twice(measured, tmp_path, monkeypatch):
    (tmp_path / "results.jsonl").write_bytes((measured / "results.jsonl").read_bytes())
    plan = perf.visits([LATENT, INT8], [Load(256, 8), Load(512, 8)], rounds=1)
    with Results(tmp_path) as results:
        before = len(list(points(results.records)))
        with monkeypatch.context() as patch:
            patch.setattr(campaign_module, "open_server", lambda *given: pytest.fail("a server was started"))
            perf.run(campaign(results), plan)
        assert len(list(points(results.records))) == before
        # A third length is measured, and only that.
        perf.run(campaign(results), perf.visits([LATENT], [Load(256, 8), Load(300, 4)], rounds=1))
        (new,) = list(points(results.records))[before:]
    assert (new.input_tokens, new.prompt_tokens) == (300, 300)


def test_disturbed_runs_are_repeated_and_kept(tmp_path, monkeypatch):
    """The machine is watched for real; only the threshold is set so that any run is disturbed by this test itself."""
    monkeypatch.setattr("mindnano.bench.machine_state.State.disturbances", lambda self: ["a test said so"])
    with Results(tmp_path) as results:
        ours = campaign(results)
        ours.retries = 1
        plan = perf.visits([LATENT], [Load(200, 4)], rounds=1)
        perf.run(ours, plan)
        runs = list(points(results.records, "perf"))
        assert [(p.attempt, p.disturbed) for p in runs] == [(0, ["a test said so"]), (1, ["a test said so"])]
        perf.run(ours, plan)  # tried often enough
        assert len(list(points(results.records, "perf"))) == 2


def test_a_reused_prefix_is_seen_and_marked(tmp_path):
    """The prefix cache is on, and the same prompt is sent twice: the second one is no measurement."""
    setting = replace(LATENT, extra=("--cache-budget", "64MiB"))
    with open_server(setting, tmp_path) as server:
        driver = Driver(server, "same", local_counter(None))
        driver.warm_up()
        first, second = (driver.run(Load(400, 4), "seed") for _ in range(2))
    assert second.cached_tokens > (first.cached_tokens or 0)  # more than the chat template's beginning
    assert any("came from a cache" in why for why in second.disturbed)


def test_any_server_at_a_url_is_measured_and_left_running(tmp_path):
    with open_server(INT8, tmp_path / "logs") as server:
        url = f"http://127.0.0.1:{server.client._port}"
        setting = Setting(preset="url", url=url)
        with Results(tmp_path) as results:
            ours = campaign(results, tokenizer=None)
            ours.tokenizer = str(tiny_file(tmp_path))
            perf.run(ours, perf.visits([setting], [Load(256, 4)], rounds=1))
            (point,) = points(results.records, "perf")
        assert server.client.ready()
    assert (point.kv_layout, point.kv_format, point.slots) == ("latent", "int8", 1)
    assert point.setting == url
    assert point.rss_mib > 10  # read from the process that listens there


def tiny_file(folder):
    path = folder / "tiny.mn"
    tiny.build(path)
    return path


def test_a_template_of_ones_own(tmp_path):
    command = (
        f"{sys.executable} -m mindnano serve --port {{port}} --ctx {{context}} --slots {{slots}} --kv {{kv}}"
    )
    setting = Setting(preset="custom", command=command, kv="fp16", context=1024)
    with open_server(setting, tmp_path) as server:
        assert server.facts.kv_format == "fp16"
        assert server.facts.context == 1024
        pid = server.pids[0]
    assert not psutil.pid_exists(pid)


def test_a_server_that_cannot_start_says_why(tmp_path):
    with (
        pytest.raises(StartError, match="beyond") as refused,
        open_server(replace(LATENT, context=1 << 30), tmp_path),
    ):
        pass
    assert refused.value.refused
    with pytest.raises(StartError, match="int3") as failed, open_server(replace(LATENT, kv="int3"), tmp_path):
        pass
    assert not failed.value.refused
    with (
        pytest.raises(MindNanoError, match="no server answers"),
        open_server(Setting(url="http://127.0.0.1:9"), tmp_path),
    ):
        pass


def test_a_server_without_a_tokenizer_asks_for_one(tmp_path):
    with open_server(LATENT, tmp_path) as server:
        if not cannot_count(server.client):
            pytest.skip("this server counts tokens")
        with pytest.raises(MindNanoError, match="--tokenizer"):
            Driver(server, "seed").warm_up()


def cannot_count(client: Client) -> bool:
    try:
        client.count("x")
    except RequestError as error:
        return error.status == 404
    return False


START = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have it ignored
from pathlib import Path
from mindnano.bench.servers import Setting, open_server
with open_server(Setting(context=1024), Path(sys.argv[1])) as server:
    print(server.pids[0], flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_ends_with_its_benchmark(tmp_path, number):
    """Ctrl-C, and two ends at which no Python code runs any more."""
    child = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    try:
        server = psutil.Process(int(child.stdout.readline()))
        assert server.is_running()
        child.send_signal(number)
        child.wait(60)
        assert gone(server, seconds=60)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def gone(process: psutil.Process, seconds: float) -> bool:
    """Whether it ends within that time; a zombie has, as nobody may be there to reap it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow  # needs a core that others leave alone
def test_the_watch_sees_who_is_busy():
    code = "import time\nend = time.perf_counter() + 30\nwhile time.perf_counter() < end: pass"
    busy = subprocess.Popen([sys.executable, "-c", code])
    try:
        with Watch([]) as watch:
            time.sleep(1.0)
        with Watch([busy.pid]) as ours:
            time.sleep(0.6)
    finally:
        busy.kill()
        busy.wait()
    # More than the tenth of a core that marks a run as disturbed; on a loaded machine another may be busier.
    assert watch.state.busiest_cores > 0.1
    assert ours.peak_rss_mib > 1
    # It isn't blamed where it is what is measured; others may be.
    with Watch(None) as unknown:
        pass
    assert unknown.state.busiest is None


def test_the_first_line_says_where_and_with_what(measured):
    first = json.loads((measured / "results.jsonl").read_bytes().splitlines()[0])
    assert (first["phase"], first["command"], first["options"]["seed"]) == ("run", "tests", "tests")
    assert isinstance(read_folder(measured)[0], Run)
    assert all(isinstance(one, Point | Run) for one in read_folder(measured))
