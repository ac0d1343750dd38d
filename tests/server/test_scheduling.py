"""The queue, cancelling, and stopping."""

import asyncio
import contextlib
import json
import signal
import socket
import threading
import time

import httpx2
import pytest

from mindnano.server.sse import ClientGone, EventStream, while_connected

from .running import Live, ScriptedLLM, Started, until, user

LONG = {"max_tokens": 1500, "ignore_eos": True, "stream": True}


@pytest.fixture
def small(model):
    """Two slots, two places in the queue."""
    with ScriptedLLM(model, context=2048, slots=2, cache_budget=0) as llm:
        live = Live(llm, queue=2)
        yield live
        live.stop()


class Talk(threading.Thread):
    """A streamed completion on a thread; `leave` closes its connection."""

    def __init__(self, live, text="x", **body):
        super().__init__(daemon=True)
        self.live, self.body = live, LONG | {"messages": user(text)} | body
        self.status, self.chunks, self.error, self._leaving = None, [], None, threading.Event()
        self._socket = None
        self.start()

    def run(self):
        try:
            with (
                self.live.client() as client,
                client.stream("POST", "/v1/chat/completions", json=self.body) as response,
            ):
                self.status = response.status_code
                self._socket = response.extensions["network_stream"].get_extra_info("socket")
                if self.status != 200:
                    self.error = json.loads(response.read())["error"]
                    return
                for line in response.iter_lines():
                    if self._leaving.is_set():
                        return
                    if line.startswith("data: {"):
                        self.chunks.append(json.loads(line[6:]))
        except httpx2.HTTPError as error:
            self.error = error

    @property
    def said(self):
        return sum(bool(c["choices"][0]["delta"].get("content")) for c in self.chunks if c.get("choices"))

    @property
    def end(self):
        return [c["choices"][0]["finish_reason"] for c in self.chunks if c.get("choices")][-1]

    def leave(self):
        """Close the connection in the middle."""
        assert until(lambda: self._socket is not None or not self.is_alive())
        self._leaving.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self.join(10)
        assert not self.is_alive()


def running(live):
    return live.llm.slots - live.llm.free_slots


def test_a_full_queue_is_429_with_a_time_to_try_again(small):
    talks = [Talk(small, str(i)) for i in range(2)]
    assert until(lambda: running(small) == 2 and all(talk.said for talk in talks))
    waiting = [Talk(small, f"w{i}") for i in range(2)]
    assert until(lambda: small.service.engine.waiting == 2)
    with small.client() as client:
        refused = client.post("/v1/chat/completions", json={"messages": user("too many")})
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "queue_full" and "2" in refused.json()["error"]["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 600
        assert client.post("/v1/chat/completions", json={"messages": user("x"), "n": 2}).status_code == 429
        other = client.post("/v1/messages", json={"messages": user("x"), "max_tokens": 1})
        assert other.status_code == 429 and other.json()["error"]["type"] == "rate_limit_error"
    for talk in talks:
        talk.leave()
    assert until(lambda: all(talk.said for talk in waiting))
    for talk in waiting:
        talk.leave()
    assert small.idle()


def test_who_leaves_the_queue_is_forgotten_and_nobody_else(small):
    talks = [Talk(small, str(i)) for i in range(2)]
    assert until(lambda: all(talk.said for talk in talks))
    first, second = Talk(small, "waits and leaves"), Talk(small, "waits")
    assert until(lambda: small.service.engine.waiting == 2)
    first.leave()
    assert until(lambda: small.service.engine.waiting == 1, 2)
    with small.client() as client, pytest.raises(httpx2.ReadTimeout):  # one that isn't streamed
        client.post("/v1/chat/completions", json={"messages": user("y"), "max_tokens": 5}, timeout=0.3)
    assert until(lambda: small.service.engine.waiting == 1, 2)
    for talk in talks:
        talk.leave()
    assert until(lambda: second.said > 3)
    second.leave()
    assert small.idle()


def test_who_leaves_in_decode_frees_the_slot_and_stops_nobody_else(small):
    one, two = Talk(small, "one"), Talk(small, "two", max_tokens=300)
    assert until(lambda: one.said > 3 and two.said > 3)
    one.leave()
    assert until(lambda: running(small) <= 1, 2)
    two.join(30)
    assert two.end == "length" and two.chunks[-1]["timings"]["completion_tokens"] == 300
    assert small.idle()


def test_who_leaves_in_a_prompt_stops_it(small):
    text = "a prompt of two thousand tokens " * 60
    for _ in range(3):
        with small.client() as client, client.stream(
            "POST", "/v1/chat/completions", json={"messages": user(text), "stream": True, "progress": True}
        ) as response:  # fmt: skip
            lines = response.iter_lines()
            assert until(lambda lines=lines: next(lines) == "event: mindnano.progress")
        assert until(lambda: running(small) == 0, 2)
    before = small.llm.busy_seconds["prefill"]
    time.sleep(0.1)
    assert small.llm.busy_seconds["prefill"] == before
    with small.client() as client:
        done = client.post("/v1/chat/completions", json={"messages": user(text), "max_tokens": 1})
        assert done.status_code == 200


def test_answers_beside_each_other_are_those_of_each_alone(small):
    texts = [f"question {i} " * (10 * i + 1) for i in range(4)]
    more = {"max_tokens": 12, "temperature": 0}
    together = [Talk(small, text, **more) for text in texts]
    for talk in together:
        talk.join(30)
    for text, talk in zip(texts, together, strict=True):
        alone = Talk(small, text, **more)
        alone.join(30)
        said = [
            "".join(c["choices"][0]["delta"].get("content") or "" for c in t.chunks) for t in (talk, alone)
        ]
        assert said[0] == said[1] and len(said[0]) > 3


def test_a_failing_answer_ends_alone(small, monkeypatch):
    other = Talk(small, "goes on", max_tokens=400)
    assert until(lambda: other.said > 3)
    small.llm.script = "x"
    with small.client() as client:
        body = {"messages": user("x"), "response_format": {"type": "regex", "regex": "[0-9]+"}}
        from mindnano.errors import MindNanoError
        from tests.server import running as here

        def forbidden(self):
            raise MindNanoError("grammar: can't be followed further")

        monkeypatch.setattr(here.Script, "allowed", forbidden)
        response = client.post("/v1/chat/completions", json=body)
        assert response.status_code == 400 and "can't be followed" in response.json()["error"]["message"]
    small.llm.script = None
    other.join(30)
    assert other.end == "length"


def test_a_failing_engine_ends_what_runs_and_goes_on(small, monkeypatch):
    talks = [Talk(small, str(i)) for i in range(3)]
    assert until(lambda: running(small) == 2)

    def broken(*_):
        raise RuntimeError("broken")

    decode = small.llm._model.decode
    monkeypatch.setattr(small.llm._model, "decode", broken)
    for talk in talks:
        talk.join(10)
    monkeypatch.setattr(small.llm._model, "decode", decode)
    assert all(talk.chunks[-1]["error"]["type"] == "server_error" for talk in talks[:2])
    assert small.idle()
    with small.client() as client:
        done = client.post("/v1/chat/completions", json={"messages": user("x"), "max_tokens": 2})
        assert done.status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_answers_finish(model, number):
    server = Started(model, "--ctx", "2K", "--session-dir", "none")
    talk = Talk(server, "finish", max_tokens=600)
    assert until(lambda: talk.said > 2)
    assert server.stop(number) == (0 if number == signal.SIGTERM else 130)
    talk.join(5)
    assert talk.end == "length" and talk.chunks[-1]["timings"]["completion_tokens"] == 600


def test_what_isnt_done_in_time_is_cancelled_and_told(model):
    server = Started(model, "--ctx", "2K", "--session-dir", "none", "--grace", "0.3", "--slots", "1")
    talk = Talk(server, "long")
    assert until(lambda: talk.said > 2)
    waiting = Talk(server, "waits", stream=False)
    time.sleep(0.2)
    assert server.stop() == 0
    talk.join(5)
    waiting.join(5)
    assert talk.chunks[-1]["error"]["code"] == "stopping"
    assert waiting.status == 503 and waiting.error["code"] == "stopping"


def test_nothing_new_is_taken_while_stopping(small):
    talk = Talk(small, "x", max_tokens=800)
    assert until(lambda: talk.said > 2)
    small.service.engine.stopping = True
    with small.client() as client:
        refused = client.post("/v1/chat/completions", json={"messages": user("x"), "max_tokens": 1})
        assert refused.status_code == 503 and "retry-after" in refused.headers
        assert client.get("/health").status_code == 503
    small.service.engine.stopping = False
    talk.leave()


def test_a_half_sent_request_is_given_up(small, monkeypatch):
    from mindnano.server import run

    monkeypatch.setattr(run, "IDLE_SECONDS", 0.2)
    with socket.create_connection(small.listener.getsockname()) as raw:
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: local")
        raw.settimeout(5)
        assert raw.recv(100) == b""
    with socket.create_connection(small.listener.getsockname()) as raw:
        raw.settimeout(5)
        assert raw.recv(100) == b""


def test_a_stream_that_never_began_is_ended_too():
    """A client that has gone before its first event: the generator's own clean-up never runs."""
    ended = []

    async def never():
        try:
            yield b"x"
        finally:
            ended.append("generator")

    async def gone():
        return {"type": "http.disconnect"}

    async def refuse(_):
        raise OSError

    stream = EventStream(never(), lambda: ended.append("after"))
    with pytest.raises(OSError):
        asyncio.run(stream({"type": "http"}, gone, refuse))
    assert ended == ["after"]


def test_work_for_a_client_that_has_gone_is_cancelled():
    ended = []

    async def work():
        await asyncio.sleep(60)

    class Request:
        async def receive(self):
            return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        asyncio.run(while_connected(Request(), work(), lambda: ended.append("after")))
    assert ended == ["after"]


def test_what_is_no_http_is_told_so(small):
    with socket.create_connection(small.listener.getsockname()) as raw:
        raw.sendall(b"hello\r\n\r\n")
        head, body = raw.makefile("rb").read().split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["code"] == "invalid_http"
