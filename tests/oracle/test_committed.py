"""The committed fixtures are what make_fixtures makes here and now."""

from __future__ import annotations

import numpy as np
import pytest
import safetensors.numpy

from tests.oracle.cases import CASES, FOLDER, SEED

pytestmark = pytest.mark.oracle
# The classes' fp32 logits lie up to 1.2e-5 of the largest one from float64 (tests/model prints it), on either side.
ELSEWHERE = 3e-5


def test_no_fixture_is_left_over():
    assert {path.name for path in FOLDER.iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_is_made_again(name, tmp_path):
    from tests.oracle import models
    from tests.oracle.saving import save

    model = models.make_model(CASES[name], SEED)
    save(model, CASES[name], tmp_path)
    committed = FOLDER / name
    files = sorted(p.name for p in tmp_path.iterdir())
    assert sorted(p.name for p in committed.iterdir() if p.name != "expected.npz") == files
    for file in files:
        if file.endswith(".safetensors"):
            made, kept = (safetensors.numpy.load_file(folder / file) for folder in (tmp_path, committed))
            assert made.keys() == kept.keys()
            for tensor in made:
                assert made[tensor].dtype == kept[tensor].dtype, tensor
                assert made[tensor].tobytes() == kept[tensor].tobytes(), tensor
        else:
            assert (tmp_path / file).read_text() == (committed / file).read_text(), file

    with np.load(committed / "expected.npz") as data:
        kept = dict(data)
    made = models.expected(model, SEED)
    assert made.keys() == kept.keys()
    for key, wanted in kept.items():
        if key.startswith("logits"):
            assert np.abs(made[key] - wanted).max() <= ELSEWHERE * np.abs(wanted).max(), key
        else:
            assert np.array_equal(made[key], wanted), key
