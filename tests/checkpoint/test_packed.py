"""Packing: what a recipe stores stands for the checkpoint's values; the file is whole or not there."""

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import checkpoint_factory as factory
import numpy as np
import numpy_packing as naive
import pytest

from mindnano.checkpoint import RECIPES, convert, layout, load_config, open_model, sink
from mindnano.checkpoint.folder import CheckpointFolder
from mindnano.checkpoint.safetensors import SafetensorsFile
from mindnano.checkpoint.sources import Source
from mindnano.errors import MindNanoError

# Error of a weight against its row's largest: at most, and for W4 (which may clip) rms over a group of 32.
ERROR = {"w4": 0.5 / 7 * 1.05, "w8": 0.5 / 127 * 1.01, "bf16": 2**-8, "fp16": 2**-11, "fp32": 0}
BASES = {"ling": factory.LING, "kimi": factory.KIMI}


class File:
    """A packed file's tensors, dequantized by the naive code of this folder."""

    def __init__(self, path):
        self.file = SafetensorsFile(Path(path))

    def raw(self, name):
        return self.file.array(self.file.tensors[name])

    def matrix(self, name, rows, cols, index=None):
        info, data = self.file.tensors[name], self.raw(name)
        scales = self.raw(name + ".scales") if info.dtype == "I8" else None
        if index is not None:
            data, scales = data[index], None if scales is None else scales[index]
        form = layout.FORMAT_OF_DTYPE[info.dtype]
        if form == "w4":
            return form, naive.dequantize_w4(data, rows, cols)
        if form == "w8":
            return form, naive.dequantize_w8(data, scales, rows, cols)
        return form, naive.from_bf16(data) if form == "bf16" else data.astype(np.float32)


def close(form, found, want):
    error = np.abs(found - want)
    if form == "w4":
        error, peak = (np.pad(x, ((0, 0), (0, -x.shape[1] % 32))) for x in (error, np.abs(want)))
        error = np.sqrt((error.reshape(len(want), -1, 32) ** 2).mean(-1))
        peak = peak.reshape(len(want), -1, 32).max(-1)
    else:
        peak = np.abs(want).max(axis=1, keepdims=True)
    assert (error <= ERROR[form] * peak + 1e-30).all(), (form, (error / peak).max())


def interleaved(gate, up):
    rows = []
    for start in range(0, -(-len(gate) // 8) * 8, 8):
        for part in (gate, up):
            for row in range(start, start + 8):
                rows.append(part[row] if row < len(part) else np.zeros_like(part[0]))
    return np.stack(rows)


def open_source(path):
    source = Source(CheckpointFolder(path))
    return source, {item.name: item for item in layout.items(source.config)}


def stacked(parts):
    return np.concatenate([part.f32() for part in parts])


def compare(file, source, items, recipe):
    """Every tensor of a packed file against the checkpoint it was made from."""
    for item in items.values():
        if isinstance(item, layout.Vector | layout.Small):
            assert np.array_equal(file.raw(item.name), source.vector(item)), item.name
        elif isinstance(item, layout.Linear):
            close(*file.matrix(item.name, item.rows, item.cols), stacked(source.parts(item)))
        elif isinstance(item, layout.Embedding):
            want = stacked(source.parts(item))
            if recipe in ("bf16", "native"):
                close(*file.matrix("embed", item.rows, item.cols), want)
            else:
                close("w8", file.raw("embed") * file.raw("embed.scales")[:, None], want)
        elif isinstance(item, layout.KVUp):
            compare_kv(file, source, item)
        else:
            compare_experts(file, source, item)


def compare_kv(file, source, item):
    heads = stacked(source.parts(item)).reshape(item.heads, -1, item.rank)
    keys, values = heads[:, : item.nope], heads[:, item.nope :]
    want = np.concatenate((keys.reshape(-1, item.rank), values.reshape(-1, item.rank)))
    form, found = file.matrix(item.name, len(want), item.rank)
    close(form, found, want)
    base = item.base
    scale = np.ones((item.heads, item.nope), np.float32)
    if form == "w8":
        scale = file.raw(base + "k_absorb_scale").reshape(scale.shape)
    for head in range(item.heads):
        _, k = file.matrix(base + "k_absorb", item.rank, item.nope, head)
        _, v = file.matrix(base + "v_absorb", item.value, item.rank, head)
        # Not merely close: the absorbed forms are the very integers and scales of kv_b.
        k_rows = found[: item.heads * item.nope].reshape(item.heads, item.nope, item.rank)[head]
        v_rows = found[item.heads * item.nope :].reshape(item.heads, item.value, item.rank)[head]
        assert np.array_equal(k.T * scale[head][:, None], k_rows) and np.array_equal(v, v_rows)


def compare_experts(file, source, item):
    stored = source.experts(item)
    quantized = item.name + ".gate_up" in file.file.tensors
    for expert in range(item.count):
        gate, up, down = (stored[kind][expert].f32() for kind in ("gate", "up", "down"))
        close(*file.matrix(item.name + ".down", *down.shape, expert), down)
        if quantized:
            want = interleaved(gate, up)
            form, found = file.matrix(item.name + ".gate_up", *want.shape, expert)
            real = np.abs(want).max(axis=1) > 0
            close(form, found[real], want[real])
            assert not found[~real].any()
        else:
            close(*file.matrix(item.name + ".gate", *gate.shape, expert), gate)
            close(*file.matrix(item.name + ".up", *up.shape, expert), up)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_every_tensor_stands_for_the_checkpoints(tmp_path, base, recipe):
    factory.write(tmp_path / "m", base)
    size = convert(tmp_path / "m", tmp_path / "p.mn.safetensors", recipe)
    assert size == (tmp_path / "p.mn.safetensors").stat().st_size
    file = File(tmp_path / "p.mn.safetensors")
    compare(file, *open_source(tmp_path / "m"), recipe)
    assert all(i.start % 64 == 0 for n, i in file.file.tensors.items() if not n.startswith("pad."))


@pytest.mark.parametrize("dtype", ["F16", "F32", "BF16"])
def test_native_keeps_the_bits(tmp_path, dtype):
    made = factory.write(tmp_path / "m", dtype=dtype)
    convert(tmp_path / "m", tmp_path / "p.safetensors", "native")
    file = File(tmp_path / "p.safetensors")
    assert file.file.tensors["lm_head"].dtype == dtype
    assert np.array_equal(file.raw("lm_head"), made.stored["lm_head.weight"][1])


@pytest.mark.parametrize("recipe", ["mixed", "w4"])
def test_int4_is_taken_over_bit_for_bit(tmp_path, recipe):
    made = factory.write(tmp_path / "m", int4=True, shards=2)
    convert(tmp_path / "m", tmp_path / "p.safetensors", recipe)
    file = File(tmp_path / "p.safetensors")
    for expert in range(8):
        base = f"model.layers.2.mlp.experts.{expert}."
        codes, scales = made.int4[base + "down_proj.weight"]
        values, found = naive.unpack_w4(file.raw("layers.2.moe.experts.down")[expert], *codes.shape)
        assert np.array_equal(values, codes) and np.array_equal(found, naive.from_bf16(scales))
        both = [made.int4[base + name + "_proj.weight"] for name in ("gate", "up")]
        codes = interleaved(both[0][0], both[1][0])
        scales = interleaved(both[0][1], both[1][1])
        values, found = naive.unpack_w4(file.raw("layers.2.moe.experts.gate_up")[expert], *codes.shape)
        assert np.array_equal(values, codes) and np.array_equal(found, naive.from_bf16(scales))


@pytest.mark.parametrize("recipe", ["w8", "bf16", "native"])
def test_int4_in_other_recipes(tmp_path, recipe):
    factory.write(tmp_path / "m", int4=True)
    convert(tmp_path / "m", tmp_path / "p.safetensors", recipe)
    compare(File(tmp_path / "p.safetensors"), *open_source(tmp_path / "m"), recipe)


def test_whole_panels_too(tmp_path):
    """Sizes that need no padding take other paths in the synthesiser and the kernels."""
    config = factory.LING | {
        "hidden_size": 64,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 32,
        "intermediate_size": 96,
        "head_dim": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 16,
        "qk_head_dim": 24,
        "v_head_dim": 16,
        "q_lora_rank": 32,
    }
    factory.write(tmp_path / "m", config)
    for recipe in ("mixed", "w4"):
        convert(tmp_path / "m", tmp_path / "p.safetensors", recipe, force=True)
        compare(File(tmp_path / "p.safetensors"), *open_source(tmp_path / "m"), recipe)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_file_memory_and_native_folder_offer_the_same(tmp_path, base, recipe):
    """One recipe opened as a file and converted in memory: same matrices; a folder in place: same shapes."""
    factory.write(tmp_path / "m", base)
    convert(tmp_path / "m", tmp_path / "p.safetensors", recipe)
    one, two = open_model(tmp_path / "p.safetensors"), open_model(tmp_path / "m", recipe)
    assert (one.recipe, one.config, one.chat_template) == (recipe, two.config, two.chat_template)
    assert one.tokenizer_json == two.tokenizer_json and one.generation == two.generation
    assert not one.synthetic

    def same(a, b):
        assert [(m.rows, m.cols, m.count, m.format) for m in a] == [
            (m.rows, m.cols, m.count, m.format) for m in b
        ]

    for item in layout.items(one.config):
        if isinstance(item, layout.Vector):
            assert np.array_equal(one.weights.vector(item.name), two.weights.vector(item.name))
        elif isinstance(item, layout.Linear) and recipe == "native":
            parts = two.weights.linear(item.name)
            assert [m.rows for m in parts] == [rows for _, rows in item.parts]
            assert [m.rows for m in one.weights.linear(item.name)] == [item.rows]
        elif isinstance(item, layout.Linear | layout.Small):
            same(one.weights.linear(item.name), two.weights.linear(item.name))
        elif isinstance(item, layout.KVUp):
            same(one.weights.linear(item.name), two.weights.linear(item.name))
            for name in ("k_absorb", "v_absorb"):
                a, b = one.weights.heads(item.base + name), two.weights.heads(item.base + name)
                same([a], [b])
                assert a.count == item.heads
            scale = one.weights.vector(item.base + "k_absorb_scale")
            assert np.array_equal(scale, two.weights.vector(item.base + "k_absorb_scale"))
            assert scale.shape == (item.heads * item.nope,)
        elif isinstance(item, layout.Experts):
            a, b = one.weights.experts(item.name), two.weights.experts(item.name)
            same([a.down], [b.down])
            assert a.down.count == item.count
            assert a.quantized == b.quantized == (recipe not in ("native", "bf16"))
            if a.quantized:
                same([a.gate_up], [b.gate_up])
                assert a.gate_up.rows == layout.gate_up_rows(item.intermediate)
            else:
                same([a.gate, a.up], [b.gate, b.up])
    rows, scales, form = one.weights.embedding()
    others = two.weights.embedding()
    assert np.array_equal(rows, others[0]) and form == others[2]
    assert (scales is None) == (others[1] is None) == (form != "int8")
    with pytest.raises(KeyError):
        one.weights.linear("layers.99.kda.in")


def test_in_memory_equals_the_file_bit_for_bit(tmp_path):
    factory.write(tmp_path / "m")
    convert(tmp_path / "m", tmp_path / "p.safetensors", "mixed")
    file = File(tmp_path / "p.safetensors")
    store = open_model(tmp_path / "m", "mixed").weights
    for name, array in store._tensors.items():
        assert np.array_equal(array, file.raw(name)), name
        assert array.ctypes.data % 64 == 0


def test_converting_is_deterministic_and_readable_by_the_library(tmp_path):
    library = pytest.importorskip("safetensors")
    factory.write(tmp_path / "m")
    convert(tmp_path / "m", tmp_path / "a.safetensors")
    convert(tmp_path / "m", tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    with library.safe_open(tmp_path / "a.safetensors", "np") as file:
        assert file.metadata()["format"] == "mindnano-packed"
        assert file.get_tensor("layers.1.moe.experts.down").dtype == np.uint8


def test_header_alone(tmp_path):
    factory.write(tmp_path / "m")
    convert(tmp_path / "m", tmp_path / "a.safetensors")
    assert load_config(tmp_path / "a.safetensors") == load_config(tmp_path / "m")


def left_over(folder):
    return sorted(p.name for p in folder.iterdir())


def refused(call, *words):
    with pytest.raises(MindNanoError) as caught:
        call()
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_existing_target_needs_force(tmp_path):
    factory.write(tmp_path / "m")
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "p.safetensors"
    target.write_bytes(b"precious")
    refused(lambda: convert(tmp_path / "m", target), "exists already", "--force")
    assert target.read_bytes() == b"precious"
    convert(tmp_path / "m", target, force=True)
    assert open_model(target).recipe == "mixed" and left_over(tmp_path / "out") == ["p.safetensors"]


def test_targets_and_sources_that_cannot_be(tmp_path):
    factory.write(tmp_path / "m")
    refused(lambda: convert(tmp_path / "m", tmp_path / "no" / "p"), "no such folder")
    refused(lambda: convert(tmp_path / "m", tmp_path), "is a folder")
    refused(lambda: convert(tmp_path / "absent", tmp_path / "p"), "absent", "no such")
    refused(lambda: convert(tmp_path / "m", tmp_path / "p", "w5"), "w5", "mixed")
    inside = tmp_path / "m" / "model.safetensors"
    refused(lambda: convert(tmp_path / "m", inside, force=True), "belongs to the source")
    convert(tmp_path / "m", tmp_path / "p")
    refused(lambda: convert(tmp_path / "p", tmp_path / "q", "w4"), "packed model cannot be packed again")
    refused(lambda: open_model(tmp_path / "p", "w4"), "packed with recipe mixed", "--recipe w4")
    assert left_over(tmp_path) == ["m", "p"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, MindNanoError("x")])
def test_interrupted_leaves_nothing(tmp_path, error):
    factory.write(tmp_path / "m")
    (tmp_path / "out").mkdir()

    def progress(done, total, name):
        assert 0 < done < total
        if done > total / 2:
            assert len(left_over(tmp_path / "out")) == 1  # the temporary file
            raise error

    with pytest.raises(type(error) if isinstance(error, Exception) else error):
        convert(tmp_path / "m", tmp_path / "out" / "p.safetensors", progress=progress)
    assert left_over(tmp_path / "out") == []


def test_an_old_file_survives_a_failed_replacement(tmp_path):
    factory.write(tmp_path / "m")
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "p.safetensors"
    target.write_bytes(b"precious")

    def progress(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(tmp_path / "m", target, force=True, progress=progress)
    assert target.read_bytes() == b"precious" and left_over(tmp_path / "out") == ["p.safetensors"]


def test_damage_found_half_way_leaves_nothing(tmp_path):
    made = factory.write(tmp_path / "m")
    made.stored["lm_head.weight"] = "F32", np.full((320, 72), np.nan, np.float32)
    factory.write_safetensors(tmp_path / "m" / "model.safetensors", made.stored)
    (tmp_path / "out").mkdir()
    refused(lambda: convert(tmp_path / "m", tmp_path / "out" / "p"), "lm_head.weight", "NaN")
    assert left_over(tmp_path / "out") == []


def test_too_little_space_is_told_with_the_sum(tmp_path, monkeypatch):
    factory.write(tmp_path / "m")
    (tmp_path / "out").mkdir()
    real = sink.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(sink.shutil, "disk_usage", lambda _: real._replace(free=100_000))
    refused(lambda: convert(tmp_path / "m", tmp_path / "out" / "p"), "KiB", "97.7 KiB free")
    assert left_over(tmp_path / "out") == []


FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
from mindnano.checkpoint import convert
from mindnano.errors import MindNanoError
try:
    convert(sys.argv[1], sys.argv[2])
except MindNanoError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [0, 1000, 200_000])
def test_a_disk_that_fills_up(tmp_path, limit):
    """A file size limit makes write() fail as a full disk does, in the header and in the data."""
    factory.write(tmp_path / "m")
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path / "m", tmp_path / "out" / "p", str(limit)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert "disk is full" in done.stdout and done.stdout.count("\n") == 1, done.stdout + done.stderr
    assert left_over(tmp_path / "out") == []


def test_damaged_packed_files(tmp_path):
    factory.write(tmp_path / "m")
    convert(tmp_path / "m", tmp_path / "p")
    good = (tmp_path / "p").read_bytes()
    length = int.from_bytes(good[:8], "little")
    header = json.loads(good[8 : 8 + length])

    def check(change, *words):
        changed = json.loads(json.dumps(header))
        change(changed)
        text = json.dumps(changed).encode()
        text += b" " * (-(8 + len(text)) % 64)
        (tmp_path / "q").write_bytes(len(text).to_bytes(8, "little") + text + good[8 + length :])
        refused(lambda: open_model(tmp_path / "q"), *words)

    def metadata(**changes):
        return lambda h: h["__metadata__"].update(changes)

    check(metadata(format="gguf"), "gguf", "mindnano-packed")
    check(metadata(version="2"), "version '2'", "'1'")
    check(metadata(recipe="w5"), "w5")
    check(metadata(recipe="w4"), "recipe w4")
    check(metadata(synthetic="maybe"), "maybe")
    check(metadata(config="{}"), "configuration is damaged")
    check(metadata(config="[" * 100_000), "configuration is damaged")
    check(metadata(generation="7"), "generation")
    check(metadata(generation='{"temperature": -1}'), "temperature", "-1")
    check(lambda h: h["__metadata__"].pop("source"), "source", "missing")
    config = json.loads(header["__metadata__"]["config"])
    check(metadata(config=json.dumps({**config, "vocab_size": 321})), "embed", "320", "321")
    check(metadata(config=json.dumps({**config, "vocab_size": -1})), "vocab_size", "-1")
    check(lambda h: h.__setitem__("pad.norm", h.pop("norm")), "norm", "missing")
    check(lambda h: h["norm"].update(dtype="I32"), "norm", "I32", "F32")
    check(lambda h: h["norm"].update(shape=[2, 36]), "norm", "[2, 36]", "[72]")
    check(lambda h: h["file.tokenizer.json"].update(shape=[1, h["file.tokenizer.json"]["shape"][0]]), "U8")
    check(lambda h: h.__setitem__("spare", h.pop("pad.0")), "spare", "not of this configuration")
    moved = (length + 8).to_bytes(8, "little") + good[8 : 8 + length] + b" " * 8 + good[8 + length :]
    (tmp_path / "q").write_bytes(moved)
    refused(lambda: open_model(tmp_path / "q"), "embed", "multiple of 64")
    (tmp_path / "q").write_bytes(good[:-1])
    refused(lambda: open_model(tmp_path / "q"), "truncated")
    refused(lambda: open_model(tmp_path / "m" / "model.safetensors"), "no packed model")


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads Linux's memory counters"
)
STREAM = """
import sys
from mindnano.checkpoint import convert

def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

before = status("VmRSS:")
convert(sys.argv[1], sys.argv[2], sys.argv[3])
print(status("VmHWM:") - before)
"""


@pytest.fixture(scope="module")
def half_gigabyte(tmp_path_factory):
    path = tmp_path_factory.mktemp("large")
    config = factory.LING | {
        "vocab_size": 20000,
        "hidden_size": 1024,
        "num_experts": 64,
        "moe_intermediate_size": 384,
        "moe_shared_expert_intermediate_size": 384,
    }
    factory.write(path / "m", config)
    yield path / "m"
    shutil.rmtree(path)


def growth_of_converting(source, target, recipe):
    """MiB that a process's peak memory, mapped pages included, rises above its start."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", STREAM, source, target, recipe],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    growth = int(done.stdout) / 1024
    print(f"{recipe}: {growth:.0f} MiB, {time.monotonic() - start:.0f} s")
    return growth


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("recipe", ["mixed", "w8", "native"])
def test_memory_stays_bounded_while_converting(tmp_path, half_gigabyte, recipe):
    assert (half_gigabyte / "model.safetensors").stat().st_size > 500 << 20
    assert 1 < growth_of_converting(half_gigabyte, tmp_path / "p", recipe) < 300


@pytest.mark.full
@needs_proc
def test_memory_of_converting_the_full_size_model(tmp_path):
    """Ling-3.0-tiny's shape in BF16, 15.8 GB in 9,283 tensors, to 4.9 GB: peak memory below 1 GiB."""
    tensors = factory.write_large(tmp_path / "m")
    assert tensors == 9283
    growth = growth_of_converting(tmp_path / "m", tmp_path / "p", "mixed")
    shutil.rmtree(tmp_path / "m")
    assert open_model(tmp_path / "p").nbytes > 4 << 30
    (tmp_path / "p").unlink()
    assert 1 < growth < 900


def test_closing_lets_go_of_the_file(tmp_path):
    factory.write(tmp_path / "m")
    convert(tmp_path / "m", tmp_path / "p")
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("reads Linux's list of mappings")
    for path in (tmp_path / "p", tmp_path / "m"):
        with open_model(path) as files:
            lm_head = files.weights.linear("lm_head")
            assert str(path) in maps.read_text()
        assert str(path) in maps.read_text() and lm_head[0].rows == 320  # the matrix still uses it
        del lm_head, files
        gc.collect()
        assert str(path) not in maps.read_text()


def test_two_openings_share_the_file(tmp_path):
    """In place: opening a packed file reads its header, not its weights."""
    factory.write(tmp_path / "m", {**factory.LING, "vocab_size": 40000})
    convert(tmp_path / "m", tmp_path / "p", "bf16")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    files = open_model(tmp_path / "p")
    table, _, form = files.weights.embedding()
    assert form == "bf16" and not table.flags.owndata and not table.flags.writeable
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096
