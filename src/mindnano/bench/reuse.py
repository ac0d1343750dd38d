"""What a conversation costs when most of it is known: a follow-up question against the cold prompt, and a session
that is saved, loaded by another process and gone on with.

One process answers each conversation cold (once: that takes minutes), asks on, and saves it. A second one loads the
sessions, which lie in the page cache then, answers the same prompt again and asks on as well. Both must say the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

from mindnano.bench.prompts import Writer
from mindnano.bench.report.table import Table, engine_marks
from mindnano.engine.completion import Completion
from mindnano.engine.llm import LLM
from mindnano.engine.params import SamplingParams
from mindnano.errors import EngineError

SHARE = 0.05  # of the cold TTFT, at most
LOAD_SECONDS = 2.0  # for a session of 16K tokens, at most
ROOM = 1024  # tokens of context beyond the prompt
GREEDY = SamplingParams(max_tokens=16, temperature=0, ignore_eos=True)
QUESTION = "And the next one?"


@dataclass(frozen=True)
class Answer:
    """ttft in seconds; tokens of the prompt, and those of them that came from the cache; what may have computed, and
    if it is emulated."""

    ttft: float
    prompt: int
    cached: int
    said: list[int] = field(repr=False)
    device: str = "cpu"

    @classmethod
    def of(cls, done: Completion) -> Answer:
        timings = done.timings
        return cls(
            timings.ttft_s, timings.prompt_tokens, timings.cached_tokens, done.token_ids, timings.device
        )


@dataclass(frozen=True)
class Conversation:
    """cold, follow_up: in the first process; again, restarted: the same prompt and the same question in the second,
    after loading. Seconds, and the file's bytes."""

    cold: Answer
    follow_up: Answer
    save_s: float
    nbytes: int
    load_s: float
    reusable: int
    again: Answer
    restarted: Answer

    @property
    def share(self) -> float:
        """Of the cold TTFT: the follow-up's in the same process."""
        return self.follow_up.ttft / self.cold.ttft

    @property
    def share_restarted(self) -> float:
        return self.restarted.ttft / self.cold.ttft

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON, without what was said."""
        values = asdict(self) | {"share": self.share, "share_restarted": self.share_restarted}
        for name in ("cold", "follow_up", "again", "restarted"):
            del values[name]["said"]
        return values


def first_process(
    model: str | None, folder: str, lengths: list[int], answer: int, **engine: Any
) -> list[dict[str, Any]]:
    """Answer cold, ask on, save."""
    found = []
    with _open(model, lengths, engine) as llm:
        for length in lengths:
            messages = _messages(llm, length)
            print(f"a prompt of {length} tokens, cold", file=sys.stderr, flush=True)
            cold = llm.chat(messages, GREEDY)
            if cold.timings.cached_tokens:
                raise EngineError("bench reuse: the first prompt wasn't cold")
            follow_up = llm.chat(_asked(llm, messages, answer), GREEDY)
            begin = perf_counter()
            info = llm.save_session(folder, str(length), messages)
            seconds = perf_counter() - begin
            found.append({
                "cold": asdict(Answer.of(cold)), "follow_up": asdict(Answer.of(follow_up)),
                "save_s": seconds, "nbytes": info.nbytes,
            })  # fmt: skip
    return found


def second_process(
    model: str | None, folder: str, lengths: list[int], answer: int, **engine: Any
) -> list[dict[str, Any]]:
    """Load, answer again, ask on."""
    found = []
    with _open(model, lengths, engine) as llm:
        for length in lengths:
            begin = perf_counter()
            session = llm.load_session(folder, str(length))
            seconds = perf_counter() - begin
            again = llm.chat(session.messages, GREEDY)
            restarted = llm.chat(_asked(llm, session.messages, answer), GREEDY)
            found.append({
                "load_s": seconds, "reusable": session.reusable, "again": asdict(Answer.of(again)),
                "restarted": asdict(Answer.of(restarted)),
            })  # fmt: skip
    return found


def measure(model: str | None, lengths: list[int], **engine: Any) -> list[Conversation]:
    """Both processes, one after the other. `engine`: the LLM's options, and `answer`, the tokens of the answer that
    stands before the follow-up. Raises EngineError where an answer after the restart differs."""
    with tempfile.TemporaryDirectory(prefix="mindnano-reuse-") as folder:
        halves = [
            _process(name, model=model, folder=folder, lengths=lengths, **engine) for name in _PROCESSES
        ]
    found = []
    for first, second in zip(*halves, strict=True):
        values = first | second
        answers: dict[str, Any] = {
            name: Answer(**values.pop(name)) for name in ("cold", "follow_up", "again", "restarted")
        }
        one = Conversation(**values, **answers)
        if (one.again.said, one.restarted.said) != (one.cold.said, one.follow_up.said):
            raise EngineError("bench reuse: the answer after loading isn't the one before")
        found.append(one)
    return found


def table(conversations: list[Conversation], title: str, synthetic: bool) -> Table:
    rows = [
        [
            f"{one.cold.prompt}", f"{one.cold.ttft:.1f}",
            f"{one.follow_up.ttft:.2f} ({one.share:.1%})", f"{one.follow_up.prompt - one.follow_up.cached}",
            f"{one.save_s:.2f}", f"{one.nbytes / (1 << 20):,.0f}", f"{one.load_s:.2f}",
            f"{one.restarted.ttft:.2f} ({one.share_restarted:.1%})", f"{one.again.ttft:.3f}",
        ]
        for one in conversations
    ]  # fmt: skip
    columns = (
        "prompt, tokens", "cold TTFT, s", "follow-up TTFT, s", "its new tokens", "save, s", "file, MiB", "load, s",
        "follow-up after a restart, s", "same prompt after a restart, s",
    )  # fmt: skip
    notes = [
        "Shares are of the cold TTFT (target: at most 5 %; loading 16K: at most 2 s). A follow-up's new tokens: the "
        "answer before it, which is computed as a part of the prompt, the question, and what the template adds. "
        "Loading is from the page cache; the answers after the restart are those before it."
    ]
    emulated = any("emulated" in one.cold.device for one in conversations)
    return Table(title, columns, rows, engine_marks(synthetic, emulated), notes, left=0)


def run(model: str | None, lengths: list[int], json_output: bool, markdown: bool, **engine: Any) -> int:
    """Measure and print; 1 where a target is missed."""
    from mindnano.checkpoint import summarize
    from mindnano.cli import output

    found, summary = measure(model, lengths, **engine), summarize(model, None)
    if json_output:
        output.print_json({
            "command": "bench reuse", "model": summary.name, "synthetic": summary.synthetic,
            "kv_layout": engine["kv_layout"], "kv_format": engine["kv"], "rows": [one.as_dict() for one in found],
        })  # fmt: skip
    else:
        title = f"Reuse: {summary.recipe}, {engine['kv_layout']} {engine['kv']}"
        table(found, title, summary.synthetic).show(markdown)
    missed = [one for one in found if max(one.share, one.share_restarted) > SHARE]
    slow = [one for one in found if one.cold.prompt <= 17 << 10 and one.load_s > LOAD_SECONDS]
    return 1 if missed or slow else 0


def _open(model: str | None, lengths: list[int], engine: dict[str, Any]) -> LLM:
    llm = LLM(model, context=max(lengths) + ROOM, **engine)
    llm.read_weights()
    llm.generate("warm up", GREEDY)  # threads and the smallest scratch
    return llm


def _messages(llm: LLM, tokens: int) -> list[dict[str, Any]]:
    """A conversation whose prompt has about that many tokens, and begins as no other does."""
    system = {"role": "system", "content": f"{tokens} tokens of records follow."}
    around = len(llm.chat_tokens([system, {"role": "user", "content": ""}]))
    return [system, {"role": "user", "content": _text(llm, tokens - around)}]


def _asked(llm: LLM, messages: list[dict[str, Any]], answer: int) -> list[dict[str, Any]]:
    return [
        *messages,
        {"role": "assistant", "content": _text(llm, answer)},
        {"role": "user", "content": QUESTION},
    ]


def _text(llm: LLM, tokens: int) -> str:
    text = Writer(str(tokens)).text(8 * tokens)
    while len(encoded := llm.tokenizer.encode(text)) < tokens:
        text += "\n\n" + text
    return llm.tokenizer.decode(encoded[:tokens])


def _process(name: str, **arguments: Any) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "mindnano.bench.reuse", name, json.dumps(arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        raise EngineError(f"bench reuse: the {name} process ended with {done.returncode}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


_PROCESSES = {"first": first_process, "second": second_process}

if __name__ == "__main__":
    print(json.dumps(_PROCESSES[sys.argv[1]](**json.loads(sys.argv[2]))))
