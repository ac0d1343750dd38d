"""What a model is and how large, without reading its weights: headers and arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mindnano.checkpoint import layout, packed
from mindnano.checkpoint.config import ModelConfig, load_config
from mindnano.checkpoint.files import check_regular
from mindnano.checkpoint.folder import CheckpointFolder
from mindnano.checkpoint.layout import Format, Item
from mindnano.checkpoint.pack import Packer
from mindnano.checkpoint.packed import NativeForms
from mindnano.checkpoint.safetensors import SafetensorsFile, padding
from mindnano.checkpoint.sources import Source

_TRAINED_TOKENIZER = 85  # bytes of tokenizer.json a vocabulary entry, for a trained byte-level BPE


@dataclass(frozen=True)
class ModelSummary:
    """`nbytes`: bytes of weights in memory once all have been used; `name` for people; `tokenizer_bytes`: of
    tokenizer.json, 0 without one."""

    name: str
    config: ModelConfig
    recipe: str
    synthetic: bool
    nbytes: int
    tokenizer_bytes: int


class Published:
    """The formats that published checkpoints have, for a configuration without a checkpoint."""

    def native_form(self, item: Item) -> Format:
        return layout.published_form(item)


def weight_bytes(config: ModelConfig, recipe: str, native: NativeForms | None = None) -> int:
    """Bytes of a model's weights in a recipe; `native` says how a source stores what the recipe leaves as it is."""
    plan = packed.forms(config, recipe, native or Published())
    specs = [spec for item, form in plan for spec in layout.tensors(item, form)]
    return sum(spec.nbytes + padding(spec.nbytes) for spec in specs)


def summarize(path: str | Path | None, recipe: str | None = None) -> ModelSummary:
    """Of a packed file, a checkpoint folder, a bare `config.json`, or with None the built-in model.

    Raises MindNanoError as opening it would.
    """
    if recipe is not None:
        layout.check_recipe(recipe)
    if path is None:
        from mindnano.checkpoint import builtin

        return builtin.summary(recipe)
    path = Path(path)
    if path.is_dir():
        recipe = recipe or "native"
        folder = CheckpointFolder(path)
        native = Packer(Source(folder)) if recipe == "native" else None
        nbytes = weight_bytes(folder.config, recipe, native)
        found = path / "tokenizer.json"
        tokenizer = check_regular(found) if found.exists() else 0
        return ModelSummary(str(path), folder.config, recipe, False, nbytes, tokenizer)
    if path.suffix == ".json":
        recipe, config = recipe or "mixed", load_config(path)
        nbytes, tokenizer = weight_bytes(config, recipe), _TRAINED_TOKENIZER * config.vocab_size
        return ModelSummary(str(path), config, recipe, False, nbytes, tokenizer)
    file = SafetensorsFile(path)
    header = packed.parse_header(file)
    packed.check_recipe(path, header, recipe)
    blob = file.tensors.get(packed.TOKENIZER)
    tokenizer = blob.end - blob.start if blob is not None else 0
    return ModelSummary(str(path), header.config, header.recipe, header.synthetic, file.size, tokenizer)
