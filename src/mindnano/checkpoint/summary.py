"""What a model is and how large, without reading its weights: headers and arithmetic only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mindnano.checkpoint import layout, packed
from mindnano.checkpoint.config import ModelConfig, load_config
from mindnano.checkpoint.folder import CheckpointFolder
from mindnano.checkpoint.layout import Format, Item
from mindnano.checkpoint.pack import Packer
from mindnano.checkpoint.packed import NativeForms
from mindnano.checkpoint.safetensors import SafetensorsFile, padding
from mindnano.checkpoint.sources import Source


@dataclass(frozen=True)
class ModelSummary:
    """`nbytes`: bytes of weights in memory once all have been used; `name` for people."""

    name: str
    config: ModelConfig
    recipe: str
    synthetic: bool
    nbytes: int


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
        from mindnano.checkpoint import tiny

        recipe, config = recipe or "mixed", tiny.config()
        return ModelSummary("built-in", config, recipe, True, weight_bytes(config, recipe))
    path = Path(path)
    if path.is_dir():
        recipe = recipe or "native"
        folder = CheckpointFolder(path)
        native = Packer(Source(folder)) if recipe == "native" else None
        return ModelSummary(
            str(path), folder.config, recipe, False, weight_bytes(folder.config, recipe, native)
        )
    if path.suffix == ".json":
        recipe, config = recipe or "mixed", load_config(path)
        return ModelSummary(str(path), config, recipe, False, weight_bytes(config, recipe))
    file = SafetensorsFile(path)
    header = packed.parse_header(file)
    packed.check_recipe(path, header, recipe)
    return ModelSummary(str(path), header.config, header.recipe, header.synthetic, file.size)
