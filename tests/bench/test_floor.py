"""The least time of a token: the counts of the full-size shape against arithmetic done by hand."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from mindnano.bench.floor import Work, count
from mindnano.checkpoint import layout
from mindnano.checkpoint.config import load_config

CONFIG = Path(__file__).parent.parent / "data" / "ling-3.0-tiny.config.json"
STATES = 18 * 2 * 4 * 16 * 128 * 128  # KDA's, read and written


class Shapes:
    """Matrices that have sizes but no weights: what `count` looks at. 4 bits with a BF16 scale each 32, or 8 bits."""

    def __init__(self, config, experts, rest):
        self.experts_format, self.rest, self.items = experts, rest, {i.name: i for i in layout.items(config)}

    def matrix(self, rows, cols, fmt, of=1):
        return SimpleNamespace(
            rows=rows,
            cols=cols,
            count=of,
            format=fmt,
            nbytes=of * rows * cols * {"w4": 0.5625, "w8": 1.0}[fmt],
        )

    def linear(self, name):
        item = self.items[name]
        return [self.matrix(sum(n for _, n in item.parts), item.cols, self.rest)]

    def heads(self, name):
        base, _, part = name.rpartition(".")
        kv = self.items[base + ".kv_b"]
        rows, cols = (kv.rank, kv.nope) if part == "k_absorb" else (kv.value, kv.rank)
        return self.matrix(rows, cols, self.rest, kv.heads)

    def experts(self, name):
        item = self.items[name]
        fmt = self.experts_format if item.role == "experts" else self.rest
        return SimpleNamespace(
            gate=None, up=None,
            gate_up=self.matrix(2 * item.intermediate, item.hidden, fmt, item.count),
            down=self.matrix(item.hidden, item.intermediate, fmt, item.count),
        )  # fmt: skip


@pytest.fixture(scope="module")
def config():
    return load_config(CONFIG)


def test_mixed(config):
    work = count(config, Shapes(config, "w4", "w8"), "latent", "int8")
    # 23 routed layers, 8 of 128 experts each, gate, up and down of 512 x 1536.
    assert work.products["int4"] == 2 * 23 * 8 * 3 * 512 * 1536
    assert work.products["int8"] == pytest.approx(0.92e9, rel=0.03)
    assert work.read - STATES == pytest.approx(0.96e9, rel=0.03)
    assert work.pair == 6 * 2 * 16 * (192 + 128)  # 61 kOP
    assert work.absorbed == 6 * 2 * 16 * (512 + 64 + 512)  # 209 kOP
    assert work.expand == 6 * 2 * 16 * 256 * 512
    assert work.attention_limit == "int8"


def test_w4_reads_less(config):
    work = count(config, Shapes(config, "w4", "w4"), "latent", "int8")
    assert work.read - STATES == pytest.approx(0.64e9, rel=0.03)


def test_seconds_follow_the_limits():
    work = Work({"int4": 2e9, "int8": 1e9, "fma": 0.0}, 1e9, 100.0, 1000.0, 400.0, 20.0, "int8")
    limits = {"read": 20.0, "int8": 100.0, "int4": 200.0, "fma": 50.0}
    # 10 tokens after 4: 95 pairs of query and key; 14 tokens brought back from the latent.
    wanted = 10 * (2 / 200 + 1 / 100) + (95 * 100 + 14 * 1000) / 100e9
    assert work.prefill_seconds(10, 4, limits) == pytest.approx(wanted)
    # 1e6 keys: 4 ns each of arithmetic, 1 ns of reading.
    assert work.decode_seconds(1_000_000, limits) == pytest.approx(1 / 20 + 4e-3)
