"""The measurements that come with every answer."""

from __future__ import annotations

import os
import resource
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Timings:
    """Seconds from the request to its first token, decode tokens a second after it (None for one token), tokens,
    KV kind, the process's peak resident memory, and seconds by stage; of attention by phase, with calls a device."""

    ttft_s: float
    decode_tok_s: float | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cached_reason: str
    kv_layout: str
    kv_format: str
    peak_rss_mib: float
    stage_s: dict[str, float]
    mla_s: dict[str, float]
    mla_calls: dict[str, int]
    fallbacks: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data with figures rounded to what they mean."""
        data = asdict(self)
        for key in ("ttft_s", "decode_tok_s", "peak_rss_mib"):
            data[key] = None if data[key] is None else round(data[key], 3)
        for key in ("stage_s", "mla_s"):
            data[key] = {name: round(value, 4) for name, value in data[key].items()}
        return data


def rss_mib() -> float:
    """Resident memory of this process now, shared pages of mapped files included."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def peak_rss_mib() -> float:
    """The largest resident memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
