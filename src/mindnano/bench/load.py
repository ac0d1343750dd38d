"""A load put on a server, and what came of it: prompts made, requests sent, the machine watched, one Point."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from mindnano.bench import machine_state
from mindnano.bench.machine_state import Watch
from mindnano.bench.prompts import exact
from mindnano.bench.records import Point
from mindnano.bench.servers import Answer, Server
from mindnano.bench.servers.client import RequestError
from mindnano.errors import MindNanoError

WARMUP_TOKENS = (256, 8)  # of the prompt and of the answer; not counted


@dataclass(frozen=True)
class Load:
    """Requests of `input_tokens` (chat template included) and at most `output_tokens`, `concurrency` at once."""

    input_tokens: int
    output_tokens: int = 64
    concurrency: int = 1
    prompts: str = "text"


class Driver:
    """Puts loads on one server. `local` counts tokens where the server can't."""

    def __init__(self, server: Server, seed: str, local: Callable[[str], int] | None = None) -> None:
        self.server, self.seed, self._local = server, seed, local
        self._overhead: int | None = None  # tokens that the chat template adds
        self.warmup_s: float | None = None

    def warm_up(self) -> None:
        """One short request that isn't counted: pages of the weights, threads, and the chat template's length."""
        room = (self.server.facts.context or self.server.setting.context) // 2
        text = exact("text", f"{self.seed} warm-up", min(WARMUP_TOKENS[0], room) // 2, self._count).text
        answer = self.server.client.settle(text, WARMUP_TOKENS[1])
        self.warmup_s = answer.total_s
        if answer.prompt_tokens is None:
            raise MindNanoError(
                f"{self.server.setting.label}: its answers don't say how many tokens the prompt had (usage), so "
                "nothing exact can be measured"
            )
        self._overhead = answer.prompt_tokens - self._count(text)

    def _count(self, text: str) -> int:
        if self._local is not None:
            return self._local(text)
        try:
            return self.server.client.count(text)
        except RequestError as error:
            if error.status != 404:
                raise
        raise MindNanoError(
            f"{self.server.setting.label}: can't count tokens; give its tokenizer with --tokenizer (a tokenizer.json, "
            "a checkpoint folder or a packed file)"
        )

    def prompt(self, tokens: int, seed: str, kind: str) -> str:
        """A user message that makes a prompt of exactly that many tokens."""
        assert self._overhead is not None, "warm_up comes first"
        if tokens <= self._overhead:
            raise MindNanoError(
                f"--inputs: {tokens} tokens is too few, the chat template alone takes {self._overhead}"
            )
        return exact(kind, f"{self.seed} {seed}", tokens - self._overhead, self._count).text

    def run(self, load: Load, seed: str) -> Point:
        """Put one load on the server. Raises RequestError where it refuses or breaks off."""
        texts = [self.prompt(load.input_tokens, f"{seed} {i}", load.prompts) for i in range(load.concurrency)]
        with Watch(self.server.pids) as watch:
            answers = self.server.client.ask_together(texts, load.output_tokens)
        point = self.point("perf", load)
        _book(point, answers)
        self._memory(point, watch)
        point.disturbed += self._misses(load, answers)
        return point

    def _misses(self, load: Load, answers: list[Answer]) -> list[str]:
        """What makes these answers another measurement than the one asked for."""
        found = []
        for answer in answers:
            if answer.cached_tokens:
                found.append(f"{answer.cached_tokens} tokens came from a cache")
            if answer.prompt_tokens != load.input_tokens:
                found.append(f"the prompt had {answer.prompt_tokens} tokens instead of {load.input_tokens}")
                if answer.prompt_tokens is not None and self._overhead is not None:
                    self._overhead += answer.prompt_tokens - load.input_tokens
        return list(dict.fromkeys(found))

    def point(self, phase: Any, load: Load | None = None) -> Point:
        """A point of this server with what it says about itself."""
        setting, facts = self.server.setting, self.server.facts
        point = blank(phase, setting.label, load)
        point.server = facts.kind if setting.url else setting.preset
        point.server_version, point.recipe = facts.version, facts.recipe
        point.model = facts.model or (None if setting.url else setting.name)
        point.synthetic, point.emulated = facts.synthetic, facts.emulated
        point.kv_layout = facts.kv_layout or (None if facts.kind == "llama-server" else setting.kv_layout)
        point.kv_format = facts.kv_format or setting.kv
        point.device, point.threads = facts.device, facts.threads or setting.threads
        point.slots = facts.slots or (None if setting.url else setting.slots)
        point.context_tokens = facts.context or (None if setting.url else setting.context)
        point.kv_capacity_mib = self.server.kv_mib
        point.start_s, point.warmup_s = self.server.start_s, self.warmup_s
        return point

    def _memory(self, point: Point, watch: Watch) -> None:
        pids = self.server.pids
        point.machine = watch.state.as_dict()
        point.disturbed = watch.state.disturbances()
        point.mem_available_mib = watch.state.mem_available_low_mib
        if pids is not None:
            point.rss_mib = machine_state.rss_mib(pids)
            point.rss_file_mib = machine_state.rss_file_mib(pids)
            point.peak_rss_mib = machine_state.peak_rss_mib(pids)
            point.vm_swap_mib = machine_state.vm_swap_mib(pids)


def blank(phase: Any, label: str, load: Load | None = None) -> Point:
    """A point of a setting of which nothing is known yet."""
    point = Point(phase=phase, setting=label, at=now())
    if load is not None:
        point.input_tokens, point.output_tokens = load.input_tokens, load.output_tokens
        point.concurrency, point.prompts = load.concurrency, load.prompts
    return point


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _book(point: Point, answers: list[Answer]) -> None:
    first = answers[0]
    point.prompt_tokens, point.completion_tokens = first.prompt_tokens, first.completion_tokens
    point.cached_tokens = _most([_cached(answer) for answer in answers])
    point.cached_reason = first.timings.get("cached_reason") or None
    point.finish_reason = first.finish_reason
    point.ttft_s = _median([answer.ttft_s for answer in answers])
    point.decode_tok_s = _median([answer.decode_tok_s for answer in answers])
    gaps = Answer(gaps=[gap for answer in answers for gap in answer.gaps])
    point.inter_token_p50_s, point.inter_token_p95_s, point.inter_token_p99_s = map(gaps.gap, (50, 95, 99))
    point.total_s = max(answer.ended for answer in answers) - min(answer.began for answer in answers)
    tokens = [answer.completion_tokens for answer in answers if answer.completion_tokens is not None]
    if len(tokens) == len(answers) and point.total_s > 0:
        point.throughput_tok_s = sum(tokens) / point.total_s
    _book_engine(point, [answer.timings for answer in answers])
    if len(answers) > 1:
        point.requests = [
            {"ttft_s": answer.ttft_s, "decode_tok_s": answer.decode_tok_s, "total_s": answer.total_s,
             "prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens,
             "finish_reason": answer.finish_reason}
            for answer in answers
        ]  # fmt: skip


def _book_engine(point: Point, timings: list[dict[str, Any]]) -> None:
    """The server's own times: MindNano's, or llama.cpp's in its names."""
    ours = [one for one in timings if "ttft_s" in one]
    if len(ours) == len(timings) and ours:
        point.engine_ttft_s = _median([one.get("ttft_s") for one in ours])
        point.engine_decode_tok_s = _median([one.get("decode_tok_s") for one in ours])
        if len(ours) == 1:  # a step that requests share is counted in each of them
            one = ours[0]
            point.stage_s, point.mla_s, point.mla_calls = (
                one.get("stage_s"),
                one.get("mla_s"),
                one.get("mla_calls"),
            )
            point.fallbacks = one.get("fallbacks")
    elif timings and all("prompt_ms" in one for one in timings):
        point.engine_ttft_s = _median([one["prompt_ms"] / 1000 for one in timings])
        point.engine_decode_tok_s = _median([one.get("predicted_per_second") for one in timings])


def _cached(answer: Answer) -> int | None:
    """From the usage, or from llama.cpp's timings."""
    if answer.cached_tokens is None and isinstance(found := answer.timings.get("cache_n"), int):
        answer.cached_tokens = found
    return answer.cached_tokens


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _most(values: list[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def local_counter(source: str | None) -> Callable[[str], int]:
    """Counts with the tokenizer of a model (None: the built-in one) or of a tokenizer.json."""
    if source is not None and Path(source).suffix == ".json":
        import tokenizers

        try:
            found = tokenizers.Tokenizer.from_file(source)
        except Exception as error:  # the library raises plain Exception
            raise MindNanoError(f"--tokenizer {source}: {error}") from None
        found.no_truncation()
        found.no_padding()
        return lambda text: len(found.encode(text, add_special_tokens=False).ids)
    from mindnano.checkpoint import open_model
    from mindnano.tokenizer import Tokenizer

    with open_model(source) as files:
        tokenizer = Tokenizer(files.tokenizer_json, files.config)
    if not tokenizer.available:
        raise MindNanoError(f"--tokenizer {source}: this model has no tokenizer.json")
    return lambda text: len(tokenizer.encode(text))
