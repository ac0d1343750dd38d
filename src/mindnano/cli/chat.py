"""`mindnano chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mindnano.cli.options import EngineOptions, Model, SamplingOptions, parse_biases
from mindnano.errors import MindNanoError

if TYPE_CHECKING:
    from mindnano.cli.talk.partner import Partner


def chat(
    model: Model = None,
    /,
    *,
    url: Annotated[
        str | None,
        Parameter(
            metavar="URL",
            help="Talk to a server there (mindnano serve) instead of opening a model.",
            show_default=False,
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        Parameter(metavar="KEY", help="The server's key.", env_var="MINDNANO_API_KEY", show_default=False),
    ] = None,
    system: Annotated[
        str | None, Parameter(metavar="TEXT", help="System message.", show_default=False)
    ] = None,
    think: Annotated[
        bool, Parameter(negative="", help="Start with thinking on.", show_default=False)
    ] = False,
    plain: Annotated[
        bool, Parameter(negative="", help="Show answers as they come, not as Markdown.", show_default=False)
    ] = False,
    session_dir: Annotated[
        str | None,
        Parameter(
            metavar="DIR",
            help="Where /save and /load keep sessions; with --url the server has its own.",
            show_default="~/.local/share/mindnano/sessions",
        ),
    ] = None,
    sampling: SamplingOptions = SamplingOptions(),  # noqa: B008
    engine: EngineOptions = EngineOptions(),  # noqa: B008
) -> None:
    """Talk to a model. /help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves."""
    from mindnano.cli import output
    from mindnano.cli.conversation import Conversation

    if sampling.logprobs is not None:
        raise MindNanoError("--logprobs: a conversation shows none; use mindnano generate --json")
    if url is None:
        partner = _local(model, session_dir, sampling, engine)
    else:
        partner = _remote(url, api_key, model, session_dir, sampling, engine)
    try:
        conversation = Conversation(partner, think, markdown=not plain)
        conversation.system(system or "")
        output.note(f"{partner.about}; /help for help")
        if partner.synthetic:
            output.note(output.SYNTHETIC)
        conversation.run(interactive=sys.stdin.isatty())
    finally:
        partner.close()


def _local(
    model: str | None, session_dir: str | None, sampling: SamplingOptions, engine: EngineOptions
) -> Partner:
    from mindnano.cli.conversation import default_session_dir
    from mindnano.cli.talk.local import Local

    llm = engine.open(model)
    return Local(
        llm, sampling.params(llm.generation), Path(session_dir) if session_dir else default_session_dir()
    )


def _remote(
    url: str, api_key: str | None, model: str | None, session_dir: str | None,
    sampling: SamplingOptions, engine: EngineOptions,
) -> Partner:  # fmt: skip
    from mindnano.cli.talk.remote import Remote

    if model is not None or session_dir is not None or engine != EngineOptions():
        raise MindNanoError(
            "--url: the server has a model, an engine and sessions of its own; leave out MODEL, --session-dir and the "
            "engine's options"
        )
    given: dict[str, Any] = {name: value for name, value in vars(sampling).items() if value is not None}
    given |= {"stop": list(sampling.stop), "logit_bias": parse_biases(sampling.logit_bias)}
    return Remote(url, {name: value for name, value in given.items() if value not in ([], {})}, api_key)
