"""The one quantized checkpoint form that is read: compressed-tensors, pack-quantized, symmetric int4."""

from __future__ import annotations

from typing import Any

from mindnano.checkpoint.parts import GROUP
from mindnano.errors import MindNanoError, shorten

_WANTED = {
    "num_bits": 4,
    "type": "int",
    "symmetric": True,
    "strategy": "group",
    "group_size": GROUP,
}
# Settings that would change what the stored integers mean. "weight" order of activations is none.
_ABSENT = ("actorder", "block_structure", "zp_dtype")


def check(found: Any, where: str) -> bool:
    """Whether a `quantization_config` is there; refused by name unless it is the supported scheme."""
    if found is None:
        return False
    if not isinstance(found, dict):
        raise MindNanoError(f"{where}: quantization_config is {shorten(found)}, expected an object")
    _only(f"{where}: quantization_config", found, "quant_method", "compressed-tensors")
    _only(f"{where}: quantization_config", found, "format", "pack-quantized")
    if found.get("kv_cache_scheme") is not None:
        raise MindNanoError(
            f"{where}: quantization_config has kv_cache_scheme {shorten(found['kv_cache_scheme'])}, "
            "supported is null (the cache format is chosen with --kv)"
        )
    groups = found.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise MindNanoError(f"{where}: quantization_config has config_groups {shorten(groups)}, expected one")
    for name, group in groups.items():
        _check_group(f"{where}: quantization_config group {shorten(name)}", group)
    return True


def _check_group(where: str, group: Any) -> None:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        raise MindNanoError(f"{where} has weights {shorten(weights)}, expected an object")
    if group.get("format") is not None:
        _only(where, group, "format", "pack-quantized")
    for name in ("input_activations", "output_activations"):
        if group.get(name) is not None:
            raise MindNanoError(f"{where} has {name} {shorten(group[name])}, supported is null")
    for name, value in _WANTED.items():
        _only(where, weights, name, value)
    for name in _ABSENT:
        if weights.get(name) is not None:
            raise MindNanoError(f"{where} has {name} {shorten(weights[name])}, supported is null")
    if weights.get("dynamic"):
        raise MindNanoError(f"{where} has dynamic {shorten(weights['dynamic'])}, supported is false")


def _only(where: str, values: dict[str, Any], name: str, wanted: object) -> None:
    value = values.get(name)
    if type(value) is not type(wanted) or value != wanted:
        raise MindNanoError(f"{where} has {name} {shorten(value)}, supported is {wanted!r}")
