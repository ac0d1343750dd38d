"""GET /v1/benchmark: the curves of the last benchmark, for the page."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from mindnano.bench.curves import curves
from mindnano.server.about import reply
from mindnano.server.schemas.about import Benchmark
from mindnano.server.service import service_of


async def benchmark(request: Request) -> Response:
    """Read anew each time: a benchmark that is still running adds to its file."""
    results = service_of(request).settings.bench_results
    return reply(Benchmark(points=[] if results is None else await asyncio.to_thread(curves, results)))
