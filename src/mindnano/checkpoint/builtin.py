"""The built-in model: a trained one where the package has its file, else random weights made on the spot."""

from __future__ import annotations

import dataclasses

from mindnano import data
from mindnano.checkpoint import synthetic, tiny
from mindnano.checkpoint.model_files import ModelFiles, open_model
from mindnano.checkpoint.summary import ModelSummary, summarize, weight_bytes
from mindnano.errors import MindNanoError

NAME = "built-in"


def trained() -> bool:
    """Whether the package has a trained model."""
    return data.TRAINED.exists()


def open_builtin(recipe: str | None) -> ModelFiles:
    """The built-in model; raises MindNanoError where a trained one doesn't have the recipe."""
    if not trained():
        return tiny.open_builtin(recipe or "mixed")
    _check(recipe)
    return dataclasses.replace(open_model(data.TRAINED), path=None)


def summary(recipe: str | None) -> ModelSummary:
    """What `open_builtin` would open."""
    if trained():
        _check(recipe)
        return dataclasses.replace(summarize(data.TRAINED), name=NAME)
    config = tiny.config()
    recipe, tokenizer = recipe or "mixed", len(synthetic.extras(config).tokenizer_json or b"")
    return ModelSummary(NAME, config, recipe, True, weight_bytes(config, recipe), tokenizer)


def _check(recipe: str | None) -> None:
    if recipe not in (None, "mixed"):
        raise MindNanoError(
            f"recipe {recipe}: the built-in model is packed as mixed; leave --recipe out, or give a MODEL"
        )
