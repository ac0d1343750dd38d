"""What the server is: models, health, properties."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mindnano import __version__
from mindnano.engine.memory import available
from mindnano.engine.timings import MIB, private_bytes
from mindnano.server import settings as limits
from mindnano.server.errors import ApiError
from mindnano.server.schemas import about as a
from mindnano.server.service import Service, service_of


def reply(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")


async def models(request: Request) -> Response:
    service = service_of(request)
    return reply(a.ModelList(object="list", data=[_model(service, name) for name in service.names]))


async def model(request: Request) -> Response:
    service = service_of(request)
    return reply(_model(service, service.check_model(request.path_params["model"])))


def _model(service: Service, name: str) -> a.Model:
    return a.Model(id=name, object="model", created=service.started, owned_by="mindnano")


async def health(request: Request) -> Response:
    """200 while requests can be answered."""
    engine = service_of(request).engine
    if engine.stopping or not engine.alive:
        raise ApiError(503, "the server is stopping", kind="server_error", code="stopping")
    return reply(a.Health(status="ok"))


async def props(request: Request) -> Response:
    service = service_of(request)
    llm, settings, about = service.llm, service.settings, service.llm.describe()
    names = [name for name in vars(limits) if name.startswith("MAX_")]
    return reply(
        a.Props(
            model=a.ModelProps(
                id=settings.name,
                path=about["model"],
                type=about["model_type"],
                recipe=about["recipe"],
                synthetic=about["synthetic"],
            ),
            context=llm.context,
            slots=llm.slots,
            kv=a.KVProps(layout=llm.kv_layout, format=llm.kv),
            device=a.DeviceProps(
                requested=settings.device,
                effective=llm.device,
                emulated=llm.emulated,
                reason=about["device_reason"],
            ),
            memory=a.MemoryProps(
                plan=llm.plan.as_dict(),
                available_mib=available().nbytes // MIB,
                report=llm.memory_report(private_bytes()).as_dict(),
            ),
            isa=about["isa"],
            threads=about["threads"],
            thinking=settings.thinking,
            tools=service.form is not None,
            sessions=settings.session_dir is not None,
            sampling=dict(llm.generation),
            limits={name.removeprefix("MAX_").lower(): getattr(limits, name) for name in names},
            version=__version__,
        )
    )
