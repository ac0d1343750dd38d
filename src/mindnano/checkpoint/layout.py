"""What a packed model consists of: the canonical tensors of a configuration and how a recipe stores each.

The packed reader, the converter, the synthesiser and the in-memory converter all derive from this page.
Byte layouts of the formats are in docs/formats.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mindnano.checkpoint.config import ModelConfig
from mindnano.checkpoint.safetensors import TensorSpec
from mindnano.errors import MindNanoError, shorten

Format = Literal["w4", "w8", "fp32", "bf16", "fp16"]
Role = Literal["linear", "kv", "experts", "embed"]
DENSE_DTYPES: dict[str, str] = {"fp32": "F32", "bf16": "BF16", "fp16": "F16"}
FORMAT_OF_DTYPE: dict[str, Format] = {
    "U8": "w4",
    "I8": "w8",
    "F32": "fp32",
    "BF16": "bf16",
    "F16": "fp16",
}

# "native" keeps a source's own dense format. kv_b is small and its integers serve two products, one of
# them transposed, so it stays W8 where the rest is W4. The embedding is a look-up, never a product.
RECIPES: dict[str, dict[Role, Format | None]] = {
    "mixed": {"linear": "w8", "kv": "w8", "experts": "w4", "embed": "w8"},
    "w4": {"linear": "w4", "kv": "w8", "experts": "w4", "embed": "w8"},
    "w8": {"linear": "w8", "kv": "w8", "experts": "w8", "embed": "w8"},
    "bf16": {"linear": "bf16", "kv": "bf16", "experts": "bf16", "embed": "bf16"},
    "native": {"linear": None, "kv": None, "experts": None, "embed": None},
}


def check_recipe(recipe: str) -> str:
    """The recipe itself, or a MindNanoError that lists the known ones."""
    if recipe not in RECIPES:
        raise MindNanoError(f"recipe {shorten(recipe)} is unknown, supported are {', '.join(RECIPES)}")
    return recipe


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


@dataclass(frozen=True)
class Vector:
    """Small fp32 data of any shape: norms, biases, convolutions."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Small:
    """A matrix that stays fp32 in every recipe: router, KDA's b, MLA's head gate."""

    name: str
    rows: int
    cols: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows, self.cols)


@dataclass(frozen=True)
class Linear:
    """A large matrix: `parts` (label, rows) stacked along the rows, sharing an input of `cols` features."""

    name: str
    parts: tuple[tuple[str, int], ...]
    cols: int

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.parts)


@dataclass(frozen=True)
class KVUp:
    """kv_b of one MLA layer with its two absorbed forms. Rows: k_nope of all heads, then v of all heads."""

    name: str
    heads: int
    nope: int
    value: int
    rank: int

    @property
    def base(self) -> str:
        return self.name.removesuffix("kv_b")


@dataclass(frozen=True)
class Experts:
    """`count` gated MLPs hidden -> intermediate -> hidden."""

    name: str
    count: int
    intermediate: int
    hidden: int
    role: Role


@dataclass(frozen=True)
class Embedding:
    """The token embedding, [rows, cols] row-major in every format."""

    name: str
    rows: int
    cols: int


Item = Vector | Small | Linear | KVUp | Experts | Embedding


def items(config: ModelConfig) -> list[Item]:
    """Every canonical item in the order of use, which is also the order of a packed file."""
    hidden = config.hidden_size
    found: list[Item] = [Embedding("embed", config.vocab_size, hidden)]
    for layer, kind in enumerate(config.layer_types):
        base = f"layers.{layer}."
        found.append(Vector(base + "attention_norm", (hidden,)))
        found += _kda(config, base + "kda.") if kind == "kda" else _mla(config, base + "mla.")
        found.append(Vector(base + "mlp_norm", (hidden,)))
        found += _mlp(config, base, layer)
    found.append(Vector("norm", (hidden,)))
    found.append(Linear("lm_head", (("lm_head", config.vocab_size),), hidden))
    return found


def _kda(config: ModelConfig, base: str) -> list[Item]:
    kda, hidden = config.kda, config.hidden_size
    width, low = kda.num_heads * kda.head_dim, kda.low_rank
    gates = (("f_a", kda.head_dim), ("g_a", kda.head_dim)) if low else (("f", width), ("g", width))
    found: list[Item] = [Linear(base + "in", (("q", width), ("k", width), ("v", width), *gates), hidden)]
    if low:
        found.append(Linear(base + "f_b", (("f_b", width),), kda.head_dim))
        found.append(Linear(base + "g_b", (("g_b", width),), kda.head_dim))
    return [
        *found,
        Small(base + "b", kda.num_heads, hidden),
        Vector(base + "conv", (3 * width, kda.conv_kernel)),
        Vector(base + "A_log", (kda.num_heads,)),
        Vector(base + "dt_bias", (width,)),
        Vector(base + "o_norm", (kda.head_dim,)),
        Linear(base + "o", (("o", hidden),), width),
    ]


def _mla(config: ModelConfig, base: str) -> list[Item]:
    mla, hidden = config.mla, config.hidden_size
    query = mla.num_heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    kv_a = ("kv_a", mla.kv_lora_rank + mla.qk_rope_head_dim)
    found: list[Item] = []
    if mla.q_lora_rank is None:
        found.append(Linear(base + "in", (("q", query), kv_a), hidden))
    else:
        found.append(Linear(base + "in", (("q_a", mla.q_lora_rank), kv_a), hidden))
        found.append(Vector(base + "q_norm", (mla.q_lora_rank,)))
        found.append(Linear(base + "q_b", (("q_b", query),), mla.q_lora_rank))
    found.append(Vector(base + "kv_norm", (mla.kv_lora_rank,)))
    found.append(KVUp(base + "kv_b", mla.num_heads, mla.qk_nope_head_dim, mla.v_head_dim, mla.kv_lora_rank))
    if mla.head_gate:
        found.append(Small(base + "gate", mla.num_heads, hidden))
    found.append(Linear(base + "o", (("o", hidden),), mla.num_heads * mla.v_head_dim))
    return found


def _mlp(config: ModelConfig, base: str, layer: int) -> list[Item]:
    hidden, moe = config.hidden_size, config.moe
    if moe is None or config.is_dense(layer):
        return [Experts(base + "mlp", 1, config.dense_intermediate_size, hidden, "linear")]
    found: list[Item] = [
        Small(base + "moe.router", moe.num_experts, hidden),
        Vector(base + "moe.bias", (moe.num_experts,)),
        Experts(base + "moe.experts", moe.num_experts, moe.intermediate_size, hidden, "experts"),
    ]
    if moe.shared_intermediate_size:
        found.append(Experts(base + "moe.shared", 1, moe.shared_intermediate_size, hidden, "linear"))
    return found


def published_form(item: Item) -> Format:
    """The dense format that published checkpoints have."""
    return "fp32" if isinstance(item, Vector | Small) else "bf16"


def role(item: Item) -> Role | None:
    """Which entry of a recipe decides an item's format; None: always fp32."""
    if isinstance(item, Linear):
        return "linear"
    if isinstance(item, KVUp):
        return "kv"
    if isinstance(item, Experts):
        return item.role
    return "embed" if isinstance(item, Embedding) else None


def main_tensor(item: Item) -> str:
    """The tensor of a packed file whose dtype tells the item's format."""
    return item.name + ".down" if isinstance(item, Experts) else item.name


def matrix(name: str, form: Format, rows: int, cols: int, count: int | None = None) -> list[TensorSpec]:
    """The tensors of one matrix, or of `count` matrices stacked, in a format of the kernels."""
    lead = () if count is None else (count,)
    panels, padded = -(-rows // 16), round_up(cols, 32)
    if form == "w4":
        return [TensorSpec(name, "U8", (*lead, panels, padded // 32, 288))]
    if form == "w8":
        scales = TensorSpec(name + ".scales", "F32", (*lead, panels * 16))
        return [TensorSpec(name, "I8", (*lead, panels, padded // 4, 64)), scales]
    return [TensorSpec(name, DENSE_DTYPES[form], (*lead, rows, cols))]


def gate_up_rows(intermediate: int) -> int:
    """Rows of the interleaved gate and up matrix: both padded to a multiple of 8."""
    return 2 * round_up(intermediate, 8)


def tensors(item: Item, form: Format) -> list[TensorSpec]:
    """The tensors that hold an item in a packed file, in file order."""
    if isinstance(item, Vector | Small):
        return [TensorSpec(item.name, "F32", item.shape)]
    if isinstance(item, Linear):
        return matrix(item.name, form, item.rows, item.cols)
    if isinstance(item, Embedding):
        if form == "w8":
            scales = TensorSpec(item.name + ".scales", "F32", (item.rows,))
            return [TensorSpec(item.name, "I8", (item.rows, item.cols)), scales]
        return [TensorSpec(item.name, DENSE_DTYPES[form], (item.rows, item.cols))]
    if isinstance(item, KVUp):
        found = [
            *matrix(item.name, form, item.heads * (item.nope + item.value), item.rank),
            *matrix(item.base + "k_absorb", form, item.rank, item.nope, item.heads),
            *matrix(item.base + "v_absorb", form, item.value, item.rank, item.heads),
        ]
        if form == "w8":
            found.append(TensorSpec(item.base + "k_absorb_scale", "F32", (item.heads * item.nope,)))
        return found
    down = matrix(item.name + ".down", form, item.hidden, item.intermediate, item.count)
    if form in DENSE_DTYPES:
        gate = matrix(item.name + ".gate", form, item.intermediate, item.hidden, item.count)
        up = matrix(item.name + ".up", form, item.intermediate, item.hidden, item.count)
        return [*gate, *up, *down]
    rows = gate_up_rows(item.intermediate)
    return [*matrix(item.name + ".gate_up", form, rows, item.hidden, item.count), *down]
