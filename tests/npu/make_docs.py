"""Writes the prediction into docs/rk3588.md: `python -m tests.npu.make_docs`."""

from __future__ import annotations

import re
from pathlib import Path

from mindnano.bench.reference import tables as reference_tables
from mindnano.checkpoint import load_config
from mindnano.checkpoint.config import ModelConfig
from mindnano.device.rknpu.cost import BETTER, LIKELY, WORSE, Board, decode_s, prefill_s

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "rk3588.md"
DATA = ROOT / "tests" / "data"
BOARDS = (BETTER, LIKELY, WORSE)


def ling() -> ModelConfig:
    return load_config(DATA / "ling-3.0-tiny.config.json")


def reference() -> list[dict]:
    return reference_tables()["perf"]


def seconds(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def spread(values: list[float]) -> str:
    """The likely value and the others around it."""
    return f"{seconds(values[1])} ({seconds(min(values))} to {seconds(max(values))})"


def prefill(board: Board, fmt: str, tokens: int, npu: bool = True) -> float:
    return sum(prefill_s(board, ling(), fmt, tokens, npu).values())


def speed_table(fmt: str) -> str:
    rows = [
        "| input | TTFT with the NPU, s | on the CPU alone | reference | decode, tok/s | reference |",
        "|---|---|---|---|---|---|",
    ]
    for row in reference():
        tokens, measured = row["input_tokens"], row[fmt]
        cells = [
            str(tokens),
            spread([prefill(board, fmt, tokens) for board in BOARDS]),
            seconds(prefill(LIKELY, fmt, tokens, npu=False)),
            "-" if measured["ttft_s"] is None else seconds(measured["ttft_s"]),
            spread([1 / decode_s(board, ling(), fmt, tokens) for board in BOARDS]),
            "-" if measured["decode_tok_s"] is None else f"{measured['decode_tok_s']:.1f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def parts_table() -> str:
    rows = ["| input | attention | projections | experts | KDA |", "|---|---|---|---|---|"]
    for tokens in (1024, 4096, 16384, 65536):
        parts = prefill_s(LIKELY, ling(), "int8", tokens)
        cells = [seconds(parts[name]) for name in ("attention", "projections", "experts", "kda")]
        rows.append(f"| {tokens} | {' | '.join(cells)} |")
    return "\n".join(rows)


def tables() -> dict[str, str]:
    return {"INT8": speed_table("int8"), "BF16": speed_table("bf16"), "PARTS": parts_table()}


def filled(text: str) -> str:
    """The page with each table between its markers."""
    for name, table in tables().items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, count = re.subn(pattern, lambda m, table=table: f"{m[1]}{table}\n{m[2]}", text, flags=re.DOTALL)
        assert count == 1, name
    return text


if __name__ == "__main__":
    DOCS.write_text(filled(DOCS.read_text()))
