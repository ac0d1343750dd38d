"""Completions of a running server, streamed on threads, with the times at which their pieces came."""

from __future__ import annotations

import http.client
import json
import threading
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from mindnano.errors import MindNanoError


def connect(url: str) -> http.client.HTTPConnection:
    where = urlsplit(url)
    return http.client.HTTPConnection(where.hostname or "127.0.0.1", where.port or 80, timeout=3600)


def get(url: str, path: str) -> bytes:
    """The body of a GET. Raises MindNanoError where the server doesn't answer."""
    connection = connect(url)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        data = response.read()
    except OSError as error:
        raise MindNanoError(f"{url}: no answer ({error})") from None
    finally:
        connection.close()
    if response.status != 200:
        raise MindNanoError(f"{url}{path}: status {response.status}: {data[:200].decode('utf-8', 'replace')}")
    return data


@dataclass
class Stream:
    """One streamed completion on a thread of its own. times: when each piece of text came (perf_counter)."""

    url: str
    body: dict[str, Any]
    times: list[float] = field(default_factory=list)
    timings: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    def __post_init__(self) -> None:
        self.begin = perf_counter()
        self._connection = connect(self.url)
        self._started = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for(self, pieces: int) -> None:
        """Until so many pieces have come, or the stream has ended."""
        with self._started:
            self._started.wait_for(lambda: len(self.times) >= pieces or not self._thread.is_alive())

    def stop(self) -> None:
        """Leave, as a client does that has seen enough."""
        self._stopping = True
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._thread.join()

    def join(self) -> None:
        """Until its end. Raises MindNanoError where there was none."""
        self._thread.join()
        if self.error:
            raise MindNanoError(f"{self.url}: {self.error}")

    def _run(self) -> None:
        try:
            body = json.dumps(self.body | {"stream": True})
            self._connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            response = self._connection.getresponse()
            if response.status != 200:
                self.error = f"status {response.status}: {response.read()[:200].decode('utf-8', 'replace')}"
                return
            for line in response:
                if line.startswith(b"data: {"):
                    self._take(json.loads(line[6:]))
        except (OSError, ValueError, http.client.HTTPException) as error:
            if not self._stopping:
                self.error = str(error)
        finally:
            self._connection.close()
            with self._started:
                self._started.notify_all()

    def _take(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            self.error = str(chunk["error"].get("message"))
        if any(choice.get("text") for choice in chunk.get("choices", ())):
            with self._started:
                self.times.append(perf_counter())
                self._started.notify_all()
        self.timings = chunk.get("timings", self.timings)
