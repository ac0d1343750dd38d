"""Options of all benchmarks that start servers and keep results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Group, Parameter

from mindnano.cli.options import KVFormat, KVLayout
from mindnano.errors import MindNanoError
from mindnano.units import parse_size

if TYPE_CHECKING:
    from mindnano.bench.campaign import Campaign
    from mindnano.bench.servers import Setting

SERVER = Group("Server", sort_key=1)
RUNS = Group("Runs", sort_key=2)

Preset = Literal["mindnano", "llama-server", "custom"]
Prompts = Literal["text", "digits"]
Formats = Annotated[str, Parameter(metavar="LIST", help="Formats of the KV cache: bf16, int8, fp16, fp32.")]
Layouts = Annotated[str, Parameter(metavar="LIST", help="Layouts of the KV cache: latent, expanded.")]


@Parameter(name="*", group=SERVER)
@dataclass(frozen=True)
class StartOptions:
    """How servers are started and asked."""

    api_key: Annotated[
        str | None, Parameter(env_var="MINDNANO_API_KEY", help="Key of the server.", show_default=False)
    ] = None
    tokenizer: Annotated[
        str | None,
        Parameter(
            metavar="PATH",
            help="tokenizer.json or model that counts tokens, for a server that can't.",
            show_default=False,
        ),
    ] = None
    threads: Annotated[
        int | None, Parameter(help="Threads; left out, as the server has it.", show_default=False)
    ] = None
    device: Annotated[str, Parameter(help="Where attention runs (mindnano).")] = "auto"
    start_timeout: Annotated[float, Parameter(metavar="SECONDS", help="Until a server must be ready.")] = (
        600.0
    )


@Parameter(name="*", group=SERVER)
@dataclass(frozen=True)
class ServerOptions(StartOptions):
    """Which server is measured."""

    url: Annotated[
        str | None,
        Parameter(
            help="A server that runs already; it isn't started, stopped or changed.", show_default=False
        ),
    ] = None
    pid: Annotated[
        int | None,
        Parameter(help="Its process, where it can't be found by its port.", show_default=False),
    ] = None
    binary: Annotated[
        str | None,
        Parameter(metavar="PATH", help="Program to start; left out, this MindNano.", show_default=False),
    ] = None
    preset: Annotated[
        Preset | None,
        Parameter(help="How it is started; left out, by the program's name.", show_default=False),
    ] = None
    command: Annotated[
        str | None,
        Parameter(
            metavar="TEMPLATE",
            allow_leading_hyphen=True,
            help="Command line of preset custom, with {model}, {host}, {port}, {context}, {kv}, {kv_layout}, {slots}, "
            "{threads}, {binary}.",
            show_default=False,
        ),
    ] = None

    def settings(self, model: str | None, formats: str, layouts: str) -> list[Setting]:
        """One setting a layout and format, or the server at the url. Raises MindNanoError for a contradiction."""
        from mindnano.bench.servers import Setting, presets

        if self.url is not None:
            if self.binary or self.preset or self.command or model:
                raise MindNanoError(
                    "--url: that server is measured as it is; leave out MODEL, --binary, --preset, --command"
                )
            return [Setting(preset="url", url=self.url, pid=self.pid, api_key=self.api_key)]
        preset = self.preset or ("custom" if self.command else presets.guess(self.binary or ""))
        base = Setting(
            preset=preset, model=model, binary=self.binary, command=self.command, api_key=self.api_key,
            threads=self.threads, device=self.device,
        )  # fmt: skip
        kinds = choices(formats, "--kv", get_args(KVFormat))
        if preset == "mindnano":
            return [replace(base, kv=kind, kv_layout=layout)
                    for layout in choices(layouts, "--kv-layout", get_args(KVLayout)) for kind in kinds]  # fmt: skip
        if preset == "custom" and self.command and "{kv" not in self.command:
            return [base]
        if preset == "custom" and self.command and "{kv_layout}" in self.command:
            return [replace(base, kv=kind, kv_layout=layout) for layout in split(layouts) for kind in kinds]
        return [replace(base, kv=kind) for kind in kinds]


@Parameter(name="*", group=RUNS)
@dataclass(frozen=True)
class RunOptions:
    """What is done with the runs."""

    output_dir: Annotated[
        str,
        Parameter(metavar="DIR", help="Folder of the results; what is there already isn't measured again."),
    ] = "bench-results"
    retries: Annotated[int, Parameter(help="How often a disturbed run is repeated.")] = 2
    seed: Annotated[
        str | None, Parameter(help="Of the prompts; left out, a new one each time.", show_default=False)
    ] = None
    budget: Annotated[
        float | None,
        Parameter(
            metavar="MINUTES",
            help="Begin nothing that wouldn't end within that time; what is left out is recorded as not measured.",
            show_default=False,
        ),
    ] = None
    dry_run: Annotated[
        bool,
        Parameter(
            negative="", help="Show what would be measured, and about how long it takes.", show_default=False
        ),
    ] = False

    @contextmanager
    def campaign(self, command: str, server: StartOptions, **options: Any) -> Iterator[Campaign]:
        """The results folder, open, with progress on stderr."""
        from mindnano.bench.budget import Budget
        from mindnano.bench.campaign import Campaign
        from mindnano.bench.progress import Progress
        from mindnano.bench.records import Results, unmeasured
        from mindnano.cli import machine, output

        if self.retries < 0:
            raise MindNanoError(f"--retries: expected 0 or more, got {self.retries}")
        if self.budget is not None and not self.budget > 0:
            raise MindNanoError(f"--budget: expected minutes above 0, got {self.budget:g}")
        with Results(Path(self.output_dir)) as results, Progress() as progress:
            yield Campaign(
                results, progress, command=command, retries=self.retries, tokenizer=server.tokenizer,
                timeout=server.start_timeout, seed=self.seed or "", machine=machine.read().as_dict(), options=options,
                budget=Budget(self.budget),
            )  # fmt: skip
            if self.budget is not None and (left := unmeasured(results.records)):
                output.note(
                    f"{len(left)} runs had no time in {self.budget:g} min; the same command goes on with them"
                )


def split(text: str) -> list[str]:
    """The words of a list with commas, each once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def choices(text: str, option: str, known: Sequence[str]) -> list[str]:
    found = split(text)
    for one in found:
        if one not in known:
            raise MindNanoError(f"{option}: expected some of {', '.join(known)}, got {one!r}")
    if not found:
        raise MindNanoError(f"{option}: expected at least one of {', '.join(known)}")
    return found


def sizes(text: str, option: str, least: int = 1) -> list[int]:
    """Numbers of tokens, ascending."""
    found = sorted({parse_size(part) for part in split(text)})
    if not found or found[0] < least:
        raise MindNanoError(f"{option}: expected numbers of {least} or more such as 4096,8K, got {text!r}")
    return found


def show_tables(make: Callable[[], Sequence[Any]]) -> None:
    """Tables on stdout; on a pipe wide enough for their rows."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    for table in make():
        if table is not None:
            table.print(console)


def note_results(path: Path) -> None:
    print(
        f"mindnano: results in {path}; `mindnano bench report {path.parent}` makes a page of them",
        file=sys.stderr,
    )
