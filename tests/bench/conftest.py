"""One short benchmark of the built-in model over HTTP, which several tests look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from mindnano.bench import capacity, compare, perf
from mindnano.bench.campaign import Campaign
from mindnano.bench.load import Load
from mindnano.bench.progress import Progress
from mindnano.bench.records import Results
from mindnano.bench.servers import Setting

LATENT = Setting(kv="bf16", kv_layout="latent", context=2048)
INT8 = Setting(kv="int8", kv_layout="latent", context=2048)


def campaign(results: Results, **more: object) -> Campaign:
    """Quiet, and without repeats: other tests run beside this one, so every run may be disturbed."""
    return Campaign(results, Progress(quiet=True), retries=0, seed="tests", **more)


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder: two formats at two lengths, two clients at once, pairs, and contexts that fit and don't."""
    folder = tmp_path_factory.mktemp("measured")
    with Results(folder) as results:
        ours = campaign(results, command="tests")
        perf.run(ours, perf.visits([LATENT, INT8], [Load(256, 8), Load(512, 8)], rounds=1))
        perf.run(ours, perf.visits([INT8], [Load(256, 8, concurrency=2)], rounds=1))
        compare.run(ours, LATENT, INT8, [Load(256, 8)], pairs=2)
        capacity.run(ours, [LATENT, Setting(kv="bf16", kv_layout="latent", context=1 << 30)])
    return folder
