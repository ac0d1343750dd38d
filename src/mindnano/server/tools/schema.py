"""What JSON schemas of arguments say, as far as a form of calls needs it."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
KINDS = frozenset(("string", "number", "integer", "boolean", "null", "array", "object"))
_DEPTH = 8  # of references and unions that are followed


def resolve(schema: Any, root: Schema, depth: int = _DEPTH) -> Any:
    """A schema behind a local reference such as `#/$defs/Name`."""
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str) and depth:
        at: Any = root
        for name in schema["$ref"].removeprefix("#").strip("/").split("/"):
            at = at.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(at, dict) else None
        if at is None:
            return schema
        schema, depth = at, depth - 1
    return schema


def kinds(schema: Any, root: Schema, depth: int = _DEPTH) -> frozenset[str]:
    """The types of JSON values that a schema allows at most."""
    schema = resolve(schema, root)
    if not isinstance(schema, dict) or not depth:
        return KINDS
    found = KINDS
    given = schema.get("type")
    if isinstance(given, str):
        found &= {given}
    elif isinstance(given, list):
        found &= {one for one in given if isinstance(one, str)}
    if "number" in found:
        found |= {"integer"}
    if isinstance(schema.get("enum"), list):
        found &= {kind_of(value) for value in schema["enum"]}
    if "const" in schema:
        found &= {kind_of(schema["const"])}
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list):
            found &= frozenset().union(*(kinds(one, root, depth - 1) for one in schema[union]))
    for one in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        found &= kinds(one, root, depth - 1)
    return found


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, python in (("integer", int), ("number", float), ("string", str), ("array", list)):
        if isinstance(value, python):
            return kind
    return "object"


def choices(schema: Any, root: Schema) -> list[str] | None:
    """The strings that an enum or const allows; None where it is no choice between strings only."""
    schema = resolve(schema, root)
    if not isinstance(schema, dict):
        return None
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list) and values and all(isinstance(value, str) for value in values):
        return values
    return None


def depth_of(value: Any) -> int:
    """How deeply containers are nested; counts without recursion."""
    depth, level = 0, [value]
    while level:
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        depth += 1
    return depth - 1 if depth else 0
