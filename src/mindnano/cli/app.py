"""The program's commands, and what becomes of their errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from mindnano import __version__
from mindnano.cli import bench, calibrate, chat, convert, demo, doctor, generate, help, plan, serve, synth
from mindnano.cli.options import OPTIONS
from mindnano.errors import MindNanoError

DONE, USER_ERROR, INTERRUPTED, PIPE_CLOSED = (
    0,
    2,
    130,
    141,
)  # the last two: 128 + the signal, as shells say it


def build() -> App:
    """The command line, as `--help` and docs/cli.md show it."""
    app = App(
        name="mindnano",
        help="Long inputs on small machines: runs hybrid linear-attention language models on the CPU.\n\n"
        "MODEL is a checkpoint folder or a packed file; left out, the built-in model. Sizes can be written "
        "as 8K or 16GiB.",
        version=__version__,
        help_format="plaintext",
        group_parameters=OPTIONS,
        help_formatter=help.Formatter(),
    )
    app.command(demo.demo, sort_key=0)
    app.command(chat.chat, sort_key=1)
    app.command(generate.generate, sort_key=2)
    app.command(serve.serve, sort_key=3)
    app.command(plan.plan, sort_key=4)
    app.command(convert.convert, sort_key=5)
    app.command(synth.synth, sort_key=6)
    app.command(bench.build(sort_key=7))
    app.command(calibrate.calibrate, sort_key=8)
    app.command(doctor.doctor, sort_key=9)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status. User errors are one line on stderr."""
    try:
        for stream in (sys.stdout, sys.stderr):  # a model's text may not exist in an old terminal's encoding
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        result = build()(
            sys.argv[1:] if arguments is None else arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else DONE
    except (MindNanoError, CycloptsError) as error:
        return _fail(error.__cause__ if isinstance(error.__cause__, MindNanoError) else error)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except MemoryError:
        return _fail("out of memory; use a smaller --ctx, or close other programs")
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _fail(error: object) -> int:
    print(f"mindnano: {' '.join(str(error).split())}", file=sys.stderr)
    return USER_ERROR
