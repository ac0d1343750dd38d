"""One token out of logits: penalties and bias, temperature, filters, a draw.

The order is transformers' (generation/utils.py, `_get_logits_processor`) with OpenAI's penalties between:

1. repetition penalty p on tokens of prompt and answer: l / p where l > 0, l * p otherwise (arXiv 1909.05858)
2. presence and frequency on tokens of the answer: l - presence - frequency * count (OpenAI API reference)
3. logit bias: l + bias
   then tokens that a mask (a grammar, say) doesn't allow: minus infinity
4. temperature 0: the largest, the lowest id where several are equal. Otherwise l / temperature, then
5. top-k: the k largest, ties by lowest id
6. top-p: of what is left, renormalised, the likeliest until their sum reaches p, the one that crosses it
   included (arXiv 1904.09751)
7. min-p: what has at least min-p times the probability of the likeliest (arXiv 2407.01082)
8. one uniform number from the request's own generator picks by inverse distribution function

Log-probabilities are those of the model itself, before any of this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mindnano import kernels
from mindnano.engine.params import SamplingParams
from mindnano.errors import EngineError, MindNanoError

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

NATIVE_TOP = 128  # up to here one pass with a heap is faster than partitioning
PICK_ROW = 512  # weights that are summed before the draw looks inside
TOP_P_FIRST = 1024  # candidates that top-p sorts first; nearly always enough


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chosen token. Without `SamplingParams.logprobs`, `logprob` and `top` are None."""

    token: int
    logprob: float | None = None
    top: list[tuple[int, float]] | None = None  # likeliest first


class TokenMask(Protocol):
    """Which tokens may come next in one answer."""

    def allowed(self) -> NDArray[np.bool_] | None:
        """bool [vocabulary], at least one true; None: all. Called once before each token."""

    def accept(self, token: int) -> None:
        """The token that was chosen."""


class TokenCounts:
    """How often each token was seen, as arrays that grow: ids [n] and counts [n]."""

    def __init__(self) -> None:
        self._index: dict[int, int] = {}
        self._ids = np.empty(64, np.int64)
        self._counts = np.empty(64, np.float32)

    def add(self, token: int) -> None:
        at = self._index.get(token)
        if at is None:
            at = self._index[token] = len(self._index)
            if at == len(self._ids):
                self._ids = np.resize(self._ids, 2 * at)
                self._counts = np.resize(self._counts, 2 * at)
            self._ids[at], self._counts[at] = token, 0
        self._counts[at] += 1

    @property
    def ids(self) -> I64:
        return self._ids[: len(self._index)]

    @property
    def counts(self) -> F32:
        return self._counts[: len(self._index)]


class Sampler:
    """Chooses the tokens of one request. Depends on its own seed and logits only, not on other requests."""

    def __init__(
        self, params: SamplingParams, prompt: Sequence[int], vocabulary: int, mask: TokenMask | None = None
    ) -> None:
        for name, tokens in (("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)):
            for token in tokens:
                if token >= vocabulary:
                    raise MindNanoError(f"{name}: token id {token}, expected 0 to {vocabulary - 1}")
        self.params, self.mask = params, mask
        self._vocabulary = vocabulary
        self._scratch: F32 | None = None
        self._random = np.random.Generator(np.random.PCG64(params.seed))
        self._seen = TokenCounts() if params.repetition_penalty != 1 else None
        if self._seen is not None:
            for token in dict.fromkeys(prompt):
                self._seen.add(token)
        counting = params.presence_penalty != 0 or params.frequency_penalty != 0
        self._answer = TokenCounts() if counting else None
        self._bias_ids = np.fromiter(params.logit_bias.keys(), np.int64)
        self._bias = np.fromiter(params.logit_bias.values(), np.float32)

    def sample(self, logits: F32) -> Sampled:
        """The next token for `logits`, float32 [vocabulary], left unchanged. Raises EngineError if they
        aren't finite.
        """
        if logits.shape != (self._vocabulary,):
            raise EngineError(f"logits: expected shape ({self._vocabulary},), got {logits.shape}")
        scores = self._adjusted(logits)
        token = self._greedy(scores) if self.params.greedy else self._draw(scores)
        for counts in (self._seen, self._answer):
            if counts is not None:
                counts.add(token)
        if self.mask is not None:
            self.mask.accept(token)
        if self.params.logprobs is None:
            return Sampled(token)
        return self._with_logprobs(token, logits, self.params.logprobs)

    def _adjusted(self, logits: F32) -> F32:
        """Logits after penalties, bias and mask: a copy where there are any."""
        allowed = None if self.mask is None else self.mask.allowed()
        if self._seen is None and self._answer is None and not len(self._bias) and allowed is None:
            return logits
        scores = logits.copy()
        if self._seen is not None:
            ids, penalty = self._seen.ids, np.float32(self.params.repetition_penalty)
            values = scores[ids]
            scores[ids] = np.where(values > 0, values / penalty, values * penalty)
        if self._answer is not None:
            presence, frequency = self.params.presence_penalty, self.params.frequency_penalty
            scores[self._answer.ids] -= np.float32(presence) + np.float32(frequency) * self._answer.counts
        scores[self._bias_ids] += self._bias
        if allowed is not None:
            _check_finite(scores.max())  # NaN would hide behind the mask
            scores[~allowed] = -np.inf
        return scores

    def _greedy(self, scores: F32) -> int:
        token = int(scores.argmax())
        _check_finite(scores[token])
        return token

    def _draw(self, scores: F32) -> int:
        params = self.params
        if self._scratch is None:
            self._scratch = np.empty(self._vocabulary, np.float32)
        ids, weights = candidates(
            scores, params.temperature, params.top_k, params.top_p, params.min_p, self._scratch
        )
        at = pick(weights, self._random.random())
        return at if ids is None else int(ids[at])

    def _with_logprobs(self, token: int, logits: F32, count: int) -> Sampled:
        peak = float(logits.max())
        _check_finite(peak)
        total = peak + math.log(float(np.exp(logits - np.float32(peak)).sum(dtype=np.float64)))
        top = largest(logits, min(count, self._vocabulary))
        return Sampled(token, float(logits[token]) - total, [(int(i), float(logits[i]) - total) for i in top])


def candidates(
    scores: F32, temperature: float, top_k: int, top_p: float, min_p: float, scratch: F32
) -> tuple[I64 | None, F32]:
    """What may be drawn: ids (None for all, in order) and their weights, probabilities up to a common factor.

    scores, scratch: float32 [vocabulary]; the weights may be the scratch itself. Raises EngineError where the
    largest score isn't finite.
    """
    peak = scores.max()  # NaN anywhere gives NaN
    _check_finite(peak)
    ids: I64 | None = None
    if 0 < top_k < len(scores):
        ids = largest(scores, top_k)
        weights = _weights(scores[ids], peak, temperature, scratch[:top_k])
    else:
        weights = _weights(scores, peak, temperature, scratch)
    if top_p < 1:
        if ids is None:
            ids, weights = _nucleus_of_all(scores, weights, top_p)
        else:
            keep = _nucleus(weights, _sum(weights), top_p)
            ids, weights = ids[:keep], weights[:keep]
    if min_p > 0:  # the likeliest has weight 1
        kept = np.flatnonzero(weights >= min_p)
        ids, weights = (kept if ids is None else ids[kept]), weights[kept]
    return ids, weights


def largest(scores: F32, count: int) -> I64:
    """Ids of the `count` largest, largest first, equal ones by lowest id."""
    if count == 0:
        return np.empty(0, np.int64)
    if count <= min(NATIVE_TOP, len(scores)):
        return kernels.top_logits(scores, count)[0]
    if count < len(scores):
        last = -np.partition(-scores, count - 1)[count - 1]
        above = np.flatnonzero(scores > last)
        equal = np.flatnonzero(scores == last)[: count - len(above)]
        ids = np.concatenate((above, equal))
    else:
        ids = np.arange(len(scores))
    return _sorted(scores[ids], ids)


def _sorted(scores: F32, ids: I64) -> I64:
    """`ids` by descending score, then by id: as one integer each, which NumPy sorts many times faster than
    pairs.
    """
    bits = (scores + np.float32(0)).view(np.int32)  # + 0 makes -0 equal to 0
    ascending = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))  # as integers in the order of the floats
    keys = (~ascending.astype(np.int64) << 32) | ids
    keys.sort()
    return keys & 0xFFFFFFFF


def pick(weights: F32, uniform: float) -> int:
    """Index drawn in proportion to `weights`, by a number from [0, 1). One of weight 0 is never drawn."""
    rows = len(weights) // PICK_ROW
    sums = np.append(
        weights[: rows * PICK_ROW].reshape(rows, PICK_ROW).sum(axis=1, dtype=np.float64),
        weights[rows * PICK_ROW :].sum(dtype=np.float64),
    ).cumsum()
    wanted = uniform * sums[-1]
    row = int(sums.searchsorted(wanted, side="right"))
    row = min(
        row, int(sums.searchsorted(sums[-1]))
    )  # rounding up to the sum itself: the last row that adds to it
    begin = row * PICK_ROW
    inside = weights[begin : begin + PICK_ROW].cumsum(dtype=np.float64)
    at = int(inside.searchsorted(wanted - (sums[row - 1] if row else 0.0), side="right"))
    return begin + min(at, int(inside.searchsorted(inside[-1])))


def _weights(scores: F32, peak: np.float32, temperature: float, out: F32) -> F32:
    """Softmax numerators: 1 for the largest. Divided last, so that a tiny temperature can't overflow."""
    np.subtract(scores, peak, out=out)
    np.divide(out, np.float32(max(temperature, 1e-6)), out=out)
    return np.exp(out, out=out)


def _sum(weights: F32) -> float:
    return float(weights.sum(dtype=np.float64))


def _nucleus(weights: F32, total: float, top_p: float) -> int:
    """How many of descending `weights` top-p keeps; len + 1 where their sum doesn't reach it."""
    return int(weights.cumsum(dtype=np.float64).searchsorted(top_p * total, side="left")) + 1


def _nucleus_of_all(scores: F32, weights: F32, top_p: float) -> tuple[I64, F32]:
    """Top-p over the whole vocabulary, sorting only as many as it takes."""
    total, count = _sum(weights), TOP_P_FIRST
    while True:
        count = min(count, len(scores))
        ids = largest(scores, count)
        keep = _nucleus(weights[ids], total, top_p)
        if keep <= count or count == len(scores):
            return ids[:keep], weights[ids[:keep]]
        count *= 8


def _check_finite(value: float | np.float32) -> None:
    if not math.isfinite(value):
        raise EngineError(
            f"the model computed logits that are not finite (the largest is {value}); the file is damaged, or "
            "this engine is wrong on this machine (mindnano doctor tells more)"
        )
