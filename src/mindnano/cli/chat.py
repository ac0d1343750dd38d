"""`mindnano chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from mindnano.cli.options import EngineOptions, Model, SamplingOptions


def chat(
    model: Model = None,
    /,
    *,
    system: Annotated[
        str | None, Parameter(metavar="TEXT", help="System message.", show_default=False)
    ] = None,
    think: Annotated[
        bool, Parameter(negative="", help="Start with thinking on.", show_default=False)
    ] = False,
    session_dir: Annotated[
        str | None,
        Parameter(
            metavar="DIR",
            help="Where /save and /load keep sessions.",
            show_default="~/.local/share/mindnano/sessions",
        ),
    ] = None,
    sampling: SamplingOptions = SamplingOptions(),  # noqa: B008
    engine: EngineOptions = EngineOptions(),  # noqa: B008
) -> None:
    """Talk to a model. /help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves."""
    from mindnano.cli import output
    from mindnano.cli.conversation import Conversation

    with engine.open(model) as llm:
        conversation = Conversation(llm, sampling.params(llm.generation), session_dir)
        conversation.system(system or "")
        conversation.thinking = think
        about = llm.describe()
        output.note(
            f"{about['model']}, {about['recipe']}, context {about['context']}, KV {about['kv_layout']} "
            f"{about['kv_format']}, {about['threads']} threads; /help for help"
        )
        if llm.synthetic:
            output.note(output.SYNTHETIC)
        conversation.run(interactive=sys.stdin.isatty())
