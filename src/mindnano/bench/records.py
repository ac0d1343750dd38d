"""What was measured, one JSON object a line: appended as it comes, read back to resume, compare and report.

Field names are those of the reference's benchmark where it has them. What a server doesn't report and its process
doesn't show is left out, never guessed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import msgspec

from mindnano.errors import MindNanoError, shorten

FILE = "results.jsonl"
MOST_LINE = 4 << 20  # bytes
T = TypeVar("T")

Status = Literal["ok", "not_started", "failed", "not_measured"]


@dataclass(kw_only=True)
class Point:
    """One run: a server at one setting that was looked at (capacity), or one load of requests (perf).

    Memory in MiB, times in seconds, speeds in tokens a second. All of it is described in docs/benchmark.md, which a
    test holds against these fields.
    """

    phase: Literal["capacity", "perf", "quality"]  # quality: only to say that time didn't allow all of it
    setting: str  # what was asked for, as one text: the same setting has the same text
    status: Status = "ok"
    reason: str | None = None  # why not started, or how it failed
    at: str = ""  # UTC

    # The server.
    server: str = ""
    server_version: str | None = None
    model: str | None = None
    recipe: str | None = None
    synthetic: bool | None = None
    emulated: bool | None = None
    kv_layout: str | None = None
    kv_format: str | None = None
    device: str | None = None
    threads: int | None = None
    slots: int | None = None
    context_tokens: int | None = None
    start_s: float | None = None
    warmup_s: float | None = None

    # Memory.
    rss_mib: float | None = None
    rss_file_mib: float | None = None
    kv_capacity_mib: float | None = None
    mem_available_mib: float | None = None
    predicted_filled_rss_mib: float | None = None
    predicted_from: Literal["plan", "baseline"] | None = None
    filled_tokens: int | None = None
    peak_rss_mib: float | None = None
    vm_swap_mib: float | None = None

    # The load.
    input_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    prompts: str | None = None
    repeat: int | None = None
    attempt: int | None = None
    comparison: str | None = None  # which one, and
    side: str | None = None  # its A or B
    pair: int | None = None

    # What came of it; of several requests at once the median, each of them in `requests`.
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cached_reason: str | None = None
    finish_reason: str | None = None
    ttft_s: float | None = None
    decode_tok_s: float | None = None
    inter_token_p50_s: float | None = None
    inter_token_p95_s: float | None = None
    inter_token_p99_s: float | None = None
    total_s: float | None = None
    throughput_tok_s: float | None = None
    requests: list[dict[str, Any]] | None = None

    # What the server says about itself.
    engine_ttft_s: float | None = None
    engine_decode_tok_s: float | None = None
    stage_s: dict[str, float] | None = None
    mla_s: dict[str, float] | None = None
    mla_calls: dict[str, int] | None = None
    fallbacks: int | None = None

    # The machine meanwhile (bench/machine_state.py).
    machine: dict[str, Any] | None = None
    disturbed: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for two runs of the same thing, so that an interrupted benchmark knows what it has."""
        return (self.phase, self.setting, self.input_tokens, self.output_tokens, self.concurrency, self.prompts,
                self.comparison, self.side, self.pair, self.repeat)  # fmt: skip

    @property
    def counts(self) -> bool:
        """Whether this run's figures are used where undisturbed ones are asked for."""
        return self.status == "ok" and not self.disturbed

    @property
    def kind(self) -> str:
        """Layout and format, as tables name them."""
        return " ".join(part for part in (self.kv_layout, self.kv_format) if part) or self.server


@dataclass(kw_only=True)
class Judged:
    """What every sample of a quality measurement says: which model and cache, held against which."""

    model: str | None = None
    recipe: str | None = None
    synthetic: bool | None = None
    kv_layout: str | None = None
    kv_format: str | None = None
    against: str = ""
    source: str = ""  # of the text
    length: int = 0  # tokens before the position that is judged
    sample: int = 0
    at: str = ""

    @property
    def kind(self) -> str:
        return " ".join(part for part in (self.recipe, self.kv_layout, self.kv_format) if part)


@dataclass(kw_only=True)
class Divergence(Judged):
    """One segment of text at one length: KL divergence from the yardstick in nats, and whether the likeliest token is
    the same, at each of the last positions before `length`."""

    phase: Literal["divergence"] = "divergence"
    kl: list[float] = field(default_factory=list)
    same_top: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class Retrieval(Judged):
    """One question about a long text. depth: where the answer stands, 0 the beginning, 1 the end."""

    phase: Literal["retrieval"] = "retrieval"
    task: str = ""
    depth: float = 0.0
    right: bool = False


@dataclass(kw_only=True)
class Parting(Judged):
    """Where a greedy answer first differs from the yardstick's; None: not within `tokens`."""

    phase: Literal["parting"] = "parting"
    tokens: int = 0
    position: int | None = None


@dataclass(kw_only=True)
class Run:
    """The beginning of a command's results: what was started, where, and when."""

    phase: Literal["run"] = "run"
    at: str = ""
    command: str = ""
    version: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


Sample = Divergence | Retrieval | Parting
Record = Point | Divergence | Retrieval | Parting | Run
_TYPES: dict[str, type[Record]] = {
    "capacity": Point, "perf": Point, "divergence": Divergence, "retrieval": Retrieval, "parting": Parting, "run": Run
}  # fmt: skip


def as_dict(record: Record) -> dict[str, Any]:
    """Plain values without those that aren't known; floats to a sensible number of digits."""
    return {name: _rounded(value) for name, value in asdict(record).items() if value not in (None, [])}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return value


def read(path: Path) -> list[Record]:
    """All whole lines of a results file. Raises MindNanoError with file and line for anything else in it.

    A last line without an end is what a crash left: it is passed over. Unknown fields and phases are, too: they are
    of a later version.
    """
    found: list[Record] = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if len(line) > MOST_LINE:
                raise MindNanoError(
                    f"{path}:{number}: a line of {len(line)} bytes, expected at most {MOST_LINE}"
                )
            if line.endswith(b"\n") and line.strip() and (record := _parse(line, f"{path}:{number}")):
                found.append(record)
    return found


def _parse(line: bytes, where: str) -> Record | None:
    try:
        values = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MindNanoError(
            f"{where}: no JSON object ({shorten(str(error))}); is this a results file?"
        ) from None
    phase = values.get("phase") if isinstance(values, dict) else None
    if not isinstance(phase, str):
        raise MindNanoError(f"{where}: expected an object with a phase, got {shorten(values)}")
    if phase not in _TYPES:
        return None
    try:
        return msgspec.convert(values, _TYPES[phase])
    except msgspec.ValidationError as error:
        raise MindNanoError(f"{where}: {error}") from None


def read_folder(folder: Path) -> list[Record]:
    """The records of a results folder (every *.jsonl in it) or of one file."""
    if folder.is_file():
        return read(folder)
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    if not files:
        raise MindNanoError(f"{folder}: expected a results file or a folder with {FILE}, found none")
    return [record for path in files for record in read(path)]


def unmeasured(records: Iterable[Record]) -> list[Point]:
    """Points that a time budget left out and that nothing has measured since."""
    left: dict[tuple[Any, ...], Point] = {}
    have: set[tuple[Any, ...]] = set()
    for point in points(records):
        if point.status == "not_measured":
            left[(*point.key, bool(point.filled_tokens))] = point  # a context may be looked at, or filled too
            continue
        have.add((*point.key, False))
        if point.filled_tokens or point.status == "not_started":
            have.add((*point.key, True))
    return [point for key, point in left.items() if key not in have]


def points(records: Iterable[Record], phase: str | None = None) -> Iterator[Point]:
    return (r for r in records if isinstance(r, Point) and phase in (None, r.phase))


class Results:
    """A results file that this process adds to; nobody else does meanwhile (a lock)."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path = folder / FILE
            self._file = self.path.open("ab+")
        except OSError as error:
            raise MindNanoError(f"{folder}: can't write results there ({error.strerror})") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise MindNanoError(
                f"{self.path}: another benchmark is writing to it; wait for it, or use another --output-dir"
            ) from None
        with contextlib.ExitStack() as stack:  # unlocked again where the file can't be read
            stack.callback(self._file.close)
            self.records = read(self.path)
            self._drop_partial_line()
            stack.pop_all()

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _drop_partial_line(self) -> None:
        self._file.seek(0)
        data_end = 0
        for line in self._file:
            if line.endswith(b"\n"):
                data_end += len(line)
        self._file.truncate(data_end)

    def append(self, record: Record) -> None:
        """One line, on disk when this returns."""
        self.records.append(record)
        self._file.write(msgspec.json.encode(as_dict(record)) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def of(self, key: tuple[Any, ...]) -> list[Point]:
        """Runs of that key so far."""
        return [point for point in points(self.records) if point.key == key]


def field_names(kind: type[Record]) -> list[str]:
    return [one.name for one in fields(kind)]
