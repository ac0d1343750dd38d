"""From a checkpoint's own tensor names to the canonical ones, every shape checked before anything is used.

Spellings: the official ones of Ling 3 and Kimi-Linear, and those transformers gives its modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from mindnano.checkpoint.folder import CheckpointFolder
from mindnano.checkpoint.layout import Embedding, Experts, Item, KVUp, Linear, Small, Vector, items
from mindnano.checkpoint.parts import GROUP, DensePart, Int4Part, Part, check_values, to_f32
from mindnano.checkpoint.safetensors import TensorInfo
from mindnano.errors import MindNanoError, shorten

_ATTENTION = ("attention.", "self_attn.")
_MLP = ("mlp.", "block_sparse_moe.")
# Canonical label of a stacked part -> stored names inside the attention block.
_PARTS: dict[str, tuple[str, ...]] = {
    "q": ("q_proj.weight",),
    "k": ("k_proj.weight",),
    "v": ("v_proj.weight",),
    "f": ("f_proj.weight", "forget_gate.f_proj.weight"),
    "g": ("g_proj.weight",),
    "f_a": ("f_a_proj.weight", "forget_gate.f_a_proj.weight"),
    "f_b": ("f_b_proj.weight", "forget_gate.f_b_proj.weight"),
    "g_a": ("g_a_proj.weight",),
    "g_b": ("g_b_proj.weight",),
    "q_a": ("q_a_proj.weight",),
    "q_b": ("q_b_proj.weight",),
    "kv_a": ("kv_a_proj_with_mqa.weight",),
    "o": ("o_proj.weight", "dense.weight"),
}
_VECTORS: dict[str, tuple[str, ...]] = {
    "kda.A_log": ("A_log", "forget_gate.A_log"),
    "kda.dt_bias": ("dt_bias", "forget_gate.dt_bias"),
    "kda.o_norm": ("o_norm.weight",),
    "kda.b": ("b_proj.weight",),
    "mla.q_norm": ("q_a_layernorm.weight",),
    "mla.kv_norm": ("kv_a_layernorm.weight",),
    "mla.gate": ("g_proj.weight",),
}
_NORMS = {"attention_norm": "input_layernorm.weight", "mlp_norm": "post_attention_layernorm.weight"}
_EMBED = ("model.word_embeddings.weight", "model.embed_tokens.weight")
# One expert's matrices: (as Ling and transformers name them, as Kimi does).
_EXPERT = {"gate": ("gate_proj", "w1"), "up": ("up_proj", "w3"), "down": ("down_proj", "w2")}
# A configuration that claims millions of experts must not make us list them.
MISSING_LIMIT = 1000
_LAYER = re.compile(r"model\.layers\.([0-9]{1,6})\.")


class Source:
    """The tensors of a checkpoint under their canonical names. Opening one looks every tensor up, so what is
    missing, misshapen or left over is told before any work starts."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self.folder = folder
        self.config = folder.config
        self.notes: list[str] = []
        self._used: set[str] = set()
        self._missing: list[str] = []
        self._vectors: dict[str, list[tuple[TensorInfo, tuple[int, ...]]]] = {}
        self._parts: dict[str, list[Part]] = {}
        self._experts: dict[str, dict[str, list[Part]]] = {}
        for item in items(self.config):
            self._resolve(item)
        self._report()

    def vector(self, item: Vector | Small) -> np.ndarray:
        """A small tensor as float32."""
        pieces = []
        for info, shape in self._vectors[item.name]:
            shard, _ = self.folder.tensors[info.name]
            values = to_f32(shard.array(info), info.dtype).reshape(shape)
            pieces.append(check_values(values, f"{shard.path}: tensor {info.name}"))
        return np.concatenate(pieces).reshape(item.shape)

    def parts(self, item: Linear | KVUp | Embedding) -> list[Part]:
        """A matrix's stored parts in row order (kv_b: as stored, heads interleaved)."""
        return self._parts[item.name]

    def experts(self, item: Experts) -> dict[str, list[Part]]:
        """ "gate", "up" and "down", each one part an expert."""
        return self._experts[item.name]

    def arrays(self) -> Iterator[np.ndarray]:
        """The dense matrices that are used, in place."""
        groups = [*self._parts.values(), *(p for kinds in self._experts.values() for p in kinds.values())]
        return (part.array for parts in groups for part in parts if isinstance(part, DensePart))

    def close(self) -> None:
        """Drops every reference to the mapped files."""
        self._parts.clear()
        self._experts.clear()
        self.folder.tensors.clear()
        self.folder.shards.clear()

    def release(self) -> None:
        """Lets go of the pages read so far."""
        self.folder.release()

    def _resolve(self, item: Item) -> None:
        layer, _, label = item.name.removeprefix("layers.").partition(".")
        base = f"model.layers.{layer}."
        if isinstance(item, Embedding):
            self._parts[item.name] = self._some(self._matrix(_EMBED, item.rows, item.cols))
        elif item.name == "lm_head":
            assert isinstance(item, Linear)
            head = _EMBED if self.config.tie_word_embeddings else ("lm_head.weight",)
            self._parts[item.name] = self._some(self._matrix(head, item.rows, item.cols))
        elif item.name == "norm":
            self._small(item.name, ("model.norm.weight",), (self.config.hidden_size,))
        elif isinstance(item, Linear):
            self._parts[item.name] = [
                part
                for name, rows in item.parts
                for part in self._some(self._matrix(_join(base, _ATTENTION, _PARTS[name]), rows, item.cols))
            ]
        elif isinstance(item, KVUp):
            names = _join(base, _ATTENTION, ("kv_b_proj.weight",))
            rows = item.heads * (item.nope + item.value)
            self._parts[item.name] = self._some(self._matrix(names, rows, item.rank))
        elif isinstance(item, Experts):
            self._resolve_experts(item, base, label)
        elif label == "kda.conv":
            self._conv(item.name, base, item.shape)
        elif label in _NORMS:
            self._small(item.name, (base + _NORMS[label],), item.shape)
        elif label == "moe.router":
            self._small(item.name, _join(base, _MLP, ("gate.weight",)), item.shape)
        elif label == "moe.bias":
            names = _join(base, _MLP, ("gate.expert_bias", "gate.e_score_correction_bias"))
            self._small(item.name, names, item.shape)
        else:
            self._small(item.name, _join(base, _ATTENTION, _VECTORS[label]), item.shape)

    def _resolve_experts(self, item: Experts, base: str, label: str) -> None:
        shapes = dict.fromkeys(("gate", "up"), (item.intermediate, item.hidden))
        shapes["down"] = (item.hidden, item.intermediate)
        if label == "moe.experts":
            fused = [
                name for name in _join(base, _MLP, ("experts.gate_up_proj",)) if name in self.folder.tensors
            ]
            if fused:
                self._experts[item.name] = self._fused_experts(item, fused[0])
                return
            prefixes = [f"experts.{expert}." for expert in range(item.count)]
        else:
            prefixes = ["shared_experts." if label == "moe.shared" else ""]
        self._experts[item.name] = {
            kind: [
                part
                for prefix in prefixes
                for part in self._some(
                    self._matrix(
                        _join(base, _MLP, [f"{prefix}{name}.weight" for name in _EXPERT[kind]]), *shape
                    )
                )
            ]
            for kind, shape in shapes.items()
        }

    def _fused_experts(self, item: Experts, gate_up: str) -> dict[str, list[Part]]:
        """transformers' modules: gate_up_proj [E, 2 I, hidden] (gate first) and down_proj [E, hidden, I]."""
        width = item.intermediate
        both = self._tensor((gate_up,), [(item.count, 2 * width, item.hidden)])
        down = self._tensor(
            (gate_up.replace("gate_up_proj", "down_proj"),), [(item.count, item.hidden, width)]
        )
        if both is None or down is None:
            return {}
        first, second = self._dense(both), self._dense(down)
        return {
            "gate": [DensePart(a[:width], both.dtype, first.where) for a in first.array],
            "up": [DensePart(a[width:], both.dtype, first.where) for a in first.array],
            "down": [DensePart(a, down.dtype, second.where) for a in second.array],
        }

    def _conv(self, name: str, base: str, shape: tuple[int, ...]) -> None:
        """q|k|v convolutions: three tensors, or one that transformers concatenated."""
        rows, taps = shape
        fused = _join(base, _ATTENTION, ("conv1d.weight",))
        if any(n in self.folder.tensors for n in fused):
            self._small(name, fused, shape, [(rows, 1, taps)])
            return
        for kind in "qkv":
            names = _join(base, _ATTENTION, (f"{kind}_conv1d.weight",))
            self._small(name, names, (rows // 3, taps), [(rows // 3, 1, taps)])

    def _small(
        self,
        name: str,
        names: Iterable[str],
        shape: tuple[int, ...],
        more: Iterable[tuple[int, ...]] = (),
    ) -> None:
        shapes = [shape, *more]
        if name.endswith("A_log"):
            shapes.append((1, 1, *shape, 1))
        info = self._tensor(tuple(names), shapes)
        if info is not None:
            self._check_dtype(info)
            self._vectors.setdefault(name, []).append((info, shape))

    def _some(self, part: Part | None) -> list[Part]:
        return [] if part is None else [part]

    def _matrix(self, names: Iterable[str], rows: int, cols: int) -> Part | None:
        """The matrix under one of the names (`.weight`), dense or int4."""
        names = tuple(names)
        packed = [name for name in names if name + "_packed" in self.folder.tensors]
        if packed:
            return self._int4(packed[0], rows, cols)
        info = self._tensor(names, [(rows, cols)])
        return None if info is None else self._dense(info)

    def _dense(self, info: TensorInfo) -> DensePart:
        self._check_dtype(info)
        shard, _ = self.folder.tensors[info.name]
        return DensePart(shard.array(info), info.dtype, f"{shard.path}: tensor {info.name}")

    def _check_dtype(self, info: TensorInfo) -> None:
        if info.dtype not in ("BF16", "F16", "F32"):
            shard, _ = self.folder.tensors[info.name]
            raise MindNanoError(
                f"{shard.path}: tensor {info.name} has dtype {info.dtype}, supported are BF16, F16, F32 and "
                "int4 in compressed-tensors' pack-quantized form"
            )

    def _int4(self, name: str, rows: int, cols: int) -> Int4Part | None:
        if not self.folder.int4:
            raise MindNanoError(
                f"{self.folder.path / 'config.json'}: has no quantization_config, but {name}_packed is a "
                "quantized tensor; the two do not belong together"
            )
        groups = -(-cols // GROUP)
        packed = self._tensor((name + "_packed",), [(rows, -(-cols // 8))], "I32")
        scale = self._tensor((name + "_scale",), [(rows, groups)], "BF16")
        shape = self._tensor((name + "_shape",), [(2,)], "I64")
        if packed is None or scale is None or shape is None:
            return None
        arrays = [self.folder.tensors[i.name][0].array(i) for i in (packed, scale, shape)]
        where = f"{self.folder.tensors[packed.name][0].path}: tensor {name}"
        if arrays[2].tolist() != [rows, cols]:
            raise MindNanoError(f"{where}_shape holds {arrays[2].tolist()}, expected {[rows, cols]}")
        return Int4Part(arrays[0], arrays[1], cols, where)

    def _tensor(
        self, names: tuple[str, ...], shapes: list[tuple[int, ...]], dtype: str | None = None
    ) -> TensorInfo | None:
        found = [name for name in names if name in self.folder.tensors]
        if not found:
            self._missing.append(names[0])
            if len(self._missing) == MISSING_LIMIT:
                self._report()
            return None
        shard, info = self.folder.tensors[found[0]]
        self._used.add(found[0])
        if info.shape not in shapes:
            raise MindNanoError(
                f"{shard.path}: tensor {info.name} has shape {list(info.shape)}, the configuration calls for "
                f"{list(shapes[0])}"
            )
        if dtype is not None and info.dtype != dtype:
            raise MindNanoError(f"{shard.path}: tensor {info.name} has dtype {info.dtype}, expected {dtype}")
        return info

    def _report(self) -> None:
        if self._missing:
            more = "at least " if len(self._missing) == MISSING_LIMIT else ""
            raise MindNanoError(
                f"{self.folder.path}: {more}{len(self._missing)} tensors are missing: "
                f"{_listed(self._missing)}"
            )
        layers = self.config.num_layers
        left: list[str] = []
        mtp = 0
        for name in self.folder.tensors:
            if name in self._used or name.endswith(".rotary_emb.inv_freq"):
                continue
            match = _LAYER.match(name)
            if match and layers <= int(match[1]) < layers + self.config.mtp_layers:
                mtp += 1
            else:
                left.append(name)
        if left:
            raise MindNanoError(
                f"{self.folder.path}: {len(left)} tensors are not of this configuration: "
                f"{_listed(sorted(left))}; a model that needs them is not supported"
            )
        if mtp:
            self.notes.append(
                f"{self.config.mtp_layers} multi-token-prediction layers ({mtp} tensors) are left out: "
                "they draft tokens and are no part of the decoder"
            )


def _join(base: str, blocks: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    names = tuple(names)
    return tuple(base + block + name for block in blocks for name in names)


def _listed(names: list[str], limit: int = 5) -> str:
    shown = ", ".join(shorten(name).strip("'") for name in names[:limit])
    return shown if len(names) <= limit else f"{shown}, ..."
