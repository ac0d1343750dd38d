"""The choice of experts against its NumPy twin."""

import numpy as np
import pytest

from mindnano import _native
from mindnano.kernels.reference.router import route as twin

from .products import ISAS, heavy, running

SHAPES = [  # experts, n_group, topk_group, top_k
    (128, 8, 4, 8), (16, 4, 2, 4), (256, 1, 1, 8), (7, 7, 3, 3), (12, 2, 1, 6), (5, 1, 1, 5), (512, 8, 8, 10),
]  # fmt: skip


@pytest.fixture(params=ISAS, autouse=True)
def every_isa(request):
    with running(request.param):
        yield


def route(logits, bias, n_group, topk_group, top_k, norm, scale, score):
    ids = np.full((len(logits), top_k), -1, np.int32)
    weights = np.full((len(logits), top_k), np.nan, np.float32)
    _native.route(logits, bias, n_group, topk_group, top_k, norm, scale, score, ids, weights)
    return ids, weights


@pytest.mark.parametrize("score", ["sigmoid", "softmax"])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_route_equals_twin(shape, norm, score):
    experts, n_group, topk_group, top_k = shape
    rng = np.random.default_rng(experts)
    logits, bias = heavy(rng, 101, experts), 0.1 * heavy(rng, experts)
    args = (bias, n_group, topk_group, top_k, norm, 2.5, score)
    ids, weights = route(logits, *args)
    want_ids, want = twin(logits, *args)
    same = (ids == want_ids).all(1)  # two choices within rounding of each other may change places
    assert same.mean() > 0.97
    # softmax: the rounding of logit - largest, up to 100 here, becomes a relative error
    np.testing.assert_allclose(weights[same], want[same], rtol=2e-6 if score == "sigmoid" else 2e-5)
    assert all(len(set(row)) == top_k for row in ids.tolist())


def test_ties_go_to_the_lower_index():
    logits, bias = np.zeros((1, 32), np.float32), np.zeros(32, np.float32)
    ids, weights = route(logits, bias, 4, 2, 5, True, 1.0, "sigmoid")
    assert ids.tolist() == [[0, 1, 2, 3, 4]]
    np.testing.assert_allclose(weights, 0.2, rtol=1e-6)
    bias[[9, 8, 30, 31]] = 1  # groups 1 and 3 win
    ids, weights = route(logits, bias, 4, 2, 6, False, 1.0, "sigmoid")
    assert ids.tolist() == [[8, 9, 30, 31, 10, 11]]
    np.testing.assert_allclose(weights, 0.5, rtol=1e-6)  # the bias chooses, but doesn't weigh


def test_negative_choices_do_not_lose_to_masked_groups():
    """Experts of groups that are out count as -inf, not 0: a bias far below zero must not let them in."""
    logits, bias = np.zeros((1, 16), np.float32), np.full(16, -9, np.float32)
    bias[8:] = -3
    ids, _ = route(logits, bias, 2, 1, 8, True, 1.0, "sigmoid")
    assert ids.tolist() == [list(range(8, 16))]


def test_nan_logits_stay_in_range():
    logits = np.full((3, 16), np.nan, np.float32)
    logits[1, 4:] = 1
    ids, weights = route(logits, np.zeros(16, np.float32), 4, 2, 4, True, 1.0, "sigmoid")
    assert ((ids >= 0) & (ids < 16)).all()
    assert np.isnan(weights[0]).all()


def test_threads_do_not_matter():
    rng = np.random.default_rng(1)
    logits, bias = heavy(rng, 300, 128), heavy(rng, 128)
    results = []
    for threads in (1, 2, 3):
        _native.set_threads(threads)
        results.append(route(logits, bias, 8, 4, 8, True, 2.5, "sigmoid"))
    for ids, weights in results[1:]:
        np.testing.assert_array_equal(ids, results[0][0])
        np.testing.assert_array_equal(weights, results[0][1])


def test_impossible_choices_are_refused():
    logits, bias = np.zeros((1, 16), np.float32), np.zeros(16, np.float32)
    for args, message in [
        ((3, 1, 1, True, 1.0, "sigmoid"), "not possible"),
        ((4, 5, 1, True, 1.0, "sigmoid"), "not possible"),
        ((4, 1, 5, True, 1.0, "sigmoid"), "not possible"),
        ((4, 1, 0, True, 1.0, "sigmoid"), "not possible"),
        ((4, 2, 4, True, 1.0, "tanh"), "score: expected sigmoid or softmax, got tanh"),
    ]:
        with pytest.raises(ValueError, match=message):
            route(logits, bias, *args)
    with pytest.raises(ValueError, match=r"bias: expected shape \[16\], got \[15\]"):
        route(logits, bias[:15].copy(), 4, 2, 4, True, 1.0, "sigmoid")
