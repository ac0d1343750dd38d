"""Running servers for tests: in this process with an engine that can be told what to say, or as a user starts one."""

import asyncio
import os
import re
import subprocess
import sys
import threading
import time

import httpx2
import numpy as np

from mindnano import LLM
from mindnano.server.run import address_of, bind, make_server
from mindnano.server.settings import Settings


class Script:
    """A TokenMask that allows one text and then the end. What a grammar beside it forbids is an error."""

    def __init__(self, tokens, vocabulary, inner):
        self.tokens, self.vocabulary, self.inner = list(tokens), vocabulary, inner

    def allowed(self):
        allowed = None if self.inner is None else self.inner.allowed()
        assert allowed is None or allowed[self.tokens[0]], (
            f"forbidden: {self.tokens[0]}, {len(self.tokens)} left"
        )
        only = np.zeros(self.vocabulary, bool)
        only[self.tokens[0]] = True
        return only

    def accept(self, token):
        self.tokens.pop(0)
        if self.inner is not None:
            self.inner.accept(token)


class ScriptedLLM(LLM):
    """An engine that really computes, but says `script` where there is one: the model itself is random."""

    script = None
    prompts = ()  # of the requests so far, as text
    params = ()

    def request(self, prompt, params, *, mask=None, **more):
        self.prompts = (*self.prompts, self.tokenizer.decode(prompt, skip_special=False))
        self.params = (*self.params, params)
        if self.script is not None:
            tokens = [*self.tokenizer.encode(self.script), self.tokenizer.eos_token_ids[0]]
            mask = Script(tokens, self.config.vocab_size, mask)
        return super().request(prompt, params, mask=mask, **more)


class Live:
    """A server on a thread of this process."""

    def __init__(self, llm, **settings):
        self.llm = llm
        self.settings = Settings(**{"port": 0, "name": "tiny", "grace": 10.0} | settings)
        self.listener = bind(self.settings)
        self.url = address_of(self.listener)
        self.server = make_server(llm, self.settings)
        self.service = self.server.service
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 10
        while not self.server.started and time.monotonic() < deadline:
            time.sleep(0.01)

    def _run(self):
        asyncio.run(self.server.serve(sockets=[self.listener]))

    def client(self, **more):
        return httpx2.Client(base_url=self.url, timeout=60, **more)

    def idle(self, seconds=10):
        """Wait until nothing runs or waits."""
        return until(lambda: self.llm.idle and not self.service.engine.jobs, seconds)

    def stop(self):
        self.server.handle_exit(15, None)
        self.thread.join(20)
        assert not self.thread.is_alive()


class Started:
    """`mindnano serve` as a process of its own."""

    def __init__(self, *options, env=None):
        command = [sys.executable, "-m", "mindnano", "serve", *map(str, options), "--port", "0"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | (env or {})
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.lines, self._listening = [], threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listening.wait(60)
        assert self.url is not None, self.log

    url = None

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"listening on (\S+)", line):
                self.url = found[1]
                self._listening.set()
        self._listening.set()

    @property
    def log(self):
        return "".join(self.lines)

    def client(self, **more):
        return httpx2.Client(base_url=self.url, timeout=60, **more)

    def stop(self, signal=15):
        """Its exit status."""
        self.process.send_signal(signal)
        status = self.process.wait(60)
        self._reader.join(10)
        return status


def until(true, seconds=10):
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def events(response):
    """The events of a stream: (name or None, data text) each; comments as (":", text)."""
    name = None
    for line in response.iter_lines():
        if line.startswith(":"):
            yield ":", line[1:].strip()
        elif line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, line[6:]
            name = None


def user(text):
    return [{"role": "user", "content": text}]
