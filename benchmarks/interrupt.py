#!/usr/bin/env python3
"""How long does Ctrl-C take during a long prefill? Starts `mindnano generate` on a long prompt, interrupts it, waits.

python benchmarks/interrupt.py MODEL [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep


def heed() -> None:
    """A job in the background of a script starts with SIGINT ignored, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Seconds from Ctrl-C to the end, in the middle of a prefill."
    )
    parser.add_argument("model", help="a packed file or checkpoint folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--after", type=float, default=4.0, help="seconds from the start to Ctrl-C")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prompt = Path(folder) / "prompt.txt"
        prompt.write_text("The quick brown fox jumps over the lazy dog. " * 400)
        command = [sys.executable, "-m", "mindnano", "generate", options.model, "--prompt-file", str(prompt)]
        for number in range(options.rounds):
            process = subprocess.Popen(
                [*command, "--ctx", "32K", "--kv", "int8"], stdout=subprocess.DEVNULL, preexec_fn=heed
            )
            sleep(options.after + 0.37 * number)  # not always at the same place
            running = process.poll() is None
            begin = perf_counter()
            process.send_signal(signal.SIGINT)
            status = process.wait()
            print(
                json.dumps(
                    {"seconds": round(perf_counter() - begin, 2), "running": running, "status": status}
                )
            )


if __name__ == "__main__":
    main()
