"""`mindnano bench`: measurements, one file a group of commands."""

from __future__ import annotations

from cyclopts import App

from mindnano.cli.bench import compare, engine, everything, measure, quality, report
from mindnano.cli.options import OPTIONS


def build(sort_key: int) -> App:
    app = App(
        name="bench",
        sort_key=sort_key,
        group_parameters=OPTIONS,
        help="Measure: how much context fits, how long inputs take, what a smaller cache costs.\n\n"
        "Servers are started, measured over HTTP and stopped again; runs that something disturbed are marked and "
        "repeated; an interrupted command goes on where it stopped when it is given again.",
    )
    app.command(measure.capacity, name="capacity", sort_key=0)
    app.command(measure.perf, name="perf", sort_key=1)
    app.command(compare.compare, name="compare", sort_key=2, usage="mindnano bench compare [OPTIONS] A [B]")
    app.command(quality.quality, name="quality", sort_key=3)
    app.command(report.report, name="report", sort_key=4)
    app.command(everything.everything, name="all", sort_key=5)
    app.command(engine.kernels, name="kernels", sort_key=6)
    app.command(engine.depth, name="depth", sort_key=7)
    app.command(engine.memory, name="memory", sort_key=8)
    app.command(engine.reuse, name="reuse", sort_key=9)
    app.command(engine.serving, name="serving", sort_key=10)
    return app
