"""An engine of this process as the partner."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from mindnano.cache.sessions import SessionStore
from mindnano.cli.talk.partner import Ended, Entry, Event, Messages, Reading, Said, Thought
from mindnano.engine.llm import LLM
from mindnano.engine.params import SamplingParams
from mindnano.server.answer import THINK_CLOSE, THINK_OPEN, Content, Piece, Reasoning, Splitter


class Local:
    """Answers with `llm`; sessions are files in `folder`."""

    def __init__(self, llm: LLM, params: SamplingParams, folder: Path) -> None:
        self._llm, self._params, self._store = llm, params, SessionStore(folder)
        facts = llm.describe()
        self.synthetic = llm.synthetic
        self.about = (
            f"{facts['model']}, {facts['recipe']}, context {facts['context']}, KV {facts['kv_layout']} "
            f"{facts['kv_format']}, {facts['threads']} threads"
        )

    def answer(self, messages: Messages, thinking: bool) -> Iterator[Event]:
        llm = self._llm
        prompt = llm.chat_tokens(messages, thinking)
        end = llm.tokenizer.decode(prompt[-64:], skip_special=False)
        splitter = Splitter(thinks=end.rfind(THINK_OPEN) > end.rfind(THINK_CLOSE))
        sequence = llm.submit(llm.request(prompt, self._params))
        with _deferred_interrupt() as pressed:
            try:
                while not sequence.finished:
                    llm.step()
                    if pressed():
                        raise KeyboardInterrupt
                    if progress := llm.progress(sequence):
                        yield Reading(progress.tokens_done, progress.tokens_total, progress.seconds_left)
                    yield from _events(splitter.push(sequence.text.take()))
            finally:
                if not sequence.finished:
                    sequence.cancel()
                    llm.step()
        yield from _events([*splitter.push(sequence.text.take()), *splitter.finish()])
        done = llm.result(sequence)
        yield Ended(done.finish_reason, done.timings)

    def save(self, name: str, messages: Messages) -> int:
        return self._llm.save_session(self._store, name, messages).tokens

    def load(self, name: str) -> tuple[Messages, int]:
        session = self._llm.load_session(self._store, name)
        return session.messages, session.reusable

    def sessions(self) -> list[Entry]:
        return [Entry(one.name, one.tokens, one.nbytes, one.problem) for one in self._store.list()]

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def close(self) -> None:
        self._llm.close()


def _events(pieces: list[Piece]) -> Iterator[Event]:
    for piece in pieces:
        if isinstance(piece, Reasoning):
            yield Thought(piece.text)
        elif isinstance(piece, Content):
            yield Said(piece.text)


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C only sets a mark, so that it can't end a step of the engine half-way; a second one is at once."""
    count = 0

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: count > 0
    finally:
        signal.signal(signal.SIGINT, before)
