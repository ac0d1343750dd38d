"""Checkpoint folder to packed file, streaming: memory stays at a few hundred megabytes at any size."""

from __future__ import annotations

from pathlib import Path

from mindnano.checkpoint import layout, packed
from mindnano.checkpoint.folder import CheckpointFolder
from mindnano.checkpoint.pack import Packer
from mindnano.checkpoint.packed import Header, Progress
from mindnano.checkpoint.sink import check_target
from mindnano.checkpoint.sources import Source
from mindnano.errors import MindNanoError


def convert(
    source: str | Path,
    target: str | Path,
    recipe: str = "mixed",
    progress: Progress | None = None,
    *,
    force: bool = False,
) -> int:
    """Writes a checkpoint folder as one packed file and returns its size in bytes.

    `progress(bytes done, bytes in all, tensor)` is called after every few megabytes. The target appears
    only when it is whole and on the disk; after any failure, Ctrl-C included, there is neither it nor a
    temporary file. Raises MindNanoError for a bad source, an existing target (unless `force`), or too little
    disk space.
    """
    layout.check_recipe(recipe)
    source, target = Path(source), Path(target)
    check_target(target, force)
    if source.is_file():
        raise MindNanoError(
            f"{source}: is a file, expected a checkpoint folder; a packed model cannot be packed again with "
            "another recipe, as its weights are already rounded"
        )
    if not source.is_dir():
        raise MindNanoError(f"{source}: no such checkpoint folder")
    folder = CheckpointFolder(source)
    checkpoint = Source(folder)
    # A target that replaces one of the source's own files (--force) would destroy what is being read.
    if any(target.exists() and target.samefile(shard.path) for shard in folder.shards):
        raise MindNanoError(f"{target}: belongs to the source; choose another target")
    header = Header(
        config=checkpoint.config,
        recipe=recipe,
        synthetic=False,
        source=folder.identity(),
    )
    return packed.write(target, header, folder.extras(), Packer(checkpoint), force=force, progress=progress)
