#!/usr/bin/env python3
"""Context capacity and long inputs, with the command line of the reference's benchmark.

    python3 benchmarks/kv_context_benchmark.py --mode int8 --phase capacity --binary .venv/bin/mindnano \\
        --model full.mn --output-dir results

It starts its own servers and stops only those; it pauses no service and changes no clock. Check memory, power and
cooling first. Results are appended to OUTPUT_DIR/results.jsonl; given again, it goes on where it stopped. The same
measurements with more to choose from: `mindnano bench capacity` and `mindnano bench perf`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

MODES = ("bf16", "int8", "fp16")
CONTEXTS = "8K,16K,32K,64K,128K,256K"
INPUTS = "128,256,512,1K,2K,4K,8K,16K,32K,64K"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], epilog="\n".join(__doc__.split("\n")[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "--mode", required=True, choices=MODES, help="format of the KV cache; fp16 is experimental"
    )
    parser.add_argument("--phase", required=True, choices=("capacity", "perf"), help="what is measured")
    parser.add_argument("--binary", required=True, help="the mindnano program (or llama-server)")
    parser.add_argument("--model", required=True, help="packed file or checkpoint folder")
    parser.add_argument("--output-dir", required=True, help="folder of the results")
    parser.add_argument("--layout", default="expanded", choices=("expanded", "latent"),
                        help="layout of the KV cache (default: expanded, the reference's)")  # fmt: skip
    parser.add_argument("--contexts", default=CONTEXTS, help=f"of the capacity phase (default: {CONTEXTS})")
    parser.add_argument(
        "--fill-up-to", help="largest context of which half is filled, 0 for none (default: all)"
    )
    parser.add_argument("--inputs", default=INPUTS, help=f"of the perf phase (default: {INPUTS})")
    parser.add_argument("--output-tokens", default="64", help="at most (default: 64)")
    parser.add_argument(
        "--runs", type=int, default=1, help="of each input; four and more give intervals (default: 1)"
    )
    parser.add_argument("--prompts", default="digits", choices=("digits", "text"),
                        help="digits as the reference sends, or prose, code and figures (default: digits)")  # fmt: skip
    return parser.parse_args(arguments)


def command(options: argparse.Namespace) -> list[str]:
    """The same as a `mindnano bench` command."""
    words = [
        "bench", options.phase, options.model, "--binary", options.binary, "--kv", options.mode,
        "--kv-layout", options.layout, "--output-dir", options.output_dir,
    ]  # fmt: skip
    if options.phase == "capacity":
        words += ["--contexts", options.contexts]
        return words if options.fill_up_to is None else [*words, "--fill-up-to", options.fill_up_to]
    return [*words, "--inputs", options.inputs, "--outputs", options.output_tokens, "--rounds", str(options.runs),
            "--prompts", options.prompts]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        from mindnano.cli import main as mindnano
    except ImportError:
        here = Path(sys.argv[0])
        print(
            f"{here.name}: mindnano isn't installed for {sys.executable}; run `make demo` once, then "
            f".venv/bin/python {here} ...",
            file=sys.stderr,
        )
        return 2
    return mindnano(command(options))


if __name__ == "__main__":
    sys.exit(main())
