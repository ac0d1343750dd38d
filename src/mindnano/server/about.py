"""What the server is: models, health, properties."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mindnano import __version__
from mindnano.engine.memory import MIB, available_bytes
from mindnano.server.errors import ApiError
from mindnano.server.service import service_of


def reply(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


async def models(request: Request) -> Response:
    service = service_of(request)
    data = [
        {"id": name, "object": "model", "created": service.started, "owned_by": "mindnano"}
        for name in service.names
    ]
    return reply({"object": "list", "data": data})


async def model(request: Request) -> Response:
    service = service_of(request)
    name = service.check_model(request.path_params["model"])
    return reply({"id": name, "object": "model", "created": service.started, "owned_by": "mindnano"})


async def health(request: Request) -> Response:
    """200 while requests can be answered."""
    engine = service_of(request).engine
    if engine.stopping or not engine.alive:
        raise ApiError(503, "the server is stopping", kind="server_error", code="stopping")
    return reply({"status": "ok"})


async def props(request: Request) -> Response:
    service = service_of(request)
    llm, about = service.llm, service.llm.describe()
    plan = llm.plan
    return reply(
        {
            "model": {
                "id": service.settings.name,
                "path": about["model"],
                "type": about["model_type"],
                "recipe": about["recipe"],
                "synthetic": about["synthetic"],
            },
            "context": llm.context,
            "slots": llm.slots,
            "kv": {"layout": llm.kv_layout, "format": llm.kv},
            "device": {"requested": "auto", "effective": llm.device},
            "memory": {
                "plan": {
                    "weights": plan.weights, "kv": plan.kv, "states": plan.states, "scratch": plan.scratch,
                    "runtime": plan.runtime, "total": plan.total,
                },
                "available_mib": available_bytes() // MIB,
            },
            "isa": about["isa"],
            "threads": about["threads"],
            "thinking": service.settings.thinking,
            "sampling": llm.generation,
            "version": __version__,
        }
    )  # fmt: skip
