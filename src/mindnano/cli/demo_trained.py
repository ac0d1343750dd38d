"""The demo's first part with a trained built-in model: a story, and a question about a long input by each KV cache."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from mindnano import data
from mindnano.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from mindnano.engine.llm import LLM

    Open = Callable[..., LLM]

LENGTH, CONTEXT = 8000, 8192  # tokens of the question with its text
STORY = "Tell me a story about Anna the fox."
# (share of the text before it, sentence); the second about amber replaces the first.
FACTS = (
    (0.05, "The code of amber is 41."),
    (0.15, "The keeper of lantern is Walter."),
    (0.30, "The code of falcon is 86."),
    (0.45, "The keeper of meadow is Clara."),
    (0.55, "The code of copper is 29."),
    (0.70, "The code of amber is now 73."),
    (0.85, "The keeper of window is Leo."),
)
QUESTIONS = (("Who is the keeper of lantern?", "Walter"), ("What is the code of amber?", "73"))


def run(screen: Console, open_model: Open, kinds: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Runs it with every KV kind; prints as it goes."""
    from mindnano import SamplingParams
    from mindnano.cli.output import one_line, speeds

    greedy = SamplingParams(max_tokens=120, temperature=0)
    begin = perf_counter()
    with open_model(None) as llm:
        opened = perf_counter() - begin
        size = format_bytes(llm.describe()["weights_bytes"])
        screen.print(
            f"The built-in model: {size}, with every block of Ling-3.0-tiny, trained for this demo and for tests. It "
            "knows a few kinds of sentences, and finds what a long text says. Not more."
        )
        screen.print(f"\n[bold]1. A story[/bold] (ready after {opened * 1e3:.0f} ms)")
        done = llm.chat([{"role": "user", "content": STORY}], greedy)
        again = llm.chat([{"role": "user", "content": STORY}], greedy)
    screen.print(f"> {STORY}", style="dim", markup=False)
    screen.print(one_line(done.text), markup=False)
    screen.print(speeds(done.timings), style="dim")
    rows = []
    screen.print("\n[bold]2. Questions about a long input, with each KV cache[/bold]")
    for layout, kv in kinds:
        with open_model(None, kv=kv, kv_layout=layout, context=CONTEXT + 64, cache_budget=32 << 20) as llm:
            rows.append({"kv_layout": layout, "kv_format": kv} | _ask(llm))
    first = rows[0]
    screen.print(
        f"{first['prompt_tokens']:,} tokens of Moby Dick that it never saw, with {len(FACTS)} facts put into it; "
        "one is changed later."
    )
    for number, (question, value) in enumerate(QUESTIONS):
        screen.print(f"> {question}", style="dim", markup=False)
        answer = first["answers"][number]
        screen.print(
            f"{one_line(answer)}   ({'right' if value in answer else f'WRONG: {value}'})", markup=False
        )
    _print(screen, rows)
    return {
        "open_s": round(opened, 4),
        "story": done.text,
        "repeats": done.token_ids == again.token_ids,
        "timings": done.timings.as_dict(),
        "questions": [question for question, _ in QUESTIONS],
        "expected": [value for _, value in QUESTIONS],
        "kv": rows,
    }


def message(llm: LLM, question: str) -> str:
    """The text with its facts and a question under it, LENGTH tokens in all or a little less."""
    text = data.CHAPTERS.read_text(encoding="utf-8")
    words = text.split(" ")
    low, high = 0, len(words)
    while high - low > 1:  # the longest that fits
        middle = (low + high) // 2
        count = len(llm.chat_tokens([{"role": "user", "content": _plant(words[:middle], question)}]))
        low, high = (middle, high) if count <= LENGTH else (low, middle)
    return _plant(words[:low], question)


def _plant(words: list[str], question: str) -> str:
    """Facts between sentences: after the first word that ends one behind each place."""
    out, at = [], 0
    for share, fact in FACTS:
        end = max(at, round(share * len(words)))
        while end < len(words) and not words[end - 1].endswith((".", "!", "?")):
            end += 1
        out += [*words[at:end], fact]
        at = end
    return " ".join(out + words[at:]) + f"\n{question}"


def _ask(llm: LLM) -> dict[str, Any]:
    from mindnano import SamplingParams

    answers: list[str] = []
    for question, _ in QUESTIONS:
        done = llm.chat(
            [{"role": "user", "content": message(llm, question)}],
            SamplingParams(max_tokens=24, temperature=0),
        )
        if not answers:
            timings = done.timings
        answers.append(done.text)
    return {
        "kv_bytes": llm.describe()["kv_bytes"],
        "answers": answers,
        "right": [value in answer for answer, (_, value) in zip(answers, QUESTIONS, strict=True)],
        "prompt_tokens": timings.prompt_tokens,
        "ttft_s": timings.ttft_s,
        "prefill_tok_s": timings.prefill_tok_s,
    }


def _print(screen: Console, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("KV cache")
    for column in (f"{CONTEXT // 1024}K tokens", "right", "same answers", "prefill"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row['kv_layout']} {row['kv_format']}",
            format_bytes(row["kv_bytes"]),
            f"{sum(row['right'])} of {len(QUESTIONS)}",
            "yes" if row["answers"] == rows[0]["answers"] else "NO",
            f"{row['prefill_tok_s']:,.0f} tok/s",
        )
    screen.print(table)
