"""Strict readers of `config.json`, one a model family: the official spelling and the one transformers saves.

An option that would change the arithmetic and is not supported is refused by name, never ignored.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mindnano.checkpoint import files
from mindnano.checkpoint.config import KDAConfig, LayerType, MLAConfig, ModelConfig, MoEConfig, check
from mindnano.errors import MindNanoError, shorten

CONFIG_LIMIT = files.MIB

# Options that say nothing about the arithmetic of inference.
_HARMLESS = frozenset(
    """
    architectures auto_map dtype torch_dtype transformers_version use_cache initializer_range
    attention_dropout embedding_dropout output_dropout hidden_dropout pretraining_tp
    output_router_logits router_aux_loss_coef aux_loss_alpha seq_aux mtp_loss_scaling_factor
    use_qk_norm partial_rotary_factor max_window_layers moe_router_dtype router_dtype
    tokenizer_class quantization_config ep_size
    """.split()  # noqa: SIM905
)
_MOE_NAMES = frozenset(
    """
    num_shared_experts n_shared_experts moe_intermediate_size moe_shared_expert_intermediate_size
    num_experts_per_tok num_experts_per_token n_group num_expert_group topk_group
    routed_scaling_factor norm_topk_prob moe_renormalize
    """.split()  # noqa: SIM905
)
# An unknown option that sounds like arithmetic and is switched on is refused; other unknown ones are labels.
_ARITHMETIC = re.compile(
    r"scal|bias|norm|rope|rotary|act|window|sliding|attn|attention|gate|router|topk|expert|kda|mla|conv|lora|"
    r"quant|multiplier|softcap|temperature|head|layer|nope|residual|pre_|post_"
)


class Options:
    """The options of one file, each taken under any of its names; what is left over is judged at the end."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.values = values
        self.where = where
        self.taken: set[str] = set(_HARMLESS) | {"model_type"}

    def optional(self, *names: str, default: Any = None) -> Any:
        """The value under any of the names (null counts as absent); names must not disagree."""
        self.taken.update(names)
        found = [(name, self.values[name]) for name in names if self.values.get(name) is not None]
        for name, value in found[1:]:
            if value != found[0][1]:
                raise MindNanoError(
                    f"{self.where}: {found[0][0]} is {shorten(found[0][1])} but {name} is {shorten(value)}; "
                    "they are two names of one option"
                )
        return found[0][1] if found else default

    def required(self, *names: str) -> Any:
        value = self.optional(*names)
        if value is None:
            raise MindNanoError(f"{self.where}: {' or '.join(names)} is missing")
        return value

    def whole(self, *names: str, default: int | None = None, high: int = 1 << 30) -> int:
        """A whole number from 0; ranges of single options are `config.check`'s."""
        value = self.optional(*names, default=default) if default is not None else self.required(*names)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
            raise MindNanoError(
                f"{self.where}: {names[0]} is {shorten(value)}, expected a whole number from 0 to {high}"
            )
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        value = self.optional(*names, default=default) if default is not None else self.required(*names)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MindNanoError(f"{self.where}: {names[0]} is {shorten(value)}, expected a number")
        return float(value)

    def switch(self, *names: str, default: bool) -> bool:
        value = self.optional(*names, default=default)
        if not isinstance(value, bool):
            raise MindNanoError(f"{self.where}: {names[0]} is {shorten(value)}, expected true or false")
        return value

    def only(self, name: str, *supported: Any) -> None:
        """Refuses any value but the supported ones; absent is the first of them."""
        value = self.optional(name)
        if value is not None and not any(
            value is s or (type(value) is type(s) and value == s) for s in supported
        ):
            wanted = " or ".join(repr(s) for s in supported)
            raise MindNanoError(f"{self.where}: {name} is {shorten(value)}, supported is {wanted}")

    def finish(self) -> None:
        for name, value in self.values.items():
            off = value is None or value is False or value in (0, "", [], {})
            if name not in self.taken and not off and _ARITHMETIC.search(name):
                raise MindNanoError(
                    f"{self.where}: option {shorten(name)} is {shorten(value)}, which this version "
                    "does not know; only models without it are supported"
                )


def read_file(path: Path) -> ModelConfig:
    """`read` of a `config.json`."""
    data = files.read_bytes(path, CONFIG_LIMIT, "configuration (config.json)")
    return read(files.parse_object(data, str(path)), str(path))


def read(values: dict[str, Any], where: str) -> ModelConfig:
    """A parsed `config.json` of any supported family. Raises MindNanoError that names option and value."""
    family = values.get("model_type")
    if not isinstance(family, str) or family not in _READERS:
        raise MindNanoError(
            f"{where}: model_type is {shorten(family)}, supported are {' and '.join(sorted(_READERS))}"
        )
    options = Options(values, where)
    config = _READERS[family](options)
    options.finish()
    check(config, where)
    return config


def _kind(full: bool) -> LayerType:
    return "mla" if full else "kda"


def _layer_types(options: Options, layers: int) -> tuple[LayerType, ...] | None:
    names: dict[str, LayerType] = {"linear_attention": "kda", "full_attention": "mla"}
    found = options.optional("layer_types")
    if found is None:
        return None
    if not isinstance(found, list) or len(found) != layers:
        raise MindNanoError(
            f"{options.where}: layer_types is {shorten(found)}, expected a list of {layers} entries"
        )
    for value in found:
        if not isinstance(value, str) or value not in names:
            raise MindNanoError(
                f"{options.where}: layer_types holds {shorten(value)}, supported are {' and '.join(names)}"
            )
    return tuple(names[value] for value in found)


def _first_k_dense(options: Options, layers: int, default: int | None) -> int:
    """Leading dense layers, from `first_k_dense_replace` or the per-layer list that transformers saves."""
    options.only("moe_layer_freq", 1)
    kinds = options.optional("mlp_layer_types")
    if kinds is None:
        return min(options.whole("first_k_dense_replace", default=default, high=1024), layers)
    if (
        not isinstance(kinds, list)
        or len(kinds) != layers
        or not all(k in ("dense", "sparse") for k in kinds)
    ):
        raise MindNanoError(
            f"{options.where}: mlp_layer_types is {shorten(kinds)}, expected {layers} of dense or sparse"
        )
    count = kinds.count("dense")
    if "sparse" in kinds[:count]:
        raise MindNanoError(
            f"{options.where}: mlp_layer_types has a dense layer behind a sparse one, not supported"
        )
    stated = options.optional("first_k_dense_replace")
    if stated is not None and stated != count:
        raise MindNanoError(
            f"{options.where}: first_k_dense_replace is {shorten(stated)} but mlp_layer_types starts with "
            f"{count} dense layers"
        )
    return count


def _moe(options: Options) -> MoEConfig | None:
    experts = options.whole("num_experts", "num_local_experts", default=0)
    if not experts:
        options.taken.update(_MOE_NAMES)  # leftovers of a model without experts
        return None
    width = options.whole("moe_intermediate_size")
    shared = options.whole("num_shared_experts", "n_shared_experts", default=0, high=256)
    shared_width = options.whole("moe_shared_expert_intermediate_size", default=width)
    if shared > 1 and shared_width not in (width, width * shared):
        raise MindNanoError(
            f"{options.where}: moe_shared_expert_intermediate_size is {shared_width}, expected "
            f"{width * shared} ({shared} shared experts of moe_intermediate_size {width})"
        )
    return MoEConfig(
        num_experts=experts,
        top_k=options.whole("num_experts_per_tok", "num_experts_per_token"),
        n_group=options.whole("n_group", "num_expert_group"),
        topk_group=options.whole("topk_group"),
        intermediate_size=width,
        shared_intermediate_size=width * shared if shared > 1 else shared_width * shared,
        routed_scaling_factor=options.number("routed_scaling_factor"),
        norm_topk_prob=options.switch("norm_topk_prob", "moe_renormalize", default=True),
        score="sigmoid",
    )


def _eos(options: Options) -> tuple[int, ...]:
    found = options.optional("eos_token_id")
    tokens = found if isinstance(found, list) else [] if found is None else [found]
    if len(tokens) > 64 or any(isinstance(t, bool) or not isinstance(t, int) for t in tokens):
        raise MindNanoError(
            f"{options.where}: eos_token_id is {shorten(found)}, expected a token id or a list of them"
        )
    return tuple(dict.fromkeys(tokens))


def _rope_theta(options: Options) -> float:
    options.only("rope_interleave", True)
    scaling = options.optional("rope_scaling")
    if scaling not in (None, {"type": "default"}, {"rope_type": "default"}):
        raise MindNanoError(f"{options.where}: rope_scaling is {shorten(scaling)}, supported is null")
    rope = options.optional("rope_parameters", default={})
    if not isinstance(rope, dict):
        raise MindNanoError(f"{options.where}: rope_parameters is {shorten(rope)}, expected an object")
    inner = Options(rope, f"{options.where}: rope_parameters")
    inner.only("rope_type", "default")
    unknown = sorted(set(rope) - inner.taken - {"rope_theta"})
    if unknown:
        raise MindNanoError(
            f"{inner.where} has {shorten(unknown[0])}, supported are rope_type and rope_theta"
        )
    theta = inner.optional("rope_theta")
    stated = options.optional("rope_theta", default=theta)
    if theta is not None and stated != theta:
        raise MindNanoError(
            f"{options.where}: rope_theta is {shorten(stated)} but rope_parameters has {shorten(theta)}"
        )
    return options.number("rope_theta", default=inner.number("rope_theta", default=stated))


def _mla(options: Options, *, rope_theta: float | None, head_gate: bool) -> MLAConfig:
    heads = options.whole("num_attention_heads")
    kv_heads = options.whole("num_key_value_heads", default=heads)
    if kv_heads != heads:
        raise MindNanoError(
            f"{options.where}: num_key_value_heads is {kv_heads}, supported is {heads} "
            "(num_attention_heads): MLA has one latent for all heads"
        )
    nope, rope = options.whole("qk_nope_head_dim"), options.whole("qk_rope_head_dim")
    whole = options.whole("qk_head_dim", default=nope + rope)
    if whole != nope + rope:
        raise MindNanoError(f"{options.where}: qk_head_dim is {whole}, expected {nope + rope} (nope + rope)")
    rank = options.optional("q_lora_rank")
    return MLAConfig(
        num_heads=heads,
        q_lora_rank=None if rank is None else options.whole("q_lora_rank"),
        kv_lora_rank=options.whole("kv_lora_rank"),
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=options.whole("v_head_dim"),
        rope_theta=rope_theta,
        head_gate=head_gate,
    )


def _common(
    options: Options, layers: int, types: tuple[LayerType, ...], first_dense: int | None
) -> dict[str, Any]:
    options.only("hidden_act", "silu")
    for name in ("attention_bias", "use_bias", "use_qkv_bias", "mlp_bias"):
        options.only(name, False)
    moe = _moe(options)
    dense = _first_k_dense(options, layers, first_dense)
    return {
        "model_type": options.values["model_type"],
        "vocab_size": options.whole("vocab_size"),
        "hidden_size": options.whole("hidden_size"),
        "num_layers": layers,
        "layer_types": types,
        "rms_norm_eps": options.number("rms_norm_eps"),
        "max_position_embeddings": options.whole("max_position_embeddings", "model_max_length"),
        "tie_word_embeddings": options.switch("tie_word_embeddings", default=False),
        "dense_intermediate_size": options.whole("intermediate_size"),
        "first_k_dense": layers if moe is None else dense,
        "moe": moe,
        "bos_token_id": options.optional("bos_token_id"),
        "eos_token_ids": _eos(options),
        "pad_token_id": options.optional("pad_token_id"),
        "mtp_layers": options.whole("num_nextn_predict_layers", "num_mtp_layers", default=0, high=64),
    }


def _bailing_hybrid(options: Options) -> ModelConfig:
    layers = options.whole("num_hidden_layers", high=1024)
    group = options.whole("layer_group_size", default=0, high=1024)
    types: tuple[LayerType, ...] | None = _layer_types(options, layers)
    if types is None:
        if group == 0:
            raise MindNanoError(f"{options.where}: layer_group_size or layer_types is missing")
        types = tuple(_kind((layer + 1) % group == 0) for layer in range(layers))
    options.only("use_mla_nope", False)
    options.only("no_kda_lora", True)
    options.only("gated_attention_proj_granularity_type", "head_wise")
    options.only("topk_method", "noaux_tc")
    options.only("score_function", "sigmoid")
    options.only("moe_router_enable_expert_bias", True)
    # transformers keeps KDA's width in linear_head_dim and puts the rope width into head_dim.
    head_dim = options.whole("linear_head_dim", default=options.whole("head_dim", default=0))
    mla = _mla(options, rope_theta=_rope_theta(options), head_gate=True)
    kda = KDAConfig(
        num_heads=options.whole("linear_num_heads", default=mla.num_heads),
        head_dim=head_dim,
        conv_kernel=options.whole("short_conv_kernel_size", "linear_conv_kernel_dim", default=4),
        gate="sigmoid" if options.switch("kda_safe_gate", default=True) else "softplus",
        lower_bound=options.number("kda_lower_bound", default=-5.0),
        low_rank=False,
    )
    return ModelConfig(kda=kda, mla=mla, **_common(options, layers, types, None))


def _kimi_linear(options: Options) -> ModelConfig:
    layers = options.whole("num_hidden_layers", high=1024)
    nested = options.optional("linear_attn_config", default={})
    if not isinstance(nested, dict):
        raise MindNanoError(f"{options.where}: linear_attn_config is {shorten(nested)}, expected an object")
    linear = Options(nested, f"{options.where}: linear_attn_config")
    types = _layer_types(options, layers) or _kimi_layers(linear, layers)
    options.only("mla_use_nope", True)
    options.only("moe_router_activation_func", "sigmoid")
    if options.whole("n_group", "num_expert_group", default=1) > 1:
        options.only("use_grouped_topk", True)
    # Without rotary embedding these two are leftovers; head_dim is no width of any tensor.
    options.taken.update(("rope_theta", "rope_scaling", "rope_parameters", "head_dim", "use_grouped_topk"))
    kda = KDAConfig(
        num_heads=linear.whole("num_heads", default=options.whole("linear_num_heads", default=0)),
        head_dim=linear.whole("head_dim", default=options.whole("linear_head_dim", default=0)),
        conv_kernel=linear.whole(
            "short_conv_kernel_size", default=options.whole("linear_conv_kernel_dim", default=4)
        ),
        gate="softplus",
        lower_bound=0.0,
        low_rank=True,
    )
    linear.finish()
    mla = _mla(options, rope_theta=None, head_gate=False)
    return ModelConfig(kda=kda, mla=mla, **_common(options, layers, types, 1))


def _kimi_layers(linear: Options, layers: int) -> tuple[LayerType, ...]:
    """The two lists of layer numbers, counted from 1, that together name every layer once."""
    types: list[LayerType | None] = [None] * layers
    kinds: tuple[tuple[str, LayerType], ...] = (("kda_layers", "kda"), ("full_attn_layers", "mla"))
    for name, kind in kinds:
        for layer in _whole_list(linear, name):
            if not 1 <= layer <= layers or types[layer - 1] is not None:
                raise MindNanoError(
                    f"{linear.where}: {name} holds {shorten(layer)}, expected each of 1 to {layers} once"
                )
            types[layer - 1] = kind
    if None in types:
        raise MindNanoError(f"{linear.where}: layer {types.index(None) + 1} is in neither list of layers")
    return tuple(kind for kind in types if kind is not None)


def _whole_list(options: Options, name: str) -> list[int]:
    found = options.required(name)
    if not isinstance(found, list) or any(isinstance(n, bool) or not isinstance(n, int) for n in found):
        raise MindNanoError(f"{options.where}: {name} is {shorten(found)}, expected a list of whole numbers")
    return found


_READERS = {"bailing_hybrid": _bailing_hybrid, "kimi_linear": _kimi_linear}
