"""The packed file: one safetensors file, weights in the kernels' layouts, configuration and tokenizer inside.

docs/formats.md describes it; `layout.tensors` says which tensors there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from mindnano.checkpoint import layout
from mindnano.checkpoint.config import ModelConfig
from mindnano.checkpoint.files import MIB, parse_object
from mindnano.checkpoint.folder import TOKENIZER_LIMIT, Extras, check_generation, check_json
from mindnano.checkpoint.layout import Format, Item
from mindnano.checkpoint.safetensors import ALIGNMENT, SafetensorsFile, TensorSpec
from mindnano.checkpoint.sink import FileSink, MemorySink
from mindnano.errors import MindNanoError, shorten

FORMAT = "mindnano-packed"
VERSION = "1"
TOKENIZER = "file.tokenizer.json"
TEMPLATE = "file.chat_template.jinja"

# (bytes done, bytes in all, what is being written)
Progress = Callable[[int, int, str], None]


class NativeForms(Protocol):
    """How a source stores an item."""

    def native_form(self, item: Item) -> Format: ...


class Producer(NativeForms, Protocol):
    """Where a packed file's bytes come from: a checkpoint (pack.Packer) or a random generator."""

    def chunks(self, item: Item, form: Format) -> Iterator[np.ndarray]: ...


@dataclass(frozen=True)
class Header:
    """What a packed file says about itself."""

    config: ModelConfig
    recipe: str
    synthetic: bool
    source: str
    generation: bytes = b"{}"


def forms(config: ModelConfig, recipe: str, producer: NativeForms) -> list[tuple[Item, Format]]:
    """Every item with the format a recipe gives it."""
    table = layout.RECIPES[layout.check_recipe(recipe)]
    found: list[tuple[Item, Format]] = []
    for item in layout.items(config):
        role = layout.role(item)
        form = "fp32" if role is None else table[role]
        found.append((item, producer.native_form(item) if form is None else form))
    return found


def write(
    target: Path,
    header: Header,
    extras: Extras,
    producer: Producer,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> int:
    """Streams a packed file into place; its size in bytes. Whole or not at all."""
    plan = forms(header.config, header.recipe, producer)
    blobs: list[tuple[str, bytes]] = []
    if extras.tokenizer_json is not None:
        blobs.append((TOKENIZER, extras.tokenizer_json))
    if extras.chat_template is not None:
        blobs.append((TEMPLATE, extras.chat_template.encode()))
    specs = [TensorSpec(name, "U8", (len(data),)) for name, data in blobs if data]
    specs += [spec for item, form in plan for spec in layout.tensors(item, form)]
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "recipe": header.recipe,
        "synthetic": "true" if header.synthetic else "false",
        "source": header.source,
        "config": header.config.to_json().decode(),
        "generation": msgspec.json.encode(extras.generation).decode(),
    }
    with FileSink(target, specs, metadata, force=force) as sink:
        for _, data in blobs:
            if data:
                sink.write(np.frombuffer(data, np.uint8))
        done = 0
        for item, form in plan:
            for chunk in producer.chunks(item, form):
                sink.write(chunk)
                done += chunk.nbytes
                if progress is not None:
                    progress(done, sink.nbytes, item.name)
    return sink.nbytes


def in_memory(plan: list[tuple[Item, Format]], producer: Producer) -> dict[str, np.ndarray]:
    """The tensors of a packed file as arrays: for small models, without a file."""
    sink = MemorySink([spec for item, form in plan for spec in layout.tensors(item, form)])
    for item, form in plan:
        for chunk in producer.chunks(item, form):
            sink.write(chunk)
    return sink.finish()


def parse_header(file: SafetensorsFile) -> Header:
    """A packed file's description of itself, checked."""
    where = str(file.path)
    data = file.metadata
    if data.get("format") != FORMAT:
        raise MindNanoError(
            f"{where}: format is {shorten(data.get('format'))}, expected {FORMAT!r}; this is no packed model "
            "(for a checkpoint give its folder, or make one with mindnano convert)"
        )
    if data.get("version") != VERSION:
        raise MindNanoError(
            f"{where}: packed format version {shorten(data.get('version'))}, this program reads {VERSION!r}; "
            "convert the model again"
        )
    missing = [n for n in ("config", "recipe", "synthetic", "source", "generation") if n not in data]
    if missing:
        raise MindNanoError(f"{where}: metadata entry {missing[0]!r} is missing; damaged")
    if data["synthetic"] not in ("true", "false"):
        raise MindNanoError(f"{where}: synthetic is {shorten(data['synthetic'])}, expected 'true' or 'false'")
    for name in ("config", "generation"):
        if len(data[name]) > MIB:
            raise MindNanoError(f"{where}: metadata entry {name} has {len(data[name])} characters; damaged")
    return Header(
        config=ModelConfig.from_json(data["config"].encode(errors="replace"), where),
        recipe=layout.check_recipe(data["recipe"]),
        synthetic=data["synthetic"] == "true",
        source=data["source"],
        generation=data["generation"].encode(errors="replace"),
    )


def check_recipe(path: Path, header: Header, recipe: str | None) -> None:
    """Raises MindNanoError where another recipe is wanted than the file was packed with."""
    if recipe not in (None, header.recipe):
        raise MindNanoError(
            f"{path}: is packed with recipe {header.recipe}, not {recipe}; convert the checkpoint again with "
            f"--recipe {recipe}"
        )


def read_header(path: Path) -> Header:
    """Only the description: needs no weights in memory."""
    return parse_header(SafetensorsFile(path))


def read_extras(file: SafetensorsFile, header: Header) -> Extras:
    """The tokenizer, template and generation settings inside."""
    where = str(file.path)
    generation = parse_object(header.generation, f"{where}: generation")
    tokenizer = _blob(file, TOKENIZER)
    if tokenizer is not None:
        check_json(tokenizer, f"{where}: {TOKENIZER}")
    template = _blob(file, TEMPLATE)
    try:
        text = None if template is None else template.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MindNanoError(f"{where}: {TEMPLATE} is not UTF-8 at byte {error.start}; damaged") from None
    return Extras(tokenizer, text, check_generation(generation, header.config, where))


def _blob(file: SafetensorsFile, name: str) -> bytes | None:
    info = file.tensors.get(name)
    if info is None:
        return None
    if info.dtype != "U8" or len(info.shape) != 1 or info.end - info.start > TOKENIZER_LIMIT:
        raise MindNanoError(
            f"{file.path}: tensor {name} is {info.dtype} {list(info.shape)}, expected U8 of one dimension"
        )
    return file.array(info).tobytes()


def read_tensors(file: SafetensorsFile, header: Header) -> dict[str, np.ndarray]:
    """Every weight tensor, in place, checked against what configuration and recipe call for."""
    found: dict[str, np.ndarray] = {}
    table = layout.RECIPES[header.recipe]
    for item in layout.items(header.config):
        role = layout.role(item)
        form = "fp32" if role is None else table[role] or _stored_form(file, item)
        for spec in layout.tensors(item, form):
            info = file.tensors.get(spec.name)
            if info is None:
                raise MindNanoError(f"{file.path}: tensor {spec.name} is missing; damaged, convert again")
            if (info.dtype, info.shape) != (spec.dtype, spec.shape):
                raise MindNanoError(
                    f"{file.path}: tensor {spec.name} is {info.dtype} {list(info.shape)}, expected "
                    f"{spec.dtype} {list(spec.shape)} (recipe {header.recipe})"
                )
            if info.start % ALIGNMENT:
                raise MindNanoError(
                    f"{file.path}: tensor {spec.name} starts at byte {info.start}, expected a multiple of "
                    f"{ALIGNMENT}; rewritten by another program? convert again"
                )
            found[spec.name] = file.array(info)
    for name in file.tensors:
        if name not in found and not name.startswith(("pad.", "file.")):
            raise MindNanoError(f"{file.path}: tensor {shorten(name)} is not of this configuration; damaged")
    return found


def _stored_form(file: SafetensorsFile, item: Item) -> Format:
    """The dense format of a `native` item, read off its tensor."""
    info = file.tensors.get(layout.main_tensor(item))
    form = None if info is None else layout.FORMAT_OF_DTYPE.get(info.dtype)
    if form is None or form not in layout.DENSE_DTYPES:
        kind = "missing" if info is None else info.dtype
        raise MindNanoError(
            f"{file.path}: tensor {layout.main_tensor(item)} is {kind}, expected F32, BF16 or F16 "
            "(recipe native)"
        )
    return form


def identity(file: SafetensorsFile) -> str:
    """A digest of header and samples of the data."""
    return hashlib.blake2b(file.fingerprint(), digest_size=16).hexdigest()
