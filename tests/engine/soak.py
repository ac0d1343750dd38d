"""Mixed sessions on a small model for as long as asked: what an engine does in a day, over and over.

Conversations are begun, followed up, edited, branched and asked again, several at once; some are left in the middle.
They are saved (also beside running answers), loaded, renamed, deleted, damaged; the engine is closed and opened again
with the next layout and format. `python -m tests.engine.soak SECONDS FOLDER` prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil

from mindnano import LLM, SamplingParams
from mindnano.cache.sessions import SessionStore
from mindnano.checkpoint import tiny
from mindnano.errors import MindNanoError, SessionMismatchError

KINDS = (("latent", "int8"), ("expanded", "bf16"), ("latent", "bf16"), ("expanded", "int8"))
BUDGET = 3 << 20
CONTEXT = 1024
PERIODS = 6  # after the warm-up, each with its own highest RSS
WARM_UP = 0.2  # of the time
NAMES = tuple(f"talk {number}" for number in range(8))
WORDS = ("small", "machine", "long", "input", "memory", "prefix", "state", "layer", "token", "slot")


class Soak:
    def __init__(self, folder: Path, seconds: float, seed: int = 1) -> None:
        self.folder, self.seconds = folder, seconds
        self.store = SessionStore(folder / "sessions")
        self.model = folder / "model.mn"
        self.random = np.random.default_rng(seed)
        self.counts: Counter[str] = Counter()
        self.talks: list[list[dict[str, str]]] = []
        self.saved: dict[str, tuple[tuple[str, str], list[dict[str, str]]]] = {}
        self.process = psutil.Process()

    def run(self) -> dict:
        tiny.build(self.model)
        begin, lives = time.monotonic(), 0
        warm = WARM_UP * self.seconds
        peaks, files = [0] * PERIODS, 0
        while time.monotonic() - begin < self.seconds:
            self.kind = KINDS[lives % len(KINDS)]
            lives += 1
            with self._open(BUDGET) as self.llm:
                self.llm.read_weights()
                ends = time.monotonic() + max(0.5, self.seconds / 120)
                while time.monotonic() < ends:
                    self._round()
                    self._check()
                    passed = time.monotonic() - begin
                    if passed > warm:
                        period = min(PERIODS - 1, int((passed - warm) / (self.seconds - warm) * PERIODS))
                        peaks[period] = max(peaks[period], self.process.memory_info().rss)
                self._compare_with_cold()
            if passed <= warm:
                files = self.process.num_fds()
            if lives % 10 == 0:
                rss = self.process.memory_info().rss / (1 << 20)
                print(f"{passed:.0f} s: {rss:.1f} MiB, {sum(self.counts.values())} actions", file=sys.stderr)
        return {
            "seconds": round(time.monotonic() - begin, 1),
            "lives": lives,
            "counts": dict(sorted(self.counts.items())),
            "rss_peaks": peaks,
            "fds": [files, self.process.num_fds()],
            "left": sorted(
                path.name
                for path in self.folder.rglob("*")
                if path.is_file() and path != self.model and path.suffix != ".mnsession"
            ),
            "sessions": len(self.store.list()),
        }

    def _open(self, budget: int) -> LLM:
        layout, fmt = self.kind
        return LLM(self.model, context=CONTEXT, kv=fmt, kv_layout=layout, slots=3, threads=1,
                   prefill_block=128, cache_budget=budget)  # fmt: skip

    def _check(self) -> None:
        prefixes = self.llm._prefixes
        prefixes.check_integrity()
        assert prefixes.nbytes <= BUDGET
        assert not prefixes._pinned, "a checkpoint is still held"
        assert self.llm.free_slots == 3, "a slot is still taken"

    def _round(self) -> None:
        actions = (self._follow_up, self._follow_up, self._begin, self._edit, self._again, self._together,
                   self._leave, self._save, self._save_beside, self._load, self._rename, self._delete,
                   self._damage)  # fmt: skip
        action = actions[self.random.integers(len(actions))]
        action()
        self.counts[action.__name__[1:]] += 1

    # Conversations.

    def _text(self, most: int = 24) -> str:
        return " ".join(self.random.choice(WORDS, self.random.integers(1, most)))

    def _params(self) -> SamplingParams:
        greedy = self.random.random() < 0.5
        return SamplingParams(max_tokens=int(self.random.integers(1, 24)), temperature=0.0 if greedy else 1.0)

    def _any(self) -> list[dict[str, str]]:
        if not self.talks:
            self._begin()
        return self.talks[self.random.integers(len(self.talks))]

    def _answer(self, talk: list[dict[str, str]]) -> None:
        """Ask, and keep the conversation unless it has become too long."""
        try:
            done = self.llm.chat(talk, self._params())
        except MindNanoError as error:
            assert "exceed" in str(error), error
            self.counts["too long"] += 1
            return
        self.counts["tokens"] += done.usage.total_tokens
        self.counts["tokens reused"] += done.timings.cached_tokens
        if len(self.talks) >= 12:
            self.talks.pop(int(self.random.integers(len(self.talks))))
        self.talks.append([*talk, {"role": "assistant", "content": done.text}])

    def _begin(self) -> None:
        system = {"role": "system", "content": f"You know {self.random.integers(3)} things."}
        self._answer([system, {"role": "user", "content": self._text(60)}])

    def _follow_up(self) -> None:
        self._answer([*self._any(), {"role": "user", "content": self._text()}])

    def _edit(self) -> None:
        talk = [dict(message) for message in self._any()[:-1]]
        talk[-1]["content"] += " " + self._text(4)
        self._answer(talk)

    def _again(self) -> None:
        self._answer(self._any()[:-1])

    def _together(self) -> None:
        talks = [[*self._any()[:-1], {"role": "user", "content": self._text()}] for _ in range(5)]
        prompts = [self.llm.chat_tokens(talk)[: CONTEXT - 40] for talk in talks]
        self.llm.generate_many(prompts, self._params())

    def _leave(self) -> None:
        for _ in self.llm.stream_chat(self._any()[:-1], self._params()):
            if self.random.random() < 0.3:
                break

    # Sessions.

    def _save(self) -> None:
        name, talk = str(self.random.choice(NAMES)), self._any()[:-1]
        try:
            self.llm.save_session(self.store, name, talk, {"kind": list(self.kind)})
        except MindNanoError as error:
            assert "nothing of this conversation" in str(error), error
            self.counts["nothing to save"] += 1
            return
        self.saved[name] = (self.kind, talk)

    def _save_beside(self) -> None:
        """From another thread, while answers are computed."""
        thread = threading.Thread(target=self._save)
        thread.start()
        self.llm.generate_many([self.llm.tokenizer.encode(self._words(i)) for i in range(3)], SamplingParams(
            max_tokens=8, temperature=0))  # fmt: skip
        thread.join(60)
        assert not thread.is_alive()

    def _words(self, number: int) -> str:
        return " ".join(WORDS[number:])

    def _load(self) -> None:
        if not self.saved:
            return
        name = str(self.random.choice(sorted(self.saved)))
        kind, talk = self.saved[name]
        try:
            session = self.llm.load_session(self.store, name)
        except SessionMismatchError:
            assert kind != self.kind
            self.counts["of another kind"] += 1
            return
        assert kind == self.kind
        assert session.messages == talk
        self.counts["tokens loaded"] += session.reusable

    def _rename(self) -> None:
        if not self.saved:
            return
        name, new = str(self.random.choice(sorted(self.saved))), str(self.random.choice(NAMES))
        self.store.rename(name, new, replace=True)
        self.saved[new] = self.saved.pop(name) if name != new else self.saved[name]

    def _delete(self) -> None:
        if len(self.saved) < 4:
            return
        name = str(self.random.choice(sorted(self.saved)))
        self.store.delete(name)
        del self.saved[name]

    def _damage(self) -> None:
        """A bit flipped in a copy of its own: refused, and nothing live has changed."""
        if not self.saved:
            return
        name = str(self.random.choice(sorted(self.saved)))
        data = bytearray(self.store._path(name).read_bytes())
        data[self.random.integers(len(data))] ^= 1 << self.random.integers(8)
        before = self.llm.cache_bytes
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            damaged = SessionStore(folder)
            damaged._path(name).write_bytes(data)
            try:
                self.llm.load_session(damaged, name)
            except MindNanoError:
                assert self.llm.cache_bytes == before
            else:
                raise AssertionError("a damaged session was loaded")

    def _compare_with_cold(self) -> None:
        """A conversation as it stands, with all that was kept of it, against an engine that keeps nothing."""
        prompt = self.llm.chat_tokens(self._any())[: CONTEXT - 40]
        params = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
        with self._open(0) as cold:
            assert self.llm.generate(prompt, params).token_ids == cold.generate(prompt, params).token_ids
        self.counts["compared with cold"] += 1


if __name__ == "__main__":
    os.environ.setdefault("TMPDIR", sys.argv[2])
    print(json.dumps(Soak(Path(sys.argv[2]), float(sys.argv[1])).run()))
