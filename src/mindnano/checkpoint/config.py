"""The configuration every part works from, and the way in to reading one.

The dataclasses know no family's spelling; `families.py` maps `config.json` onto them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from mindnano.errors import MindNanoError, shorten

LayerType = Literal["kda", "mla"]


@dataclass(frozen=True)
class KDAConfig:
    """Kimi Delta Attention. `gate` "sigmoid": g = lower_bound * sigmoid(exp(A_log) (f + dt_bias));
    "softplus": g = -exp(A_log) softplus(f + dt_bias). `low_rank`: both gates come from two factors."""

    num_heads: int
    head_dim: int
    conv_kernel: int
    gate: Literal["sigmoid", "softplus"]
    lower_bound: float
    low_rank: bool


@dataclass(frozen=True)
class MLAConfig:
    """Multi-head latent attention. `q_lora_rank` None: one query projection; `rope_theta` None: no rotary
    embedding (NoPE). `norm_eps` belongs to the norms of q_a and kv_a, which do not follow rms_norm_eps."""

    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rope_theta: float | None
    head_gate: bool
    norm_eps: float = 1e-6


@dataclass(frozen=True)
class MoEConfig:
    """Routed experts. `shared_intermediate_size` is the width of all shared experts together, 0 for none."""

    num_experts: int
    top_k: int
    n_group: int
    topk_group: int
    intermediate_size: int
    shared_intermediate_size: int
    routed_scaling_factor: float
    norm_topk_prob: bool
    score: Literal["sigmoid", "softmax"]


@dataclass(frozen=True)
class ModelConfig:
    """One model. Layers below `first_k_dense` have a dense MLP, the others are routed."""

    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    layer_types: tuple[LayerType, ...]
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    dense_intermediate_size: int
    first_k_dense: int
    kda: KDAConfig
    mla: MLAConfig
    moe: MoEConfig | None
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    pad_token_id: int | None
    # Multi-token-prediction layers stored behind the decoder; plain decoding does not use them.
    mtp_layers: int = 0

    def is_dense(self, layer: int) -> bool:
        """Whether the layer has a dense MLP."""
        return self.moe is None or layer < self.first_k_dense

    def to_json(self) -> bytes:
        """The canonical form that packed files keep: equal configurations give equal bytes."""
        return msgspec.json.encode(dataclasses.asdict(self), order="sorted")

    @classmethod
    def from_json(cls, data: bytes, where: str) -> ModelConfig:
        """The inverse of `to_json`, checked like any other input."""
        try:
            config = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MindNanoError(f"{where}: the stored configuration is damaged ({error})") from None
        check(config, where)
        return config


def _whole(where: str, name: str, value: object, low: int, high: int, multiple: int = 1) -> None:
    """The kernels work on vectors: some widths must be a `multiple` of theirs."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not low <= value <= high or value % multiple:  # type: ignore[operator]
        kind = f"a multiple of {multiple}" if multiple > 1 else "a whole number"
        raise MindNanoError(f"{where}: {name} is {shorten(value)}, expected {kind} from {low} to {high}")


def _number(where: str, name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise MindNanoError(
            f"{where}: {name} is {shorten(value)}, expected a number from {low:g} to {high:g}"
        )


def check(config: ModelConfig, where: str) -> None:
    """Ranges of every field and the rules between them. Raises MindNanoError naming the field."""
    _whole(where, "vocab_size", config.vocab_size, 1, 1 << 22)
    _whole(where, "hidden_size", config.hidden_size, 1, 1 << 16)
    _whole(where, "num_hidden_layers", config.num_layers, 1, 1024)
    _number(where, "rms_norm_eps", config.rms_norm_eps, 1e-12, 0.1)
    _whole(where, "max_position_embeddings", config.max_position_embeddings, 1, 1 << 30)
    _whole(where, "intermediate_size", config.dense_intermediate_size, 1, 1 << 18)
    _whole(where, "first_k_dense_replace", config.first_k_dense, 0, config.num_layers)
    _whole(where, "num_nextn_predict_layers", config.mtp_layers, 0, 64)
    if len(config.layer_types) != config.num_layers:
        raise MindNanoError(
            f"{where}: layer_types has {len(config.layer_types)} entries, expected {config.num_layers} "
            "(num_hidden_layers)"
        )
    kda, mla, moe = config.kda, config.mla, config.moe
    _whole(where, "KDA num_heads", kda.num_heads, 1, 1024)
    _whole(where, "KDA head_dim", kda.head_dim, 8, 1024, multiple=8)
    if kda.conv_kernel != 4:
        raise MindNanoError(f"{where}: short_conv_kernel_size is {shorten(kda.conv_kernel)}, supported is 4")
    _number(where, "kda_lower_bound", kda.lower_bound, -80.0, 0.0)
    _whole(where, "num_attention_heads", mla.num_heads, 1, 1024)
    if mla.q_lora_rank is not None:
        _whole(where, "q_lora_rank", mla.q_lora_rank, 1, 1 << 16)
    _whole(where, "kv_lora_rank", mla.kv_lora_rank, 16, 1 << 14, multiple=16)
    _whole(where, "qk_nope_head_dim", mla.qk_nope_head_dim, 8, 1024, multiple=8)
    _whole(where, "qk_rope_head_dim", mla.qk_rope_head_dim, 8, 1024, multiple=8)
    _whole(where, "v_head_dim", mla.v_head_dim, 8, 1024, multiple=8)
    _number(where, "MLA norm_eps", mla.norm_eps, 1e-12, 0.1)
    if mla.rope_theta is not None:
        _number(where, "rope_theta", mla.rope_theta, 1.0, 1e12)
    if moe is None:
        if config.first_k_dense != config.num_layers:
            raise MindNanoError(
                f"{where}: layers from {config.first_k_dense} on are routed, num_experts is missing"
            )
    else:
        _check_moe(where, moe)
    for name, token in (
        ("bos_token_id", config.bos_token_id),
        ("pad_token_id", config.pad_token_id),
        *(("eos_token_id", token) for token in config.eos_token_ids),
    ):
        if token is not None:
            _whole(where, name, token, 0, config.vocab_size - 1)


def _check_moe(where: str, moe: MoEConfig) -> None:
    _whole(where, "num_experts", moe.num_experts, 1, 4096)
    _whole(where, "num_experts_per_tok", moe.top_k, 1, min(moe.num_experts, 64))
    _whole(where, "n_group", moe.n_group, 1, moe.num_experts)
    _whole(where, "topk_group", moe.topk_group, 1, moe.n_group)
    _whole(where, "moe_intermediate_size", moe.intermediate_size, 1, 1 << 16)
    _whole(where, "moe_shared_expert_intermediate_size", moe.shared_intermediate_size, 0, 1 << 18)
    _number(where, "routed_scaling_factor", moe.routed_scaling_factor, 1e-6, 1e6)
    if moe.num_experts % moe.n_group:
        raise MindNanoError(f"{where}: num_experts {moe.num_experts} is no multiple of n_group {moe.n_group}")
    in_group = moe.num_experts // moe.n_group
    # A group's score is the sum of its two best experts, so with groups there must be two.
    if moe.n_group > 1 and in_group < 2:
        raise MindNanoError(f"{where}: n_group {moe.n_group} leaves one expert a group, expected at least 2")
    if moe.topk_group * in_group < moe.top_k:
        raise MindNanoError(
            f"{where}: num_experts_per_tok is {moe.top_k}, expected at most the "
            f"{moe.topk_group * in_group} experts of topk_group {moe.topk_group} groups"
        )


def load_config(source: str | Path | Mapping[str, Any]) -> ModelConfig:
    """The configuration of a model folder, a `config.json`, a packed file, or an already parsed object.

    Raises MindNanoError that names the option, the value found and what is supported.
    """
    from mindnano.checkpoint import families

    if isinstance(source, Mapping):
        return families.read(dict(source), "configuration")
    path = Path(source)
    if path.is_dir():
        path = path / "config.json"
    elif path.suffix == ".safetensors":
        from mindnano.checkpoint import packed

        return packed.read_header(path).config
    return families.read_file(path)
