"""Instructions per multiply-add of the NEON kernels' inner loops, counted in what the cross compiler made of them.

Needs the objects that `make arm-wheel` leaves in build/. Prints the table of docs/aarch64.md; with --check it says
instead whether the table there is the one counted (exit status 1 if not), where the compiler is the same.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/aarch64.md"
BEGIN, END = "<!-- counted by make arm-count -->\n", "<!-- end -->\n"
PRODUCTS = {"sdot": 16, "smull": 8, "smull2": 8, "smlal": 8, "smlal2": 8, "fmla": 4}
BYTES = ("sdot", "smull", "smull2", "smlal", "smlal2")


@dataclass(frozen=True)
class Kernel:
    """An inner loop: the best one of the functions in an object whose names match."""

    what: str
    object: str
    function: str
    least: dict[str, float]  # instructions per multiply-add that no loop can go below, by instruction set


# SDOT does 16 multiply-adds. Without it two SMULL or SMLAL of 8 each are followed by one SADALP; a group of W4 fits
# int16, so that SMLAL is enough. FMLA does 4. KDA's step has one multiplication to three multiply-adds.
W8, W4, FP32 = {"neon_dot": 1 / 16, "neon": 3 / 16}, {"neon_dot": 1 / 16, "neon": 1 / 8}, {"neon_dot": 1 / 4}
KERNELS = (
    Kernel("W8, many rows", "linear", r"w8_(tile|blocks)<6(, false)?>", W8),
    Kernel("W8, one row", "linear", r"w8_(direct<1>|blocks<1, true>)", W8),
    Kernel("W4, many rows", "linear", r"w4_tile<6>", W4),
    Kernel("W4, one row", "linear", r"w4_direct<1>", W4),
    Kernel("attention, INT8: scores", "attention", r"scores_int8", W8),
    Kernel("attention, INT8: values", "attention", r"values_int8|attend.*operator\(\)", W8),
    Kernel("decode, INT8 latent: scores", "mla_decode_latent", r"scores_bytes", W8),
    Kernel("decode, INT8 latent: values", "mla_decode_latent", r"values_bytes|::chunk", W8),
    Kernel("fp32, many rows", "linear_dense", r"dense_tile<6>", FP32),
    Kernel("attention, fp32", "attention", r"scores_float", FP32),
    Kernel("KDA recurrence", "kda_recurrence", r"::recur", {"neon_dot": 1 / 3}),
)


def compiler() -> str:
    text = subprocess.run(
        ["aarch64-linux-gnu-g++", "-dumpfullversion"], capture_output=True, text=True, check=True
    )
    return f"GCC {text.stdout.strip()}"


def objects(isa: str) -> Path:
    found = sorted((ROOT / "build").glob(f"*linux_aarch64/CMakeFiles/kernels_{isa}.dir/native/kernels"))
    if not found:
        sys.exit("no objects in build/: run make arm-wheel first")
    return found[-1]


def functions(path: Path) -> dict[str, list[tuple[int, str, str]]]:
    """(address, operation, operands) of each function's instructions."""
    text = subprocess.run(
        ["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", "-C", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = {}
    for name, body in re.findall(r"^[0-9a-f]+ <(.*)>:\n((?:.+\n)*)", text, re.M):
        lines = (re.match(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)", line) for line in body.splitlines())
        found[name] = [(int(line[1], 16), line[2], line[3]) for line in lines if line]
    return found


def inner_loops(code: list[tuple[int, str, str]]) -> list[Counter[str]]:
    """What the loops without another loop inside consist of."""
    index = {address: i for i, (address, _, _) in enumerate(code)}
    loops = []
    for i, (_, operation, operands) in enumerate(code):
        target = re.search(r"\b([0-9a-f]+) <", operands)
        if target and (operation.startswith("b.") or operation in ("b", "cbz", "cbnz", "tbz", "tbnz")):
            start = index.get(int(target[1], 16), i + 1)
            if start <= i:
                loops.append((start, i))
    inner = [a for a in loops if not any(b != a and b[0] >= a[0] and b[1] <= a[1] for b in loops)]
    return [Counter(operation for _, operation, _ in code[first : last + 1]) for first, last in inner]


def products(loop: Counter[str]) -> int:
    """Multiply-adds of bytes where there are any (their scaling doesn't count), else of floats."""
    of_bytes = sum(PRODUCTS[name] * loop[name] for name in BYTES)
    return of_bytes or 4 * loop["fmla"]


def kind(operation: str) -> str:
    if operation in PRODUCTS or operation == "sadalp":
        return "multiply"
    if operation.startswith(("ld", "st", "prf")):
        return "memory"
    return "other"


def rows() -> list[str]:
    table = []
    for kernel in KERNELS:
        for isa, least in kernel.least.items():
            code = functions(objects(isa) / f"{kernel.object}.cpp.o")
            loops = [
                loop
                for name, instructions in code.items()
                if re.search(kernel.function, name)
                for loop in inner_loops(instructions)
                if products(loop)
            ]
            if not loops:
                sys.exit(
                    f"{kernel.what}: no loop in {kernel.object}.cpp.o ({isa}) whose function matches {kernel.function}"
                )
            best = min(loops, key=lambda loop: loop.total() / products(loop))
            kinds = Counter(dict.fromkeys(("multiply", "memory", "other"), 0))
            for operation, count in best.items():
                kinds[kind(operation)] += count
            each = best.total() / products(best)
            table.append(
                f"| {kernel.what} | {isa} | {products(best)} | {best.total()} | {kinds['multiply']} | "
                f"{kinds['memory']} | {kinds['other']} | {each:.3f} | {least:.3f} | {each / least:.2f} |"
            )
    return table


def page_table() -> str:
    head = (
        "inner loop | set | products | instructions | multiply | memory | other | per product | least | ratio"
    )
    lines = [f"| {head} |", "|---|---|" + "---:|" * 8, *rows()]
    return "\n".join([f"{compiler()}:", "", *lines]) + "\n"


def main() -> int:
    counted = page_table()
    if "--check" not in sys.argv:
        print(counted, end="")
        return 0
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    if counted.splitlines()[0] not in written:
        print(f"instructions: docs/aarch64.md counts another compiler's than {compiler()}; not compared")
        return 0
    if counted.strip() != written.strip():
        print(
            "instructions: docs/aarch64.md has other figures; write in what make arm-count prints:\n"
            + counted
        )
        return 1
    print("instructions: as docs/aarch64.md has them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
