"""`mindnano bench report`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from mindnano.cli.options import Json
from mindnano.errors import MindNanoError


def report(
    results: Annotated[str, Parameter(help="Folder of the results, or one results file.")],
    /,
    *,
    output: Annotated[
        str | None,
        Parameter(
            metavar="DIR", help="Where to write; left out, into the results' folder.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a page of results: report.html with everything in it, report.md and its plots as SVG."""
    from mindnano.cli import output as out

    written = write(Path(results), Path(output) if output is not None else None)
    if json:
        out.print_json({"command": "bench report", "files": [str(path) for path in written]})
    else:
        for path in written[:2]:
            print(path)


def write(results: Path, target: Path | None) -> list[Path]:
    """The report's files. kernels.json in the results' folder, where it is, becomes a table."""
    from mindnano.bench.records import read_folder
    from mindnano.bench.report import write as run

    folder = results if results.is_dir() else results.parent
    return run(read_folder(results), target or folder, _kernels(folder / "kernels.json"))


def _kernels(path: Path) -> dict[str, Any] | None:
    try:
        found = json_module.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("results"), list):
        raise MindNanoError(f"{path}: expected what `mindnano bench kernels --json` prints")
    return found
