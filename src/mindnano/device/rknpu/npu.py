"""The open NPU: the library, a thread for each core, and what became of it after failures."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any

from mindnano.device.rknpu.binding import (
    OLDEST,
    PLACES,
    VARIABLE,
    Library,
    NpuError,
    NpuUnavailable,
    NpuUnfit,
    find_library,
    parse_version,
)
from mindnano.device.rknpu.contexts import Arena, CoreContexts
from mindnano.device.rknpu.selftest import self_test

CORES = 3
PATIENCE_S = 30.0  # a job takes a fraction of a second; the library's own time-out comes first
PROBE_BYTES = 64 << 20
MOST_FAILURES = 3  # in a row, after which the NPU isn't asked any more

Job = Callable[[CoreContexts], Any]


class Core:
    """One NPU core and the thread that alone touches its contexts. A daemon: a hung call must not keep the process."""

    def __init__(self, library: Library, index: int) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Job] | None] = queue.SimpleQueue()
        self._library, self._index = library, index
        self.contexts: CoreContexts | None = None
        self._thread = threading.Thread(target=self._work, name=f"rknpu-{index}", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, job))
        return future

    def stop(self) -> None:
        self._jobs.put(None)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            future, job = item
            try:
                if self.contexts is None:
                    self.contexts = CoreContexts(self._library, self._index)
                future.set_result(job(self.contexts))
            except BaseException as error:
                future.set_exception(error)


class Npu:
    """The NPU of this machine. `runtime` and `driver` are versions as the library tells them; `off` is why it isn't
    used any more, or None."""

    def __init__(self, path: str | None = None) -> None:
        path = path or find_library()
        if path is None:
            raise NpuUnavailable(
                f"librknnrt.so was not found in {', '.join(PLACES)}; set {VARIABLE} to its path"
            )
        self._library = Library(path)
        self.path = path
        self.off: str | None = None
        self.patience_s = PATIENCE_S
        self._failures = 0
        self._cores = [Core(self._library, index) for index in range(CORES)]
        try:
            self.runtime, self.driver = self._open()
            self.patience_s *= 10 if self.emulated else 1  # an emulation computes what it claims to
        except BaseException:
            self.close()
            raise

    def _open(self) -> tuple[str, str]:
        try:
            runtime, driver = self.run([lambda c: self._library.versions(c.handle)])[0]
            version = parse_version(runtime)
            if version is None or version < OLDEST:
                raise NpuUnavailable(
                    f"RKNN runtime {runtime!r} is too old: 2.1 or later is needed, 2.3.2 is best"
                )
            self.run([self_test] * CORES)
        except NpuUnavailable:
            raise
        except NpuError as error:
            raise NpuUnavailable(
                f"{error}; is the rknpu driver loaded, and may this user open its device (/dev/dri/renderD*, group "
                "render, or /dev/rknpu)?"
            ) from None
        return runtime, driver

    @property
    def emulated(self) -> bool:
        """Whether the library says that it is an emulation."""
        return "emulat" in self.runtime.lower()

    @property
    def name(self) -> str:
        return "rknpu (emulated)" if self.emulated else "rknpu"

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the NPU sees."""
        return sum(core.contexts.nbytes for core in self._cores if core.contexts is not None)

    def run(self, jobs: Sequence[Job | None]) -> list[Any]:
        """Job i on core i, all at once; their results. Raises the first error once all are done.

        A core that doesn't answer is given up, and the NPU with it: its thread may still be inside the library.
        """
        if self.off is not None:
            raise NpuError(self.off)
        futures = [core.submit(job) for core, job in zip(self._cores, jobs, strict=False) if job is not None]
        if wait(futures, self.patience_s).not_done:
            self.off = f"a core did not answer within {self.patience_s:g} s"
            raise NpuError(self.off)
        for future in futures:
            error = future.exception()
            if error is not None:
                raise error
        return [future.result() for future in futures]

    def mappable(self, most: int) -> int:
        """Bytes up to `most` that can be mapped for the NPU now, found by trying; of 4 GiB of address space."""

        def probe(contexts: CoreContexts) -> int:
            arenas: list[Arena] = []
            try:
                while (len(arenas) + 1) * PROBE_BYTES <= most:
                    arenas.append(contexts.arena(PROBE_BYTES))
            except NpuError:
                pass
            for arena in arenas:
                contexts.drop(arena)
            return len(arenas) * PROBE_BYTES

        return int(self.run([probe])[0])

    def failed(self, error: NpuError) -> None:
        """Take note of a failure; contexts are made anew, and after a few failures in a row the NPU is off."""
        if isinstance(error, NpuUnfit) or self.off is not None:
            return
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            self.off = f"{self._failures} failures in a row, the last: {error}"
            return
        try:
            self.run([lambda contexts: contexts.close_products()] * CORES)
        except NpuError as another:
            self.off = f"{error}; then {another}"

    def succeeded(self) -> None:
        self._failures = 0

    def __del__(self) -> None:
        if getattr(self, "_cores", None):
            self.close()

    def close(self) -> None:
        """Give everything back. Cores that don't answer are left to the end of the process."""
        if self.off is None or "did not answer" not in self.off:
            opened = [core for core in self._cores if core.contexts is not None]
            wait([core.submit(lambda contexts: contexts.close()) for core in opened], self.patience_s)
        for core in self._cores:
            core.stop()
        self._cores = []
        self.off = self.off or "closed"
