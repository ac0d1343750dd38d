"""The curves of a report as SVG: readable in print, in light and in dark.

Matplotlib draws them in stand-in colours, which become CSS variables; text stays text. Layout is the line's dash,
format its colour and mark, so that neither colour nor dash alone tells lines apart.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mindnano.bench import reference
from mindnano.bench.quality.summary import summarize
from mindnano.bench.records import Point, Record, Run
from mindnano.bench.report import groups
from mindnano.bench.report.table import tokens
from mindnano.bench.report.tables import room
from mindnano.errors import MindNanoError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-in, CSS variable, light, dark. Series after Okabe and Ito, darker and lighter than theirs for contrast.
COLOURS = (
    ("#010101", "ink", "#1f2328", "#e6e6e6"),
    ("#020202", "muted", "#59636e", "#a5adb6"),
    ("#030303", "grid", "#d8dee4", "#3a4048"),
    ("#040404", "limit", "#b3261e", "#ff8a80"),
    ("#050501", "series-0", "#0060a8", "#58a6ff"),
    ("#050502", "series-1", "#c25400", "#ffa657"),
    ("#050503", "series-2", "#00745a", "#56d4a8"),
    ("#050504", "series-3", "#8f3f78", "#e58ccb"),
    ("#050505", "series-4", "#6a5a00", "#e3c84a"),
    ("#050506", "series-5", "#4d4d9a", "#a6a6f5"),
    ("#050507", "series-6", "#7a7a7a", "#9a9a9a"),
)
INK, MUTED, GRID, LIMIT = (stand_in for stand_in, *_ in COLOURS[:4])
SERIES = [stand_in for stand_in, *_ in COLOURS[4:]]
_STYLE = {
    "bf16": (SERIES[0], "o"),
    "int8": (SERIES[1], "s"),
    "fp16": (SERIES[2], "^"),
    "fp32": (SERIES[3], "D"),
}
_DASH = {"expanded": (0, (5, 2))}
INTERACTIVE_S = (10.0, 60.0)
FAR = 8.0  # times what is plotted


def variables(dark: bool) -> str:
    """The CSS variables of one scheme."""
    return " ".join(f"--{name}: {night if dark else day};" for _, name, day, night in COLOURS)


def draw(records: Sequence[Record]) -> dict[str, str]:
    """SVG by name, of every plot that the records have data for. Raises MindNanoError without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise MindNanoError("the report's plots need matplotlib: pip install 'mindnano[bench]'") from None
    matplotlib.use("svg")
    makers: dict[str, Callable[[Sequence[Record]], Figure | None]] = {
        "ttft": ttft, "decode": decode, "shape": shape, "memory": memory, "stages": stages, "divergence": divergence
    }  # fmt: skip
    found = {}
    for name, make in makers.items():
        with matplotlib.rc_context(_settings(name)):
            figure = make(records)
            if figure is not None:
                found[name] = _svg(figure)
    return found


def standalone(svg: str) -> str:
    """The same as a file of its own: it follows the reader's scheme."""
    day, night = (f"svg {{ {variables(dark)} }}" for dark in (False, True))
    style = f"<style>{day} @media (prefers-color-scheme: dark) {{ {night} }}</style>"
    return svg.replace("<defs>", style + "<defs>", 1)


def _settings(name: str) -> Any:
    return {
        "svg.fonttype": "none", "svg.hashsalt": f"mindnano {name}", "font.family": "sans-serif", "font.size": 11,
        "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED,
        "grid.color": GRID, "grid.linewidth": 0.8, "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False,
        "axes.spines.right": False, "axes.titlesize": 12, "axes.titlelocation": "left", "legend.frameon": False,
        "legend.fontsize": 10, "lines.linewidth": 1.8, "lines.markersize": 5.5, "figure.constrained_layout.use": True,
        "xtick.minor.size": 0, "ytick.minor.size": 0, "legend.handlelength": 3.2,
    }  # fmt: skip


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": "mindnano bench report"}
    )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for stand_in, name, day, _ in COLOURS:
        text = text.replace(stand_in, f"var(--{name}, {day})")
    # A size in points would keep the picture from shrinking with the page.
    for name in ("height", "width"):
        text = re.sub(rf'<svg([^>]*?) {name}="[^"]*"', r"<svg\1", text, count=1)
    return text


def _figure(width: float = 7.6, height: float = 4.6, columns: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    axes = figure.subplots(1, columns, squeeze=False)
    return figure, list(axes[0])


def _style(kind: str) -> dict[str, Any]:
    layout, _, fmt = kind.partition(" ")
    colour, mark = _STYLE.get(fmt, (SERIES[4], "v"))
    return {"color": colour, "marker": mark, "linestyle": _DASH.get(layout, "-"), "label": kind}


def _lengths(axes: Axes, values: Sequence[int], label: str) -> None:
    """A logarithmic axis with the lengths that were measured."""
    ticks = sorted(set(values))
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [tokens(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(label)


def _seconds(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()


def _curves(
    records: Sequence[Record], measure: str
) -> dict[str, list[tuple[int, float, float | None, float | None]]]:
    """By cache: length, mean, interval; one client."""
    found: dict[str, list[tuple[int, float, float | None, float | None]]] = {}
    for cell in groups.cells(records):
        if cell.key.concurrency == 1 and (mean := cell.mean(measure)) is not None:
            found.setdefault(cell.key.kind, []).append(
                (cell.key.input_tokens, mean.value, mean.low, mean.high)
            )
    return {kind: sorted(rows) for kind, rows in found.items()}


def _legend(figure: Figure, axes: Axes) -> None:
    """Below the plot, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)


def _plot(axes: Axes, curves: dict[str, list[tuple[int, float, float | None, float | None]]]) -> list[int]:
    for kind, rows in curves.items():
        x, y = [row[0] for row in rows], [row[1] for row in rows]
        axes.plot(x, y, **_style(kind))
        band = [(at, low, high) for at, _, low, high in rows if low is not None and high is not None]
        if band:
            axes.fill_between([r[0] for r in band], [r[1] for r in band], [r[2] for r in band],
                              color=_style(kind)["color"], alpha=0.18, linewidth=0)  # fmt: skip
    return [row[0] for rows in curves.values() for row in rows]


def ttft(records: Sequence[Record]) -> Figure | None:
    curves = _curves(records, "ttft_s")
    if not curves:
        return None
    figure, (axes,) = _figure()
    lengths = _plot(axes, curves)
    _lengths(axes, lengths, "input tokens")
    _seconds(axes)
    low, high = axes.get_ylim()
    for limit in INTERACTIVE_S:
        if low < limit < high:
            axes.axhline(limit, color=MUTED, linewidth=1, linestyle=":")
            axes.annotate(f"{limit:.0f} s", (1, limit), xycoords=("axes fraction", "data"), xytext=(-2, 3),
                          textcoords="offset points", ha="right", color=MUTED, fontsize=9)  # fmt: skip
    axes.set_ylabel("seconds to the first token")
    _legend(figure, axes)
    return figure


def decode(records: Sequence[Record]) -> Figure | None:
    curves = _curves(records, "decode_tok_s")
    if not curves:
        return None
    figure, (axes,) = _figure()
    lengths = _plot(axes, curves)
    _lengths(axes, lengths, "input tokens")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("tokens a second after the first")
    _legend(figure, axes)
    return figure


def shape(records: Sequence[Record]) -> Figure | None:
    """Each machine against itself: what the length does to both."""
    curves = {measure: _curves(records, measure) for measure in ("ttft_s", "decode_tok_s")}
    lengths = {row[0] for rows in curves["ttft_s"].values() for row in rows}
    base = reference.base_of(lengths)
    if base is None or len(lengths) < 2:
        return None
    figure, both = _figure(height=4.0, columns=2)
    theirs = {fmt: reference.curve(fmt) for fmt in reference.FORMATS}
    for axes, (measure, ours) in zip(both, curves.items(), strict=True):
        for kind, rows in ours.items():
            at = {row[0]: row[1] for row in rows}
            if base in at:
                axes.plot(list(at), [value / at[base] for value in at.values()], **_style(kind))
        for fmt, curve in theirs.items():
            at = getattr(curve, measure)
            if base in at:
                shown = {n: value / at[base] for n, value in at.items() if min(lengths) <= n}
                axes.plot(list(shown), list(shown.values()), color=MUTED, linewidth=1.2, markersize=3.5,
                          marker=_STYLE[fmt][1], linestyle=":", label=f"reference {fmt}")  # fmt: skip
                lengths |= set(shown)
        axes.axhline(1, color=GRID, linewidth=1, zorder=0)
    for axes in both:
        _lengths(axes, sorted(lengths)[:: 1 if len(lengths) < 7 else 2], "input tokens")
    _seconds(both[0])
    both[1].set_ylim(bottom=0)
    both[0].set_title(f"TTFT, times that at {tokens(base)}")
    both[1].set_title(f"decode, times that at {tokens(base)}")
    handles, labels = both[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def memory(records: Sequence[Record]) -> Figure | None:
    """Resident memory of a full context, and what the machine has."""
    known = [point for point in groups.capacity(records) if point.status == "ok" and point.rss_mib]
    if not known:
        return None
    figure, (axes,) = _figure()
    for kind in groups.kinds(known):
        of = [point for point in known if point.kind == kind]
        full = [point.predicted_filled_rss_mib or point.rss_mib or 0.0 for point in of]
        axes.plot([point.context_tokens or 0 for point in of], [mib / 1024 for mib in full], **_style(kind))
        peaks = [
            (point.context_tokens or 0, point.peak_rss_mib / 1024)
            for point in of
            if point.peak_rss_mib and point.filled_tokens
        ]
        if peaks:
            axes.plot([at for at, _ in peaks], [gib for _, gib in peaks], linestyle="none", marker="x", markersize=6,
                      color=_style(kind)["color"], label="_")  # fmt: skip
    _lengths(axes, [point.context_tokens or 0 for point in known], "context")
    _limits(axes, known, records)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("GiB")
    axes.plot([], [], linestyle="none", marker="x", color=MUTED, label="peak, half filled")
    _legend(figure, axes)
    return figure


def _limits(axes: Axes, known: Sequence[Point], records: Sequence[Record]) -> None:
    """The machine's memory, and what a server could have had of it. Far above everything they are left to the text."""
    total = next(
        (run.machine.get("memory") for run in records if isinstance(run, Run) and run.machine.get("memory")),
        None,
    )
    had = [
        point.rss_mib + point.mem_available_mib - (point.rss_file_mib or 0.0)
        for point in known
        if point.rss_mib and point.mem_available_mib
    ]
    lines = [(total / (1 << 30), "memory of this machine")] if total else []
    lines += [(min(had) / 1024, "available to the server")] if had and room(known[0]) is not None else []
    highest = axes.dataLim.y1
    if (
        lines and min(lines)[0] > FAR * highest
    ):  # a small model on a large machine: its curves would lie on the axis
        said = "; ".join(f"{text}: {gib:.1f} GiB, far above" for gib, text in lines)
        axes.set_title(said, fontsize=9, color=LIMIT)
        return
    for gib, text in lines:
        axes.axhline(gib, color=LIMIT, linewidth=1.2, linestyle="-." if "machine" in text else ":")
        axes.annotate(f"{text}, {gib:.1f} GiB", (1, gib), xycoords=("axes fraction", "data"), xytext=(-2, -11),
                      textcoords="offset points", ha="right", color=LIMIT, fontsize=9)  # fmt: skip


def stages(records: Sequence[Record]) -> Figure | None:
    """Shares of a request's time, stacked, by length; up to four caches."""
    made = [cell for cell in groups.cells(records) if cell.key.concurrency == 1 and cell.stages()]
    # As many as fit side by side; the experimental format last.
    kinds = sorted(groups.kinds(made), key=lambda kind: kind.endswith("fp16"))[:4]
    if not kinds:
        return None
    names = [name for name in made[0].stages() if any(cell.stages().get(name) for cell in made)]
    figure, panels = _figure(
        width=2.4 + 2.6 * len(kinds) if len(kinds) > 1 else 6.0, height=3.9, columns=len(kinds)
    )
    for axes, kind in zip(panels, kinds, strict=True):
        of = [cell for cell in made if cell.key.kind == kind]
        bottom = [0.0] * len(of)
        for at, name in enumerate(names):
            shares = [
                100 * cell.stages().get(name, 0.0) / (sum(cell.stages().values()) or 1.0) for cell in of
            ]
            axes.bar(range(len(of)), shares, bottom=bottom, width=0.8, color=SERIES[at % len(SERIES)],
                     label=name.replace("_", " "), edgecolor=GRID, linewidth=0.4)  # fmt: skip
            bottom = [low + share for low, share in zip(bottom, shares, strict=True)]
        axes.set_xticks(
            range(len(of)), [tokens(cell.key.input_tokens) for cell in of], rotation=45 if len(of) > 5 else 0
        )
        axes.grid(axis="x", visible=False)
        axes.set_ylim(0, 100)
        axes.set_title(kind)
        axes.set_xlabel("input tokens")
        if axes is not panels[0]:
            axes.set_yticklabels([])
    panels[0].set_ylabel("% of the request's time")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(len(names), 4 if len(kinds) > 1 else 3)
    )
    return figure


def divergence(records: Sequence[Record]) -> Figure | None:
    """KL divergence from the yardstick by position."""
    of = [one for one in summarize(records) if one.measure == "kl_mean" and one.value > 0]
    if not of:
        return None
    figure, (axes,) = _figure()
    recipes = {q.recipe for q in of}
    for at, (name, kind) in enumerate(dict.fromkeys((q.kind, f"{q.kv_layout} {q.kv_format}") for q in of)):
        rows = sorted((q for q in of if q.kind == name), key=lambda q: q.length)
        style = _style(kind) | {"label": name}
        if len(recipes) > 1:
            style["color"] = SERIES[at % len(SERIES)]
        axes.plot([q.length for q in rows], [q.value for q in rows], **style)
        band = [(q.length, q.low, q.high) for q in rows if q.low and q.high]
        if band:
            axes.fill_between([b[0] for b in band], [b[1] for b in band], [b[2] for b in band], alpha=0.18,
                              color=style["color"], linewidth=0)  # fmt: skip
    _lengths(axes, [q.length for q in of], "position")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylabel("mean KL divergence, nats")
    _legend(figure, axes)
    return figure
