"""GET /metrics, in Prometheus' text form."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from mindnano.engine.memory import available
from mindnano.engine.timings import MIB, rss_mib
from mindnano.server.service import Service, service_of


class State(Collector):
    """Gauges of what is now."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def collect(self) -> Iterable[Metric]:
        llm, engine = self.service.llm, self.service.engine
        values = {
            "slots": ("Requests that can run at once.", llm.slots),
            "slots_busy": ("Requests that run.", llm.slots - llm.free_slots),
            "waiting": ("Requests that wait for a slot.", engine.waiting),
            "context_tokens": ("Tokens that a slot can hold.", llm.context),
            "kv_tokens": ("Tokens in the slots.", llm.kv_tokens),
            "prefix_cache_bytes": ("Bytes of prefix checkpoints.", llm.cache_bytes),
            "prefix_cache_budget_bytes": ("Bytes that they may take.", llm.plan.checkpoints),
            "planned_bytes": ("Bytes of the memory plan.", llm.plan.total),
            "resident_bytes": ("Resident memory of the process.", rss_mib() * MIB),
            "available_bytes": ("Memory that can still be had.", available().nbytes),
        }
        for name, (text, value) in values.items():
            yield GaugeMetricFamily(f"mindnano_{name}", text, value=value)


async def metrics(request: Request) -> Response:
    data = generate_latest(service_of(request).metrics.registry)
    return Response(data, media_type="text/plain; version=0.0.4; charset=utf-8")
