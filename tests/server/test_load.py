"""Sixteen clients at once: no 500, every accepted request answered, nothing left over."""

import os

import psutil
import pytest

from .load import load
from .running import Started, until
from .test_about import value

SOAK = int(os.environ.get("MINDNANO_SOAK_SECONDS", "600"))
GROWTH = 24 << 20  # bytes that may come and go: allocator, caches of templates and views


@pytest.fixture
def served(model):
    options = ("--ctx", "1K", "--slots", "4", "--queue", "8", "--session-dir", "none")
    server = Started(model, *options, "--cache-budget", "8MiB")  # full before memory is looked at
    yield server
    assert server.stop() == 0
    assert "Traceback" not in server.log and "ERROR" not in server.log


def left_over(server):
    """Slots, waiting requests and connections that are still taken."""
    with server.client() as client:
        text = client.get("/metrics").text
    mine = [c for c in psutil.Process(server.process.pid).net_connections() if c.status == "ESTABLISHED"]
    return value(text, "mindnano_slots_busy"), value(text, "mindnano_waiting"), len(mine)


def settled(server):
    return until(lambda: left_over(server)[:2] == (0, 0) and left_over(server)[2] <= 1, 40)


def test_a_short_load(served):
    counts, wrong = load(served.url, clients=16, seconds=8)
    assert not wrong, (wrong[:5], counts)
    assert counts["whole 200"] and counts["stream 200"] and counts["left"] and counts["nonsense 400"]
    assert settled(served), left_over(served)


@pytest.mark.slow
@pytest.mark.timeout(SOAK + 300)
def test_a_long_load(served):
    process = psutil.Process(served.process.pid)
    counts, wrong = load(served.url, clients=16, seconds=SOAK // 5)
    assert not wrong, (wrong[:5], counts)
    assert settled(served)
    rss, files, threads = process.memory_info().rss, process.num_fds(), process.num_threads()
    counts, wrong = load(served.url, clients=16, seconds=SOAK - SOAK // 5, seed=1)
    print(dict(counts))
    assert not wrong, (wrong[:5], counts)
    assert settled(served), left_over(served)
    print(f"resident {rss >> 20} -> {process.memory_info().rss >> 20} MiB")
    assert process.memory_info().rss < rss + GROWTH
    assert process.num_fds() <= files + 2 and process.num_threads() <= threads + 8
