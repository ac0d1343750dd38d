"""Where a request's time went and what memory the process took; the same fields everywhere."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import psutil

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Timings:
    """Times of one request.

    ttft_s: seconds from submitting to the first token. decode_tok_s: tokens a second after the first, None
    for fewer than two. cached_tokens: of the prompt, not computed again; cached_reason: why not more.
    stage_s: seconds by stage (model/stages.py); a step shared by several sequences counts for each in full.
    mla_s: of the attention's seconds, those of packing, memory sync, products, softmax. mla_calls:
    attention calls by device. npu_projections: products of weights that the NPU computed. fallbacks: calls that
    it failed at and the CPU served. device: what may compute beside the CPU, and whether it is an emulation.
    """

    ttft_s: float
    decode_tok_s: float | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cached_reason: str
    kv_layout: str
    kv_format: str
    peak_rss_mib: float
    stage_s: Mapping[str, float] = field(default_factory=dict)
    mla_s: Mapping[str, float] = field(default_factory=dict)
    mla_calls: Mapping[str, int] = field(default_factory=dict)
    fallbacks: int = 0
    npu_projections: int = 0
    device: str = "cpu"

    @property
    def prefill_tok_s(self) -> float | None:
        """Tokens of the prompt that were computed, a second until the first token."""
        computed = self.prompt_tokens - self.cached_tokens
        return computed / self.ttft_s if computed > 0 and self.ttft_s > 0 else None

    def rounded(self) -> Timings:
        """The same for people and JSON; seconds in microseconds' resolution."""
        return replace(
            self,
            ttft_s=round(self.ttft_s, 6),
            decode_tok_s=None if self.decode_tok_s is None else round(self.decode_tok_s, 3),
            peak_rss_mib=round(self.peak_rss_mib, 1),
            stage_s={stage: round(seconds, 6) for stage, seconds in self.stage_s.items()},
            mla_s={phase: round(seconds, 6) for phase, seconds in self.mla_s.items()},
            mla_calls=dict(self.mla_calls),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON, rounded."""
        return asdict(self.rounded())


def peak_rss_mib() -> float:
    """The largest resident set of this process so far, in MiB (ru_maxrss is in KiB on Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def private_bytes() -> int:
    """What of this process's resident set would be free if it ended: without mapped files, which the cache keeps."""
    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


def rss_mib() -> float:
    """The resident set of this process now, in MiB."""
    return float(psutil.Process().memory_info().rss) / MIB
