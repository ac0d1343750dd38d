"""Thousands of corrupted files: an error of ours or success, never anything else, and in bounded memory.

The fast suite runs a few hundred cases, `make test-slow` thousands. A failure prints its seed.
"""

import copy
import json
import shutil
import tracemalloc

import checkpoint_factory as factory
import numpy as np
import pytest

from mindnano.checkpoint import convert, layout, load_config, open_model
from mindnano.errors import MindNanoError

ODD_VALUES = [
    *(None, True, False, -1, 0, 1, 3, 7, 31, 2**31, 2**32 + 1, 2**63 - 1, 2**63, 2**64, -(2**63)),
    *(0.5, 1e308, -1e-300, "", "x", "F32", "U8", "../x", "\u0000", "\U0001f600" * 50, "9" * 400),
    *([], {}, [[]], [0], [1, 2, 3], [-1, 4], [2**62, 4], {"a": 1}, ["linear_attention"]),
    *("y" * 100_000, [1] * 5000),
]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """One folder a kind of model file; every file in them gets corrupted."""
    root = tmp_path_factory.mktemp("originals")
    factory.write(root / "single", factory.KIMI)
    factory.write(root / "sharded", int4=True, shards=2)
    for name in ("single", "sharded"):
        (root / name / "tokenizer_config.json").write_text(json.dumps({"chat_template": "x", "other": [1]}))
    (root / "sharded" / "chat_template.jinja").unlink()
    for recipe in ("mixed", "bf16"):
        (root / recipe).mkdir()
        convert(root / "sharded", root / recipe / "packed", recipe)
    return root


def paths(value, prefix=()):
    """Every place in a JSON value."""
    yield prefix
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        yield from paths(inner, (*prefix, key))


def corrupt_json(rng, data):
    """One to three places replaced, removed, renamed or doubled."""
    try:
        value = json.loads(data)
    except ValueError:
        return corrupt_bytes(rng, data)
    for _ in range(rng.integers(1, 4)):
        places = [p for p in paths(value) if p]
        if not places:
            break
        *way, last = places[rng.integers(len(places))]
        holder = value
        for key in way:
            holder = holder[key]
        odd = copy.deepcopy(ODD_VALUES[rng.integers(len(ODD_VALUES))])
        action = rng.integers(4)
        if action == 0 and isinstance(holder, dict):
            del holder[last]
        elif action == 1 and isinstance(holder, dict):
            holder[str(odd)[:100]] = holder.pop(last)
        elif action == 2 and isinstance(holder[last], int) and not isinstance(holder[last], bool):
            holder[last] += int(rng.integers(-3, 4))
        else:
            holder[last] = odd
    text = json.dumps(value).encode()
    if rng.random() < 0.1:  # a key twice
        text = text.replace(b"{", b'{"dtype":"F32","dtype":"F32",', 1)
    return text


def corrupt_bytes(rng, data):
    data = bytearray(data)
    action = rng.integers(6)
    if action == 0:
        return bytes(data[: rng.integers(0, len(data) + 1)])
    if action == 1:
        return bytes(data) + rng.bytes(int(rng.integers(1, 100)))
    if action == 2 and data:
        start = int(rng.integers(len(data)))
        del data[start : start + int(rng.integers(1, 200))]
    elif action == 3 and data:
        start = int(rng.integers(len(data)))
        data[start:start] = data[start : start + int(rng.integers(1, 200))]
    elif data:
        top = len(data) if action == 4 else min(len(data), 20_000)  # headers are the interesting part
        for place in rng.integers(0, top, rng.integers(1, 20)):
            data[place] = rng.integers(256)
    return bytes(data)


def corrupt_safetensors(rng, data):
    action = rng.integers(4)
    if action == 0:
        return corrupt_bytes(rng, data)
    if action == 1:  # the length alone
        length = int(ODD_VALUES[rng.integers(3, 15)]) % 2**64
        return length.to_bytes(8, "little") + data[8:]
    length = int.from_bytes(data[:8], "little")
    header = corrupt_json(rng, data[8 : 8 + length])
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def use(path, rng):
    """Opens and touches everything, as the engine would."""
    if rng.random() < 0.2:
        load_config(path)
    recipe = "mixed" if path.is_dir() and rng.random() < 0.3 else None
    files = open_model(path, recipe)
    for item in layout.items(files.config):
        if isinstance(item, layout.Vector):
            float(files.weights.vector(item.name).sum())
        elif isinstance(item, layout.Experts):
            files.weights.experts(item.name)
        elif isinstance(item, layout.Embedding):
            files.weights.embedding()
        else:
            files.weights.linear(item.name)
            if isinstance(item, layout.KVUp):
                files.weights.heads(item.base + "k_absorb")
                files.weights.heads(item.base + "v_absorb")


def one_case(originals, scratch, seed):
    rng = np.random.default_rng(seed)
    kinds = sorted(p.name for p in originals.iterdir())
    kind = kinds[rng.integers(len(kinds))]
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(originals / kind, scratch)
    names = sorted(p.name for p in scratch.iterdir())
    weights = [n for n in names if n == "packed" or n.endswith(".safetensors")]
    # Half of the cases go to the weight files, which have most to check.
    pool = weights if rng.random() < 0.5 else names
    target = scratch / pool[rng.integers(len(pool))]
    data = target.read_bytes()
    if target.name in weights:
        changed = corrupt_safetensors(rng, data)
    elif target.suffix == ".json" and rng.random() < 0.7:
        changed = corrupt_json(rng, data)
    else:
        changed = corrupt_bytes(rng, data)
    target.write_bytes(changed)
    size = sum(p.stat().st_size for p in scratch.iterdir())
    place = scratch / "packed" if kind in ("mixed", "bf16") else scratch
    tracemalloc.start()
    try:
        use(place, rng)
        outcome = "opened"
    except MindNanoError as error:
        assert "\n" not in str(error) and len(str(error)) < 2000
        outcome = "refused"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < size + 100_000_000, f"{peak} bytes for files of {size}"
    return outcome


def run(originals, scratch, seeds):
    outcomes = {"opened": 0, "refused": 0}
    for seed in seeds:
        try:
            outcomes[one_case(originals, scratch, seed)] += 1
        except BaseException:
            print(f"seed {seed}")
            raise
    print(outcomes)
    # Nothing refused: the corruption is harmless. Nothing opened: the originals are broken.
    assert min(outcomes.values()) > len(seeds) // 50


def test_hundreds_of_corrupted_files(originals, tmp_path):
    run(originals, tmp_path / "scratch", range(300))


@pytest.mark.slow
def test_thousands_of_corrupted_files(originals, tmp_path):
    run(originals, tmp_path / "scratch", range(1000, 7000))


ENTRY = '"t%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
# Headers made to cost memory rather than to be wrong.
HOSTILE = {
    "many tensors": lambda: "{" + ",".join(ENTRY % i for i in range(99_000)) + "}",
    "too many tensors": lambda: "{" + ",".join(ENTRY % i for i in range(300_000)) + "}",
    "a long shape": lambda: '{"t":{"dtype":"U8","shape":[' + "1," * 15_000_000 + '1],"data_offsets":[0,1]}}',
    "a shape within limits": lambda: (
        '{"t":{"dtype":"U8","shape":[' + "1," * 500_000 + '1],"data_offsets":[0,1]}}'
    ),
    "nested lists": lambda: '{"t":' + "[" * 30_000_000,
    "nested objects": lambda: '{"t":' + '{"":' * 10_000_000,
    "a long string": lambda: '{"__metadata__":{"x":"' + "y" * 39_000_000 + '"}}',
    "wide characters": lambda: '{"__metadata__":{"x":"' + "y" * 38_000_000 + '\U0001f600"}}',
    "escapes": lambda: '{"__metadata__":{"x":"' + "\\u00ff" * 6_000_000 + '"}}',
    "wide escapes": lambda: '{"__metadata__":{"x":"' + "y" * 38_000_000 + '\\ud83d\\ude00"}}',
    "a long number": lambda: '{"t":{"dtype":"U8","shape":[' + "9" * 35_000_000 + '],"data_offsets":[0,1]}}',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_headers_that_want_memory(tmp_path, name):
    data = HOSTILE[name]().encode()
    path = tmp_path / "packed"
    path.write_bytes(len(data).to_bytes(8, "little") + data)
    size = path.stat().st_size
    del data
    tracemalloc.start()
    try:
        with pytest.raises(MindNanoError):
            open_model(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    print(f"{name}: {peak >> 20} MiB, file {size >> 20} MiB")
    assert peak < size + 100_000_000
