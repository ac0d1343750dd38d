"""Many clients at once, of every kind: patient ones, ones that leave, slow readers, and such as send nonsense."""

import contextlib
import json
import random
import socket
import threading
import time
from collections import Counter
from urllib.parse import urlsplit

import httpx2

from .running import events, user

TOOLS = [{"type": "function", "function": {"name": "set", "parameters": {
    "type": "object", "properties": {"unit": {"enum": ["C", "F"]}}, "required": ["unit"]}}}]  # fmt: skip
NONSENSE = (
    b"{", b"[]", b"\xff", b'{"messages": 1}', b'{"messages": [{"role": "user", "content": "x"}], "n": -1}',
    b'{"messages": [{"role": "user", "content": "x"}], "unknown": true}', b'{"a":' * 2000,
)  # fmt: skip
RAW = (b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n",
       b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{", b"\0" * 5000,
       b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n")  # fmt: skip


class Client(threading.Thread):
    """One client; `counts` says what became of its requests, `wrong` what should not have happened."""

    def __init__(self, url, seed, until):
        super().__init__(daemon=True)
        self.url, self.random, self.until = url, random.Random(seed), until
        self.counts, self.wrong = Counter(), []

    def run(self):
        actions = [
            self.whole,
            self.stream,
            self.leave,
            self.read_slowly,
            self.nonsense,
            self.raw,
            self.other,
            self.tools,
        ]
        with httpx2.Client(base_url=self.url, timeout=120) as self.http:
            while time.monotonic() < self.until:
                action = self.random.choice(actions)
                try:
                    action()
                except httpx2.HTTPError as error:
                    self.wrong.append(f"{action.__name__}: {type(error).__name__} {error}")

    def body(self, **more):
        words = self.random.randrange(1, 60)
        text = " ".join(self.random.choice(("small", "machine", "long", "input")) for _ in range(words))
        return {"messages": user(text), "max_tokens": self.random.randrange(1, 40)} | more

    def note(self, what, status, text=""):
        self.counts[f"{what} {status}"] += 1
        if status >= 500:
            self.wrong.append(f"{what}: {status} {text[:200]}")
        return status

    def whole(self):
        response = self.http.post("/v1/chat/completions", json=self.body(n=self.random.choice((1, 1, 2))))
        if self.note("whole", response.status_code, response.text) == 200:
            choices = response.json()["choices"]
            if not choices or any(choice["finish_reason"] not in ("stop", "length") for choice in choices):
                self.wrong.append(f"whole: {response.text[:200]}")
        elif response.status_code != 429:
            self.wrong.append(f"whole: {response.status_code} {response.text[:200]}")

    def stream(self, pause=0.0):
        with self.http.stream("POST", "/v1/chat/completions", json=self.body(stream=True)) as response:
            if self.note("stream", response.status_code) != 200:
                return
            found = []
            for name, data in events(response):
                if name is None:
                    found.append(data)
                time.sleep(pause)
        if found[-1] != "[DONE]" or json.loads(found[-2])["choices"][0]["finish_reason"] is None:
            self.wrong.append(f"stream: ended with {found[-2:]}")

    def read_slowly(self):
        self.stream(pause=self.random.uniform(0, 0.05))

    def leave(self):
        """In the queue, in the prompt or in the answer, as it happens."""
        body = self.body(stream=True, max_tokens=400, ignore_eos=True)
        if self.random.random() < 0.3:
            body["messages"] = user("a longer prompt " * 60)
        path, stays = "/v1/chat/completions", self.random.uniform(0, 0.3)
        where = urlsplit(self.url)
        data = json.dumps(body).encode()
        with socket.create_connection((where.hostname, where.port), timeout=10) as raw:
            raw.sendall(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
                + data
            )
            time.sleep(stays)
        self.counts["left"] += 1

    def nonsense(self):
        response = self.http.post("/v1/chat/completions", content=self.random.choice(NONSENSE))
        if self.note("nonsense", response.status_code, response.text) != 400:
            self.wrong.append(f"nonsense: {response.status_code}")

    def raw(self):
        where = urlsplit(self.url)
        with socket.create_connection((where.hostname, where.port), timeout=10) as raw:
            raw.sendall(self.random.choice(RAW))
            if self.random.random() < 0.5:
                raw.settimeout(0.05)
                with contextlib.suppress(OSError):
                    raw.recv(1000)
        self.counts["raw"] += 1

    def other(self):
        path, body = self.random.choice((
            ("/v1/completions", {"prompt": "small machine", "max_tokens": 5}),
            ("/v1/responses", {"input": "small machine", "max_output_tokens": 5}),
            ("/v1/messages", self.body()),
            ("/tokenize", {"prompt": "small machine"}),
            ("/v1/chat/completions", self.body(response_format={"type": "regex", "regex": "[a-z]{3}"})),
            ("/v1/chat/completions", {"messages": user("too long " * 400)}),
        ))  # fmt: skip
        self.note("other", self.http.post(path, json=body).status_code)
        self.note(
            "about",
            self.http.get(self.random.choice(("/health", "/props", "/metrics", "/v1/models"))).status_code,
        )

    def tools(self):
        response = self.http.post("/v1/chat/completions", json=self.body(tools=TOOLS, tool_choice="required"))
        self.note("tools", response.status_code, response.text)


def load(url, clients, seconds, seed=0):
    """What `clients` clients met in `seconds` seconds: counts, and what was wrong."""
    until = time.monotonic() + seconds
    threads = [Client(url, f"{seed} {number}", until) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 120)
    wrong = [line for thread in threads for line in thread.wrong]
    wrong += ["a client got no answer" for thread in threads if thread.is_alive()]
    return sum((thread.counts for thread in threads), Counter()), wrong
