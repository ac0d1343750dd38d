"""`mindnano calibrate`: this machine's device curves, measured, kept and shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mindnano.cli.options import Cpus, Device, Json, Threads
from mindnano.errors import MindNanoError

if TYPE_CHECKING:
    from mindnano.checkpoint.config import MLAConfig
    from mindnano.device.curves import Calibration, Curve
    from mindnano.device.rknpu.npu import Npu

Shape = tuple["MLAConfig", tuple[tuple[int, int], ...]]


def calibrate(
    model: Annotated[
        str | None,
        Parameter(
            help="Model or config.json whose shape to measure; left out, Ling-3.0-tiny's.", show_default=False
        ),
    ] = None,
    /,
    *,
    device: Annotated[
        Device,
        Parameter(help="auto: CPU and NPU if there is one; cpu: the CPU only; rknpu: not without an NPU."),
    ] = "auto",
    threads: Threads = None,
    cpus: Cpus = "auto",
    quick: Annotated[bool, Parameter(help="Fewer and shorter points.", negative="")] = False,
    show: Annotated[
        bool, Parameter(help="Show what was measured last, measure nothing.", negative="")
    ] = False,
    plot: Annotated[
        str | None,
        Parameter(
            metavar="FILE", help="Draw the curves (.svg, .png or .pdf; needs matplotlib).", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure how long attention and projections take on this machine's devices, and keep it: --device auto chooses
    by these curves. They hold for that number of threads only.
    """
    from mindnano.cli import output
    from mindnano.device import curves
    from mindnano.engine import cores

    if plot is not None:
        _check_plot(plot)
    cores.use(threads, cpus)
    npu, reason = _open(device)
    try:
        machine = curves.Machine.here(npu.runtime, npu.driver) if npu is not None else curves.Machine.here()
        kept = curves.load(machine) if show else _measure(model, npu, quick)
    finally:
        if npu is not None:
            npu.close()
    if kept is None:
        raise MindNanoError("nothing was measured on this machine yet; run mindnano calibrate")
    path = curves.path_for(machine) if show else curves.save(kept)
    if plot is not None:
        draw(kept, plot)
    if json:
        output.print_json({"command": "calibrate", "path": str(path), "npu": reason, **as_dict(kept)})
    else:
        _print(kept, reason, path)


def _open(device: Device) -> tuple[Npu | None, str]:
    """The NPU, and what it is or why there is none."""
    from mindnano.device.rknpu.binding import NpuUnavailable
    from mindnano.device.rknpu.npu import Npu

    if device == "cpu":
        return None, "not asked for"
    try:
        npu = Npu()
    except NpuUnavailable as error:
        if device == "rknpu":
            raise MindNanoError(f"--device rknpu: {error}") from None
        return None, str(error)
    return npu, f"{npu.name}, runtime {npu.runtime}, driver {npu.driver}"


def _measure(model: str | None, npu: Npu | None, quick: bool) -> Calibration:
    from mindnano.device.calibrate import QUICK, Plan, measure

    config, projections = _shape(model)
    terminal = sys.stderr.isatty()

    def progress(text: str) -> None:
        if terminal:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    found = measure(config, projections, npu, QUICK if quick else Plan(), progress)
    progress("")
    return found


def _shape(model: str | None) -> Shape:
    """Attention and projections of a model, or of Ling-3.0-tiny."""
    from mindnano.checkpoint import layout, load_config, open_model
    from mindnano.device.calibrate import LING_PROJECTIONS, LING_TINY

    if model is None:
        return LING_TINY, LING_PROJECTIONS
    if model.endswith(".json"):
        config = load_config(model)
    else:
        with open_model(model) as files:
            config = files.config
    if config.mla is None:
        raise MindNanoError(f"{model} has no attention layers to measure")
    linears = [
        item for item in layout.items(config) if isinstance(item, layout.Linear) and item.name != "lm_head"
    ]
    by_size = sorted({(item.rows, item.cols) for item in linears}, key=lambda shape: shape[0] * shape[1])
    return config.mla, (by_size[-1], by_size[0])


def as_dict(kept: Calibration) -> dict[str, Any]:
    """The curves, and for every point the device that is faster."""
    return {
        "machine": kept.machine._asdict(),
        "emulated": kept.emulated,
        "rows_per_product": kept.rows_per_product,
        "curves": {
            work: {name: [_point(point) for point in curve.points] for name, curve in devices.items()}
            for work, devices in kept.curves.items()
        },
    }


def _point(point: Any) -> dict[str, Any]:
    return {name: getattr(point, name) for name in point.__struct_fields__}


def _print(kept: Calibration, reason: str, path: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    from mindnano.cli import output

    screen = output.console()
    screen.print(Text(f"{kept.machine.name}, {kept.machine.isa}, {kept.machine.threads} threads"))
    screen.print(Text(f"NPU: {reason}"))
    if kept.emulated:
        screen.print(
            Text("The NPU is emulated: its times are those of an emulation, not of a board.", style="bold")
        )
    for work, devices in kept.curves.items():
        linear = work == "linear"
        table = Table(title=work, title_justify="left")
        table.add_column("tokens" if linear else "queries", justify="right")
        table.add_column("weights" if linear else "keys", justify="right")
        for name in devices:
            table.add_column(f"{name}, ms", justify="right")
        if "rknpu" in devices:
            table.add_column("of it pack + sync + matmul + softmax" if not linear else "", justify="right")
            table.add_column("faster")
        for rows, size in sorted({(p.rows, p.size) for curve in devices.values() for p in curve.points}):
            cells = [_measured(curve, rows, size) for curve in devices.values()]
            if "rknpu" in devices:
                cells += [_phases(devices["rknpu"], rows, size), kept.faster(work, rows, size)]
            table.add_row(str(rows), str(size), *cells)
        screen.print(table)
    screen.print(Text(f"kept in {path}", style="dim"))


def _find(curve: Curve, rows: int, size: int) -> Any:
    return next((p for p in curve.points if (p.rows, p.size) == (rows, size)), None)


def _measured(curve: Curve, rows: int, size: int) -> str:
    point = _find(curve, rows, size)
    return f"{1e3 * point.seconds:.2f}" if point else f"({1e3 * curve.seconds(rows, size):.0f})"


def _phases(curve: Curve, rows: int, size: int) -> str:
    point = _find(curve, rows, size)
    if point is None or not point.matmul:
        return ""
    return " + ".join(f"{1e3 * getattr(point, phase):.1f}" for phase in ("pack", "sync", "matmul", "softmax"))


def _check_plot(path: str) -> None:
    if not path.endswith((".svg", ".png", ".pdf")):
        raise MindNanoError(f"--plot: expected a file that ends in .svg, .png or .pdf, got {path!r}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MindNanoError("--plot needs matplotlib: pip install 'mindnano[bench]'") from None


def draw(kept: Calibration, path: str) -> None:
    """Milliseconds against size, a line for each device and number of rows, a panel for each kind of work."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(kept.curves), 4.2), layout="constrained")
    panels = figure.subplots(1, len(kept.curves), squeeze=False)[0]
    for panel, (work, devices) in zip(panels, kept.curves.items(), strict=True):
        for (name, curve), style in zip(devices.items(), ("--", "-"), strict=False):
            rows, sizes = curve.axes
            for i, count in enumerate(rows):
                seconds = [1e3 * _find(curve, count, size).seconds for size in sizes]
                label = f"{name}{' (emulated)' if name == 'rknpu' and kept.emulated else ''}, {count} rows"
                panel.loglog(sizes, seconds, style, marker="o", markersize=3, color=f"C{i}", label=label)
        panel.set(title=work, xlabel="weights" if work == "linear" else "keys a row sees", ylabel="ms")
        panel.grid(True, which="both", alpha=0.2)
        panel.legend(fontsize="x-small")
    try:
        figure.savefig(path)
    except OSError as error:
        raise MindNanoError(f"--plot {path}: {error.strerror}") from None
