"""`mindnano generate`: one completion."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from mindnano.cli.options import EngineOptions, Json, Model, SamplingOptions
from mindnano.errors import MindNanoError
from mindnano.textfile import read_text

MOST_PROMPT = 64 << 20  # bytes


def generate(
    model: Model = None,
    /,
    *,
    prompt: Annotated[
        str | None,
        Parameter(
            help="The text to go on from.", metavar="TEXT", allow_leading_hyphen=True, show_default=False
        ),
    ] = None,
    prompt_file: Annotated[
        str | None,
        Parameter(
            metavar="FILE",
            allow_leading_hyphen=True,
            help="A file with that text; - or neither option: standard input.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    sampling: SamplingOptions = SamplingOptions(),  # noqa: B008
    engine: EngineOptions = EngineOptions(),  # noqa: B008
) -> None:
    """Complete a text: streamed to stdout, speeds on stderr."""
    from mindnano.cli import output

    text = _prompt(prompt, prompt_file)
    with engine.open(model) as llm:
        params = sampling.params(llm.generation)
        if llm.synthetic and not json:
            output.note(output.SYNTHETIC)
        reading = output.PromptProgress()
        stream = llm.stream(
            text, params, lambda read: reading(read.tokens_done, read.tokens_total, read.seconds_left)
        )
        try:
            for delta in stream:
                reading.close()
                if not json:
                    sys.stdout.write(output.printable(delta.text, sys.stdout))
                    sys.stdout.flush()
        finally:
            reading.close()
            if not json:
                print(flush=True)
        done = stream.result
        if json:
            output.print_json(
                {
                    "command": "generate",
                    "synthetic": llm.synthetic,
                    **done.as_dict(),
                    "engine": llm.describe(),
                }
            )
        else:
            output.note(output.speeds(done.timings))


def _prompt(prompt: str | None, file: str | None) -> str:
    if prompt is not None and file is not None:
        raise MindNanoError("--prompt and --prompt-file: expected one of them, got both")
    if prompt is not None:
        return prompt
    if file is None and sys.stdin.isatty():
        raise MindNanoError("no prompt: use --prompt TEXT, --prompt-file FILE or standard input")
    return read_text(None if file in (None, "-") else Path(str(file)), MOST_PROMPT, "--prompt-file")
