"""The program as a child process, and on a terminal."""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl

RUN = [sys.executable, "-c", "import sys; from mindnano.cli import main; sys.exit(main())"]
NOTE = "synthetic model: random weights"


def environment():
    """So that a child finds the package where this process found it."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def run(*arguments, text="", timeout=120):
    return subprocess.run(
        [*RUN, *map(str, arguments)],
        input=text.encode(),
        capture_output=True,
        timeout=timeout,
        env=environment(),
    )


def last_json(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.decode().splitlines()[-1])


class Terminal:
    """A child on a pseudo terminal of 30 x 90, as a user has it. A dumb one can't move its cursor."""

    def __init__(self, *arguments, **own):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [*RUN, *map(str, arguments)], environment() | {"TERM": "dumb"} | own)
        ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        self.seen = ""

    def wait_for(self, pattern, timeout=60):
        until = time.perf_counter() + timeout
        while not (found := re.search(pattern, self.seen)):
            assert time.perf_counter() < until, f"no {pattern} in {self.seen[-3000:]!r}"
            if select.select([self.fd], [], [], 0.5)[0]:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
        self.seen = self.seen[found.end() :]
        return found

    def type(self, text):
        os.write(self.fd, text.encode())

    def interrupt_until(self, pattern, tries=20):
        """Ctrl-C at a prompt. Python's readline loses one that comes between the prompt and its wait for a key."""
        for left in reversed(range(tries)):
            self.type("\x03")
            try:
                self.wait_for(pattern, timeout=3)
                return
            except AssertionError:
                if not left:
                    raise

    def end(self, timeout=60):
        """The exit code, once the child has ended. One that doesn't end is killed, and the test fails."""
        until = time.perf_counter() + timeout
        try:
            while time.perf_counter() < until:
                if select.select([self.fd], [], [], 0.5)[0]:
                    self.seen += os.read(self.fd, 65536).decode(errors="replace")
            os.kill(self.pid, signal.SIGKILL)
        except OSError:  # a terminal whose other end is closed
            pass
        ended = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        assert time.perf_counter() < until, f"no end after {timeout} s; last: {self.seen[-3000:]!r}"
        return ended
