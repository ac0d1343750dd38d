"""The LLM class: a model, its caches and a scheduler behind generate, stream, chat and logits."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from mindnano import kernels
from mindnano.cache.kv import check_kind
from mindnano.cache.prefix import PrefixCache
from mindnano.cache.sessions import SessionInfo, SessionStore, check_name
from mindnano.cache.slots import SlotPool, kv_bytes, state_bytes
from mindnano.cache.snapshot import Binding
from mindnano.checkpoint import open_model, summarize
from mindnano.device.choice import Devices, check_device
from mindnano.engine import cores
from mindnano.engine.completion import Completion, Delta, Usage
from mindnano.engine.memory import (
    DEFAULT_CACHE,
    DEFAULT_RESERVE,
    Available,
    MemoryReport,
    Setup,
    available,
    choose_context,
    plan_memory,
    report,
)
from mindnano.engine.memory.guard import MemoryGuard
from mindnano.engine.memory.heap import trim
from mindnano.engine.params import SamplingParams
from mindnano.engine.sampling import Sampler, TokenMask
from mindnano.engine.scheduler import END, MESSAGE, Scheduler
from mindnano.engine.sequence import Progress, Sequence
from mindnano.engine.text import TextStream
from mindnano.engine.timings import Timings, peak_rss_mib
from mindnano.errors import ContextLengthError, MindNanoError, OutOfMemoryError
from mindnano.model.decoder import Decoder
from mindnano.model.linear import F32
from mindnano.model.stages import StageClock
from mindnano.tokenizer import ChatTemplate, Tokenizer

DEFAULT_BLOCK = 4096  # tokens that go through a layer before the next one starts


@dataclass(frozen=True)
class Session:
    """A loaded conversation, and how many tokens of it won't be computed again."""

    info: SessionInfo
    messages: list[dict[str, Any]]
    settings: dict[str, Any]
    reusable: int


class Stream:
    """The deltas of one answer; `result` is the Completion once the iterator is exhausted."""

    def __init__(
        self, llm: LLM, sequence: Sequence, progress: Callable[[Progress], None] | None = None
    ) -> None:
        self._llm, self._sequence, self._progress = llm, sequence, progress
        self._result: Completion | None = None

    def __iter__(self) -> Iterator[Delta]:
        sequence, sent = self._sequence, 0
        try:
            while not sequence.finished:
                self._llm.step()
                if self._progress is not None and (read := self._llm.progress(sequence)) is not None:
                    self._progress(read)
                tokens = [sampled.token for sampled in sequence.output[sent:]]
                sent += len(tokens)
                text = sequence.text.take()
                if text or tokens:
                    yield Delta(text, tokens)
            rest = sequence.text.take()
            if rest:
                yield Delta(rest, [])
        finally:
            if not sequence.finished:
                sequence.cancel()
                self._llm.step()
        self._result = self._llm.result(sequence)

    @property
    def result(self) -> Completion:
        if self._result is None:
            raise MindNanoError("stream: the result is there once all deltas have been read")
        return self._result


class LLM:
    """A model ready to answer.

    model: checkpoint folder, packed file, or None for the built-in one. context: tokens a sequence can hold
    (prompt and answer), or "auto" for the largest that leaves `memory_reserve` bytes. kv: "bf16", "int8",
    "fp16", or "fp32" as the yardstick; kv_layout: "latent" or "expanded". threads: None for one a core,
    big ones only where some are little. cpus: the processors that they keep to, such as "4-7"; "auto": the big ones
    where some are little; "all": any.
    recipe: how to quantize a checkpoint folder on opening ("native": weights as stored). prefill_block: tokens
    that go through a layer together. slots: sequences at once. cache_budget: bytes for prefix checkpoints, 0 for none.
    allow_tight: start also where less than the reserve would be left. force: allow a context beyond the one that
    the model was trained for.

    Before any weights are read the plan is held against the memory there is (docs/memory.md). Raises MindNanoError
    where a file or an option is wrong, OutOfMemoryError where it doesn't fit.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        context: int | str = "auto",
        kv: str = "bf16",
        kv_layout: str = "latent",
        threads: int | None = None,
        cpus: str = "auto",
        recipe: str | None = None,
        memory_reserve: int = DEFAULT_RESERVE,
        device: str = "auto",
        prefill_block: int = DEFAULT_BLOCK,
        slots: int = 1,
        cache_budget: int = DEFAULT_CACHE,
        allow_tight: bool = False,
        force: bool = False,
    ) -> None:
        check_kind(kv_layout, kv)
        check_device(device, kv)
        for name, value, least in (
            ("prefill_block", prefill_block, 1), ("slots", slots, 1),
            ("cache_budget", cache_budget, 0), ("memory_reserve", memory_reserve, 0),
        ):  # fmt: skip
            if value is not None and value < least:
                raise MindNanoError(f"{name}: expected at least {least}, got {value}")
        cores.use(threads, cpus)
        summary = summarize(model, recipe)
        self._devices = Devices.open(device, kv)
        self.setup = Setup.of(
            summary,
            layout=kv_layout,
            fmt=kv,
            slots=slots,
            block=prefill_block,
            threads=kernels.threads(),
            cache_budget=cache_budget,
            device=self._devices.memory_bytes(summary.config, kv, summary.recipe),
        )
        self.memory_reserve = memory_reserve
        self.context = choose_context(
            self.setup, context, available(), memory_reserve, allow_tight=allow_tight, force=force
        )
        self.plan = plan_memory(self.setup, self.context)
        self._files = open_model(model, recipe)
        self.config = self._files.config
        self.kv, self.kv_layout, self.block = kv, kv_layout, prefill_block
        self.synthetic = self._files.synthetic
        self.generation = self._files.generation  # the settings that the model recommends
        self.tokenizer = Tokenizer(self._files.tokenizer_json, self.config)
        self.chat_template = ChatTemplate(self._files.chat_template)
        self._model = Decoder(self.config, self._files.weights, kv, self._devices)
        self._pool = SlotPool(self.config, kv_layout, kv, self.context, slots)
        self._prefixes = PrefixCache(self._pool, cache_budget)
        guard = MemoryGuard(self.setup)
        self._scheduler = Scheduler(self._model, self._pool, prefill_block, self._prefixes, guard)
        self._lock = threading.RLock()

    @property
    def device(self) -> str:
        """What may compute attention: "cpu", or "rknpu", with "(emulated)" behind it where it is."""
        return self._devices.name

    @property
    def emulated(self) -> bool:
        """Whether that NPU says that it is an emulation."""
        return self._devices.emulated

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what runs; give all memory, the model's mapping and the NPU back. It can't be used afterwards."""
        scheduler = self.__dict__.pop("_scheduler", None)
        if scheduler is None:
            return
        scheduler.abort(MindNanoError("the engine was closed"))
        self._prefixes.clear()
        for name in ("_pool", "_prefixes", "_model", "_files"):
            self.__dict__.pop(name, None)
        self._devices.close()
        trim()

    def read_weights(self) -> None:
        """Bring all weights into memory now, so that the first requests don't wait for the disk."""
        self._files.weights.read_all()

    def generate(self, prompt: str | Seq[int], params: SamplingParams | None = None) -> Completion:
        """Complete `prompt`, text or token ids."""
        stream = self.stream(prompt, params)
        for _ in stream:
            pass
        return stream.result

    def stream(
        self,
        prompt: str | Seq[int],
        params: SamplingParams | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Stream:
        """Complete `prompt`, giving text as it comes. Leaving the iterator early cancels the request.

        progress: called between the pieces of the prompt's work, a few times a second.
        """
        request = self.request(self._tokens(prompt), params or SamplingParams())
        return Stream(self, self.submit(request), progress)

    def generate_many(
        self, prompts: Seq[str | Seq[int]], params: SamplingParams | Seq[SamplingParams] | None = None
    ) -> list[Completion]:
        """Complete several prompts; as many as there are slots are decoded together."""
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(prompts)
        sequences = [
            self.submit(self.request(self._tokens(p), one)) for p, one in zip(prompts, params, strict=True)
        ]
        while not all(sequence.finished for sequence in sequences):
            self.step()
        return [self.result(sequence) for sequence in sequences]

    def chat(
        self, messages: Seq[Mapping[str, Any]], params: SamplingParams | None = None, thinking: bool = False
    ) -> Completion:
        """Answer a conversation: dicts with "role" and "content", put through the model's chat template."""
        stream = self.stream_chat(messages, params, thinking)
        for _ in stream:
            pass
        return stream.result

    def stream_chat(
        self, messages: Seq[Mapping[str, Any]], params: SamplingParams | None = None, thinking: bool = False
    ) -> Stream:
        prompt = self.chat_tokens(messages, thinking)
        return Stream(self, self.submit(self.request(prompt, params or SamplingParams())))

    def chat_tokens(
        self,
        messages: Seq[Mapping[str, Any]],
        thinking: bool = False,
        tools: Seq[Mapping[str, Any]] | None = None,
    ) -> list[int]:
        """The prompt of a conversation as token ids."""
        return self.chat_template.encode(self.tokenizer, messages, enable_thinking=thinking, tools=tools)

    def save_session(
        self,
        store: SessionStore | str | Path,
        name: str,
        messages: Seq[Mapping[str, Any]],
        settings: Mapping[str, Any] | None = None,
        replace: bool = True,
        tools: Seq[Mapping[str, Any]] | None = None,
    ) -> SessionInfo:
        """Keep a conversation, and what was computed of it, as one file of a store or folder.

        `messages` and `settings` (JSON values) come back from `load_session`; `tools` are those that the
        conversation was asked with. Other requests go on while the file
        is written. Raises MindNanoError where nothing of the conversation is in the prefix cache any more, and as
        SessionStore.save.
        """
        check_name(name)
        forms = self._chat_forms(messages, tools)
        with self._lock:
            found = max((self._prefixes.find(tokens) for tokens in forms), key=lambda hit: hit.reused)
            held = self._prefixes.chain(found.node)
            pieces = self._prefixes.export(held)
            for node in held:
                self._prefixes.pin(node)
        try:
            if not pieces:
                raise MindNanoError(
                    f"session {name!r}: nothing of this conversation is kept; answer once with a cache budget that "
                    "holds it"
                )
            return _store(store).save(name, pieces, messages, self._binding(), settings, replace)
        finally:
            with self._lock:
                for node in held:
                    self._prefixes.unpin(node)

    def load_session(self, store: SessionStore | str | Path, name: str) -> Session:
        """Bring a saved conversation back; `reusable` tokens of it won't be computed again.

        The file is wholly verified before anything live is touched; other requests go on meanwhile. Raises as
        SessionStore.load.
        """
        saved, stored = _store(store).load(name, self._pool, self._binding())
        with stored:
            with self._lock:
                found = self._prefixes.room_for(stored.shapes)
            if found is None:
                return Session(saved.info, saved.messages, saved.settings, 0)
            room, count, inner = found
            try:
                pieces = stored.read(count, inner)
            except BaseException:
                with self._lock:
                    self._prefixes.give_back(room)
                raise
        with self._lock:
            weights = [
                END if piece.states and piece.states.logits is not None else MESSAGE for piece in pieces
            ]
            return Session(
                saved.info, saved.messages, saved.settings, self._prefixes.adopt(room, pieces, weights)
            )

    def _chat_forms(
        self, messages: Seq[Mapping[str, Any]], tools: Seq[Mapping[str, Any]] | None
    ) -> list[list[int]]:
        """The prompts that a conversation may have been asked with."""
        return [self.chat_tokens(messages, thinking, tools) for thinking in (False, True)]

    def _binding(self) -> Binding:
        """What a session's rows and states are only valid with."""
        return Binding(
            model=self._files.identity,
            tokenizer=_digest(self._files.tokenizer_json or b""),
            template=_digest((self._files.chat_template or "").encode()),
            kv_layout=self.kv_layout,
            kv_format=self.kv,
            model_name=self._files.path.name if self._files.path else "built-in",
        )

    def logits(self, token_ids: Seq[int]) -> F32:
        """Logits after each token: float32 [tokens, vocabulary]. Raises OutOfMemoryError where they don't fit."""
        tokens = self._checked(list(token_ids))
        need, have = 4 * len(tokens) * self.config.vocab_size, available().nbytes
        if need > have:
            raise OutOfMemoryError(
                f"logits of {len(tokens)} tokens take {need >> 20:,} MiB, available {have >> 20:,} MiB; ask for fewer "
                "tokens at a time",
                need=need,
                have=have,
            )
        out = np.empty((len(tokens), self.config.vocab_size), np.float32)
        with self._lock:
            if not self._pool.free:
                raise MindNanoError(
                    "logits: all slots are taken; wait for a request to end, or open more slots"
                )
            slot, clock = self._pool.take(), StageClock()
            try:
                for begin in range(0, len(tokens), self.block):
                    piece = tokens[begin : begin + self.block]
                    rows = out[begin : begin + len(piece)]
                    for _ in self._model.prefill(piece, slot, self._pool, clock, rows):
                        pass
            finally:
                self._pool.give_back(slot)
        return out

    def memory_report(self, freed: int = 0) -> MemoryReport:
        """The plan of this model for each context, layout and format, against the memory there is now.

        freed: bytes that count as available too, such as what this engine holds and would give back.
        """
        now = available()
        there = Available(now.nbytes + freed, now.source)
        return report(self.setup, there, self.memory_reserve)

    def describe(self) -> dict[str, Any]:
        """What runs: model, recipe, KV layout and format, context, device, instruction set, threads, bytes."""
        return {
            "model": str(self._files.path) if self._files.path else "built-in",
            "model_type": self.config.model_type,
            "recipe": self._files.recipe,
            "synthetic": self.synthetic,
            "context": self.context,
            "kv_layout": self.kv_layout,
            "kv_format": self.kv,
            **self._devices.describe(),
            "isa": kernels.isa(),
            "threads": kernels.threads(),
            "cpus": cores.numbers(tuple(kernels.cpus())) or "any",
            "weights_bytes": self._files.nbytes,
            "kv_bytes": len(self._pool.slots) * kv_bytes(self.config, self.kv_layout, self.kv, self.context),
            "state_bytes": len(self._pool.slots) * state_bytes(self.config),
            "planned_bytes": self.plan.total,
            "available_bytes": available().nbytes,
        }

    def _tokens(self, prompt: str | Seq[int]) -> list[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)

    def _checked(self, tokens: list[int], more: int = 0) -> list[int]:
        """The tokens if they can be run: some, all in the vocabulary, and not too many."""
        if not tokens:
            raise MindNanoError("prompt: expected at least one token, got none; give some text")
        vocabulary = self.config.vocab_size
        for at, token in enumerate(tokens):
            if not isinstance(token, int | np.integer) or not 0 <= token < vocabulary:
                raise MindNanoError(
                    f"prompt: token {at} is {token!r}, expected an id from 0 to {vocabulary - 1}"
                )
        if len(tokens) + more > self.context:
            raise ContextLengthError(
                f"prompt: {len(tokens)} tokens{f' and {more} to generate' if more else ''} exceed the context of "
                f"{self.context}; shorten the prompt or raise --ctx",
                len(tokens) + more,
                self.context,
            )
        return tokens

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer: those of the configuration and those of the tokenizer."""
        return frozenset(self.config.eos_token_ids) | frozenset(self.tokenizer.eos_token_ids)

    def request(
        self,
        prompt: list[int],
        params: SamplingParams,
        *,
        mask: TokenMask | None = None,
        stop_after: str = "",
        shown: Collection[int] = (),
        client: str = "",
    ) -> Sequence:
        """A request for `submit`, checked: MindNanoError where prompt or parameters can't be served.

        mask: which tokens may come. stop_after: stop strings count only after this text. shown: special tokens
        that are text in the answer. client: who asks, for turns in the queue. Safe to call from any thread.
        """
        self._checked(prompt, more=1)
        return Sequence(
            prompt=prompt,
            params=params,
            sampler=Sampler(params, prompt, self.config.vocab_size, mask),
            text=TextStream(self.tokenizer, params.stop, stop_after, shown),
            eos_token_ids=self.eos_token_ids,
            client=client,
        )

    def submit(self, sequence: Sequence) -> Sequence:
        """Queue a request; `step` until it is finished, then take its `result`."""
        with self._lock:
            self._scheduler.submit(sequence)
        return sequence

    @property
    def idle(self) -> bool:
        """Whether `step` has nothing to do."""
        return self._scheduler.idle

    @property
    def slots(self) -> int:
        """Sequences that can run at once."""
        return len(self._pool.slots)

    @property
    def free_slots(self) -> int:
        return self._pool.free

    @property
    def kv_tokens(self) -> int:
        """Tokens in the slots that are taken."""
        return sum(slot.length for slot in self._pool.taken)

    @property
    def busy_seconds(self) -> Mapping[str, float]:
        """Seconds of work so far: prefill and decode."""
        return dict(self._scheduler.seconds)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the prefix checkpoints."""
        return self._prefixes.nbytes

    def progress(self, sequence: Sequence) -> Progress | None:
        """How far a prompt is; None unless it is in prefill. For the thread that calls `step`."""
        return self._scheduler.progress(sequence)

    def step(self) -> None:
        """One piece of work for the requests at hand. An error ends them all and is raised."""
        with self._lock:
            try:
                self._scheduler.step()
            except BaseException as error:
                self._scheduler.abort(error)
                raise

    def result(self, sequence: Sequence) -> Completion:
        """The answer of a finished request. Raises MindNanoError where the engine failed."""
        if isinstance(sequence.error, OutOfMemoryError):
            raise sequence.error
        if sequence.error is not None:
            raise MindNanoError(f"the request ended early: {sequence.error}") from sequence.error
        output = [sampled.token for sampled in sequence.output]
        logprobs = None if sequence.params.logprobs is None else list(sequence.output)
        return Completion(
            text=sequence.text.text,
            token_ids=output,
            finish_reason=sequence.finish_reason or "cancelled",
            usage=Usage(len(sequence.prompt), len(output)),
            timings=self._timings(sequence),
            logprobs=logprobs,
        )

    def _timings(self, sequence: Sequence) -> Timings:
        first, last, count = sequence.first_token, sequence.last_token, len(sequence.output)
        ttft = (first or perf_counter()) - sequence.submitted
        decode = (count - 1) / (last - first) if first and last and count > 1 and last > first else None
        clock = sequence.clock
        return Timings(
            ttft_s=ttft,
            decode_tok_s=decode,
            prompt_tokens=len(sequence.prompt),
            completion_tokens=count,
            cached_tokens=sequence.cached,
            cached_reason=sequence.cached_reason,
            kv_layout=self.kv_layout,
            kv_format=self.kv,
            peak_rss_mib=peak_rss_mib(),
            stage_s=dict(clock.seconds),
            mla_s=dict(clock.mla_seconds),
            mla_calls=dict(clock.mla_calls),
            npu_projections=clock.npu_projections,
            fallbacks=clock.fallbacks,
            device=self.device,
        )


def _store(store: SessionStore | str | Path) -> SessionStore:
    return store if isinstance(store, SessionStore) else SessionStore(store)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
