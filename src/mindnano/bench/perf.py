"""How long inputs take: time to the first token and decode speed by length, format and number of clients.

In rounds: each round starts every setting afresh, warms it up and puts every load on it once, in the order forward,
then backward. So the runs of one round are pairs, and a slow hour hits all settings alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mindnano.bench.campaign import Campaign, kind_of
from mindnano.bench.load import Load
from mindnano.bench.progress import Estimate, total
from mindnano.bench.servers import Setting
from mindnano.bench.servers.process import StartError
from mindnano.errors import MindNanoError

INPUTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


@dataclass(frozen=True)
class Visit:
    """One fresh server in one round, and the loads to put on it."""

    setting: Setting
    round: int
    loads: tuple[Load, ...]

    @property
    def kind(self) -> str:
        return kind_of(self.setting)


def context_for(load: Load) -> int:
    """The reference's rule: 8K up to 4096 tokens of input, then twice the input."""
    return 8192 if load.input_tokens + load.output_tokens <= 8192 and load.input_tokens <= 4096 else 2 * max(
        load.input_tokens, load.output_tokens
    )  # fmt: skip


def visits(
    settings: Sequence[Setting], loads: Sequence[Load], rounds: int | range, context: int | None = None
) -> list[Visit]:
    """Loads grouped by the server they need: a context, and as many slots as clients. rounds: how many, or which.
    context: the same for all."""
    numbers = range(rounds) if isinstance(rounds, int) else rounds
    found = []
    for setting in settings:
        groups: dict[tuple[int, int], list[Load]] = {}
        for load in loads:
            size = setting.context if setting.url else context or context_for(load)
            if not setting.url and load.input_tokens + load.output_tokens > size:
                raise MindNanoError(
                    f"--ctx {size}: {load.input_tokens} tokens of input and {load.output_tokens} of output don't fit"
                )
            groups.setdefault((size, 1 if setting.url else load.concurrency), []).append(load)
        for (size, slots), members in groups.items():
            one = setting if setting.url else replace(setting, context=size, slots=slots)
            found += [Visit(one, number, tuple(members)) for number in numbers]
    # Rounds outermost; inside a round lengths together, so that settings to be compared follow each other.
    found.sort(key=lambda visit: (visit.round, visit.setting.context, visit.setting.slots))
    ordered: list[Visit] = []
    for number in numbers:
        ours = [visit for visit in found if visit.round == number]
        ordered += ours if number % 2 == 0 else ours[::-1]
    return ordered


def seconds(plan: Sequence[Visit], estimate: Estimate) -> float:
    """Of a whole plan, by what is known so far."""
    return total(estimate, [(visit.kind, load) for visit in plan for load in visit.loads], len(plan))


def run(campaign: Campaign, plan: Sequence[Visit]) -> None:
    """Measure what isn't measured yet; every run is on disk when the next one begins."""

    def missing(visit: Visit) -> list[Load]:
        mark = {"repeat": visit.round}
        return [load for load in visit.loads if not campaign.done(campaign.key(visit.setting, load, mark))]

    todo = [replace(visit, loads=tuple(left)) for visit in plan if (left := missing(visit))]
    waiting = [(visit.round, visit.kind, load) for visit in todo for load in visit.loads]
    campaign.left = lambda: total(
        campaign.estimate, [(kind, load) for _, kind, load in waiting],
        len({(number, kind) for number, kind, _ in waiting}),
    )  # fmt: skip
    for visit in todo:
        mark = {"repeat": visit.round}

        def late(load: Load, visit: Visit = visit, mark: dict[str, int] = mark) -> bool:
            if no := campaign.no_time(visit.setting, load, mark):
                waiting.remove((visit.round, visit.kind, load))
            return no

        loads = [load for load in visit.loads if not late(load)]  # so that no server is started for nothing
        if not loads:
            continue
        campaign.progress.doing(f"starting {visit.setting.label}", campaign.left())
        try:
            with campaign.serving(visit.setting) as driver:
                for load in loads:
                    if not late(load):
                        campaign.measure(driver, load, mark)
                        waiting.remove((visit.round, visit.kind, load))
        except StartError as error:
            for load in loads:
                campaign.not_started(visit.setting, error, load, mark)
                waiting.remove((visit.round, visit.kind, load))
