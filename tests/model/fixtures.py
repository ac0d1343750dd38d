"""The committed fixtures: small random checkpoints, and what the transformers classes say to them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from tests.oracle import cases
from tests.oracle.cases import FOLDER, LENGTHS, rows_kept

__all__ = [
    "CASES",
    "FOLDER",
    "LENGTHS",
    "LOGITS_BOUND",
    "expected",
    "folder",
    "relative_error",
    "rms_error",
    "rows_kept",
    "tokens",
]

CASES = sorted(cases.CASES)
LOGITS_BOUND = 1e-4  # of the largest logit


def folder(case: str) -> Path:
    return FOLDER / case


@cache
def expected(case: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / case / "expected.npz") as data:
        return dict(data)


def tokens(case: str, length: int) -> list[int]:
    return expected(case)[f"tokens.{length}"].tolist()


def relative_error(got: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference over the largest wanted logit."""
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def rms_error(got: np.ndarray, wanted: np.ndarray) -> float:
    """Root of the mean squared difference over that of the wanted logits: one other expert chosen somewhere, which
    rounding can cause on random weights, doesn't hide the rest."""
    return float(
        np.sqrt(np.square(got - wanted, dtype=np.float64).mean() / np.square(wanted, dtype=np.float64).mean())
    )
