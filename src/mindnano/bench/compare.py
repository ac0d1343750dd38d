"""Is B faster than A? Interleaved pairs of two settings, or the runs of two results files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from mindnano.bench import statistics
from mindnano.bench.campaign import Campaign, kind_of
from mindnano.bench.load import Driver, Load
from mindnano.bench.perf import context_for
from mindnano.bench.records import Point, Record, points
from mindnano.bench.servers import Setting
from mindnano.bench.servers.process import StartError
from mindnano.bench.statistics import Ratio
from mindnano.errors import MindNanoError

PAIRS = 6
# What is compared: the field, and whether a smaller one is the faster.
MEASURES = {"ttft_s": True, "decode_tok_s": False}
Sides = Callable[[Point], str | None]  # "A", "B" or neither


@dataclass(frozen=True)
class Compared:
    """One figure of one load: B over A. marked: why some of the runs are not to be trusted, where the good ones were
    too few to go without them."""

    measure: str
    cache: str  # where several were compared, each with its like
    input_tokens: int
    output_tokens: int
    concurrency: int
    prompts: str
    ratio: Ratio
    verdict: str
    a: float  # geometric means
    b: float
    marked: str = ""

    def as_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = asdict(self)
        return values | dict(values.pop("ratio"))


def run(
    campaign: Campaign, a: Setting, b: Setting, loads: Sequence[Load], pairs: int, context: int | None = None
) -> None:
    """Measure `pairs` pairs of each load: A B, then B A, and so on, both servers alive where memory allows it.

    Servers are shared by the loads that need the same context and number of clients.
    """
    groups: dict[tuple[int, int], list[Load]] = {}
    for load in loads:
        groups.setdefault((context or context_for(load), load.concurrency), []).append(load)
    waiting = [load for load in loads for _ in range(2 * pairs)]
    name = name_of(a, b)
    campaign.left = lambda: sum(campaign.estimate.seconds(kind_of(a), load) for load in waiting)
    for (size, slots), members in groups.items():
        sides = [
            (side, one if one.url else replace(one, context=size, slots=slots))
            for side, one in (("A", a), ("B", b))
        ]
        wanted = [(pair, load) for pair in range(pairs) for load in members]
        left = [
            (pair, load, side, setting)
            for pair, load in wanted
            for side, setting in (sides if pair % 2 == 0 else sides[::-1])
            if not campaign.done(
                campaign.key(setting, load, {"comparison": name, "side": side, "pair": pair})
            )
        ]
        for load in members:
            missing = sum(1 for _, one, _, _ in left if one == load)
            for _ in range(2 * pairs - missing):
                waiting.remove(load)
        if left:
            _measure(campaign, name, left, waiting)


def _late(campaign: Campaign, name: str, one: tuple[int, Load, str, Setting], begun: set[Any]) -> bool:
    """Whether there is no time for that run; the second of a pair is always measured."""
    pair, load, side, setting = one
    if (pair, load) in begun:
        return False
    if campaign.no_time(
        setting, load, {"comparison": name, "side": side, "pair": pair},
        2 * campaign.estimate.seconds(kind_of(setting), load),
    ):  # fmt: skip
        return True
    begun.add((pair, load))
    return False


def _measure(
    campaign: Campaign, name: str, left: list[tuple[int, Load, str, Setting]], waiting: list[Load]
) -> None:
    """Both servers alive; where the second one is refused for memory, a fresh one for each run instead."""
    begun: set[Any] = set()
    if campaign.budget.refusal(0.0) is not None:
        for one in left:
            _late(campaign, name, one, begun)
            waiting.remove(one[1])
        return
    with ExitStack() as alive:
        drivers: dict[str, Driver] = {}
        refused: StartError | None = None
        for side, setting in {side: setting for _, _, side, setting in left}.items():
            try:
                drivers[side] = alive.enter_context(campaign.serving(setting))
            except StartError as error:
                if not error.refused or not drivers:
                    raise
                refused = error
        if refused is None:
            for one in left:
                pair, load, side, _ = one
                if not _late(campaign, name, one, begun):
                    campaign.measure(drivers[side], load, {"comparison": name, "side": side, "pair": pair})
                waiting.remove(load)
            return
    campaign.progress.did(
        f"both servers at once: {refused}; so a fresh one for each run", 0.0, campaign.left()
    )
    for one in left:
        pair, load, side, setting = one
        if not _late(campaign, name, one, begun):
            with campaign.serving(setting) as driver:
                campaign.measure(driver, load, {"comparison": name, "side": side, "pair": pair})
        waiting.remove(load)


def parse_setting(text: str, base: Setting) -> Setting:
    """A setting from `kv=int8,kv-layout=latent,...` over the common options. Raises MindNanoError.

    A preset that isn't named follows from the binary; paths may not hold a comma.
    """
    from mindnano.bench.servers import presets

    names = {"kv": str, "kv-layout": str, "model": str, "binary": str, "preset": str, "command": str, "url": str,
             "pid": int, "threads": int, "device": str}  # fmt: skip
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name not in names or not value:
            raise MindNanoError(
                f"{text!r} is neither a results file nor a setting; expected NAME=VALUE,... with {', '.join(names)}"
            )
        try:
            given[name.replace("-", "_")] = names[name](value)
        except ValueError:
            raise MindNanoError(f"{name}: expected a whole number, got {value!r}") from None
    if "binary" in given and "preset" not in given:
        given["preset"] = presets.guess(given["binary"])
    if "url" in given:  # what is set there is set there
        given = {"kv": None, "kv_layout": None, "model": None, "preset": "url"} | given
    return replace(base, **given)


def compare(
    records: Iterable[Record], sides: Sides, by_cache: bool = False, paired: bool = True
) -> list[Compared]:
    """Ratios and verdicts of every load that both sides have, corrected together.

    by_cache: only runs with equal layout and format are held against each other. paired: runs of one pair or round were
    measured next to each other; what was measured on two days wasn't.
    """
    groups: dict[tuple[Any, ...], dict[str, list[Point]]] = {}
    for point in points(records, "perf"):
        side = sides(point)
        if point.status == "ok" and side is not None:
            load = (
                point.input_tokens or 0,
                point.output_tokens or 0,
                point.concurrency or 1,
                point.prompts or "",
            )
            key = (point.kind if by_cache else "", *load)
            groups.setdefault(key, {"A": [], "B": []})[side].append(point)
    found = []
    for measure in MEASURES:
        for key, both in sorted(groups.items()):
            if (one := _compared(measure, key, both["A"], both["B"], paired)) is not None:
                found.append(one)
    said = statistics.verdicts([one.ratio for one in found], [MEASURES[one.measure] for one in found])
    return [replace(one, verdict=verdict) for one, verdict in zip(found, said, strict=True)]


def _compared(
    measure: str, key: tuple[Any, ...], a: list[Point], b: list[Point], paired: bool
) -> Compared | None:
    """Undisturbed runs if they are enough for an interval, otherwise all of them, marked."""
    best: Compared | None = None
    for trusted in (True, False):
        sides = (values(a, measure, trusted), values(b, measure, trusted))
        if not sides[0] or not sides[1]:
            continue
        ratio, means = ratio_of(*sides, paired)
        marked = (
            "" if trusted else "; ".join(sorted({_short(why) for one in (*a, *b) for why in one.disturbed}))
        )
        cache, tokens, answer, clients, prompts = key
        found = Compared(
            measure,
            cache,
            tokens,
            answer,
            clients,
            prompts,
            ratio,
            statistics.UNCLEAR,
            means[0],
            means[1],
            marked,
        )
        if ratio.low is not None:
            return found
        best = best or found
    return best


def ratio_of(
    a: dict[Any, list[float]], b: dict[Any, list[float]], paired: bool = True
) -> tuple[Ratio, tuple[float, float]]:
    """b / a, by what both have in common (pairs or rounds) or, where that isn't two at least, by all values; and the
    geometric means of the values used."""
    common = sorted(key for key in a.keys() & b.keys() if key is not None)
    if paired and len(common) >= 2:
        left, right = [_mean(a[key]) for key in common], [_mean(b[key]) for key in common]
        return statistics.paired_ratio(left, right), (_mean(left), _mean(right))
    left, right = ([value for values in side.values() for value in values] for side in (a, b))
    return statistics.unpaired_ratio(left, right), (_mean(left), _mean(right))


def values(runs: Iterable[Point], measure: str, trusted: bool) -> dict[Any, list[float]]:
    """A figure of runs by their pair or round; under None those that belong to none. trusted: undisturbed ones only."""
    found: dict[Any, list[float]] = {}
    for point in runs:
        value = getattr(point, measure)
        if value and (point.counts or (not trusted and point.status == "ok")):
            key = None
            if point.pair is not None:
                key = ("pair", point.pair)
            elif point.repeat is not None:
                key = ("round", point.repeat)
            found.setdefault(key, []).append(value)
    return found


def _mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(list(values)).value


def _short(why: str) -> str:
    """A disturbance without its figures."""
    return "other processes" if "of a core" in why else why.split(":")[0].split(" by ")[0]


def by_side(comparison: str | None = None) -> Sides:
    """Sides as runs were measured, of one comparison or of all."""
    return lambda point: point.side if comparison in (None, point.comparison) else None


def comparisons(records: Iterable[Record]) -> list[str]:
    """The comparisons that were measured, in order."""
    return list(dict.fromkeys(one.comparison for one in points(records, "perf") if one.comparison))


def name_of(a: Setting, b: Setting) -> str:
    return f"{_without_context(a)} | {_without_context(b)}"


def _without_context(setting: Setting) -> str:
    return setting.label.replace(f" ctx {setting.context}", "")


def by_kind(a: str, b: str) -> Sides:
    """Sides by the cache's layout and format, such as "latent bf16"; runs of comparisons don't count."""
    return lambda point: None if point.side else "A" if point.kind == a else "B" if point.kind == b else None


def files(
    a: Sequence[Record], b: Sequence[Record], kinds: tuple[str | None, str | None] = (None, None)
) -> list[Compared]:
    """Two results files, runs of equal caches against each other; or those of the two kinds named.

    Raises MindNanoError where nothing in them can be compared.
    """
    mine = {id(record) for record in a}

    def sides(point: Point) -> str | None:
        side = "A" if id(point) in mine else "B"
        wanted = kinds[0 if side == "A" else 1]
        return side if wanted in (None, point.kind) else None

    named = kinds != (None, None)
    alone = [{point.kind for point in points(side, "perf") if point.status == "ok"} for side in (a, b)]
    by_cache = not named and not (len(alone[0]) == 1 and len(alone[1]) == 1)
    found = compare([*a, *b], sides, by_cache, paired=False)
    if not found:
        held = " and ".join(", ".join(sorted(one)) or "no runs" for one in alone)
        raise MindNanoError(
            f"the files have no load in common (cache, input and output tokens, clients, prompts); they hold {held}; "
            "--a KIND and --b KIND choose a cache of each"
        )
    return found
