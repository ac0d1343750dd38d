"""The committed fixtures: small random checkpoints in the official layout, and what the transformers classes say."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[1] / "data" / "oracle"
CASES = sorted(path.name for path in FOLDER.iterdir())
LENGTHS = (1, 2, 63, 64, 65, 500)
LOGITS_BOUND = 1e-4  # of the largest logit


def folder(case: str) -> Path:
    return FOLDER / case


@cache
def expected(case: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / case / "expected.npz") as data:
        return dict(data)


def tokens(case: str, length: int) -> list[int]:
    return expected(case)[f"tokens.{length}"].tolist()


def rows_kept(length: int) -> list[int]:
    """The rows of a sequence's logits that the fixtures keep (tests/oracle/models.py)."""
    return sorted({0, *range(max(0, length - 8), length), *range(0, length, 61)})


def relative_error(got: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference over the largest wanted logit."""
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def rms_error(got: np.ndarray, wanted: np.ndarray) -> float:
    """Root of the mean squared difference over that of the wanted logits: one other expert chosen somewhere, which
    rounding can cause on random weights, doesn't hide the rest."""
    return float(
        np.sqrt(np.square(got - wanted, dtype=np.float64).mean() / np.square(wanted, dtype=np.float64).mean())
    )
