"""`mindnano serve`: the server."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, Token

from mindnano.cli.options import EngineOptions, Model
from mindnano.errors import MindNanoError

if TYPE_CHECKING:
    from mindnano.server.settings import Settings

SERVER = Group("Server", sort_key=1)
ACCESS = Group("Access", sort_key=1)
KEY = "MINDNANO_API_KEY"


def slots_or_auto(type_: Any, tokens: list[Token] | tuple[Token, ...]) -> int | None:
    value = tokens[0].value
    if value == "auto":
        return None
    if not value.isdigit() or not 1 <= int(value) <= 64:
        raise MindNanoError(f"--slots: expected 1 to 64 or auto, got {value!r}")
    return int(value)


@Parameter(name="*", group=SERVER)
@dataclass(frozen=True)
class ServerOptions:
    """What the server is and does."""

    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Parameter(help="Port to listen on; 0: any that is free.")] = 8080
    slots: Annotated[
        int | None,
        Parameter(
            converter=slots_or_auto,
            metavar="N|auto",
            show_default="auto",
            help="Requests that run at once; auto: up to 4, as the memory plan allows beside the context.",
        ),
    ] = None
    queue: Annotated[int, Parameter(help="Requests that wait at most; more are refused with 429.")] = 32
    name: Annotated[
        str | None, Parameter(help="The model's name; left out, that of its file.", show_default=False)
    ] = None
    alias: Annotated[
        tuple[str, ...],
        Parameter(help="A further name for the model; several times.", negative="", show_default=False),
    ] = ()
    think: Annotated[
        bool,
        Parameter(negative="", help="Think first in requests that don't say otherwise.", show_default=False),
    ] = False
    session_dir: Annotated[
        str | None,
        Parameter(
            metavar="DIR",
            help="Where sessions are kept; none: nowhere.",
            show_default="~/.local/share/mindnano/sessions",
        ),
    ] = None
    bench_results: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            help="Results of mindnano bench, a file or folder, for the page to show.",
            show_default=False,
        ),
    ] = None
    grace: Annotated[
        float, Parameter(help="Seconds to finish what runs after SIGTERM or Ctrl-C; the rest is cancelled.")
    ] = 30
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Parameter(help="What is logged. Only debug says anything of requests."),
    ] = "info"


@Parameter(name="*", group=ACCESS)
@dataclass(frozen=True)
class AccessOptions:
    """Who may ask."""

    api_key: Annotated[
        tuple[str, ...],
        Parameter(
            help=f"A key that opens the server; several times. Better in the environment: {KEY}.",
            negative="",
            show_default=False,
        ),
    ] = ()
    api_key_file: Annotated[
        Path | None, Parameter(help="A file with a key a line.", metavar="FILE", show_default=False)
    ] = None
    no_api_key: Annotated[
        bool,
        Parameter(
            negative="", help="Let anyone in, also with a --host that others reach.", show_default=False
        ),
    ] = False
    allow_host: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="NAME",
            negative="",
            show_default=False,
            help="A name under which the server is reached, beside its address and localhost; several times.",
        ),
    ] = ()
    allow_origin: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="ORIGIN",
            negative="",
            show_default=False,
            help="A web page elsewhere that may ask, such as https://example.org; several times.",
        ),
    ] = ()

    def keys(self) -> tuple[str, ...]:
        """All keys that were given."""
        found = [*self.api_key]
        if os.environ.get(KEY):
            found.append(os.environ[KEY])
        if self.api_key_file is not None:
            lines = self.api_key_file.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [line.strip() for line in lines if line.strip()]
            if not any(line.strip() for line in lines):
                raise MindNanoError(f"--api-key-file {self.api_key_file}: no key in it; write one a line")
        if self.no_api_key and found:
            raise MindNanoError("--no-api-key: a key was given as well; choose one of them")
        return tuple(found)


def serve(
    model: Model = None,
    /,
    *,
    server: ServerOptions = ServerOptions(),
    access: AccessOptions = AccessOptions(),
    engine: EngineOptions = EngineOptions(),  # noqa: B008
) -> int:
    """Answer OpenAI and Anthropic clients over HTTP, and serve a page to chat with.

    Only this machine reaches it unless --host says otherwise. docs/api.md describes the interface.
    """
    from mindnano.cli import output
    from mindnano.server.run import serve as run

    settings = _settings(model, server, access, engine)
    slots = server.slots or _slots(model, engine)
    with engine.open(model, slots=slots) as llm:
        about = llm.describe()
        output.note(
            f"{about['model']}, {about['recipe']}, {slots} slots of {about['context']} tokens, KV "
            f"{about['kv_layout']} {about['kv_format']}, {about['threads']} threads"
        )
        if llm.synthetic:
            output.note(output.SYNTHETIC)
        if not settings.api_keys and settings.open_access:
            output.note("no API key: anyone who reaches this address can use the server")
        stopped = run(llm, settings, server.log_level, lambda address: output.note(f"listening on {address}"))
        output.note("stopped")
    return 130 if stopped == signal.SIGINT else 0


def _settings(
    model: str | None, server: ServerOptions, access: AccessOptions, engine: EngineOptions
) -> Settings:
    from mindnano.cli.conversation import default_session_dir
    from mindnano.server.settings import Settings

    if server.bench_results is not None:
        from mindnano.bench.curves import curves

        curves(server.bench_results)  # wrong ones are refused before a model is opened
    folder = default_session_dir() if server.session_dir is None else Path(server.session_dir)
    return Settings(
        host=server.host,
        port=server.port,
        name=server.name or (Path(model).stem if model else "builtin"),
        aliases=server.alias,
        api_keys=access.keys(),
        open_access=access.no_api_key,
        hosts=access.allow_host,
        origins=access.allow_origin,
        queue=server.queue,
        grace=server.grace,
        thinking=server.think,
        device=engine.device,
        session_dir=None if server.session_dir == "none" else folder,
        bench_results=server.bench_results,
    )


def _slots(model: str | None, engine: EngineOptions) -> int:
    from mindnano.server.slots import slots_for

    return slots_for(
        model, engine.recipe, engine.kv_layout, engine.kv, engine.threads, engine.cache_budget, engine.ctx,
        0 if engine.allow_tight else engine.memory_reserve, engine.device, engine.cpus,
    )  # fmt: skip
