"""The last benchmark's curves, as the server's page shows them: one point a cache and length of input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mindnano.bench.records import read_folder
from mindnano.bench.report import groups


def curves(results: Path) -> list[dict[str, Any]]:
    """Points of a results file or folder: context_tokens (of input), kv_layout, kv_format, ttft_s and decode_tok_s
    (geometric means, None where unknown), runs, disturbed, synthetic. Raises MindNanoError for what isn't one."""
    found = []
    for cell in groups.cells(read_folder(results)):
        if cell.key.concurrency != 1:
            continue
        ttft, decode = cell.mean("ttft_s"), cell.mean("decode_tok_s")
        found.append({
            "context_tokens": cell.key.input_tokens, "output_tokens": cell.key.output_tokens,
            "kv_layout": cell.runs[0].kv_layout, "kv_format": cell.runs[0].kv_format,
            "ttft_s": None if ttft is None else round(ttft.value, 6),
            "decode_tok_s": None if decode is None else round(decode.value, 3),
            "runs": len(cell.runs), "disturbed": cell.disturbed, "synthetic": cell.runs[0].synthetic,
        })  # fmt: skip
    return found
