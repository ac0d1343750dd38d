"""What every measuring command has in common: a results folder, a seed, repeats of disturbed runs, time left."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from mindnano import __version__
from mindnano.bench.budget import Budget
from mindnano.bench.load import Driver, Load, blank, local_counter, now
from mindnano.bench.progress import Estimate, Progress
from mindnano.bench.records import Point, Results, Run
from mindnano.bench.servers import Setting, open_server
from mindnano.bench.servers.client import RequestError
from mindnano.bench.servers.process import Server, StartError

RETRIES = 2


@dataclass
class Campaign:
    """retries: how often a disturbed run is repeated. tokenizer: of servers that can't count; MindNano's own is used
    where a MindNano server is started."""

    results: Results
    progress: Progress
    command: str = ""
    retries: int = RETRIES
    tokenizer: str | None = None
    timeout: float = 600.0
    seed: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    estimate: Estimate = field(default_factory=Estimate)
    budget: Budget = field(default_factory=Budget)
    left: Callable[[], float] = lambda: 0.0

    def __post_init__(self) -> None:
        self.seed = self.seed or secrets.token_hex(4)
        for point in self.results.records:
            if isinstance(point, Point) and point.phase == "perf" and point.ttft_s and point.input_tokens:
                load = Load(point.input_tokens, point.output_tokens or 0, point.concurrency or 1)
                self.estimate.learn(point.kind, load, point.ttft_s, point.decode_tok_s)
        self.results.append(
            Run(at=now(), command=self.command, version=__version__, machine=self.machine,
                options=self.options | {"seed": self.seed})
        )  # fmt: skip

    @property
    def logs(self) -> Path:
        return self.results.path.parent / "logs"

    @contextmanager
    def serving(self, setting: Setting) -> Iterator[Driver]:
        """A warm server at that setting and its driver. StartError where it doesn't come to that."""
        begin = perf_counter()
        with open_server(setting, self.logs, self.timeout) as server:
            driver = Driver(server, self.seed, self._counter(server))
            try:
                driver.warm_up()
            except RequestError as error:
                raise StartError(f"{setting.label}: the warm-up failed: {error}", refused=False) from None
            self.estimate.start = perf_counter() - begin
            yield driver

    def _counter(self, server: Server) -> Callable[[str], int] | None:
        setting = server.setting
        if self.tokenizer is not None:
            return local_counter(self.tokenizer)
        if setting.url is None and setting.preset == "mindnano":
            return local_counter(setting.model)
        return None

    def done(self, key: tuple[Any, ...]) -> bool:
        """Whether that run is there: a good one, one that can't be, or as many disturbed ones as are tried."""
        runs = self.results.of(key)
        tried = [run for run in runs if run.status not in ("failed", "not_measured")]
        return any(run.counts or run.status == "not_started" for run in runs) or len(tried) > self.retries

    def measure(self, driver: Driver, load: Load, mark: dict[str, Any]) -> Point:
        """Run a load until it is undisturbed or was tried often enough; every run is recorded. mark: fields of the
        point that say which run it is. Returns the last one."""
        known = self.results.of(self.key(driver.server.setting, load, mark))
        tried = sum(point.status != "not_measured" for point in known)
        while True:
            what = f"{driver.point('perf').kind}, {_sizes(load)}"
            self.progress.doing(what, self.left())
            begin = perf_counter()
            name = " ".join(str(part) for part in (load.input_tokens, load.concurrency, mark.get("repeat"),
                                                   mark.get("pair"), tried))  # fmt: skip
            try:
                point = driver.run(load, name)
            except RequestError as error:
                point = driver.point("perf", load)
                point.status, point.reason = "failed", str(error)
            for field_name, value in mark.items():
                setattr(point, field_name, value)
            point.attempt = tried
            self.results.append(point)
            if point.ttft_s is not None:
                self.estimate.learn(point.kind, load, point.ttft_s, point.decode_tok_s)
            self.progress.did(f"{what}: {_outcome(point)}", perf_counter() - begin, self.left())
            tried += 1
            if point.counts or point.status == "failed" or tried > self.retries:
                return point

    def key(self, setting: Setting, load: Load | None, mark: dict[str, Any]) -> tuple[Any, ...]:
        """The key of a point that is still to be measured."""
        point = blank("perf" if load else "capacity", setting.label, load)
        for name, value in mark.items():
            setattr(point, name, value)
        return point.key

    def not_started(
        self, setting: Setting, error: StartError, load: Load | None, mark: dict[str, Any]
    ) -> Point:
        """Record a setting whose server didn't start."""
        point = _unseen(setting, load, mark)
        point.status, point.reason = "not_started" if error.refused else "failed", str(error)
        self.results.append(point)
        self.progress.did(f"{setting.label}: {point.status.replace('_', ' ')}: {error}", 0.0, self.left())
        return point

    def no_time(
        self, setting: Setting, load: Load | None, mark: dict[str, Any], seconds: float | None = None
    ) -> bool:
        """Whether the budget has no time for that point, which is then recorded as not measured. seconds: how long it
        takes; left out, by the estimate."""
        if seconds is None:
            seconds = self.estimate.seconds(kind_of(setting), load) if load else self.estimate.start
        if (reason := self.budget.refusal(seconds)) is None:
            return False
        point = _unseen(setting, load, mark)
        point.status, point.reason = "not_measured", reason
        said = [one for one in self.results.of(point.key) if one.status == "not_measured"]
        if not any(one.filled_tokens == point.filled_tokens for one in said):
            self.results.append(point)
        return True


def kind_of(setting: Setting) -> str:
    """Layout and format, as points name them."""
    return " ".join(part for part in (setting.kv_layout, setting.kv) if part) or setting.label


def _unseen(setting: Setting, load: Load | None, mark: dict[str, Any]) -> Point:
    """A point of a server that said nothing: what was asked for."""
    point = blank("perf" if load else "capacity", setting.label, load)
    point.server, point.model = setting.preset, setting.name
    point.threads, point.slots = setting.threads, setting.slots
    point.kv_layout, point.kv_format, point.context_tokens = setting.kv_layout, setting.kv, setting.context
    for name, value in mark.items():
        setattr(point, name, value)
    return point


def _sizes(load: Load) -> str:
    together = f", {load.concurrency} at once" if load.concurrency > 1 else ""
    return f"{load.input_tokens}/{load.output_tokens}{together}"


def _outcome(point: Point) -> str:
    if point.status != "ok":
        return f"{point.status}: {point.reason}"
    parts = [f"TTFT {point.ttft_s:.2f} s" if point.ttft_s is not None else "no text came"]
    if point.decode_tok_s is not None:
        parts.append(f"decode {point.decode_tok_s:.1f} tok/s")
    if point.disturbed:
        parts.append(f"disturbed ({'; '.join(point.disturbed)})")
    return ", ".join(parts)


def kinds(values: Sequence[str]) -> list[str]:
    """Without repetitions, in order."""
    return list(dict.fromkeys(values))
