"""Writes tests/data/oracle: small random models and what the transformers classes say to them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import models

FOLDER = Path(__file__).parents[1] / "data" / "oracle"
SEED = 1000


def main() -> None:
    """Make the named cases again, or all."""
    for i, case in enumerate(models.CASES):
        if sys.argv[1:] and case not in sys.argv[1:]:
            continue
        shutil.rmtree(FOLDER / case, ignore_errors=True)
        model = models.make_model(case, SEED + i)
        models.save(model, FOLDER / case)
        np.savez_compressed(FOLDER / case / "expected.npz", **models.expected(model, SEED + i))
        print(case, sum(p.stat().st_size for p in (FOLDER / case).iterdir()) // 1024, "KiB", flush=True)


if __name__ == "__main__":
    main()
