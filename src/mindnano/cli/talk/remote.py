"""A server as the partner: MindNano's, or in the main part any with OpenAI's interface."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from mindnano.cli.talk.partner import Ended, Entry, Event, Messages, Reading, Said, Thought
from mindnano.engine.timings import Timings
from mindnano.errors import MindNanoError, shorten

CONNECT_SECONDS = 10.0
SILENT_SECONDS = 120.0  # a server sends at least a comment every ten
MOST_LINE = 16 << 20  # bytes of one line of a stream
MOST_BODY = 64 << 20


class Remote:
    """Asks the server at `url`. params: OpenAI's parameters of every request."""

    def __init__(self, url: str, params: Mapping[str, Any], api_key: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError:  # not a number, or beyond 65535
            port = 0
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise MindNanoError(
                f"--url: expected an address such as http://127.0.0.1:8080, got {shorten(url)}"
            )
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port = parts.hostname, port
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self._params, self._url = dict(params), url
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._read_about(self._ask("GET", "/props"))

    def _read_about(self, props: Any) -> None:
        try:
            model, kv = props["model"], props["kv"]
            self.synthetic = bool(model["synthetic"])
            self.about = (
                f"{model['id']} at {self._url}, {model['recipe']}, context {props['context']}, KV {kv['layout']} "
                f"{kv['format']}, {props['slots']} slots"
            )
        except (KeyError, TypeError):
            raise MindNanoError(f"{self._url}: its /props is not a MindNano server's") from None

    def answer(self, messages: Messages, thinking: bool) -> Iterator[Event]:
        body = {
            "messages": messages,
            "stream": True,
            "progress": True,
            "chat_template_kwargs": {"enable_thinking": thinking},
            **self._params,
        }
        reason, timings = None, None
        response = self._request("POST", "/v1/chat/completions", body, stream=True)
        try:
            for kind, value in self._events(response):
                if kind == "mindnano.progress":
                    yield Reading(value["tokens_done"], value["tokens_total"], value["seconds_left"])
                    continue
                timings = value.get("timings") or timings
                for choice in value.get("choices") or []:
                    delta = choice.get("delta") or {}
                    if delta.get("reasoning_content"):
                        yield Thought(delta["reasoning_content"])
                    if delta.get("content"):
                        yield Said(delta["content"])
                    reason = choice.get("finish_reason") or reason
        finally:
            response.close()  # also stops the answer on the server
        if reason is None or timings is None:
            raise MindNanoError(f"{self._url}: the answer ended without a finish reason and timings")
        names = {field.name for field in dataclasses.fields(Timings)}
        yield Ended(reason, Timings(**{name: value for name, value in timings.items() if name in names}))

    def save(self, name: str, messages: Messages) -> int:
        return int(self._ask("POST", "/v1/sessions", {"name": name, "messages": messages})["tokens"])

    def load(self, name: str) -> tuple[Messages, int]:
        loaded = self._ask("POST", f"/v1/sessions/{quote(name, safe='')}/load", {})
        return loaded["messages"], loaded["reusable_tokens"]

    def sessions(self) -> list[Entry]:
        found = self._ask("GET", "/v1/sessions")["data"]
        return [Entry(one["name"], one["tokens"], one["bytes"], one.get("problem", "")) for one in found]

    def delete(self, name: str) -> None:
        self._ask("DELETE", f"/v1/sessions/{quote(name, safe='')}")

    def close(self) -> None:
        """Every request has its own connection."""

    def _request(self, method: str, path: str, body: Any = None, stream: bool = False) -> HTTPResponse:
        connection = self._kind(self._host, self._port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
            connection.sock.settimeout(SILENT_SECONDS)
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, self._base + path, data, self._headers)
            response = connection.getresponse()
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError | HTTPException):
                raise self._lost(error) from None
            raise
        if response.status >= 400:
            with response:
                raise MindNanoError(self._refusal(response))
        return response

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of an answer; None for an empty one."""
        try:
            with self._request(method, path, body) as response:
                text = response.read(MOST_BODY)
            return json.loads(text) if text else None
        except (OSError, HTTPException) as error:
            raise self._lost(error) from None
        except ValueError as error:
            if isinstance(error, MindNanoError):
                raise
            raise MindNanoError(f"{self._url}: answered {path} with something that isn't JSON") from None

    def _events(self, response: HTTPResponse) -> Iterator[tuple[str, Any]]:
        """(event's name, its data) of a stream until [DONE]; an error in it is raised."""
        name = ""
        try:
            while line := response.readline(MOST_LINE):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                field, _, value = text.partition(":")
                value = value.removeprefix(" ")
                if field == "event":
                    name = value
                elif field == "data":
                    if value == "[DONE]":
                        return
                    data = json.loads(value)
                    if data.get("error"):
                        raise MindNanoError(str(data["error"].get("message")))
                    yield name, data
                elif not text:
                    name = ""
        except (OSError, HTTPException) as error:
            raise self._lost(error) from None
        except (ValueError, AttributeError) as error:
            if isinstance(error, MindNanoError):
                raise
            raise MindNanoError(f"{self._url}: sent an event that isn't JSON") from None
        raise MindNanoError(f"{self._url}: the connection was lost in the middle of the answer")

    def _lost(self, error: Exception) -> MindNanoError:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return MindNanoError(f"{self._url}: {why}; is a server running there (mindnano serve)?")

    def _refusal(self, response: HTTPResponse) -> str:
        if response.status == 401:
            return f"{self._url}: it wants a key; give --api-key or set MINDNANO_API_KEY"
        try:
            return str(json.loads(response.read(MOST_BODY))["error"]["message"])
        except (ValueError, KeyError, TypeError):
            return f"{self._url}: HTTP {response.status} {response.reason}"
