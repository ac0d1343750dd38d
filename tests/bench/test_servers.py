"""Command lines of known servers, and what they say about themselves."""

import itertools
import sys
from pathlib import Path

import pytest

from mindnano.bench.load import Load
from mindnano.bench.perf import context_for, visits
from mindnano.bench.servers import Setting
from mindnano.bench.servers.facts import from_props, kv_from_log
from mindnano.bench.servers.presets import command, guess
from mindnano.errors import MindNanoError


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.gguf"
    path.touch()
    return str(path)


def test_mindnano():
    words = command(Setting(kv="int8", kv_layout="expanded", context=16384, slots=2, threads=4), 1234)
    assert words[:3] == [sys.executable, "-m", "mindnano"]
    pairs = dict(itertools.pairwise(words))
    assert (pairs["--port"], pairs["--ctx"], pairs["--slots"]) == ("1234", "16384", "2")
    assert (pairs["--kv"], pairs["--kv-layout"], pairs["--threads"]) == ("int8", "expanded", "4")
    assert (pairs["--cache-budget"], pairs["--host"]) == ("0", "127.0.0.1")


def test_llama_server(model):
    """Options as llama.cpp's tools/server/README.md has them; its context is that of all slots."""
    words = command(
        Setting(preset="llama-server", binary=sys.executable, model=model, kv="int8", context=8192, slots=4),
        1,
    )
    pairs = dict(itertools.pairwise(words))
    assert (pairs["--cache-type-k"], pairs["--cache-type-v"], pairs["--flash-attn"]) == ("q8_0", "q8_0", "on")
    assert (pairs["--ctx-size"], pairs["--parallel"], pairs["--model"]) == ("32768", "4", model)
    with pytest.raises(MindNanoError, match="GGUF"):
        command(Setting(preset="llama-server", binary=sys.executable), 1)
    assert guess("/opt/llama.cpp/build/bin/llama-server") == "llama-server"
    assert guess(".venv/bin/mindnano") == "mindnano"


def test_a_template_runs_no_shell():
    setting = Setting(
        preset="custom", command=f"{sys.executable} serve '{{model}}' --port={{port}} ; rm -rf x", model="a b"
    )
    assert command(setting, 9)[1:] == ["serve", "a b", "--port=9", ";", "rm", "-rf", "x"]


@pytest.mark.parametrize(
    "template", [None, "", "no-such-program-here {port}", "x {nothing}", "x {0}", "x {port.real.y}"]
)
def test_templates_that_cannot_work(template):
    with pytest.raises(MindNanoError):
        command(Setting(preset="custom", command=template), 1)


def test_wrong_settings():
    with pytest.raises(MindNanoError, match="no such model"):
        command(Setting(model="/none/such.mn"), 1)
    with pytest.raises(MindNanoError, match="preset"):
        command(Setting(preset="ollama"), 1)
    with pytest.raises(MindNanoError, match="http"):
        Setting(url="ftp://x")


def test_labels_tell_settings_apart_and_show_no_folder(model):
    settings = [
        Setting(model=model), Setting(model=model, kv="int8"), Setting(model=model, kv_layout="latent"),
        Setting(model=model, context=4096), Setting(model=model, slots=2), Setting(model=model, threads=1),
        Setting(model=model, device="cpu"), Setting(preset="llama-server", model=model), Setting(),
        Setting(url="http://127.0.0.1:1"), Setting(model=model, extra=("--x",)),
    ]  # fmt: skip
    labels = [one.label for one in settings]
    assert len(set(labels)) == len(labels)
    assert not any(str(Path(model).parent) in label for label in labels)


def test_what_llama_server_says(tmp_path):
    found = from_props({
        "default_generation_settings": {"n_ctx": 8192}, "total_slots": 2, "model_path": "/home/me/m.gguf",
        "build_info": "b6000",
    })  # fmt: skip
    assert (found.kind, found.context, found.slots, found.model, found.version) == (
        "llama-server", 8192, 2, "m.gguf", "b6000"
    )  # fmt: skip
    assert (found.kv_mib, found.kv_format, found.synthetic) == (None, None, None)
    log = tmp_path / "log"
    log.write_text(
        "llama_kv_cache:        CPU KV buffer size =   480.00 MiB\nx: CPU KV buffer size = 20.50 MiB\n"
    )
    assert kv_from_log(log) == 500.5
    assert kv_from_log(tmp_path / "none") is None


@pytest.mark.parametrize(
    "props", [None, [], "x", {}, {"kv": 1, "model": 2}, {"kv": {}, "model": {}, "memory": 5, "device": []}]
)
def test_what_says_nothing_is_not_guessed(props):
    found = from_props(props)
    assert (found.context, found.kv_format, found.kv_mib, found.plan_mib, found.synthetic) == (None,) * 5


def test_contexts_are_the_references():
    assert [context_for(Load(n)) for n in (128, 4096, 8192, 16384, 65536)] == [
        8192,
        8192,
        16384,
        32768,
        131072,
    ]
    assert context_for(Load(64, 9000)) == 18000


def test_rounds_go_forward_and_backward():
    settings = [Setting(kv=kv) for kv in ("bf16", "int8")]
    plan = visits(settings, [Load(128), Load(8192)], rounds=2)
    order = [(v.round, v.setting.context, v.setting.kv) for v in plan]
    first = [(0, 8192, "bf16"), (0, 8192, "int8"), (0, 16384, "bf16"), (0, 16384, "int8")]
    assert order == first + [(1, *rest) for _, *rest in first[::-1]]
    with pytest.raises(MindNanoError, match="don't fit"):
        visits(settings, [Load(8192)], 1, context=4096)
