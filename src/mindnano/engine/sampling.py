"""Logits into a token. Order: penalties, bias, temperature, top-k, top-p, min-p, draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mindnano.engine.params import SamplingParams
from mindnano.errors import EngineError, MindNanoError

F32 = NDArray[np.float32]
_FIRST_CANDIDATES = 256  # top-p looks at this many first, and at all where they don't hold its mass


@dataclass(frozen=True)
class Sampled:
    """A chosen token; with logprobs asked for, its log-probability and the likeliest tokens' (id, logprob)."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Chooses the tokens of one answer. With a seed the choice depends on nothing but seed, logits and params."""

    def __init__(self, params: SamplingParams, prompt: Sequence[int], vocabulary: int) -> None:
        self.params = params
        for token in params.logit_bias:
            if token >= vocabulary:
                raise MindNanoError(f"logit_bias: token {token} is outside the vocabulary of {vocabulary}")
        self._random = np.random.Generator(np.random.PCG64(params.seed))
        self._bias_ids = np.fromiter(params.logit_bias, np.int64, len(params.logit_bias))
        self._bias = np.fromiter(params.logit_bias.values(), np.float32, len(params.logit_bias))
        self._counts: dict[int, int] = {}  # tokens of the answer
        self._seen = np.unique(np.asarray(prompt, np.int64)) if params.repetition_penalty != 1.0 else None

    def sample(self, logits: F32) -> Sampled:
        """The next token from logits [vocabulary], which stay as they are.

        Raises EngineError where a logit isn't finite: then the model, not the sampling, went wrong.
        """
        if not np.isfinite(logits.sum(dtype=np.float64)):
            raise EngineError("the model produced logits that are not finite; the file is damaged or not supported")
        adjusted = self._adjusted(logits)
        if self.params.greedy:
            token = int(adjusted.argmax())
        else:
            token = self._draw(adjusted)
        self._counts[token] = self._counts.get(token, 0) + 1
        if self._seen is not None and token not in self._seen:
            self._seen = np.append(self._seen, token)
        if self.params.logprobs is None:
            return Sampled(token)
        return self._with_logprobs(logits, token)

    def _adjusted(self, logits: F32) -> F32:
        p = self.params
        answer = bool(self._counts) and (p.presence_penalty != 0.0 or p.frequency_penalty != 0.0)
        if self._seen is None and not answer and not len(self._bias):
            return logits
        logits = logits.copy()
        if self._seen is not None:
            seen = logits[self._seen]
            factor = np.float32(p.repetition_penalty)
            logits[self._seen] = np.where(seen > 0, seen / factor, seen * factor)
        if answer:
            ids = np.fromiter(self._counts, np.int64, len(self._counts))
            counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
            logits[ids] -= np.float32(p.presence_penalty) + np.float32(p.frequency_penalty) * counts
        if len(self._bias):
            logits[self._bias_ids] += self._bias
        return logits

    def _draw(self, logits: F32) -> int:
        """One token by temperature and the filters; ties in rank go to the lower id."""
        p = self.params
        scaled = logits.astype(np.float64) / p.temperature
        scaled -= scaled.max()
        count = len(scaled)
        if 0 < p.top_k < count:
            ids = _largest(scaled, p.top_k)
            probs = np.exp(scaled[ids])
            probs /= probs.sum()
        elif p.top_p < 1.0:
            weights = np.exp(scaled)
            weights /= weights.sum()
            ids = _largest(weights, min(_FIRST_CANDIDATES, count))
            if weights[ids].sum() < p.top_p:
                ids = _largest(weights, count)
            probs = weights[ids]
        else:
            ids = None
            probs = np.exp(scaled)
            probs /= probs.sum()
        if ids is not None and p.top_p < 1.0:
            keep = int(np.searchsorted(np.cumsum(probs), p.top_p)) + 1  # the token that crosses it stays
            ids, probs = ids[:keep], probs[:keep]
        if p.min_p > 0.0:
            likely = probs >= p.min_p * probs.max()
            ids = np.flatnonzero(likely) if ids is None else ids[likely]
            probs = probs[likely]
        edges = np.cumsum(probs)
        at = int(np.searchsorted(edges, self._random.random() * edges[-1], side="right"))
        at = min(at, len(edges) - 1)
        return at if ids is None else int(ids[at])

    def _with_logprobs(self, logits: F32, token: int) -> Sampled:
        wide = logits.astype(np.float64)
        top = wide.max()
        total = float(top + np.log(np.exp(wide - top).sum()))
        wanted = self.params.logprobs or 0
        ids = _largest(wide, min(wanted, len(wide))) if wanted else ()
        return Sampled(token, float(wide[token]) - total, tuple((int(i), float(wide[i]) - total) for i in ids))


def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Ids of the `count` largest values in descending order, equal ones by ascending id."""
    if count < len(values):
        edge = np.partition(values, len(values) - count)[len(values) - count]
        above = np.flatnonzero(values > edge)
        ids = np.concatenate([above, np.flatnonzero(values == edge)[: count - len(above)]])
    else:
        ids = np.arange(len(values))
    return ids[np.lexsort((ids, -values[ids]))]
