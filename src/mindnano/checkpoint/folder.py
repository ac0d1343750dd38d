"""A checkpoint folder as it lies on disk: configuration, shards, index, tokenizer files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import msgspec

from mindnano.checkpoint import compressed, families, files
from mindnano.checkpoint.config import ModelConfig
from mindnano.checkpoint.safetensors import SafetensorsFile, TensorInfo
from mindnano.errors import MindNanoError, shorten

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
TOKENIZER_LIMIT = 100_000_000
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.safetensors")


class CheckpointFolder:
    """An opened checkpoint: its configuration and every tensor's file, checked against the index."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = files.read_bytes(path / "config.json", families.CONFIG_LIMIT, "configuration")
        where = str(path / "config.json")
        values = files.parse_object(data, where)
        self.config: ModelConfig = families.read(values, where)
        self.int4 = compressed.check(values.get("quantization_config"), where)
        self._config_digest = hashlib.blake2b(data).digest()
        self.tensors: dict[str, tuple[SafetensorsFile, TensorInfo]] = {}
        self.shards: list[SafetensorsFile] = []
        self._open()

    def _open(self) -> None:
        index = self.path / INDEX
        if index.exists():
            mapping = _read_index(index)
            names = sorted(set(mapping.values()))
            if (self.path / SINGLE).exists() and SINGLE not in names:
                raise MindNanoError(
                    f"{self.path}: has both {SINGLE} and {INDEX}, which does not mention it; remove one"
                )
        else:
            mapping = None
            names = [SINGLE] if (self.path / SINGLE).exists() else self._only_file()
        for name in names:
            self._add(SafetensorsFile(self.path / name), mapping)
        missing = sorted(set(mapping) - set(self.tensors)) if mapping else []
        if missing and mapping:
            raise MindNanoError(
                f"{self.path / mapping[missing[0]]}: {len(missing)} tensors that {INDEX} places there "
                f"are not in it, first {shorten(missing[0])}"
            )

    def _only_file(self) -> list[str]:
        names = sorted(p.name for p in self.path.glob("*.safetensors"))
        if len(names) != 1:
            raise MindNanoError(
                f"{self.path}: has {len(names)} safetensors files and no {INDEX}, expected "
                f"{SINGLE} or shards with an index"
            )
        return names

    def _add(self, shard: SafetensorsFile, mapping: dict[str, str] | None) -> None:
        self.shards.append(shard)
        for info in shard.tensors.values():
            if mapping is not None and mapping.get(info.name) != shard.path.name:
                stated = mapping.get(info.name, "nowhere")
                raise MindNanoError(
                    f"{shard.path}: holds tensor {shorten(info.name)}, which {INDEX} places in {stated}"
                )
            self.tensors[info.name] = (shard, info)

    @property
    def nbytes(self) -> int:
        return sum(shard.size for shard in self.shards)

    def release(self) -> None:
        for shard in self.shards:
            shard.release()

    def identity(self) -> str:
        """A digest of the configuration, every header and samples of the data, so that two fine-tunes of one
        shape differ."""
        state = hashlib.blake2b(self._config_digest, digest_size=16)
        for shard in self.shards:
            state.update(shard.fingerprint())
        return state.hexdigest()

    def extras(self) -> Extras:
        return Extras.read(self.path, self.config)


def _read_index(path: Path) -> dict[str, str]:
    data = files.read_bytes(path, 32 * files.MIB, "index")
    mapping = files.parse_object(data, str(path)).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        raise MindNanoError(f"{path}: weight_map is {shorten(mapping)}, expected an object of tensor names")
    for name, shard in mapping.items():
        if not isinstance(shard, str) or not _SHARD.fullmatch(shard):
            raise MindNanoError(
                f"{path}: tensor {shorten(name)} is placed in {shorten(shard)}, expected the name of a "
                ".safetensors file in the same folder"
            )
    for shard in sorted(set(mapping.values())):
        if not (path.parent / shard).exists():
            raise MindNanoError(f"{path.parent / shard}: missing, but {path.name} places tensors in it")
    return mapping


class Extras(msgspec.Struct):
    """What a model needs beside its weights: tokenizer.json, chat template, generation settings."""

    tokenizer_json: bytes | None
    chat_template: str | None
    generation: dict[str, Any]

    @classmethod
    def read(cls, path: Path, config: ModelConfig) -> Extras:
        tokenizer = None
        if (path / "tokenizer.json").exists():
            tokenizer = files.read_bytes(path / "tokenizer.json", TOKENIZER_LIMIT, "tokenizer")
            check_json(tokenizer, str(path / "tokenizer.json"))
        generation: dict[str, Any] = {}
        if (path / "generation_config.json").exists():
            where = path / "generation_config.json"
            data = files.read_bytes(where, files.MIB, "generation configuration")
            generation = files.parse_object(data, str(where))
        return cls(tokenizer, _chat_template(path), check_generation(generation, config, str(path)))


def check_json(data: bytes, where: str) -> None:
    """That bytes are JSON, without building objects; what it means is the tokenizer's own check."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MindNanoError(f"{where}: not valid JSON ({error})") from None


def check_generation(values: dict[str, Any], config: ModelConfig, where: str) -> dict[str, Any]:
    """The settings of generation_config.json that sampling knows, ranges checked; the rest is dropped."""
    ranges = {
        "temperature": (0.0, 100.0),
        "top_p": (0.0, 1.0),
        "min_p": (0.0, 1.0),
        "top_k": (0, 1 << 30),
        "repetition_penalty": (1e-3, 100.0),
    }
    found: dict[str, Any] = {}
    for name, (low, high) in ranges.items():
        value = values.get(name)
        if value is None:
            continue
        whole = isinstance(low, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise MindNanoError(f"{where}: generation setting {name} is {shorten(value)}, expected a number")
        if not low <= value <= high:
            raise MindNanoError(
                f"{where}: generation setting {name} is {shorten(value)}, expected {low:g} to {high:g}"
            )
        found[name] = value
    if isinstance(values.get("do_sample"), bool):
        found["do_sample"] = values["do_sample"]
    eos = values.get("eos_token_id")
    tokens = eos if isinstance(eos, list) else [] if eos is None else [eos]
    for token in tokens[:64]:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < config.vocab_size:
            raise MindNanoError(
                f"{where}: generation setting eos_token_id holds {shorten(token)}, expected token ids below "
                f"{config.vocab_size}"
            )
    if tokens:
        found["eos_token_id"] = list(tokens[:64])
    return found


def _chat_template(path: Path) -> str | None:
    jinja = path / "chat_template.jinja"
    if jinja.exists():
        data = files.read_bytes(jinja, files.MIB, "chat template")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MindNanoError(f"{jinja}: not UTF-8 at byte {error.start}") from None
    where = path / "tokenizer_config.json"
    if not where.exists():
        return None
    data = files.read_bytes(where, 16 * files.MIB, "tokenizer configuration")
    template = files.parse_object(data, str(where)).get("chat_template")
    if isinstance(template, list):  # several named ones: [{"name": ..., "template": ...}]
        named = {t["name"]: t.get("template") for t in template if isinstance(t, dict) and _is_name(t)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise MindNanoError(f"{where}: chat_template is {shorten(template)}, expected text")
    return template


def _is_name(entry: dict[str, Any]) -> bool:
    return isinstance(entry.get("name"), str)
