"""Lists all values of a JSON schema. Only a schema whose values can be listed can be enforced, because the learner
rebuilds the mask from the list."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

LIMIT = 1024


class Unlistable(Exception):
    """The schema has more values than can be listed; the text says where."""


def every(schema: Any, limit: int = LIMIT) -> list[Any]:
    """All values of a schema made of enum, const, booleans, null, bounded integers, and objects and choices of these.

    >>> every({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})
    [{'ok': True}, {'ok': False}]
    """
    root = schema if isinstance(schema, Mapping) else {}
    found = _values(schema, root, "the schema", limit)
    if not found:
        raise Unlistable("the schema allows no answer")
    if len(found) > limit:
        raise Unlistable(f"the schema allows {len(found):,} answers, more than {limit:,}")
    return found


def _values(schema: Any, root: Mapping[str, Any], where: str, limit: int) -> list[Any]:
    if not isinstance(schema, Mapping):
        raise Unlistable(f"{where} allows anything")
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        known = {**root.get("definitions", {}), **root.get("$defs", {})}
        if name not in known:
            raise Unlistable(f"{where} names '{name}', which is not defined")
        return _values(known[name], root, where, limit)
    if "enum" in schema:
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return [v for one in schema[choice] for v in _values(one, root, where, limit)]
    kind = schema.get("type")
    if kind == "boolean":
        return [True, False]
    if kind == "null":
        return [None]
    if kind == "integer" and "minimum" in schema and "maximum" in schema:
        values = range(int(schema["minimum"]), int(schema["maximum"]) + 1)
        if len(values) > limit:
            raise Unlistable(f"{where} allows {len(values):,} numbers, more than {limit:,}")
        return list(values)
    if kind == "object":
        return _objects(schema, root, where, limit)
    raise Unlistable(f"{where} allows any {kind or 'value'}")


def _objects(schema: Mapping[str, Any], root: Mapping[str, Any], where: str, limit: int) -> list[Any]:
    properties = schema.get("properties") or {}
    parts = [_values(p, root, f"{where}'s '{name}'", limit) for name, p in properties.items()]
    count = 1
    for part in parts:
        count *= len(part)
    if count > limit:
        raise Unlistable(f"{where} allows {count:,} objects, more than {limit:,}")
    return [dict(zip(properties, values, strict=True)) for values in itertools.product(*parts)]
