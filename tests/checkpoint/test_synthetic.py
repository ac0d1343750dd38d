"""Synthetic models: marked, deterministic, of the right statistics, with a tokenizer that loads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import checkpoint_factory as factory
import numpy as np
import numpy_packing as naive
import pytest

from mindnano import data as package_data
from mindnano.checkpoint import (
    RECIPES,
    byte_tokenizer,
    layout,
    load_config,
    open_model,
    summarize,
    synth,
    tiny,
)
from mindnano.checkpoint.safetensors import SafetensorsFile
from mindnano.errors import MindNanoError


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("base", [factory.LING, factory.KIMI], ids=["ling", "kimi"])
def test_odd_shapes_in_every_recipe(tmp_path, base, recipe):
    size = synth(load_config(base), tmp_path / "p", recipe)
    files = open_model(tmp_path / "p")
    assert files.synthetic and files.recipe == recipe and files.nbytes == size
    assert files.config == load_config(base)


def test_depends_on_the_seed_alone(tmp_path):
    config = load_config(factory.LING)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        synth(config, tmp_path / name, "mixed", seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c
    assert open_model(tmp_path / "a").identity != open_model(tmp_path / "c").identity


def dequantized(file, name, rows, cols, index=None):
    info = file.tensors[name]
    data = file.array(info)
    scales = file.array(file.tensors[name + ".scales"]) if info.dtype == "I8" else None
    if index is not None:
        data, scales = data[index], None if scales is None else scales[index]
    if info.dtype == "U8":
        return naive.dequantize_w4(data, rows, cols)
    return naive.dequantize_w8(data, scales, rows, cols) if info.dtype == "I8" else naive.from_bf16(data)


@pytest.mark.parametrize("recipe", ["mixed", "w4", "w8", "bf16"])
def test_weights_look_like_weights(tmp_path, recipe):
    """Standard deviation 1 / sqrt(inputs), no bias, no repetition, and no two experts alike."""
    config = tiny.config(4)
    synth(config, tmp_path / "p", recipe)
    file = SafetensorsFile(tmp_path / "p")
    items = {item.name: item for item in layout.items(config)}
    kda = items["layers.0.kda.in"]
    weights = dequantized(file, kda.name, kda.rows, kda.cols)
    assert weights.shape == (kda.rows, 192)
    assert abs(weights.std() * np.sqrt(192) - 1) < 0.1 and abs(weights.mean()) < 0.002
    assert abs(np.corrcoef(weights[:16].ravel(), weights[16:32].ravel())[0, 1]) < 0.1
    experts = items["layers.1.moe.experts"]
    down = [dequantized(file, experts.name + ".down", 192, 64, e) for e in (0, 1)]
    assert abs(down[0].std() * np.sqrt(2 * 4 * 64) - 1) < 0.1
    assert abs(np.corrcoef(down[0].ravel(), down[1].ravel())[0, 1]) < 0.1
    norm = file.array(file.tensors["norm"])
    assert abs(norm.mean() - 1) < 0.05


@pytest.mark.parametrize("recipe", ["mixed", "w4"])
def test_padding_is_as_the_kernels_want_it(tmp_path, recipe):
    """Padding rows and inputs: scale 0, nibble 8 or int8 0, where sizes are no multiples of the panels."""
    config = load_config(factory.LING)
    synth(config, tmp_path / "p", recipe)
    file = SafetensorsFile(tmp_path / "p")
    data = file.array(file.tensors["layers.1.moe.experts.down"])[3]  # [72, 36]: 5 panels, 2 groups
    values, scales = naive.unpack_w4(data, 80, 64)
    assert not values[72:].any() and not scales[72:].any() and not values[:, 36:].any()
    assert values[:72, :36].any(axis=1).all() and (scales[:72] > 0).all()
    both = file.array(file.tensors["layers.1.moe.experts.gate_up"])[3]
    values, scales = naive.unpack_w4(both, 80, 96)
    real = (np.arange(80) // 16 * 8 + np.arange(80) % 8) < 36  # rows of gate and up that are no padding
    assert not values[~real].any() and not scales[~real].any() and (scales[real] > 0).all()


def test_kv_b_and_its_absorbed_forms_are_one_matrix(tmp_path):
    config = load_config(factory.LING)
    synth(config, tmp_path / "p", "w4")
    file = SafetensorsFile(tmp_path / "p")

    def raw(name):
        return file.array(file.tensors["layers.3.mla." + name])

    kv_b = naive.unpack_w8(raw("kv_b"), 3 * (24 + 16), 48)
    scale = raw("kv_b.scales")[: 3 * (24 + 16)]
    for head in range(3):
        assert np.array_equal(
            naive.unpack_w8(raw("k_absorb")[head], 48, 24).T, kv_b[head * 24 : head * 24 + 24]
        )
        values = kv_b[72 + head * 16 : 88 + head * 16]
        assert np.array_equal(naive.unpack_w8(raw("v_absorb")[head], 16, 48), values)
        assert np.array_equal(raw("v_absorb.scales")[head][:16], scale[72 + head * 16 : 88 + head * 16])
    assert np.array_equal(raw("k_absorb_scale"), scale[:72])
    assert (raw("k_absorb.scales")[:, :48] == 1).all()


@pytest.fixture
def untrained(monkeypatch, tmp_path):
    """As in a package without a trained model."""
    monkeypatch.setattr(package_data, "TRAINED", tmp_path / "none")


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """As in a package with one; here random weights of another seed stand for it."""
    path = tmp_path / "builtin"
    tiny.build(path, seed=8)
    monkeypatch.setattr(package_data, "TRAINED", path)
    return path


def test_a_trained_model_is_the_builtin_one(trained):
    file, opened, made = open_model(trained), open_model(None), tiny.open_builtin("mixed")
    assert opened.path is None and opened.identity == file.identity != made.identity
    found = summarize(None)
    assert found.name == "built-in" and found.nbytes == summarize(trained).nbytes
    for recipe in (None, "mixed"):
        assert open_model(None, recipe).recipe == summarize(None, recipe).recipe == "mixed"
    for call in (open_model, summarize):
        with pytest.raises(MindNanoError, match="w8: the built-in model is packed as mixed"):
            call(None, "w8")


def test_builtin_model_needs_no_file(untrained):
    one, two = open_model(None), open_model(None, "w8")
    assert one.synthetic and one.recipe == "mixed" and two.recipe == "w8"
    assert one.identity == open_model(None).identity != two.identity
    assert one.weights.linear("lm_head")[0].rows == one.config.vocab_size


def test_builtin_model_as_a_file(untrained, tmp_path):
    tiny.build(tmp_path / "tiny.mn.safetensors")
    file, memory = open_model(tmp_path / "tiny.mn.safetensors"), open_model(None)
    assert file.config == memory.config and file.tokenizer_json == memory.tokenizer_json
    name = "layers.3.mla.k_absorb_scale"
    assert np.array_equal(file.weights.vector(name), memory.weights.vector(name))


def test_target_is_kept_unless_forced(tmp_path):
    tiny.build(tmp_path / "t")
    with pytest.raises(MindNanoError, match="exists already"):
        tiny.build(tmp_path / "t")
    tiny.build(tmp_path / "t", force=True)
    with pytest.raises(KeyboardInterrupt):
        synth(tiny.config(), tmp_path / "u", progress=lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert [p.name for p in tmp_path.iterdir()] == ["t"]


@pytest.mark.parametrize("text", ["hello", "Grüße, 世界 \U0001f600", "a\n\tb  c", "<|role_end|>x", ""])
def test_byte_tokenizer(text):
    tokenizers = pytest.importorskip("tokenizers")
    config = tiny.config()
    tokenizer = tokenizers.Tokenizer.from_str(byte_tokenizer.build(config).decode())
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    plain = text.replace("<|role_end|>", "")
    assert [i for i in ids if i < 256] == list(plain.encode())
    assert (259 in ids) == (plain != text)


def test_byte_tokenizer_of_the_official_size():
    tokenizers = pytest.importorskip("tokenizers")
    config = load_config({**factory.LING, "vocab_size": 157184, **OFFICIAL_IDS})
    tokenizer = tokenizers.Tokenizer.from_str(byte_tokenizer.build(config).decode())
    assert tokenizer.get_vocab_size() == 157184
    assert tokenizer.token_to_id("<|startoftext|>") == 156891
    assert tokenizer.token_to_id("<|endoftext|>") == 156892
    assert tokenizer.token_to_id("<|role_end|>") == 156895
    words = tokenizer.decode(list(range(1000, 1200)))
    assert words.isascii() and words.count(" ") == 200 and len(set(words.split())) == 200
    assert tokenizer.encode("x<|endoftext|>").ids == [ord("x"), 156892]


OFFICIAL_IDS = {"bos_token_id": 156891, "pad_token_id": 156892, "eos_token_id": 156895}


def test_a_vocabulary_too_small_for_bytes(tmp_path):
    small = {**factory.LING, "vocab_size": 200, "bos_token_id": 1, "pad_token_id": 2, "eos_token_id": 3}
    with pytest.raises(MindNanoError, match="vocab_size is 200"):
        synth(load_config(small), tmp_path / "p")


def render(**values):
    jinja = pytest.importorskip("jinja2.sandbox")
    environment = jinja.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(byte_tokenizer.CHAT_TEMPLATE).render(**values)


def test_chat_template_is_lings_format():
    user = {"role": "user", "content": "Hi"}
    assert render(messages=[user], add_generation_prompt=True) == (
        "<role>SYSTEM</role>detailed thinking on<|role_end|><role>HUMAN</role>Hi<|role_end|>"
        "<role>ASSISTANT</role>\n<think>"
    )
    system = {"role": "system", "content": "Be brief."}
    answer = {"role": "assistant", "content": "Hello"}
    assert render(
        messages=[system, user, answer, user], add_generation_prompt=True, enable_thinking=False
    ) == (
        "<role>SYSTEM</role>Be brief.\ndetailed thinking off<|role_end|><role>HUMAN</role>Hi<|role_end|>"
        "<role>ASSISTANT</role>\n<think></think>Hello<|role_end|><role>HUMAN</role>Hi<|role_end|>"
        "<role>ASSISTANT</role>\n<think></think>"
    )


def test_chat_template_tools():
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": "two"}}}
    messages = [
        {"role": "user", "content": "Add"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "4"},
    ]
    text = render(messages=messages, tools=[{"name": "add"}], add_generation_prompt=False)
    assert '<tools>\n{"name": "add"}\n</tools>\ndetailed thinking on' in text
    assert (
        "<tool_call>add<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n"
        "<arg_value>two</arg_value>\n</tool_call><|role_end|>"
    ) in text
    assert text.endswith(
        "<role>OBSERVATION</role>\n<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response>"
        "<|role_end|>"
    )


FULL = """
import json, sys, time
from mindnano.checkpoint import open_model, synth
start = time.monotonic()
size = synth(sys.argv[1], sys.argv[2], "mixed")
took = time.monotonic() - start
lines = open("/proc/self/status").read().splitlines()
peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
start = time.monotonic()
open_model(sys.argv[2])
print(json.dumps([size, took, peak, time.monotonic() - start]))
"""


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's memory counters")
def test_full_size(tmp_path):
    """Ling-3.0-tiny's shape: minutes, bounded memory, opened at once."""
    config = factory.LING | OFFICIAL_IDS | factory.LING_TINY_SIZES
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "config.json", tmp_path / "p"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    size, took, peak, opening = json.loads(done.stdout)
    print(f"{size / 2**30:.2f} GiB in {took:.0f} s, peak {peak >> 10} MiB, opened in {opening * 1e3:.0f} ms")
    assert size > 4 << 30 and took < 180 and peak < 400 << 10 and opening < 1.5
