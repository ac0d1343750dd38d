"""One client of an OpenAI-compatible server: streaming chat requests with the times at which tokens came."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import pairwise
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from mindnano.bench.servers.facts import Facts, from_props
from mindnano.errors import MindNanoError, shorten

MOST_BODY = 64 << 20
# Forms of a request for counting tokens: MindNano and llama.cpp, vLLM, llama-cpp-python.
_TOKENIZE = (("/tokenize", "content"), ("/tokenize", "prompt"), ("/extras/tokenize", "input"))
# What makes runs comparable, as far as a server takes it: no end before the limit, no reuse, no thinking.
_EXTRAS: tuple[dict[str, Any], ...] = (
    {"ignore_eos": True, "cache_prompt": False, "chat_template_kwargs": {"enable_thinking": False}},
    {"ignore_eos": True, "chat_template_kwargs": {"enable_thinking": False}},
    {"ignore_eos": True},
    {},
)


class RequestError(MindNanoError):
    """The server refused or broke off; `status` is HTTP's, 0 for a connection that failed."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Answer:
    """One request's times in seconds, as the client saw them, and what the server said about it.

    decode_tok_s: tokens after the first, by the time between the first and the last piece. gaps: between pieces of
    text, which for most servers are tokens. timings: the server's own, as it gave them.
    """

    ttft_s: float | None = None
    total_s: float = 0.0
    decode_tok_s: float | None = None
    gaps: list[float] = field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    timings: dict[str, Any] = field(default_factory=dict)
    began: float = 0.0
    ended: float = 0.0

    def gap(self, percentile: float) -> float | None:
        return float(np.percentile(self.gaps, percentile)) if self.gaps else None


class Client:
    """Requests to one server, one connection each. Safe to use from several threads."""

    def __init__(self, url: str, api_key: str | None = None, timeout: float = 7200.0) -> None:
        parts = urlsplit(url)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname or "", parts.port
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self.timeout = timeout
        self._extras: dict[str, Any] | None = None
        self._tokenize: tuple[str, str] | None = None
        self.model: str | None = None

    def _request(
        self, method: str, path: str, body: Any = None, timeout: float | None = None
    ) -> HTTPResponse:
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout or self.timeout)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, self._prefix + path, data, self._headers)
            response = connection.getresponse()
        except (OSError, HTTPException) as error:
            connection.close()
            raise RequestError(f"{self._host}:{self._port}: {error or type(error).__name__}") from None
        if response.status >= 400:
            with response:
                raise RequestError(
                    f"{method} {path}: HTTP {response.status}, {_message(response.read(MOST_BODY))}",
                    response.status,
                )
        return response

    def call(self, method: str, path: str, body: Any = None, timeout: float | None = None) -> Any:
        """The JSON of an answer. Raises RequestError."""
        try:
            with self._request(method, path, body, timeout) as response:
                return json.loads(response.read(MOST_BODY))
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, RequestError):
                raise
            raise RequestError(f"{method} {path}: {error or type(error).__name__}") from None

    def ready(self) -> bool:
        """Whether requests would be answered now: /health, or where there is none the list of models."""
        for path in ("/health", "/v1/models"):
            try:
                with self._request("GET", path, timeout=10):
                    return True
            except RequestError as error:
                if error.status != 404:
                    return False
        return False

    def facts(self) -> Facts:
        try:
            return from_props(self.call("GET", "/props", timeout=30))
        except RequestError:
            return Facts()

    def count(self, text: str) -> int:
        """Tokens of a text by the server's own tokenizer. RequestError with status 404 where it has no such door."""
        for path, name in [self._tokenize] if self._tokenize else _TOKENIZE:
            try:
                answer = self.call("POST", path, {name: text})
            except RequestError as error:
                if self._tokenize or error.status not in (400, 404, 405, 422, 501):
                    raise
                continue
            tokens = answer.get("tokens") if isinstance(answer, Mapping) else None
            if isinstance(tokens, list):
                self._tokenize = (path, name)
                return len(tokens)
        raise RequestError("the server can't count tokens (no /tokenize)", 404)

    def settle(self, text: str, tokens: int) -> Answer:
        """Ask once, and find out on the way which of the extra parameters the server takes."""
        if self.model is None:
            self.model = self._first_model()
        for extras in _EXTRAS:
            try:
                answer = self.ask(text, tokens, extras)
            except RequestError as error:
                if error.status not in (400, 422) or extras is _EXTRAS[-1]:
                    raise
                continue
            self._extras = extras
            return answer
        raise AssertionError("unreachable")

    @property
    def to_the_limit(self) -> bool:
        """Whether answers go on to the token limit."""
        return bool(self._extras and self._extras.get("ignore_eos"))

    def _first_model(self) -> str | None:
        try:
            data = self.call("GET", "/v1/models", timeout=30)["data"]
            return str(data[0]["id"])
        except (RequestError, LookupError, TypeError):
            return None

    def ask(self, text: str, tokens: int, extras: Mapping[str, Any] | None = None) -> Answer:
        """A streamed chat request of at most `tokens` tokens, greedy. Raises RequestError."""
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, **((self._extras or {}) if extras is None else extras),
        }  # fmt: skip
        if self.model is not None:
            body["model"] = self.model
        answer = Answer(began=perf_counter())
        pieces: list[float] = []
        try:
            with self._request("POST", "/v1/chat/completions", body) as response:
                for event in _events(response):
                    _take(event, answer, pieces)
        except (OSError, HTTPException) as error:
            raise RequestError(f"the answer broke off: {error or type(error).__name__}") from None
        answer.ended = perf_counter()
        answer.total_s = answer.ended - answer.began
        if pieces:
            answer.ttft_s = pieces[0] - answer.began
            answer.gaps = [later - earlier for earlier, later in pairwise(pieces)]
            if len(pieces) > 1 and (answer.completion_tokens or 0) > 1:
                answer.decode_tok_s = ((answer.completion_tokens or 0) - 1) / (pieces[-1] - pieces[0])
        return answer

    def ask_together(self, texts: Sequence[str], tokens: int) -> list[Answer]:
        """All of them at once, a thread each. Raises the first RequestError."""
        answers: list[Answer | BaseException] = [RequestError("not answered")] * len(texts)

        def one(at: int) -> None:
            try:
                answers[at] = self.ask(texts[at], tokens)
            except BaseException as error:  # raised again where it is seen
                answers[at] = error

        threads = [threading.Thread(target=one, args=(at,), daemon=True) for at in range(len(texts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if isinstance(answer, Answer)]


def _events(response: HTTPResponse) -> Any:
    """The JSON of each server-sent event, until [DONE] or the end."""
    data: list[bytes] = []
    while line := response.readline(MOST_BODY):
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line[5:].strip())
        elif not line and data:
            text, data = b"\n".join(data), []
            if text == b"[DONE]":
                return
            try:
                yield json.loads(text)
            except ValueError:
                raise RequestError(f"the stream has an event that is no JSON: {shorten(text)}") from None


def _take(event: Any, answer: Answer, pieces: list[float]) -> None:
    """Book one event of the stream."""
    if not isinstance(event, Mapping):
        return
    if isinstance(event.get("error"), Mapping):
        raise RequestError(f"the server reports {shorten(event['error'].get('message'), 300)}", 500)
    for choice in event.get("choices") or []:
        delta = choice.get("delta") or {}
        if delta.get("content") or delta.get("reasoning_content"):
            pieces.append(perf_counter())
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    if isinstance(usage := event.get("usage"), Mapping):
        answer.prompt_tokens = usage.get("prompt_tokens")
        answer.completion_tokens = usage.get("completion_tokens")
        details = usage.get("prompt_tokens_details")
        if isinstance(details, Mapping):
            answer.cached_tokens = details.get("cached_tokens")
    if isinstance(timings := event.get("timings"), Mapping):
        answer.timings = dict(timings)


def _message(body: bytes) -> str:
    """An error object's message, or the beginning of what came instead."""
    try:
        error = json.loads(body)["error"]
        return shorten(error["message"] if isinstance(error, Mapping) else error, 300)
    except (ValueError, LookupError, TypeError):
        return shorten(body.decode("utf-8", "replace"), 200)
