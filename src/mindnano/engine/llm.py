"""The LLM class: a model, its caches and a scheduler behind generate, stream, chat and logits."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any

import numpy as np

from mindnano import kernels
from mindnano.cache import snapshot
from mindnano.cache.kv import check_kind
from mindnano.cache.prefix import PrefixCache
from mindnano.cache.slots import SlotPool, kv_bytes, state_bytes
from mindnano.cache.snapshot import SessionInfo
from mindnano.checkpoint import open_model
from mindnano.engine import cores
from mindnano.engine.completion import Completion, Delta, Usage
from mindnano.engine.memory import available_bytes, choose_context, plan_memory
from mindnano.engine.params import SamplingParams
from mindnano.engine.sampling import Sampler
from mindnano.engine.scheduler import Scheduler
from mindnano.engine.sequence import Sequence
from mindnano.engine.text import TextStream
from mindnano.engine.timings import Timings, peak_rss_mib
from mindnano.errors import ContextLengthError, MindNanoError
from mindnano.model.decoder import Decoder
from mindnano.model.linear import F32
from mindnano.model.stages import StageClock
from mindnano.tokenizer import ChatTemplate, Tokenizer

DEFAULT_BLOCK = 4096  # tokens that go through a layer before the next one starts
DEFAULT_RESERVE = 512 << 20
DEFAULT_CACHE = 256 << 20


@dataclass(frozen=True)
class Session:
    """A loaded conversation: its messages, and how many tokens of it won't be computed again."""

    name: str
    messages: list[dict[str, Any]]
    reusable: int


class Stream:
    """The deltas of one answer; `result` is the Completion once the iterator is exhausted."""

    def __init__(self, llm: LLM, sequence: Sequence) -> None:
        self._llm, self._sequence = llm, sequence
        self._result: Completion | None = None

    def __iter__(self) -> Iterator[Delta]:
        sequence, sent = self._sequence, 0
        try:
            while not sequence.finished:
                self._llm._step()
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
                self._llm._step()
        self._result = self._llm._completion(sequence)

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

    Raises MindNanoError where a file, an option or the memory doesn't allow it.
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
    ) -> None:
        check_kind(kv_layout, kv)
        _check_device(device)
        for name, value in (("prefill_block", prefill_block), ("slots", slots)):
            if value is not None and value < 1:
                raise MindNanoError(f"{name}: expected at least 1, got {value}")
        cores.use(threads, cpus)
        self._files = open_model(model, recipe)
        self.config = self._files.config
        self.context = choose_context(
            self.config, self._files.nbytes, kv_layout, kv, slots, prefill_block, kernels.threads(), context,
            memory_reserve,
        )  # fmt: skip
        self.plan = plan_memory(
            self.config,
            self._files.nbytes,
            kv_layout,
            kv,
            self.context,
            slots,
            prefill_block,
            kernels.threads(),
        )
        self.kv, self.kv_layout, self.device, self.block = kv, kv_layout, "cpu", prefill_block
        self.synthetic = self._files.synthetic
        self.generation = self._files.generation  # the settings that the model recommends
        self.tokenizer = Tokenizer(self._files.tokenizer_json, self.config)
        self.chat_template = ChatTemplate(self._files.chat_template)
        self._model = Decoder(self.config, self._files.weights, kv)
        self._pool = SlotPool(self.config, kv_layout, kv, self.context, slots)
        self._prefixes = PrefixCache(self._pool, cache_budget)
        self._scheduler = Scheduler(self._model, self._pool, prefill_block, self._prefixes)
        self._lock = threading.RLock()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the model's mappings and caches; the object can't be used afterwards."""
        self.__dict__.pop("_scheduler", None)
        self.__dict__.pop("_pool", None)
        self.__dict__.pop("_prefixes", None)
        self.__dict__.pop("_model", None)
        self.__dict__.pop("_files", None)

    def generate(self, prompt: str | Seq[int], params: SamplingParams | None = None) -> Completion:
        """Complete `prompt`, text or token ids."""
        stream = self.stream(prompt, params)
        for _ in stream:
            pass
        return stream.result

    def stream(self, prompt: str | Seq[int], params: SamplingParams | None = None) -> Stream:
        """Complete `prompt`, giving text as it comes. Leaving the iterator early cancels the request."""
        return Stream(self, self._submit(self._tokens(prompt), params or SamplingParams()))

    def generate_many(
        self, prompts: Seq[str | Seq[int]], params: SamplingParams | Seq[SamplingParams] | None = None
    ) -> list[Completion]:
        """Complete several prompts; as many as there are slots are decoded together."""
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(prompts)
        sequences = [self._submit(self._tokens(p), one) for p, one in zip(prompts, params, strict=True)]
        while not all(sequence.finished for sequence in sequences):
            self._step()
        return [self._completion(sequence) for sequence in sequences]

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
        return Stream(self, self._submit(self.chat_tokens(messages, thinking), params or SamplingParams()))

    def chat_tokens(self, messages: Seq[Mapping[str, Any]], thinking: bool = False) -> list[int]:
        """The prompt of a conversation as token ids."""
        return self.chat_template.encode(self.tokenizer, messages, enable_thinking=thinking)

    def save_session(self, folder: str | Path, name: str, messages: Seq[Mapping[str, Any]]) -> SessionInfo:
        """Keep what was computed of a conversation as one file in `folder`, replacing a session of that name.

        Raises MindNanoError where nothing of it is in the prefix cache any more, or the file can't be written.
        """
        snapshot.check_name(name)
        with self._lock:
            hit = self._prefixes.find(self._chat_tokens_any(messages))
            nodes = self._prefixes.chain(hit.node)
            if not nodes:
                raise MindNanoError(
                    f"session {name!r}: nothing of this conversation is kept; answer once with a cache "
                    "budget that holds it"
                )
            return snapshot.save(Path(folder), name, nodes, [dict(m) for m in messages], self._binding())

    def load_session(self, folder: str | Path, name: str) -> Session:
        """Bring a saved conversation back; `reusable` tokens of it won't be computed again."""
        with self._lock:
            nodes, messages = snapshot.load(self._pool, Path(folder), name, self._binding())
            return Session(name, messages, self._prefixes.adopt(nodes))

    def _chat_tokens_any(self, messages: Seq[Mapping[str, Any]]) -> list[int]:
        """The prompt form of a conversation that has most in common with what is kept."""
        forms = [self.chat_tokens(messages, thinking) for thinking in (False, True)]
        return max(forms, key=lambda tokens: self._prefixes.find(tokens).reused)

    def _binding(self) -> dict[str, str]:
        """What a session's rows and states are only valid with."""
        return {
            "model": self._files.identity,
            "tokenizer": _digest(self._files.tokenizer_json or b""),
            "template": _digest((self._files.chat_template or "").encode()),
            "kv_layout": self.kv_layout,
            "kv_format": self.kv,
        }

    def logits(self, token_ids: Seq[int]) -> F32:
        """Logits after each token: float32 [tokens, vocabulary]."""
        tokens = self._checked(list(token_ids))
        with self._lock:
            slot, clock = self._pool.take(), StageClock()
            try:
                out = np.empty((len(tokens), self.config.vocab_size), np.float32)
                for begin in range(0, len(tokens), self.block):
                    piece = tokens[begin : begin + self.block]
                    for rows in self._model.prefill(piece, slot, self._pool, clock, rows="all"):
                        if rows is not None:
                            out[begin : begin + len(piece)] = rows
            finally:
                self._pool.give_back(slot)
        return out

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
            "device": self.device,
            "isa": kernels.isa(),
            "threads": kernels.threads(),
            "cpus": cores.numbers(tuple(kernels.cpus())) or "any",
            "weights_bytes": self._files.nbytes,
            "kv_bytes": len(self._pool.slots) * kv_bytes(self.config, self.kv_layout, self.kv, self.context),
            "state_bytes": len(self._pool.slots) * state_bytes(self.config),
            "planned_bytes": self.plan.total,
            "available_bytes": available_bytes(),
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
                f"{self.context}; shorten the prompt or raise --ctx"
            )
        return tokens

    def _submit(self, prompt: list[int], params: SamplingParams) -> Sequence:
        self._checked(prompt, more=1)
        eos = frozenset(self.config.eos_token_ids) | frozenset(self.tokenizer.eos_token_ids)
        sequence = Sequence(
            prompt=prompt,
            params=params,
            sampler=Sampler(params, prompt, self.config.vocab_size),
            text=TextStream(self.tokenizer, params.stop),
            eos_token_ids=eos,
        )
        with self._lock:
            self._scheduler.submit(sequence)
        return sequence

    def _step(self) -> None:
        with self._lock:
            try:
                self._scheduler.step()
            except BaseException as error:
                self._scheduler.abort(error)
                raise

    def _completion(self, sequence: Sequence) -> Completion:
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
            fallbacks=clock.fallbacks,
        )


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _check_device(device: str) -> None:
    if device not in ("auto", "cpu"):
        raise MindNanoError(
            f"device: expected auto or cpu, got {device!r}; attention runs on the CPU in this version"
        )
