"""Checkpoint folders: every name and layout that is read, and every contradiction that is refused."""

import json

import checkpoint_factory as factory
import numpy as np
import pytest

from mindnano.checkpoint import layout, open_model
from mindnano.checkpoint.folder import CheckpointFolder
from mindnano.checkpoint.sources import Source
from mindnano.errors import MindNanoError

BASES = {"ling": factory.LING, "kimi": factory.KIMI}


def open_source(path):
    source = Source(CheckpointFolder(path))
    return source, {item.name: item for item in layout.items(source.config)}


def attention(base, layer):
    return f"model.layers.{layer}." + ("self_attn." if base["model_type"] == "kimi_linear" else "attention.")


def stacked(source, item):
    return np.concatenate([part.f32() for part in source.parts(item)])


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_values_reach_their_canonical_places(tmp_path, base, dtype):
    made = factory.write(tmp_path, base, dtype=dtype)
    source, items = open_source(tmp_path)
    values, kimi = made.values, base["model_type"] == "kimi_linear"
    a = attention(base, 1)
    gates = ("f_a_proj", "g_a_proj") if kimi else ("f_proj", "g_proj")
    rows = [values[f"{a}{name}.weight"] for name in ("q_proj", "k_proj", "v_proj", *gates)]
    assert np.array_equal(stacked(source, items["layers.1.kda.in"]), np.concatenate(rows))
    if kimi:
        assert np.array_equal(stacked(source, items["layers.1.kda.f_b"]), values[a + "f_b_proj.weight"])
        assert np.array_equal(stacked(source, items["layers.1.kda.g_b"]), values[a + "g_b_proj.weight"])
    conv = np.concatenate([values[f"{a}{x}_conv1d.weight"] for x in "qkv"])[:, 0]
    assert np.array_equal(source.vector(items["layers.1.kda.conv"]), conv)
    assert np.array_equal(source.vector(items["layers.1.kda.A_log"]), values[a + "A_log"].reshape(-1))
    assert np.array_equal(source.vector(items["layers.1.kda.dt_bias"]), values[a + "dt_bias"])
    assert np.array_equal(source.vector(items["layers.1.kda.b"]), values[a + "b_proj.weight"])
    assert np.array_equal(source.vector(items["layers.1.kda.o_norm"]), values[a + "o_norm.weight"])
    assert np.array_equal(stacked(source, items["layers.1.kda.o"]), values[a + "o_proj.weight"])
    a = attention(base, 3)
    first = "q_proj" if kimi else "q_a_proj"
    rows = [values[a + first + ".weight"], values[a + "kv_a_proj_with_mqa.weight"]]
    assert np.array_equal(stacked(source, items["layers.3.mla.in"]), np.concatenate(rows))
    assert np.array_equal(stacked(source, items["layers.3.mla.kv_b"]), values[a + "kv_b_proj.weight"])
    out = "o_proj" if kimi else "dense"
    assert np.array_equal(stacked(source, items["layers.3.mla.o"]), values[a + out + ".weight"])
    if not kimi:
        assert np.array_equal(source.vector(items["layers.3.mla.gate"]), values[a + "g_proj.weight"])
        assert np.array_equal(stacked(source, items["layers.3.mla.q_b"]), values[a + "q_b_proj.weight"])
    moe = "model.layers.2." + ("block_sparse_moe." if kimi else "mlp.")
    names = (
        {"gate": "w1", "up": "w3", "down": "w2"} if kimi else {k: k + "_proj" for k in ("gate", "up", "down")}
    )
    for kind, name in names.items():
        parts = source.experts(items["layers.2.moe.experts"])[kind]
        assert len(parts) == 8
        for expert, part in enumerate(parts):
            assert np.array_equal(part.f32(), values[f"{moe}experts.{expert}.{name}.weight"])
        (shared,) = source.experts(items["layers.2.moe.shared"])[kind]
        assert np.array_equal(shared.f32(), values[f"{moe}shared_experts.{kind}_proj.weight"])
        (dense,) = source.experts(items["layers.0.mlp"])[kind]
        assert np.array_equal(dense.f32(), values[f"model.layers.0.mlp.{kind}_proj.weight"])
    bias = "gate.e_score_correction_bias" if kimi else "gate.expert_bias"
    assert np.array_equal(source.vector(items["layers.2.moe.bias"]), values[moe + bias])
    assert np.array_equal(source.vector(items["layers.2.moe.router"]), values[moe + "gate.weight"])
    assert np.array_equal(source.vector(items["norm"]), values["model.norm.weight"])
    assert np.array_equal(stacked(source, items["lm_head"]), values["lm_head.weight"])
    embed = "model.embed_tokens.weight" if kimi else "model.word_embeddings.weight"
    assert np.array_equal(stacked(source, items["embed"]), values[embed])


def rename(name):
    """transformers' names of its own modules."""
    name = name.replace("word_embeddings", "embed_tokens").replace(".attention.", ".self_attn.")
    for label in ("A_log", "dt_bias", "f_proj", "f_a_proj", "f_b_proj"):
        name = name.replace(f"self_attn.{label}", f"self_attn.forget_gate.{label}")
    name = name.replace("block_sparse_moe", "mlp").replace("self_attn.dense", "self_attn.o_proj")
    return name.replace("gate.expert_bias", "gate.e_score_correction_bias")


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
def test_transformers_own_names_are_the_same_model(tmp_path, base):
    made = factory.write(tmp_path / "a", base)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text(json.dumps(made.config))
    stored = {rename(name): value for name, value in made.stored.items()}
    up = ("w1", "w3", "w2") if base is factory.KIMI else ("gate_proj", "up_proj", "down_proj")
    for layer in range(4):
        p = f"model.layers.{layer}."
        if p + "self_attn.q_conv1d.weight" in stored:
            convs = [stored.pop(f"{p}self_attn.{x}_conv1d.weight")[1] for x in "qkv"]
            stored[p + "self_attn.conv1d.weight"] = "BF16", np.concatenate(convs)
        if layer:
            experts = [[stored.pop(f"{p}mlp.experts.{e}.{name}.weight")[1] for name in up] for e in range(8)]
            both = np.stack([np.concatenate((gate, up_)) for gate, up_, _ in experts])
            stored[p + "mlp.experts.gate_up_proj"] = "BF16", both
            stored[p + "mlp.experts.down_proj"] = "BF16", np.stack([down for _, _, down in experts])
    factory.write_safetensors(tmp_path / "b" / "model.safetensors", stored)
    (one, items), (two, _) = open_source(tmp_path / "a"), open_source(tmp_path / "b")
    for item in items.values():
        if isinstance(item, layout.Vector | layout.Small):
            assert np.array_equal(one.vector(item), two.vector(item)), item.name
        elif isinstance(item, layout.Experts):
            for kind, parts in one.experts(item).items():
                for first, second in zip(parts, two.experts(item)[kind], strict=True):
                    assert np.array_equal(first.array, second.array), item.name
        else:
            assert np.array_equal(stacked(one, item), stacked(two, item)), item.name


def test_int4_values_and_scales(tmp_path):
    made = factory.write(tmp_path, int4=True)
    source, items = open_source(tmp_path)
    part = source.experts(items["layers.1.moe.experts"])["gate"][3]
    name = "model.layers.1.mlp.experts.3.gate_proj.weight"
    codes, scales = made.int4[name]
    assert np.array_equal(part.values(), codes) and np.array_equal(part.scale_bits(), scales)
    assert np.array_equal(part.f32(), made.values[name])
    assert np.array_equal(part.f32(5, 20), made.values[name][5:20])


def test_shards_read_as_one(tmp_path):
    factory.write(tmp_path / "one")
    factory.write(tmp_path / "many", shards=3)
    (one, items), (many, _) = open_source(tmp_path / "one"), open_source(tmp_path / "many")
    assert len(many.folder.shards) == 3
    item = items["layers.1.kda.in"]
    assert np.array_equal(stacked(one, item), stacked(many, item))


def test_large_weights_are_used_in_place(tmp_path):
    factory.write(tmp_path)
    source, items = open_source(tmp_path)
    part = source.parts(items["lm_head"])[0]
    assert np.shares_memory(part.dense(part.form), part.array) and not part.array.flags.owndata


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_unaligned_files_are_read_alike(tmp_path, dtype):
    made = factory.write(tmp_path, dtype=dtype)
    factory.write_safetensors(tmp_path / "model.safetensors", made.stored, align=1)
    source, items = open_source(tmp_path)
    part = source.parts(items["lm_head"])[0]
    assert not part.array.flags.aligned and not part.array.flags.owndata  # nothing is read on opening
    assert part.dense(part.form).flags.aligned
    assert np.array_equal(part.f32(), made.values["lm_head.weight"])
    for recipe in ("native", "mixed"):
        weights = open_model(tmp_path, recipe).weights
        assert weights.experts("layers.1.moe.experts").down.count == 8
        assert np.array_equal(weights.vector("norm"), made.values["model.norm.weight"])


def test_tokenizer_template_and_generation(tmp_path):
    factory.write(tmp_path)
    files = open_model(tmp_path)
    assert files.tokenizer_json == (tmp_path / "tokenizer.json").read_bytes()
    assert files.chat_template == "{{ messages[0].content }}"
    assert files.generation == {"temperature": 1.0, "eos_token_id": [319, 317]}
    assert files.config.eos_token_ids == (319, 317)
    assert files.recipe == "native" and not files.synthetic
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "plain"}))
    assert open_model(tmp_path).chat_template == "plain"
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert open_model(tmp_path).chat_template == "yes"


def test_a_fine_tune_has_another_identity(tmp_path):
    factory.write(tmp_path / "a", seed=1)
    factory.write(tmp_path / "b", seed=2)
    factory.write(tmp_path / "c", seed=1)
    a, b, c = (open_model(tmp_path / x).identity for x in "abc")
    assert a == c != b


def test_multi_token_prediction_layers_are_left_out_and_said(tmp_path):
    config = {**factory.LING, "num_nextn_predict_layers": 1}
    factory.write(tmp_path, config, extra=[("model.layers.4.eh_proj.weight", (72, 144))])
    assert "multi-token" in open_model(tmp_path).notes[0]


def test_tied_embeddings(tmp_path):
    made = factory.write(tmp_path, {**factory.LING, "tie_word_embeddings": True})
    source, items = open_source(tmp_path)
    assert np.array_equal(stacked(source, items["lm_head"]), made.values["model.word_embeddings.weight"])


def refused(path, *words):
    with pytest.raises(MindNanoError) as caught:
        open_model(path)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def rewrite(path, change):
    """Writes the single file again with `change` applied to its stored tensors."""
    made = factory.write(path)
    change(made.stored)
    factory.write_safetensors(path / "model.safetensors", made.stored)


def test_missing_tensors_are_listed(tmp_path):
    def change(stored):
        del stored["model.norm.weight"], stored["model.layers.3.attention.dense.weight"]

    rewrite(tmp_path, change)
    refused(tmp_path, "2 tensors are missing", "model.norm.weight", "layers.3.attention")


def test_unexpected_tensors_are_listed(tmp_path):
    rewrite(tmp_path, lambda s: s.update({"model.layers.0.attention.q_proj.bias": s["model.norm.weight"]}))
    refused(tmp_path, "1 tensors are not of this configuration", "q_proj.bias")


def test_a_layer_too_many(tmp_path):
    config = {**factory.LING, "num_hidden_layers": 3}
    factory.write(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused(tmp_path, "not of this configuration", "layers.3")


def test_wrong_shape_names_file_tensor_found_expected(tmp_path):
    def change(stored):
        stored["model.norm.weight"] = "F32", np.ones(71, np.float32)

    rewrite(tmp_path, change)
    refused(tmp_path, "model.safetensors", "model.norm.weight", "[71]", "[72]")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite(tmp_path, bad):
    def change(stored):
        stored["lm_head.weight"] = "F32", np.full((320, 72), bad, np.float32)

    rewrite(tmp_path, change)
    with pytest.raises(MindNanoError, match=r"lm_head.*NaN, infinity"):
        open_model(tmp_path, "mixed")


def test_unsupported_dtype(tmp_path):
    def change(stored):
        stored["model.norm.weight"] = "U8", np.ones(72, np.uint8)

    rewrite(tmp_path, change)
    refused(tmp_path, "model.norm.weight", "U8", "BF16")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("quant_method",), "fp8", ["quant_method", "fp8", "compressed-tensors"]),
        (("format",), "float-quantized", ["format", "float-quantized", "pack-quantized"]),
        (("kv_cache_scheme",), {"num_bits": 8}, ["kv_cache_scheme"]),
        (("config_groups",), {}, ["config_groups"]),
        (("config_groups", "group_0", "weights", "num_bits"), 8, ["num_bits", "8", "4"]),
        (("config_groups", "group_0", "weights", "group_size"), 128, ["group_size", "128", "32"]),
        (("config_groups", "group_0", "weights", "symmetric"), False, ["symmetric", "False"]),
        (("config_groups", "group_0", "weights", "strategy"), "channel", ["strategy", "channel"]),
        (("config_groups", "group_0", "weights", "type"), "float", ["type", "float"]),
        (("config_groups", "group_0", "weights", "actorder"), "group", ["actorder", "group"]),
        (("config_groups", "group_0", "input_activations"), {"num_bits": 8}, ["input_activations"]),
    ],
)
def test_other_quantization_is_refused_by_name(tmp_path, path, value, words):
    made = factory.write(tmp_path, int4=True)
    config = json.loads(json.dumps(made.config))
    place = config["quantization_config"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused(tmp_path, "quantization_config", *words)


def test_int4_contradictions(tmp_path):
    made = factory.write(tmp_path, int4=True)
    name = "model.layers.1.mlp.experts.0.up_proj.weight"
    good = dict(made.stored)
    for suffix, value, words in [
        ("_shape", ("I64", np.array([36, 73])), ["[36, 73]", "[36, 72]"]),
        ("_scale", ("F16", np.ones((36, 3), np.float16)), ["F16", "BF16"]),
        ("_scale", ("BF16", np.ones((36, 2), np.uint16)), ["[36, 2]", "[36, 3]"]),
        ("_packed", ("I32", np.ones((36, 8), np.int32)), ["[36, 8]", "[36, 9]"]),
    ]:
        factory.write_safetensors(tmp_path / "model.safetensors", good | {name + suffix: value})
        refused(tmp_path, name + suffix, *words)
    factory.write_safetensors(
        tmp_path / "model.safetensors", {k: v for k, v in good.items() if k != name + "_scale"}
    )
    refused(tmp_path, "missing", name + "_scale")
    factory.write_safetensors(tmp_path / "model.safetensors", good)
    (tmp_path / "config.json").write_text(json.dumps(factory.LING))
    refused(tmp_path, "quantization_config", "_packed")


def edit_index(path, change):
    index = path / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    change(data["weight_map"])
    index.write_text(json.dumps(data))


@pytest.mark.parametrize(
    "name",
    ["../evil.safetensors", "/etc/passwd", "a/b.safetensors", "..", "x.bin", "", 7, "\u0000.safetensors"],
)
def test_index_names_stay_in_the_folder(tmp_path, name):
    factory.write(tmp_path, shards=2)
    edit_index(tmp_path, lambda m: m.update({"model.norm.weight": name}))
    refused(tmp_path, "model.norm.weight", "same folder")


def test_index_contradictions(tmp_path):
    factory.write(tmp_path / "a", shards=2)
    (tmp_path / "a" / "model-00002-of-00002.safetensors").unlink()
    refused(tmp_path / "a", "model-00002-of-00002.safetensors", "missing")
    factory.write(tmp_path / "b", shards=2)
    edit_index(tmp_path / "b", lambda m: m.update({"model.norm.weight": "model-00001-of-00002.safetensors"}))
    edit_index(tmp_path / "b", lambda m: m.update({"lm_head.weight": "model-00001-of-00002.safetensors"}))
    refused(tmp_path / "b", "index.json", "model-00001")
    factory.write(tmp_path / "c", shards=2)
    edit_index(tmp_path / "c", lambda m: m.update({"ghost": "model-00001-of-00002.safetensors"}))
    refused(tmp_path / "c", "ghost")
    factory.write(tmp_path / "d", shards=2)
    edit_index(tmp_path / "d", lambda m: m.pop("model.norm.weight"))
    refused(tmp_path / "d", "model.norm.weight", "nowhere")
    (tmp_path / "d" / "model.safetensors").write_bytes(b"")
    refused(tmp_path / "d", "both", "remove one")


def test_several_files_without_an_index(tmp_path):
    factory.write(tmp_path, shards=2)
    (tmp_path / "model.safetensors.index.json").unlink()
    refused(tmp_path, "2 safetensors files", "index")


def test_symlinks_to_blobs_are_followed(tmp_path):
    factory.write(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for file in (tmp_path / "blobs").iterdir():
        (tmp_path / "snapshot" / file.name).symlink_to(file)
    assert open_model(tmp_path / "snapshot").config.num_layers == 4


def test_absurd_configuration_fails_fast(tmp_path):
    config = {**factory.LING, "num_hidden_layers": 1024}
    factory.write(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused(tmp_path, "at least 1000 tensors are missing")


def test_wrong_kinds_of_path(tmp_path):
    refused(tmp_path / "absent", "no such")
    refused(tmp_path, "config.json", "no such")
    (tmp_path / "config.json").write_text(json.dumps(factory.LING))
    refused(tmp_path, "0 safetensors files")
    with pytest.raises(MindNanoError, match="recipe 'w5' is unknown"):
        open_model(tmp_path, "w5")
