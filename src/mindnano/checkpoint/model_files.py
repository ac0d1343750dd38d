"""Opening a model: a packed file, a checkpoint folder, or the built-in model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindnano.checkpoint import layout, packed
from mindnano.checkpoint.config import ModelConfig, check
from mindnano.checkpoint.folder import CheckpointFolder, Extras
from mindnano.checkpoint.pack import Packer
from mindnano.checkpoint.packed import Producer
from mindnano.checkpoint.safetensors import SafetensorsFile
from mindnano.checkpoint.sources import Source
from mindnano.checkpoint.store import NativeStore, PackedStore, WeightStore


@dataclass(frozen=True)
class ModelFiles:
    """An opened model. `nbytes`: size of the weights; `identity`: a digest that sessions are bound to;
    `notes`: what a user should know (parts of a checkpoint that are left out)."""

    path: Path | None
    config: ModelConfig
    tokenizer_json: bytes | None
    chat_template: str | None
    generation: dict[str, Any]
    synthetic: bool
    recipe: str
    identity: str
    weights: WeightStore
    nbytes: int
    notes: tuple[str, ...] = ()

    def __enter__(self) -> ModelFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the weights; the mapping ends with the last array or matrix that still uses it."""
        self.weights.close()


def open_model(path: str | Path | None, recipe: str | None = None) -> ModelFiles:
    """Opens a packed file (in place), a checkpoint folder, or with None the built-in model.

    A folder is used as it lies (recipe "native") unless another recipe is given; then it is converted in
    memory, which is for small models. A packed file has its recipe; asking it for another is an error.
    Raises MindNanoError for anything wrong with the files.
    """
    if recipe is not None:
        layout.check_recipe(recipe)
    if path is None:
        from mindnano.checkpoint import builtin

        return builtin.open_builtin(recipe)
    path = Path(path)
    if path.is_dir():
        return _open_folder(path, recipe or "native")
    return _open_packed(path, recipe)


def _open_packed(path: Path, recipe: str | None) -> ModelFiles:
    file = SafetensorsFile(path)
    header = packed.parse_header(file)
    packed.check_recipe(path, header, recipe)
    tensors = packed.read_tensors(file, header)
    dtypes = {name: file.tensors[name].dtype for name in tensors}
    return _files(
        path,
        header.config,
        packed.read_extras(file, header),
        synthetic=header.synthetic,
        recipe=header.recipe,
        identity=packed.identity(file),
        weights=PackedStore(header.config, tensors, dtypes),
        nbytes=file.size,
    )


def _open_folder(path: Path, recipe: str) -> ModelFiles:
    folder = CheckpointFolder(path)
    source = Source(folder)
    extras = folder.extras()
    weights: WeightStore
    if recipe == "native":
        weights, nbytes = NativeStore(source), folder.nbytes
    else:
        weights, nbytes = convert_in_memory(source.config, recipe, Packer(source))
    return _files(
        path,
        source.config,
        extras,
        synthetic=False,
        recipe=recipe,
        identity=f"{folder.identity()}-{recipe}",
        weights=weights,
        nbytes=nbytes,
        notes=tuple(source.notes),
    )


def convert_in_memory(config: ModelConfig, recipe: str, producer: Producer) -> tuple[PackedStore, int]:
    """A store of the packed layout without a file, and its size in bytes."""
    plan = packed.forms(config, recipe, producer)
    dtypes = {spec.name: spec.dtype for item, form in plan for spec in layout.tensors(item, form)}
    tensors = packed.in_memory(plan, producer)
    return PackedStore(config, tensors, dtypes), sum(array.nbytes for array in tensors.values())


def _files(path: Path | None, config: ModelConfig, extras: Extras, **rest: Any) -> ModelFiles:
    """Puts the parts together; end tokens of the generation settings count beside the configuration's."""
    stops = tuple(dict.fromkeys((*config.eos_token_ids, *extras.generation.get("eos_token_id", ()))))
    config = dataclasses.replace(config, eos_token_ids=stops)
    check(config, str(path))
    return ModelFiles(
        path=path,
        config=config,
        tokenizer_json=extras.tokenizer_json,
        chat_template=extras.chat_template,
        generation=extras.generation,
        **rest,
    )
