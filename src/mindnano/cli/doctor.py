"""`mindnano doctor`: what this machine has, what the engine would use, what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mindnano.cli.options import Json

if TYPE_CHECKING:
    from mindnano.cli.doctor_npu import Probe
    from mindnano.cli.machine import Machine

GIB = 1 << 30
LING_TINY = 5.4 * GIB  # weights of Ling-3.0-tiny, recipe mixed, rounded up


@dataclass(frozen=True)
class Finding:
    """Something that costs speed or memory, and what to do about it."""

    problem: str
    remedy: str


def doctor(*, json: Json = False) -> None:
    """Show what this machine has, what the engine would use, what is wrong and what to do about it."""
    from mindnano import __version__, kernels
    from mindnano.cli import doctor_npu, machine, output
    from mindnano.engine import cores

    found = machine.read()
    threads, (_, cpus) = cores.count(), cores.choose(None, "auto")
    npu = doctor_npu.probe(threads)
    findings = diagnose(found, npu)
    uses = {
        "version": __version__, "isa": kernels.isa(), "threads": threads,
        "cpus": cores.numbers(cpus) or "any", "device": npu.uses,
    }  # fmt: skip
    if json:
        output.print_json(
            {
                "command": "doctor",
                "machine": found.as_dict(),
                "engine": uses,
                "npu": doctor_npu.as_dict(npu),
                "findings": [vars(finding) for finding in findings],
            }
        )
        return
    _print(found, npu, findings, uses)


def diagnose(machine: Machine, npu: Probe) -> list[Finding]:
    """What is wrong, worst first."""
    from mindnano.cli import doctor_npu

    found = []
    memory = machine.available if machine.cgroup_left is None else min(machine.available, machine.cgroup_left)
    if memory < LING_TINY + GIB:
        found.append(
            Finding(
                f"{memory / GIB:.1f} GiB of memory are available; Ling-3.0-tiny needs about 6.5 GiB",
                "close other programs, or raise the container's limit if there is one",
            )
        )
    if machine.isa == "generic":
        found.append(
            Finding(
                "no instruction set of this processor is supported: plain C++ runs, many times slower",
                "use a processor with AVX2 (x86-64), or any AArch64",
            )
        )
    if machine.isa == "neon":
        found.append(
            Finding(
                "this processor has no dot-product instructions (asimddp): products of bytes take "
                "three times the instructions",
                "nothing to do; a Cortex-A76 or later has them",
            )
        )
    if machine.usable_cores < machine.cores:
        found.append(
            Finding(
                f"this process may use {machine.usable_cores} of {machine.cores} cores",
                "start it without taskset, or give the container more",
            )
        )
    slow = [governor for governor in machine.governors if governor not in ("performance", "schedutil")]
    if slow:
        found.append(
            Finding(
                f"the processor's clock is governed by {', '.join(slow)}, which may keep it low",
                "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
            )
        )
    if machine.swap_used > GIB // 4:
        found.append(
            Finding(
                f"{machine.swap_used / GIB:.1f} GiB are swapped out: what is read from there stalls",
                "close other programs before measuring",
            )
        )
    if machine.load is not None and machine.load > machine.usable_cores / 2:
        found.append(
            Finding(
                f"other programs keep {machine.load:.1f} of {machine.usable_cores} cores busy",
                "stop them before measuring; the engine shares cores, but not for free",
            )
        )
    if machine.huge_pages == "never":
        found.append(
            Finding(
                "transparent huge pages are off, which costs a few percent",
                "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
            )
        )
    return found + [Finding(*wrong) for wrong in doctor_npu.problems(machine, npu)]


def _print(machine: Machine, npu: Probe, findings: list[Finding], uses: dict[str, object]) -> None:
    from rich.table import Table
    from rich.text import Text

    from mindnano.cli import doctor_npu, output
    from mindnano.units import format_bytes

    limit = "" if machine.cgroup_limit is None else f", limited to {format_bytes(machine.cgroup_limit)} here"
    clock = "unknown" if machine.frequency is None else f"{machine.frequency:,.0f} MHz"
    if machine.largest_frequency:
        clock += f" of {machine.largest_frequency:,.0f}"
    kinds = f" ({machine.little_cores} of them little)" if machine.little_cores else ""
    facts = [
        ("System", f"{machine.system}, {machine.architecture}"),
        ("Processor", machine.cpu),
        ("Cores", f"{machine.usable_cores} usable of {machine.cores}{kinds}, load {machine.load or 0:.1f}"),
        ("Clock", f"{clock}, governor {', '.join(machine.governors) or 'unknown'}"),
        ("Extensions", " ".join(machine.cpu_flags) or "none that matter"),
        ("Memory", f"{format_bytes(machine.available)} available of {format_bytes(machine.memory)}{limit}"),
        ("Page cache", f"{format_bytes(machine.page_cache)} (model files stay there between runs)"),
        ("Swap", f"{format_bytes(machine.swap_used)} used of {format_bytes(machine.swap)}"),
        ("Huge pages", machine.huge_pages or "unknown"),
        *doctor_npu.facts(machine, npu),
        ("", ""),
        ("Engine", f"mindnano {uses['version']}: {uses['isa']} kernels (built: {', '.join(machine.isas)})"),
        ("Threads", f"{uses['threads']}, on processors: {uses['cpus']}"),
        ("Attention", str(uses["device"])),
    ]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, fact in facts:
        grid.add_row(name, Text(fact))
    screen = output.console()
    screen.print(grid)
    screen.print()
    if not findings:
        screen.print("Nothing is wrong.")
    for finding in findings:
        screen.print(Text.assemble(("! ", "bold yellow"), finding.problem))
        screen.print(Text(f"  {finding.remedy}", style="dim"))
