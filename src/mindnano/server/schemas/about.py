"""/v1/models, /health and /props."""

from __future__ import annotations

from typing import Any, Literal

from mindnano.server.schemas.common import Body


class Model(Body):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Body):
    object: Literal["list"]
    data: list[Model]


class Health(Body):
    status: Literal["ok"]


class ModelProps(Body):
    """path: where it was opened, or built-in. synthetic: random weights, its text means nothing."""

    id: str
    path: str
    type: str
    recipe: str
    synthetic: bool


class KVProps(Body):
    """As asked for when the server started; a kind that can't be had is refused there."""

    layout: str
    format: str


class DeviceProps(Body):
    """What may compute a prompt's attention beside the CPU, whether it is an emulation, and why it was chosen."""

    requested: str
    effective: str
    emulated: bool
    reason: str


class MemoryProps(Body):
    """plan: bytes by purpose. available_mib: what the machine, or the control group, has left now. report: as
    `mindnano plan --json`, each context, layout and format against what would be free if this server ended."""

    plan: dict[str, float]
    available_mib: int
    report: dict[str, Any]


class Benchmark(Body):
    """points: context_tokens (of input), output_tokens, kv_layout, kv_format, ttft_s, decode_tok_s, runs, disturbed,
    synthetic. None without --bench-results."""

    points: list[dict[str, Any]]


class Props(Body):
    """sampling: what the model recommends. thinking: whether requests that don't say think first. tools: whether the
    model's form of tool calls is known. sessions: whether they can be saved."""

    model: ModelProps
    context: int
    slots: int
    kv: KVProps
    device: DeviceProps
    memory: MemoryProps
    isa: str
    threads: int
    thinking: bool
    tools: bool
    sessions: bool
    sampling: dict[str, Any]
    limits: dict[str, int]
    version: str
