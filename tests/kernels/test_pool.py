"""The thread pool: every task exactly once, whatever its size and whoever else wants the cores."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from mindnano import _native

PIECE = 4096  # elements of a task of `apply`


def run_tasks(x: np.ndarray) -> None:
    """One call of ceil(len / PIECE) tasks. In place, so that a task run twice would show: exp(exp(0))."""
    _native.apply("exp", x, x)


@pytest.fixture
def pool_size():
    before = _native.threads()
    yield _native.set_threads
    _native.set_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_task_runs_once(threads, pool_size):
    pool_size(threads)
    rng = np.random.default_rng(threads)
    x = np.empty(40 * PIECE, np.float32)
    for _ in range(3000):
        part = x[: int(rng.integers(0, 40)) * PIECE // int(rng.integers(1, 5))]
        part.fill(0)
        run_tasks(part)
        assert (part == 1).all()


def test_tasks_with_changing_pool_sizes(pool_size):
    rng = np.random.default_rng(0)
    x = np.empty(16 * PIECE, np.float32)
    for _ in range(200):
        pool_size(int(rng.integers(1, 5)))
        for _ in range(5):
            x.fill(0)
            run_tasks(x)
            assert (x == 1).all()
            if rng.random() < 0.02:
                time.sleep(0.002)  # long enough for the threads to fall asleep


def test_calls_from_several_threads(pool_size):
    """Calls wait for each other; none gets lost, and nobody deadlocks."""
    pool_size(3)
    failures: list[int] = []

    def caller(seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = np.empty(8 * PIECE, np.float32)
        for _ in range(300):
            part = x[: int(rng.integers(1, 9)) * PIECE]
            part.fill(0)
            run_tasks(part)
            if not (part == 1).all():
                failures.append(seed)

    callers = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    assert not failures


def test_oversubscribed(pool_size):
    """More threads than cores beside processes that spin. How much slower: benchmarks/busy_neighbour.py."""
    cores = os.cpu_count() or 1
    x = np.empty(64 * PIECE, np.float32)
    pool_size(2 * cores)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        for _ in range(100):
            x[:] = 0
            run_tasks(x)
            assert (x == 1).all()
    finally:
        for process in busy:
            process.kill()
            process.wait()


def tasks() -> set[int]:
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")
def test_threads_keep_to_their_processors(pool_size):
    """Those of the pool and the caller; told so again when it changes; any again afterwards."""
    usable = os.sched_getaffinity(0)
    one, x = min(usable), np.zeros(64 * PIECE, np.float32)
    others = tasks()
    try:
        for threads, cpus, wanted in (
            (3, [one], {one}),
            (3, [], usable),
            (2, [one], {one}),
            (4, None, {one}),
        ):
            _native.set_threads(threads, cpus)
            run_tasks(x)
            for _ in range(1000):  # a thread keeps to its processors once it has started
                started = tasks() - others
                if len(started) >= threads - 1 and all(os.sched_getaffinity(t) == wanted for t in started):
                    break
                time.sleep(0.01)
            else:
                pytest.fail(f"{threads} threads on {cpus}: {[os.sched_getaffinity(t) for t in started]}")
            assert os.sched_getaffinity(0) == wanted
            assert _native.cpus() == ([one] if wanted == {one} else [])
    finally:
        _native.set_threads(1, [])
        run_tasks(x)
    assert os.sched_getaffinity(0) == usable


def test_threads_out_of_range_are_refused():
    for bad in (0, -1, 257):
        with pytest.raises(ValueError, match="threads: expected 1 to 256"):
            _native.set_threads(bad)
    for bad in ([-1], [0, 1024]):
        with pytest.raises(ValueError, match="cpus: expected 0 to 1023"):
            _native.set_threads(1, bad)
