"""Random weights of a real shape, packed directly: for speed and memory, never for text.

Integers and scales are drawn as quantizing a normal distribution would leave them, so nothing of full
precision is ever made: a 5 GB file takes about a minute and a few hundred megabytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

import numpy as np

from mindnano.checkpoint import byte_tokenizer, layout, packed
from mindnano.checkpoint.config import ModelConfig, load_config
from mindnano.checkpoint.folder import Extras
from mindnano.checkpoint.layout import (
    DENSE_DTYPES,
    Embedding,
    Experts,
    Format,
    Item,
    KVUp,
    Linear,
    Small,
    Vector,
)
from mindnano.checkpoint.pack import pack_kv
from mindnano.checkpoint.packed import Header, Progress
from mindnano.checkpoint.parts import f32_to_bf16, from_f32
from mindnano.checkpoint.sink import check_target
from mindnano.kernels import packing

CHUNK_BYTES = 8 << 20
# Standard deviation of the integers that 32 normal values quantized to -7..7 have, and 1536 to -127..127.
INT4_STD, INT8_STD = 3.3, 38.0


def _quantile_table(std: float, limit: int) -> np.ndarray:
    """65,536 integers, equally likely, distributed as rounded normal values cut at +-limit."""
    normal = NormalDist(0.0, std)
    values = [normal.inv_cdf((i + 0.5) / 65536) for i in range(65536)]
    return np.clip(np.rint(values), -limit, limit).astype(np.int8)


class RandomProducer:
    """The tensors of a packed file drawn from a seed; each depends on the seed and its name only."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        self.config = config
        self.seed = seed
        self._int8 = _quantile_table(INT8_STD, 127)
        self._int4 = _quantile_table(INT4_STD, 7)
        # Two of 256 equally likely nibbles (value + 8) make a byte.
        nibbles = (self._int4[128::256].astype(np.int16) + 8).astype(np.uint8)
        self._nibbles = (nibbles[:, None] << 4 | nibbles[None, :]).reshape(-1)

    def native_form(self, item: Item) -> Format:
        return layout.published_form(item)

    def _rng(self, name: str) -> np.random.Generator:
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        entropy = np.random.SeedSequence([self.seed, int.from_bytes(digest, "little")])
        return np.random.Generator(np.random.SFC64(entropy))

    def chunks(self, item: Item, form: Format) -> Iterator[np.ndarray]:
        """See `pack.Packer.chunks`."""
        rng = self._rng(item.name)
        if isinstance(item, Vector | Small):
            yield self._vector(item, rng).astype(np.float32)
        elif isinstance(item, KVUp):
            yield from self._kv(item, form, rng)
        elif isinstance(item, Experts):
            yield from self._experts(item, form, rng)
        elif isinstance(item, Embedding):
            yield from self._rows(rng, form, item.rows, item.cols, 1.0, row_major=True)
        else:
            yield from self._rows(rng, form, item.rows, item.cols, self._std(item))

    def _std(self, item: Linear) -> float:
        """Keeps activations near 1: 1 / sqrt(inputs); less where a layer adds to the residual stream."""
        gain = 2.0 if item.name == "lm_head" else 1.0
        if item.name.endswith(".o"):
            gain = 1 / math.sqrt(2 * self.config.num_layers)
        return gain / math.sqrt(item.cols)

    def _vector(self, item: Vector | Small, rng: np.random.Generator) -> np.ndarray:
        normal = rng.standard_normal(item.shape, np.float32)
        if isinstance(item, Small):
            return normal / math.sqrt(item.cols)
        label = item.name.rpartition(".")[2]
        if label == "bias":
            return normal * 0.02
        if label == "conv":
            return normal * 0.5
        if label == "A_log":  # rates of 0.5 to 2, and of 1 to 16 where nothing bounds the gate
            low, high = (0.5, 2.0) if self.config.kda.gate == "sigmoid" else (1.0, 16.0)
            return np.log(rng.uniform(low, high, item.shape))
        if label == "dt_bias":  # decay from nearly none to a few tokens
            return rng.uniform(-7.0, -2.0, item.shape)
        return 1 + normal * 0.05

    def _draw(self, rng: np.random.Generator, table: np.ndarray, count: int) -> np.ndarray:
        words = rng.integers(0, 1 << 64, -(-count // 4), np.uint64).view(np.uint16)[:count]
        return table[words]

    def _values(
        self, rng: np.random.Generator, form: Format, count: int, rows: int, cols: int, std: float
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """`count` matrices in a format: (data, scales or None). Quantized only for whole panels."""
        if form == "w4":
            data = np.empty((count, rows // 16, cols // 32, 288), np.uint8)
            spread = 0.9 + 0.2 * rng.random((*data.shape[:3], 16), np.float32)
            data[..., :32] = f32_to_bf16(spread * np.float32(std / INT4_STD)).view(np.uint8)
            data[..., 32:] = self._draw(rng, self._nibbles, data.size // 288 * 256).reshape(
                *data.shape[:3], 256
            )
            return data, None
        if form == "w8":
            data = self._draw(rng, self._int8, count * rows * cols)
            return data.reshape(count, rows // 16, cols // 4, 64), self._scales(rng, (count, rows), std)
        values = rng.standard_normal((count, rows, cols), np.float32)
        return from_f32(values * np.float32(std), form), None

    def _scales(self, rng: np.random.Generator, shape: tuple[int, ...], std: float) -> np.ndarray:
        return (0.9 + 0.2 * rng.random(shape, np.float32)) * np.float32(std / INT8_STD)

    def _rows(
        self,
        rng: np.random.Generator,
        form: Format,
        rows: int,
        cols: int,
        std: float,
        *,
        row_major: bool = False,
    ) -> Iterator[np.ndarray]:
        """One matrix in blocks of rows."""
        block = max(16, CHUNK_BYTES // cols // 16 * 16)
        scales: list[np.ndarray] = []
        for start in range(0, rows, block):
            count = min(block, rows - start)
            if form == "w8" and row_major:
                data: np.ndarray = self._draw(rng, self._int8, count * cols)
                scale: np.ndarray | None = self._scales(rng, (count,), std)
            elif form in DENSE_DTYPES or not (count % 16 or cols % 32):
                data, scale = self._values(rng, form, 1, count, cols, std)
            else:
                data, scale = self._odd(rng, form, count, cols, std)
            if scale is not None:
                scales.append(scale.reshape(-1))
            yield data
        if scales:
            yield np.concatenate(scales)

    def _odd(
        self, rng: np.random.Generator, form: Format, rows: int, cols: int, std: float, *, halves: int = 1
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """A quantized matrix whose panels need padding; with two `halves` of `rows` each, gate and up."""
        shape = (halves, rows, cols)
        if form == "w8":
            parts = list(self._draw(rng, self._int8, halves * rows * cols).reshape(shape))
            scales = list(self._scales(rng, (halves, rows, 1), std))
            merged, scale = _merge(parts), _merge(scales)
            return packing.pack_w8(merged, scale.reshape(-1))
        parts = list(self._draw(rng, self._int4, halves * rows * cols).reshape(shape))
        groups = (halves, rows, -(-cols // 32))
        bits = f32_to_bf16((0.9 + 0.2 * rng.random(groups, np.float32)) * np.float32(std / INT4_STD))
        return packing.pack_w4(_merge(parts), _merge(list(bits))), None

    def _experts(self, item: Experts, form: Format, rng: np.random.Generator) -> Iterator[np.ndarray]:
        down_std = 1 / math.sqrt(2 * self.config.num_layers * item.intermediate)
        up_std = 1 / math.sqrt(item.hidden)
        if form in DENSE_DTYPES:
            for _ in ("gate", "up"):
                yield from self._stack(rng, form, item.count, item.intermediate, item.hidden, up_std)
        else:
            yield from self._stack(rng, form, item.count, item.intermediate, item.hidden, up_std, halves=2)
        yield from self._stack(rng, form, item.count, item.hidden, item.intermediate, down_std)

    def _stack(
        self,
        rng: np.random.Generator,
        form: Format,
        count: int,
        rows: int,
        cols: int,
        std: float,
        *,
        halves: int = 1,
    ) -> Iterator[np.ndarray]:
        """`count` matrices, several a chunk where they are small."""
        whole = form in DENSE_DTYPES or not (rows % (16 // halves) or cols % 32)
        block = max(1, CHUNK_BYTES // (halves * rows * cols)) if whole else 1
        scales: list[np.ndarray] = []
        for start in range(0, count, block):
            if whole:
                number = min(block, count - start)
                data, scale = self._values(rng, form, number, halves * rows, cols, std)
            else:
                data, scale = self._odd(rng, form, rows, cols, std, halves=halves)
            if scale is not None:
                scales.append(scale.reshape(-1))
            yield data
        if scales:
            yield np.concatenate(scales)

    def _kv(self, item: KVUp, form: Format, rng: np.random.Generator) -> Iterator[np.ndarray]:
        rows = item.heads * (item.nope + item.value)
        std = 1 / math.sqrt(item.rank)
        if form == "w8":
            values = self._draw(rng, self._int8, rows * item.rank).reshape(rows, item.rank)
            yield from pack_kv(item, values, self._scales(rng, (rows,), std))
            return
        heads = from_f32(rng.standard_normal((rows, item.rank), np.float32) * np.float32(std), form)
        keys, value = np.split(heads, [item.heads * item.nope])
        keys = keys.reshape(item.heads, item.nope, item.rank)
        yield keys
        yield value
        yield keys.transpose(0, 2, 1)
        yield value


def _merge(parts: list[np.ndarray]) -> np.ndarray:
    return packing.interleave_gate_up(*parts) if len(parts) == 2 else parts[0]


def extras(config: ModelConfig) -> Extras:
    """The byte-level tokenizer and Ling's chat format."""
    return Extras(byte_tokenizer.build(config), byte_tokenizer.CHAT_TEMPLATE, {})


def synth(
    config: ModelConfig | str | Path,
    target: str | Path,
    recipe: str = "mixed",
    seed: int = 0,
    progress: Progress | None = None,
    *,
    force: bool = False,
) -> int:
    """Writes a packed file of random weights for a configuration; its size in bytes. It is marked synthetic.

    Deterministic in configuration, recipe and seed. Whole or not at all, as `convert`.
    """
    layout.check_recipe(recipe)
    target = Path(target)
    check_target(target, force)
    if not isinstance(config, ModelConfig):
        config = load_config(config)
    header = Header(config=config, recipe=recipe, synthetic=True, source=f"synth seed {seed}")
    producer = RandomProducer(config, seed)
    return packed.write(target, header, extras(config), producer, force=force, progress=progress)
