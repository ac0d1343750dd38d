"""`mindnano plan`, the check before a start, and plan against truth."""

import os
from pathlib import Path

import pytest

from mindnano import LLM
from mindnano.bench import reference
from mindnano.bench.memory import LIMIT, measure
from mindnano.checkpoint import summarize
from mindnano.engine.memory import Available, Setup, choose_context, plan_memory, resident
from mindnano.errors import MindNanoError, OutOfMemoryError
from mindnano.server import slots
from tests.cli.program import last_json, run

CONFIG = Path(__file__).parents[1] / "data" / "ling-3.0-tiny.config.json"
MIB = 1 << 20


def setup(**changes):
    kind = {"layout": "latent", "fmt": "int8", "slots": 1, "block": 4096, "threads": 2, "cache_budget": 0}
    return Setup.of(summarize(CONFIG, None), **(kind | changes))


def rows(*arguments):
    found = last_json(run("plan", CONFIG, "--json", *arguments))
    return {(row["kv_layout"], row["kv_format"], row["context"]): row for row in found["rows"]}


def test_the_expanded_rows_are_the_references():
    found = rows("--ram", "32GiB")
    for row in reference.tables()["capacity"]:
        for fmt in ("bf16", "int8"):
            assert found["expanded", fmt, row["context"]]["kv"] == row[fmt]["kv_mib"] * MIB


def test_fixed_and_per_token_make_the_sum():
    for row in rows("--ram", "32GiB", "--slots", 3).values():
        assert row["fixed"] + row["per_token"] * row["context"] == row["total"]
        parts = ("weights", "kv", "states", "checkpoints", "scratch", "runtime")
        assert sum(row[part] for part in parts) == row["total"]
        assert row["left"] == 32 * 1024 * MIB - row["total"]


def test_verdicts():
    need = rows("--ram", "32GiB", "--ctx", "128K", "--kv", "int8")["latent", "int8", 131072]["total"]
    for ram, word in ((need + 512 * MIB, "fits"), (need, "tight"), (need - MIB, "does not fit")):
        found = rows("--ram", ram, "--ctx", "128K", "--kv", "int8")
        assert found["latent", "int8", 131072]["verdict"] == word
    beyond = rows("--ram", "32GiB", "--ctx", "256K", "--kv", "int8")["latent", "int8", 262144]
    assert beyond["verdict"] == "beyond trained context"


def test_a_baseline_already_holds_its_cache():
    """Predicted: the measured RSS and what the cache grows by, 246 -> 492 MiB in the reference's tables."""
    kind = ("--kv", "int8", "--kv-layout", "expanded", "--ctx", "8K,16K", "--ram", "16GiB")
    found = rows(*kind, "--baseline", "8K=5750MiB")
    assert found["expanded", "int8", 8192]["predicted"] == 5750 * MIB
    assert found["expanded", "int8", 16384]["predicted"] == (5750 + 492 - 246) * MIB
    done = run("plan", CONFIG, "--baseline", "8K=5750MiB")
    assert done.returncode == 2
    assert "--kv-layout and --kv" in done.stderr.decode()


def test_what_is_tight_or_beyond_starts_only_when_asked():
    plan = plan_memory(setup(), 32768)
    tight = Available(plan.total + 100 * MIB, "MemAvailable")
    with pytest.raises(OutOfMemoryError, match="--allow-tight starts anyway") as refused:
        choose_context(setup(), 32768, tight, 512 * MIB)
    assert refused.value.need == plan.total + 512 * MIB
    assert choose_context(setup(), 32768, tight, 512 * MIB, allow_tight=True) == 32768
    with pytest.raises(OutOfMemoryError, match="does not fit"):
        choose_context(setup(), 32768, Available(plan.total - 1, "MemAvailable"), 512 * MIB, allow_tight=True)
    plenty = Available(1 << 40, "MemAvailable")
    with pytest.raises(MindNanoError, match="--force"):
        choose_context(setup(), 262144, plenty, 0)
    assert choose_context(setup(), 262144, plenty, 0, force=True) == 262144


@pytest.mark.parametrize(
    "command", ["generate", "chat", "serve", "bench depth", "bench memory", "bench reuse"]
)
def test_every_command_that_opens_a_model_has_the_ways_out(command):
    text = run(*command.split(), "--help").stdout.decode()
    assert "--allow-tight" in text
    assert "--force" in text


def test_a_forced_context_runs():
    with LLM(context=256) as llm:
        trained = llm.config.max_position_embeddings
    done = run("generate", "--prompt", "a", "--max-tokens", 2, "--ctx", trained + 256, "--force", "--json")
    assert last_json(done)["engine"]["context"] == trained + 256


def test_slots_leave_room_for_what_was_asked_for(monkeypatch):
    """A larger cache budget, or an NPU's memory, leaves room for fewer slots."""
    one = plan_memory(setup(), 32768)
    more = plan_memory(setup(slots=4), 32768).total - one.total
    monkeypatch.setattr(slots, "available", lambda: Available(one.total + more, "MemAvailable"))
    ask = (CONFIG, None, "latent", "int8", 2)
    assert slots.slots_for(*ask, 0, 32768, 0, "cpu") == 4
    assert slots.slots_for(*ask, more, 32768, 0, "cpu") == 1
    monkeypatch.setattr(slots.Devices, "planned_bytes", lambda *_: more)
    assert slots.slots_for(*ask, 0, 32768, 0, "auto") == 1


def test_plan_and_truth_are_measured_in_a_process_of_their_own():
    """The model is far too small for the 3 % of a real one; that is `make test-full`."""
    found = measure(None, "latent", "int8", 4096, threads=1)
    assert found.tokens == 2048
    assert 0 < found.measured_ready <= found.measured_peak
    own = Setup.of(
        summarize(None, None),
        layout="latent",
        fmt="int8",
        slots=1,
        block=4096,
        threads=1,
        cache_budget=512 * MIB,
    )
    assert (found.planned_ready, found.planned_peak) == (resident(own, 4096, 0), resident(own, 4096, 2048))


@pytest.mark.full
@pytest.mark.parametrize("layout", ["latent", "expanded"])
@pytest.mark.parametrize("fmt", ["bf16", "int8"])
@pytest.mark.parametrize("context", [2048, 8192])
def test_plan_and_truth_of_the_full_model(layout, fmt, context):
    found = measure(os.environ["MINDNANO_FULL"], layout, fmt, context)
    assert abs(found.error) < LIMIT
