"""The reference system's tables, which ship with the package, and what may be compared with them.

Seconds of two machines say nothing about two programs; ratios inside each machine do: how the time to the first token
grows with the length, how decode falls, what INT8 gains over BF16.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import msgspec

from mindnano.bench.compare import ratio_of, values
from mindnano.bench.records import Point, Record, points
from mindnano.bench.statistics import Ratio

FORMATS = ("bf16", "int8")
GROWTH_FROM = 4096  # ratios of lengths are against this one, where NPU and many-row kernels are in use


@dataclass(frozen=True)
class Curve:
    """Seconds to the first token and decode speed by input length, of one format of one system."""

    name: str
    ttft_s: dict[int, float]
    decode_tok_s: dict[int, float]


@lru_cache(maxsize=1)
def tables() -> dict[str, Any]:
    """rk3588-tables.json as it is."""
    data = (files("mindnano.bench") / "data" / "rk3588-tables.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    return found


def curve(fmt: str) -> Curve:
    """The reference's speeds with that cache format."""
    rows = [(row["input_tokens"], row[fmt]) for row in tables()["perf"]]
    return Curve(
        f"reference expanded {fmt}",
        {tokens: row["ttft_s"] for tokens, row in rows if row["ttft_s"] is not None},
        {tokens: row["decode_tok_s"] for tokens, row in rows if row["decode_tok_s"] is not None},
    )


@dataclass(frozen=True)
class Row:
    """How much worse one length is than the base, on this machine and on the reference's.

    growth: TTFT over that at the base. left: decode speed over that at the base. Of the reference, one run each, so
    without intervals; None where it wasn't measured.
    """

    kind: str
    base: int
    input_tokens: int
    growth: Ratio
    left: Ratio | None
    reference_growth: float | None
    reference_left: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def base_of(lengths: Iterable[int]) -> int | None:
    """The length that others are held against: GROWTH_FROM if it is there, or the smallest."""
    known = sorted(lengths)
    return None if not known else GROWTH_FROM if GROWTH_FROM in known else known[0]


def growth(records: Iterable[Record]) -> list[Row]:
    """Rows of every cache and length measured (one client, no comparison runs) beside the reference's same format."""
    runs: dict[str, dict[int, list[Point]]] = {}
    for point in points(records, "perf"):
        if point.status == "ok" and point.concurrency == 1 and not point.side and point.input_tokens:
            runs.setdefault(point.kind, {}).setdefault(point.input_tokens, []).append(point)
    rows = []
    for kind, lengths in runs.items():
        base = base_of(lengths)
        theirs = curve(format_of(kind))
        for tokens in sorted(lengths):
            if base is None or tokens == base:
                continue
            slower = _ratio(lengths[base], lengths[tokens], "ttft_s")
            if slower is not None:
                rows.append(Row(
                    kind, base, tokens, slower, _ratio(lengths[base], lengths[tokens], "decode_tok_s"),
                    _over(theirs.ttft_s, tokens, base), _over(theirs.decode_tok_s, tokens, base),
                ))  # fmt: skip
    return rows


def format_of(kind: str) -> str:
    """The reference's format to hold a cache against: its own, or BF16 for those it doesn't have."""
    return next((fmt for fmt in FORMATS if kind.endswith(fmt)), FORMATS[0])


def gains() -> dict[str, dict[int, float]]:
    """INT8 over BF16 on the reference, by figure and length."""
    bf16, int8 = curve("bf16"), curve("int8")
    return {
        "ttft_s": {n: int8.ttft_s[n] / bf16.ttft_s[n] for n in bf16.ttft_s if n in int8.ttft_s},
        "decode_tok_s": {n: int8.decode_tok_s[n] / bf16.decode_tok_s[n] for n in bf16.decode_tok_s},
    }


def _ratio(a: list[Point], b: list[Point], measure: str) -> Ratio | None:
    for trusted in (True, False):
        left, right = values(a, measure, trusted), values(b, measure, trusted)
        if left and right:
            return ratio_of(left, right)[0]
    return None


def _over(values: dict[int, float], tokens: int, base: int) -> float | None:
    return values[tokens] / values[base] if tokens in values and base in values else None
