"""The safetensors reader: what it reads, and every lie a header can tell."""

import json
import struct

import numpy as np
import pytest

from mindnano.checkpoint.safetensors import SafetensorsFile, TensorSpec, build_header, padding
from mindnano.errors import MindNanoError

safetensors_numpy = pytest.importorskip("safetensors.numpy")


def raw(path, header, data=b"", *, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype="F32", shape=(2,), start=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def test_reads_what_the_library_writes(tmp_path):
    rng = np.random.default_rng(0)
    tensors = {
        "a": rng.standard_normal((3, 5)).astype(np.float32),
        "b": rng.integers(-9, 9, (7,)).astype(np.int8),
        "c": rng.standard_normal((2, 2, 2)).astype(np.float16),
        "scalar": np.array(4, np.int64),
        "empty": np.zeros((0, 4), np.float32),
    }
    safetensors_numpy.save_file(tensors, tmp_path / "t.safetensors", metadata={"k": "v"})
    file = SafetensorsFile(tmp_path / "t.safetensors")
    assert file.metadata == {"k": "v"} and set(file.tensors) == set(tensors)
    for name, want in tensors.items():
        found = file.array(file.tensors[name])
        assert found.dtype == want.dtype and found.shape == want.shape and np.array_equal(found, want)


def test_arrays_are_views_of_the_file(tmp_path):
    safetensors_numpy.save_file({"a": np.ones(1000, np.float32)}, tmp_path / "t.safetensors")
    file = SafetensorsFile(tmp_path / "t.safetensors")
    array = file.array(file.tensors["a"])
    assert not array.flags.owndata and not array.flags.writeable


def test_bf16_comes_as_bits_and_unaligned_data_as_it_lies(tmp_path):
    header = {"x": entry("U8", (1,), 0, 1), "y": entry("BF16", (2,), 1, 5)}
    text = json.dumps(header).encode()
    text += b" " * (-(len(text)) % 8)
    file = SafetensorsFile(raw(tmp_path / "t.safetensors", text, b"\x01\x80\x3f\x00\x40"))
    array = file.array(file.tensors["y"])
    assert array.dtype == np.uint16 and array.tolist() == [0x3F80, 0x4000]
    assert not array.flags.aligned and not array.flags.owndata


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ({"x": entry(end=12)}, b"0" * 12, ["x", "8", "12"]),
        ({"x": entry()}, b"0" * 4, ["x", "truncated"]),
        ({"x": entry()}, b"0" * 9, ["8", "9"]),
        ({"x": entry(), "y": entry()}, b"0" * 8, ["overlaps"]),
        ({"x": entry(), "y": entry(start=12, end=20)}, b"0" * 20, ["'y'", "gap", "12", "8"]),
        ({"x": entry(start=8, end=16)}, b"0" * 16, ["gap"]),
        ({"x": entry(start=8, end=0)}, b"0" * 8, ["data_offsets"]),
        ({"x": entry(start=-8, end=0)}, b"0" * 8, ["data_offsets"]),
        ({"x": entry("F31")}, b"0" * 8, ["F31", "BF16"]),
        ({"x": entry(7)}, b"0" * 8, ["dtype", "7"]),
        ({"x": entry(shape=(-2,))}, b"0" * 8, ["shape"]),
        ({"x": entry(shape=(2.0,))}, b"0" * 8, ["shape"]),
        ({"x": entry(shape=(1 << 62, 1 << 62), end=8)}, b"0" * 8, ["x", "needs"]),
        # The product is 2 modulo 2^64: a 64-bit multiplication would be fooled.
        ({"x": entry("U8", ((1 << 63) - 1, 1 << 62, 1), 0, 8)}, b"0" * 8, ["x", "needs"]),
        ({"x": entry(shape=(1,) * 9, end=4)}, b"0" * 4, ["shape", "8"]),
        ({"x": {"dtype": "F32", "shape": [2]}}, b"0" * 8, ["x", "data_offsets"]),
        ({"x": {**entry(), "more": 1}}, b"0" * 8, ["x", "data_offsets"]),
        ({"x": [1, 2]}, b"0" * 8, ["x"]),
        ({"__metadata__": {"a": 1}, "x": entry()}, b"0" * 8, ["__metadata__"]),
        ({"__metadata__": 3}, b"", ["__metadata__"]),
        (b"[]", b"", ["object"]),
        (b"not json", b"", ["JSON"]),
        (b"\xff\xff", b"", ["UTF-8"]),
        (b'{"x":' * 50000, b"", ["JSON"]),
        (b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{"dtype":"F32","shape":[2],'
         b'"data_offsets":[0,8]}}', b"0" * 8, ["'x'", "twice"]),
        (b'{"x":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}}', b"0" * 8, ["twice"]),
    ],
)  # fmt: skip
def test_refused(tmp_path, header, data, words):
    path = raw(tmp_path / "t.safetensors", header, data)
    with pytest.raises(MindNanoError) as caught:
        SafetensorsFile(path)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["0 bytes"]),
        (b"1234567", ["7 bytes"]),
        (struct.pack("<Q", 100) + b"{}", ["100", "2"]),
        (struct.pack("<Q", 1 << 63) + b"{}", [str(1 << 63)]),
        (struct.pack("<Q", 200_000_000) + b"{}", ["200000000"]),
    ],
)
def test_lying_lengths(tmp_path, content, words):
    path = tmp_path / "t.safetensors"
    path.write_bytes(content)
    with pytest.raises(MindNanoError) as caught:
        SafetensorsFile(path)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_not_a_regular_file(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(MindNanoError, match="no regular file"):
        SafetensorsFile(tmp_path / "pipe.safetensors")
    with pytest.raises(MindNanoError, match="no regular file"):
        SafetensorsFile(tmp_path)
    with pytest.raises(MindNanoError, match="no such"):
        SafetensorsFile(tmp_path / "absent.safetensors")


def test_headers_are_aligned_and_readable_by_the_library(tmp_path):
    specs = [TensorSpec("a", "U8", (3,)), TensorSpec("b", "F32", (5, 5)), TensorSpec("c", "I8", (64,))]
    blob = build_header(specs, {"hello": "world"})
    for spec in specs:
        blob += bytes([7]) * spec.nbytes + bytes(padding(spec.nbytes))
    (tmp_path / "t.safetensors").write_bytes(blob)
    file = SafetensorsFile(tmp_path / "t.safetensors")
    assert all(file.tensors[spec.name].start % 64 == 0 for spec in specs)
    loaded = safetensors_numpy.load_file(tmp_path / "t.safetensors")
    assert loaded["a"].tolist() == [7, 7, 7] and loaded["b"].shape == (5, 5)
