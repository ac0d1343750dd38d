"""The configuration readers: both spellings, every refusal by name."""

import copy
import json

import checkpoint_factory as factory
import pytest

from mindnano.checkpoint.config import ModelConfig, load_config
from mindnano.errors import MindNanoError

# As transformers 5.24 saves the model of factory.LING (options that say nothing here left out).
SAVED = {
    "architectures": ["BailingHybridForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 316,
    "dtype": "float32",
    "eos_token_id": 319,
    "first_k_dense_replace": 1,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": 72,
    "initializer_range": 0.02,
    "intermediate_size": 104,
    "kda_lower_bound": -5.0,
    "kda_safe_gate": True,
    "kv_lora_rank": 48,
    "layer_group_size": 4,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_head_dim": 24,
    "linear_num_heads": 3,
    "mlp_layer_types": ["dense"] + ["sparse"] * 3,
    "model_max_length": 4096,
    "model_type": "bailing_hybrid",
    "moe_intermediate_size": 36,
    "moe_renormalize": True,
    "mtp_loss_scaling_factor": 0.0,
    "num_attention_heads": 3,
    "num_expert_group": 4,
    "num_experts": 8,
    "num_experts_per_token": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 3,
    "num_nextn_predict_layers": 0,
    "num_shared_experts": 1,
    "output_router_logits": False,
    "pad_token_id": 317,
    "pretraining_tp": 1,
    "q_lora_rank": 40,
    "qk_head_dim": 32,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 6000000.0, "rope_type": "default"},
    "rope_theta": 6000000.0,
    "routed_scaling_factor": 2.5,
    "short_conv_kernel_size": 4,
    "tie_word_embeddings": False,
    "topk_group": 2,
    "transformers_version": "5.24.0",
    "use_cache": True,
    "v_head_dim": 16,
    "vocab_size": 320,
}


def changed(base, **changes):
    config = copy.deepcopy(base)
    for name, value in changes.items():
        if value is ...:
            del config[name]
        else:
            config[name] = value
    return config


def test_both_spellings_are_one_configuration():
    assert load_config(factory.LING) == load_config(SAVED)


def test_values_of_the_official_spelling():
    config = load_config(factory.LING)
    assert config.layer_types == ("kda", "kda", "kda", "mla")
    assert (config.kda.num_heads, config.kda.head_dim, config.kda.gate) == (3, 24, "sigmoid")
    assert config.kda.lower_bound == -5.0 and not config.kda.low_rank
    assert (config.mla.q_lora_rank, config.mla.kv_lora_rank, config.mla.rope_theta) == (40, 48, 6e6)
    assert config.mla.head_gate and config.moe is not None
    assert (config.moe.num_experts, config.moe.n_group, config.moe.shared_intermediate_size) == (8, 4, 36)
    assert config.eos_token_ids == (319,)
    assert config.is_dense(0) and not config.is_dense(1)


def test_values_of_kimi_linear():
    config = load_config(factory.KIMI)
    assert config.layer_types == ("kda", "kda", "kda", "mla")
    assert (config.kda.gate, config.kda.low_rank, config.kda.head_dim) == ("softplus", True, 24)
    assert config.mla.rope_theta is None and not config.mla.head_gate and config.mla.q_lora_rank is None
    assert config.moe is not None and config.moe.routed_scaling_factor == 2.446
    assert config.max_position_embeddings == 4096


def test_flat_kimi_spelling_of_transformers():
    flat = changed(factory.KIMI, linear_attn_config=..., moe_router_activation_func=..., mla_use_nope=...)
    flat |= {"linear_head_dim": 24, "linear_num_heads": 3, "linear_conv_kernel_dim": 4}
    flat |= {"layer_types": ["linear_attention"] * 3 + ["full_attention"]}
    assert load_config(flat) == load_config(factory.KIMI)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "llama"}, ["model_type", "llama", "bailing_hybrid"]),
        ({"hidden_act": "gelu"}, ["hidden_act", "gelu", "silu"]),
        ({"use_bias": True}, ["use_bias", "True", "False"]),
        ({"use_qkv_bias": True}, ["use_qkv_bias"]),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, ["rope_scaling", "yarn"]),
        ({"rope_parameters": {"rope_type": "yarn"}}, ["rope_type", "yarn", "default"]),
        ({"rope_parameters": {"rope_type": "default", "factor": 2.0}}, ["rope_parameters", "factor"]),
        ({"rope_theta": 10000}, ["rope_theta", "10000", "6000000"]),
        ({"rope_interleave": False}, ["rope_interleave"]),
        ({"score_function": "softmax"}, ["score_function", "softmax", "sigmoid"]),
        ({"topk_method": "greedy"}, ["topk_method", "greedy"]),
        ({"moe_router_enable_expert_bias": False}, ["moe_router_enable_expert_bias"]),
        ({"gated_attention_proj_granularity_type": "element_wise"}, ["element_wise", "head_wise"]),
        ({"no_kda_lora": False}, ["no_kda_lora"]),
        ({"use_mla_nope": True}, ["use_mla_nope"]),
        ({"short_conv_kernel_size": 3}, ["short_conv_kernel_size", "3", "4"]),
        ({"num_key_value_heads": 1}, ["num_key_value_heads", "1", "3"]),
        ({"qk_head_dim": 64}, ["qk_head_dim", "64", "32"]),
        ({"vocab_size": -1}, ["vocab_size", "-1"]),
        ({"vocab_size": 1 << 40}, ["vocab_size"]),
        ({"vocab_size": 320.0}, ["vocab_size", "320.0"]),
        ({"vocab_size": True}, ["vocab_size", "True"]),
        ({"vocab_size": "320"}, ["vocab_size", "'320'"]),
        ({"hidden_size": ...}, ["hidden_size", "missing"]),
        ({"hidden_size": None}, ["hidden_size", "missing"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers", "0"]),
        ({"num_hidden_layers": 100000}, ["num_hidden_layers", "100000"]),
        ({"rms_norm_eps": 0}, ["rms_norm_eps"]),
        ({"rms_norm_eps": "small"}, ["rms_norm_eps", "small"]),
        ({"kda_lower_bound": 5}, ["kda_lower_bound", "5"]),
        ({"n_group": 3}, ["num_experts", "n_group", "3"]),
        ({"n_group": 8, "topk_group": 2}, ["n_group"]),
        ({"topk_group": 5}, ["topk_group", "5"]),
        ({"num_experts_per_tok": 5}, ["num_experts_per_tok", "5"]),
        ({"num_experts_per_token": 3}, ["num_experts_per_tok", "num_experts_per_token", "2", "3"]),
        ({"eos_token_id": 320}, ["eos_token_id", "320", "319"]),
        ({"eos_token_id": "end"}, ["eos_token_id", "end"]),
        ({"bos_token_id": -1}, ["bos_token_id", "-1"]),
        ({"qk_rope_head_dim": 7, "qk_head_dim": ...}, ["qk_rope_head_dim", "7", "multiple of 8"]),
        ({"layer_group_size": ...}, ["layer_group_size", "layer_types"]),
        ({"layer_types": ["linear_attention"]}, ["layer_types", "4"]),
        ({"layer_types": ["linear_attention"] * 3 + ["sliding"]}, ["layer_types", "sliding"]),
        ({"mlp_layer_types": ["sparse", "dense", "sparse", "sparse"]}, ["mlp_layer_types", "dense"]),
        ({"mlp_layer_types": ["dense", "dense", "sparse", "sparse"]}, ["first_k_dense_replace", "1", "2"]),
        ({"moe_layer_freq": 2}, ["moe_layer_freq", "2"]),
        ({"num_shared_experts": 2, "moe_shared_expert_intermediate_size": 50}, ["50", "72"]),
        ({"logit_scale": 2.0}, ["logit_scale", "2.0"]),
        ({"sliding_window": 512}, ["sliding_window", "512"]),
    ],
)
def test_refused_by_name(changes, words):
    with pytest.raises(MindNanoError) as caught:
        load_config(changed(factory.LING, **changes))
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mla_use_nope": False}, ["mla_use_nope"]),
        ({"moe_router_activation_func": "softmax"}, ["moe_router_activation_func", "softmax"]),
        ({"linear_attn_config": {}}, ["kda_layers", "missing"]),
        (
            {"linear_attn_config": {"kda_layers": [1, 2, 3], "full_attn_layers": [3]}},
            ["full_attn_layers", "3"],
        ),
        ({"linear_attn_config": {"kda_layers": [1, 2], "full_attn_layers": [4]}}, ["layer 3"]),
        ({"linear_attn_config": {"kda_layers": [0, 1], "full_attn_layers": [4]}}, ["kda_layers", "0"]),
        ({"linear_attn_config": 7}, ["linear_attn_config", "7"]),
    ],
)
def test_kimi_refused_by_name(changes, words):
    with pytest.raises(MindNanoError) as caught:
        load_config(changed(factory.KIMI, **changes))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_labels_and_switched_off_options_are_accepted():
    load_config(changed(factory.LING, comment="mine", sliding_window=None, logit_scale=0, attn_bias=False))


def test_softplus_gate_and_no_experts():
    assert load_config(changed(factory.LING, kda_safe_gate=False)).kda.gate == "softplus"
    dense = load_config(changed(factory.LING, num_experts=0))
    assert dense.moe is None and dense.is_dense(3)


def test_multi_token_prediction_layers_are_counted():
    assert load_config(changed(factory.LING, num_nextn_predict_layers=1)).mtp_layers == 1


@pytest.mark.parametrize("base", [factory.LING, factory.KIMI])
def test_canonical_form_round_trips(base):
    config = load_config(base)
    assert ModelConfig.from_json(config.to_json(), "here") == config


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"", "JSON"),
        (b"[]", "object"),
        (b"{", "JSON"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"model_type": "bailing_hybrid", "model_type": "kimi_linear"}', "twice"),
        (b'{"rms_norm_eps": NaN}', "NaN"),
        (b'{"rms_norm_eps": 1e999}', "1e999"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "number"),
        (b'{"a": ' * 100000, "JSON"),
        (b'{"a": [' + b"[" * 20000, "JSON"),
        (b" " * (1 << 20) + b"{}", "bytes"),
    ],
)
def test_damaged_file(tmp_path, text, word):
    path = tmp_path / "config.json"
    path.write_bytes(text)
    with pytest.raises(MindNanoError) as caught:
        load_config(path)
    assert word in str(caught.value) and str(path) in str(caught.value)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(MindNanoError, match="no such"):
        load_config(tmp_path)
    with pytest.raises(MindNanoError, match="no such"):
        load_config(tmp_path / "absent.json")


def test_reads_a_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(factory.LING))
    assert load_config(tmp_path) == load_config(str(tmp_path / "config.json")) == load_config(factory.LING)
