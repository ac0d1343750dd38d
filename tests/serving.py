"""A server as its user starts it, as a child process."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

LISTENING = re.compile(r"listening on (http://\S+)")


class Served:
    """`mindnano serve` with `options`. Started again, it has the same address."""

    def __init__(self, log, *options):
        self.log, self.options, self.port, self.child = log, options, 0, None

    def start(self):
        command = [
            sys.executable,
            "-m",
            "mindnano",
            "serve",
            *map(str, self.options),
            "--port",
            str(self.port),
        ]
        with self.log.open("wb") as log:
            path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
            self.child = subprocess.Popen(command, stderr=log, stdout=log, env=path)
        until = time.monotonic() + 60
        while not (found := LISTENING.search(self.log.read_text())):
            assert self.child.poll() is None and time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)
        self.url = found[1]
        self.port = int(self.url.rpartition(":")[2])
        return self

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return answer.headers, answer.read()

    def kill(self):
        """As a crash or a power cut ends it."""
        self.child.kill()
        self.child.wait()

    def stop(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(40)  # answers that run have 30 seconds
            except subprocess.TimeoutExpired:
                self.kill()
                raise
