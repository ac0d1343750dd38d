"""`mindnano serve`: the server."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Group, Parameter

from mindnano.cli.options import EngineOptions, Model

SERVER = Group("Server", sort_key=1)


def serve(
    model: Model = None,
    /,
    *,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on; 0: any that is free.")] = 8080,
    slots: Annotated[int, Parameter(help="Requests that run at once.")] = 4,
    engine: EngineOptions = EngineOptions(),  # noqa: B008
) -> None:
    """Answer OpenAI and Anthropic clients over HTTP, and serve a page to chat with."""
    from pathlib import Path

    from mindnano.cli import output
    from mindnano.server.run import serve as run
    from mindnano.server.settings import Settings

    settings = Settings(host=host, port=port, name=Path(model).stem if model else "builtin")
    with engine.open(model, slots=slots) as llm:
        about = llm.describe()
        output.note(
            f"{about['model']}, {about['recipe']}, context {about['context']}, {slots} slots, KV "
            f"{about['kv_layout']} {about['kv_format']}, {about['threads']} threads"
        )
        if llm.synthetic:
            output.note(output.SYNTHETIC)
        run(llm, settings, "info", lambda address: output.note(f"listening on {address}"))
