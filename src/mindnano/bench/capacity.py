"""How much context fits: a fresh server for each, its memory when ready, and while a prompt fills half of it.

rss_mib is the resident memory of a warm server. Whether the cache is part of it depends on the server: MindNano
touches its pages as they are used, the reference and llama.cpp at the start. So the memory of a full context is either
the server's own plan (arithmetic), or the smallest context's RSS plus what the cache grows by; never RSS plus the
cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import psutil

from mindnano.bench import machine_state
from mindnano.bench.campaign import Campaign, kind_of
from mindnano.bench.load import Driver, Load
from mindnano.bench.progress import total
from mindnano.bench.records import Point, points
from mindnano.bench.servers import Setting
from mindnano.bench.servers.client import RequestError
from mindnano.bench.servers.process import StartError

CONTEXTS = tuple(8192 << step for step in range(6))
MIB = 1 << 20
RESERVE_MIB = (
    512.0  # a server of which nothing else is known isn't started where less than this would be left
)
FILL_OUTPUT = 4


def fill_load(setting: Setting) -> Load:
    """A prompt of half the context."""
    return Load(setting.context // 2, FILL_OUTPUT)


def run(campaign: Campaign, settings: Sequence[Setting], fill_up_to: int | None = None) -> None:
    """Measure every setting that isn't measured yet, small contexts first.

    fill_up_to: the largest context of which half is filled with a prompt; None: all of them.
    """

    def fills(setting: Setting) -> bool:
        return fill_up_to is None or setting.context <= fill_up_to

    ordered = sorted(settings, key=lambda one: one.context)
    waiting = [s for s in ordered if not _known(campaign, s, fills(s))]
    campaign.left = lambda: total(
        campaign.estimate, [(kind_of(s), fill_load(s)) for s in waiting if fills(s)], len(waiting)
    )  # fmt: skip
    for setting in list(waiting):
        load = fill_load(setting) if fills(setting) else None
        seconds = total(campaign.estimate, [(kind_of(setting), load)] if load else [], 1)
        if campaign.no_time(setting, None, {"filled_tokens": load and load.input_tokens}, seconds):
            waiting.remove(setting)
            continue
        campaign.progress.doing(f"capacity {setting.label}", campaign.left())
        begin = perf_counter()
        try:
            check(campaign, setting)
            with campaign.serving(setting) as driver:
                point = look(campaign, driver, fills(setting))
        except StartError as error:
            point = campaign.not_started(setting, error, None, {})
        else:
            campaign.results.append(point)
            campaign.progress.did(
                f"{setting.label}: {_outcome(point)}", perf_counter() - begin, campaign.left()
            )
        waiting.remove(setting)


def _known(campaign: Campaign, setting: Setting, fill: bool) -> bool:
    """Whether it is measured; one that was only looked at when ready is measured again to be filled."""
    key = campaign.key(setting, None, {})
    seen = [one for one in campaign.results.of(key) if one.status in ("ok", "not_started")]
    filled = any(one.filled_tokens or one.status == "not_started" for one in seen)
    return campaign.done(key) and (filled or not fill)


def look(campaign: Campaign, driver: Driver, fill: bool) -> Point:
    """Memory of a warm server, then of one that reads a prompt of half its context."""
    point = driver.point("capacity")
    pids = driver.server.pids
    point.mem_available_mib = psutil.virtual_memory().available / MIB
    if pids is not None:
        point.rss_mib = machine_state.rss_mib(pids)
        point.rss_file_mib = machine_state.rss_file_mib(pids)
        point.peak_rss_mib = machine_state.peak_rss_mib(pids)
        point.vm_swap_mib = machine_state.vm_swap_mib(pids)
    _predict(campaign, driver, point)
    if fill:
        load = fill_load(driver.server.setting)
        try:
            filled = driver.run(load, "fill")
        except RequestError as error:
            point.status, point.reason = (
                "failed",
                f"while a prompt of {load.input_tokens} tokens was read: {error}",
            )
            return point
        point.filled_tokens = filled.prompt_tokens
        point.peak_rss_mib, point.vm_swap_mib = filled.peak_rss_mib, filled.vm_swap_mib
        point.ttft_s, point.machine = filled.ttft_s, filled.machine
        # Other programs cost time, which isn't measured here; only what falsifies memory disturbs.
        point.disturbed = [why for why in filled.disturbed if why.startswith("swap")]
        if filled.ttft_s is not None:
            campaign.estimate.learn(point.kind, load, filled.ttft_s, None)
    return point


def _predict(campaign: Campaign, driver: Driver, point: Point) -> None:
    plan = driver.server.facts.plan_mib
    if plan is not None:
        point.predicted_filled_rss_mib, point.predicted_from = plan, "plan"
        return
    base = _baseline(campaign, driver.server.setting) or point
    if base.rss_mib is not None and base.kv_capacity_mib is not None and point.kv_capacity_mib is not None:
        point.predicted_filled_rss_mib = base.rss_mib + point.kv_capacity_mib - base.kv_capacity_mib
        point.predicted_from = "baseline"


def _baseline(campaign: Campaign, setting: Setting) -> Point | None:
    """The smallest context of the same server and cache that was measured."""
    same = [
        point for point in points(campaign.results.records, "capacity")
        if point.status == "ok" and point.server == setting.preset and point.model == setting.name
        and point.kv_format == setting.kv and point.slots in (None, setting.slots) and point.context_tokens
        and point.kv_layout in (None, setting.kv_layout)
    ]  # fmt: skip
    return min(same, key=lambda point: point.context_tokens or 0, default=None)


def check(campaign: Campaign, setting: Setting) -> None:
    """Raise StartError where a server that has no plan of its own would not fit. MindNano checks its plan itself."""
    base = None if setting.preset == "mindnano" or setting.url else _baseline(campaign, setting)
    if base is None or base.rss_mib is None or base.kv_capacity_mib is None or not base.context_tokens:
        return
    grown = base.kv_capacity_mib * (setting.context / base.context_tokens - 1)
    needs, available = base.rss_mib + grown, psutil.virtual_memory().available / MIB
    if needs + RESERVE_MIB > available:
        raise StartError(
            f"ctx {setting.context} would not fit: {base.rss_mib:,.0f} MiB at {base.context_tokens} tokens + "
            f"{grown:,.0f} MiB more cache = {needs:,.0f} MiB and {RESERVE_MIB:,.0f} MiB reserve, available "
            f"{available:,.0f} MiB", refused=True,
        )  # fmt: skip


def _outcome(point: Point) -> str:
    if point.status != "ok":
        return str(point.reason)

    def mib(value: float | None) -> str:
        return "?" if value is None else f"{value:,.0f}"

    filled = (
        f", peak {mib(point.peak_rss_mib)} with {point.filled_tokens} tokens" if point.filled_tokens else ""
    )
    kv, rss, free = (mib(v) for v in (point.kv_capacity_mib, point.rss_mib, point.mem_available_mib))
    return f"KV {kv}, RSS {rss}{filled}, available {free} MiB"
