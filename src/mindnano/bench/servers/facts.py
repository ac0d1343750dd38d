"""What a server says about itself. What it doesn't say stays None."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20
# "llama_kv_cache: CPU KV buffer size = 480.00 MiB", and the recurrent state's "RS buffer size" beside it.
_LLAMA_KV = re.compile(rb"KV buffer size\s*=\s*([0-9.]+)\s*MiB")


@dataclass(frozen=True)
class Facts:
    """kind: "mindnano", "llama-server" or "other". Sizes in MiB."""

    kind: str = "other"
    version: str | None = None
    model: str | None = None
    recipe: str | None = None
    synthetic: bool | None = None
    emulated: bool | None = None
    kv_layout: str | None = None
    kv_format: str | None = None
    device: str | None = None
    threads: int | None = None
    slots: int | None = None
    context: int | None = None
    kv_mib: float | None = None
    plan_mib: float | None = None


def from_props(props: Mapping[str, Any] | None) -> Facts:
    """From the answer to GET /props, which MindNano and llama-server both have."""
    if not isinstance(props, Mapping):
        return Facts()
    if isinstance(props.get("kv"), Mapping) and isinstance(props.get("model"), Mapping):
        return _mindnano(props)
    if "default_generation_settings" in props:
        settings = props["default_generation_settings"]
        return Facts(
            kind="llama-server",
            version=_text(props.get("build_info")),
            model=_name(props.get("model_path")),
            slots=_whole(props.get("total_slots")),
            context=_whole(settings.get("n_ctx")) if isinstance(settings, Mapping) else None,
        )
    return Facts()


def _mindnano(props: Mapping[str, Any]) -> Facts:
    model, kv = props["model"], props["kv"]
    device = props.get("device")
    device = device if isinstance(device, Mapping) else {}
    memory = props.get("memory")
    plan = memory.get("plan") if isinstance(memory, Mapping) else None
    plan = plan if isinstance(plan, Mapping) else {}
    return Facts(
        kind="mindnano",
        version=_text(props.get("version")),
        model=_name(model.get("path")),
        recipe=_text(model.get("recipe")),
        synthetic=_flag(model.get("synthetic")),
        emulated=_flag(device.get("emulated")),
        kv_layout=_text(kv.get("layout")),
        kv_format=_text(kv.get("format")),
        device=_text(device.get("effective")),
        threads=_whole(props.get("threads")),
        slots=_whole(props.get("slots")),
        context=_whole(props.get("context")),
        kv_mib=_mib(plan.get("kv")),
        plan_mib=_mib(plan.get("total")),
    )


def kv_from_log(log: Path) -> float | None:
    """MiB of KV buffers that llama.cpp wrote into its log."""
    try:
        sizes = [float(size) for size in _LLAMA_KV.findall(log.read_bytes())]
    except OSError:
        return None
    return sum(sizes) if sizes else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _name(value: Any) -> str | None:
    """A path's last part: results are passed on, and folders are nobody's business."""
    return Path(value).name if isinstance(value, str) and value else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _mib(value: Any) -> float | None:
    return value / MIB if isinstance(value, int | float) and not isinstance(value, bool) else None
