"""Kimi Delta Attention against its NumPy twin."""

from dataclasses import dataclass

import numpy as np
import pytest

from mindnano import _native
from mindnano.kernels.reference import kda as ref

from .guard import at_page_end
from .products import ISAS, assert_near, heavy, running

SIZES = [(1, 8), (2, 24), (3, 40), (2, 64), (16, 128), (1, 256)]  # heads, dim


@pytest.fixture(params=ISAS, autouse=True)
def every_isa(request):
    with running(request.param):
        yield


@dataclass
class Case:
    """Inputs of S sequences of n tokens, slots in no order, in more slots than used."""

    heads: int
    dim: int
    sequences: int
    n: int
    gate: str = "sigmoid"
    seed: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, self.heads, self.dim, self.sequences, self.n])
        rows, width = self.sequences * self.n, self.heads * self.dim
        self.rows, self.width = rows, width
        self.columns = (3, 3 + width, 8 + 2 * width, 5)
        self.y = heavy(rng, rows, 8 + 3 * width)
        self.f = heavy(rng, rows, 5 + width)
        self.b = heavy(rng, rows, self.heads)
        self.conv = heavy(rng, 3, 4, width) / 2
        self.conv_states = heavy(rng, self.sequences + 2, 3, 3 * width)
        self.a_log = rng.uniform(-1, 1, self.heads).astype(np.float32)
        self.dt_bias = heavy(rng, width)
        self.states = heavy(rng, self.sequences + 2, self.heads, self.dim, self.dim) / 4
        self.slots = rng.permutation(self.sequences + 2)[: self.sequences].astype(np.int32)

    def prepare(self, rows=slice(None), conv_states=None):
        y, f, b = (np.ascontiguousarray(a[rows]) for a in (self.y, self.f, self.b))
        states = self.conv_states.copy() if conv_states is None else conv_states
        outs = [np.full((len(y), self.width), np.nan, np.float32) for _ in range(4)]
        beta = np.full((len(y), self.heads), np.nan, np.float32)
        _native.kda_prepare(
            y, self.columns, f, b, self.conv, states, self.slots, self.a_log, self.dt_bias, self.gate, -5.0,
            *outs, beta,
        )  # fmt: skip
        return (*outs, beta, states)

    def twin(self):
        return ref.kda_prepare(
            self.y, self.columns, self.f, self.b, self.conv, self.conv_states, self.slots, self.a_log,
            self.dt_bias, self.gate, -5.0,
        )  # fmt: skip

    def recur(self, parts, states=None):
        states = self.states.copy() if states is None else states
        out = np.full((len(parts[0]), self.width), np.nan, np.float32)
        _native.kda_recurrence(*parts[:5], states, self.slots, out)
        return out, states


@pytest.mark.parametrize("gate", ["sigmoid", "softplus"])
@pytest.mark.parametrize(("sequences", "n"), [(1, 1), (1, 2), (1, 3), (1, 70), (3, 1), (2, 17)])
@pytest.mark.parametrize(("heads", "dim"), SIZES)
def test_prepare(heads, dim, sequences, n, gate):
    case = Case(heads, dim, sequences, n, gate)
    names = ("q", "k", "v", "decay", "beta", "states")
    for name, got, want in zip(names, case.prepare(), case.twin(), strict=True):
        try:
            assert_near(got, want, 2e-6)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


@pytest.mark.parametrize(("sequences", "n"), [(1, 1), (1, 2), (1, 70), (3, 1), (2, 17)])
@pytest.mark.parametrize(("heads", "dim"), SIZES)
def test_recurrence(heads, dim, sequences, n):
    case = Case(heads, dim, sequences, n)
    parts = tuple(np.ascontiguousarray(a, np.float32) for a in case.twin())
    out, states = case.recur(parts)
    want, want_states = ref.kda_recurrence(*parts[:5], case.states, case.slots)
    assert_near(out, want, 2e-6)
    assert_near(states, want_states, 2e-6)
    unused = [s for s in range(sequences + 2) if s not in case.slots]
    np.testing.assert_array_equal(states[unused], case.states[unused])


@pytest.mark.parametrize("gate", ["sigmoid", "softplus"])
@pytest.mark.parametrize("cuts", [[1], [2, 3], [30], list(range(1, 50)), [16, 32], [7, 41]])
def test_every_split_gives_the_same_bits(cuts, gate):
    """Blocks, and token by token: the same outputs and states to the last bit."""
    case = Case(3, 64, 1, 50, gate)
    parts = case.prepare()
    out, states = case.recur(parts)
    conv_states, memory, pieces = case.conv_states.copy(), case.states.copy(), []
    for begin, end in zip([0, *cuts], [*cuts, 50], strict=True):
        piece = case.prepare(slice(begin, end), conv_states)
        pieces.append(case.recur(piece, memory)[0])
    np.testing.assert_array_equal(np.concatenate(pieces), out)
    np.testing.assert_array_equal(memory, states)
    np.testing.assert_array_equal(conv_states, parts[5])


@pytest.mark.parametrize("n", [1, 3, 40])
def test_neither_company_nor_threads_matter(n):
    case = Case(2, 128, 4, n)
    results = []
    for threads in (1, 2, 3):
        _native.set_threads(threads)
        parts = case.prepare()
        results.append((*parts, *case.recur(parts)))
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(a, b)
    alone = Case(2, 128, 4, n)
    for s in range(4):
        alone.slots = case.slots[s : s + 1]
        parts = alone.prepare(slice(s * n, (s + 1) * n))
        np.testing.assert_array_equal(alone.recur(parts)[0], results[0][6][s * n : (s + 1) * n])


def test_extreme_gates_stay_finite():
    """Decays down to e^-5 a token for 200 tokens, and a softplus gate that forgets everything."""
    for gate in ("sigmoid", "softplus"):
        case = Case(2, 32, 1, 200, gate)
        case.f[:] = np.where(np.arange(case.f.shape[1]) % 2, 1e4, -1e4)
        parts = case.prepare()
        assert_near(parts[3], case.twin()[3], 2e-6)
        out, states = case.recur(parts)
        want, want_states = ref.kda_recurrence(*parts[:5], case.states, case.slots)
        assert_near(out, want, 1e-5)
        assert_near(states, want_states, 1e-5)


@pytest.mark.parametrize("rows", [1, 5, 37])
@pytest.mark.parametrize(("heads", "dim"), [*SIZES, (3, 20)])
def test_output(heads, dim, rows):
    rng = np.random.default_rng(dim)
    o, gate, weight = heavy(rng, rows, heads * dim), heavy(rng, rows, 3 + heads * dim), heavy(rng, dim)
    y = np.full_like(o, np.nan)
    _native.kda_output(o, gate, 3, weight, 1e-6, y)
    assert_near(y, ref.kda_output(o, gate, 3, weight, 1e-6), 2e-6)


def test_nothing_outside_the_arrays_is_touched():
    case = Case(3, 40, 2, 5)
    want = case.prepare()
    for name in ("y", "f", "b", "conv", "conv_states", "a_log", "dt_bias", "states"):
        setattr(case, name, at_page_end(getattr(case, name)))
    outs = [at_page_end(a) for a in want[:5]]
    states = at_page_end(case.conv_states)
    _native.kda_prepare(
        case.y, case.columns, case.f, case.b, case.conv, states, case.slots, case.a_log, case.dt_bias, case.gate,
        -5.0, *outs,
    )  # fmt: skip
    for got, expected in zip([*outs, states], want, strict=True):
        np.testing.assert_array_equal(got, expected)
    out = at_page_end(np.zeros((10, 120), np.float32))
    memory = at_page_end(case.states)
    _native.kda_recurrence(*outs, memory, case.slots, out)
    gate, weight, y = at_page_end(case.f), at_page_end(np.ones(40, np.float32)), at_page_end(out)
    _native.kda_output(out, gate, 5, weight, 1e-6, y)


def test_wrong_arguments_are_refused():
    case = Case(2, 16, 2, 3)
    case.slots = np.array([1, 1], np.int32)
    with pytest.raises(ValueError, match="slots: 1 twice"):
        case.prepare()
    case.slots = np.array([0, 4], np.int32)
    with pytest.raises(ValueError, match=r"slots: 4 is outside 0\.\.3"):
        case.prepare()
    case.slots = np.array([0, 1, 2, 3], np.int32)
    with pytest.raises(ValueError, match="slots: expected"):
        case.prepare()
    case.slots = np.array([0, 1], np.int32)
    parts = case.prepare()
    with pytest.raises(ValueError, match="slots: -1 is outside"):
        _native.kda_recurrence(*parts[:5], case.states, np.array([0, -1], np.int32), parts[0].copy())
    case.columns = (0, 0, 0, 6)
    with pytest.raises(ValueError, match=r"forget: columns 6\.\.38 of 37"):
        case.prepare()
    case.columns = (-1, 0, 0, 0)
    with pytest.raises(ValueError, match="y: columns -1"):
        case.prepare()
    case.columns, case.gate = (0, 0, 0, 0), "tanh"
    with pytest.raises(ValueError, match="gate: expected sigmoid or softplus"):
        case.prepare()
