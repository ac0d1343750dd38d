"""The lengths that retrieval is learned at, one after another."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """A worker's step. Retrieval: row length, rows, pairs, share of the dense form, questions; then text."""

    length: int
    rows: int
    pairs: tuple[int, int]
    dense: float
    questions: int
    text_rows: int
    text_length: int


STAGES = (
    Stage(160, 6, (8, 12), 1.0, 0, 2, 320),
    Stage(256, 4, (4, 8), 0.4, 4, 2, 320),
    Stage(1024, 1, (8, 16), 0.3, 10, 2, 512),
    Stage(4096, 1, (12, 40), 0.1, 20, 2, 512),
    Stage(8192, 1, (16, 64), 0.0, 24, 2, 512),
)
