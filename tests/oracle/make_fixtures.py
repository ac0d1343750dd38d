"""Writes tests/data/oracle: small random models and what the transformers classes say to them.

python -m tests.oracle.make_fixtures [CASE ...]
"""

from __future__ import annotations

import shutil
import sys

import numpy as np

from tests.oracle import models
from tests.oracle.cases import CASES, FOLDER, SEED
from tests.oracle.saving import save


def main(names: list[str]) -> None:
    """Make the named cases again, or all."""
    for name in names or CASES:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        model = models.make_model(CASES[name], SEED)
        save(model, CASES[name], FOLDER / name)
        np.savez_compressed(FOLDER / name / "expected.npz", **models.expected(model, SEED))
        print(name, sum(p.stat().st_size for p in (FOLDER / name).iterdir()) // 1024, "KiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
