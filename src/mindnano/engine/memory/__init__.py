"""What an engine will need of memory, by arithmetic before weights are read, and what this machine has."""

from mindnano.engine.memory.available import Available, available
from mindnano.engine.memory.fit import DEFAULT_CACHE, DEFAULT_RESERVE, choose_context, largest_context
from mindnano.engine.memory.plan import MemoryPlan, Setup, plan_memory, resident
from mindnano.engine.memory.report import Baseline, MemoryReport, Row, report

__all__ = [
    "DEFAULT_CACHE",
    "DEFAULT_RESERVE",
    "Available",
    "Baseline",
    "MemoryPlan",
    "MemoryReport",
    "Row",
    "Setup",
    "available",
    "choose_context",
    "largest_context",
    "plan_memory",
    "report",
    "resident",
]
