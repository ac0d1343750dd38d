"""The NumPy model against the transformers classes: the equations that docs/model.md states are the classes'."""

import pytest

from tests.model import fixtures
from tests.model.fixtures import CASES, LENGTHS, LOGITS_BOUND, relative_error, rows_kept
from tests.model.reference import Reference


@pytest.mark.parametrize("case", CASES)
def test_equations(case):
    model = Reference(fixtures.folder(case))
    for length in LENGTHS:
        got = model.logits(fixtures.tokens(case, length))[rows_kept(length)]
        error = relative_error(got, fixtures.expected(case)[f"logits.{length}"])
        print(f"{case}: the class's fp32 is {error:.1e} of the largest logit from float64 at {length} tokens")
        assert error < LOGITS_BOUND / 2, length
