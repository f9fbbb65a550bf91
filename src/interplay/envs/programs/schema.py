"""Lists all values of a JSON schema. Only a schema whose values can be listed can be enforced, because the learner
rebuilds the mask from the list."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

LIMIT = 1024
# How many characters all answers and their parts may have together. References can repeat a part any number of times,
# so a small schema can describe very large answers.
CHARACTERS = 1_000_000


class Unlistable(Exception):
    """The schema has more values than can be listed; the text says where."""


def every(schema: Any, limit: int = LIMIT) -> list[Any]:
    """All values of a schema made of enum, const, booleans, null, bounded integers, and objects and choices of these.

    >>> every({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})
    [{'ok': True}, {'ok': False}]
    """
    return _Listing(schema if isinstance(schema, Mapping) else {}, limit).all(schema)


class _Listing:
    """Lists the values of one schema, `root`, whose definitions its parts can refer to."""

    def __init__(self, root: Mapping[str, Any], limit: int) -> None:
        self.known = {**root.get("definitions", {}), **root.get("$defs", {})}
        self.limit = limit
        self.room = CHARACTERS

    def all(self, schema: Any) -> list[Any]:
        found, _ = self._values(schema, "the schema")
        if not found:
            raise Unlistable("the schema allows no answer")
        return found

    def _values(self, schema: Any, where: str) -> tuple[list[Any], int]:
        """The values of a part of the schema, and how many characters they have together."""
        self._spend(1)
        if not isinstance(schema, Mapping):
            raise Unlistable(f"{where} allows anything")
        if "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            if name not in self.known:
                raise Unlistable(f"{where} names '{name}', which is not defined")
            return self._values(self.known[name], where)
        if "enum" in schema:
            return self._listed(list(schema["enum"]), where)
        if "const" in schema:
            return self._listed([schema["const"]], where)
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                return self._choices(schema[choice], where)
        kind = schema.get("type")
        if kind == "boolean":
            return self._listed([True, False], where)
        if kind == "null":
            return self._listed([None], where)
        if kind == "integer" and "minimum" in schema and "maximum" in schema:
            numbers = range(int(schema["minimum"]), int(schema["maximum"]) + 1)
            self._bound(len(numbers), where, "numbers")
            return self._listed(list(numbers), where)
        if kind == "object":
            return self._objects(schema, where)
        raise Unlistable(f"{where} allows any {kind or 'value'}")

    def _listed(self, values: list[Any], where: str) -> tuple[list[Any], int]:
        self._bound(len(values), where, "answers")
        size = sum(len(json.dumps(value)) for value in values)
        self._spend(size)
        return values, size

    def _choices(self, schemas: Sequence[Any], where: str) -> tuple[list[Any], int]:
        found: list[Any] = []
        total = 0
        for one in schemas:
            values, size = self._values(one, where)
            found, total = found + values, total + size
            self._bound(len(found), where, "answers")
        return found, total

    def _objects(self, schema: Mapping[str, Any], where: str) -> tuple[list[Any], int]:
        properties = schema.get("properties") or {}
        parts = [self._values(p, f"{where}'s '{name}'") for name, p in properties.items()]
        count = math.prod(len(values) for values, _ in parts)
        self._bound(count, where, "objects")
        # Every value of a property is in the same number of objects.
        total = sum(size * count // max(1, len(values)) for values, size in parts) + count * len(
            json.dumps([*properties])
        )
        self._spend(total)
        values = itertools.product(*(values for values, _ in parts))
        return [dict(zip(properties, one, strict=True)) for one in values], total

    def _bound(self, count: int, where: str, what: str) -> None:
        if count > self.limit:
            raise Unlistable(f"{where} allows {count:,} {what}, more than {self.limit:,}")

    def _spend(self, characters: int) -> None:
        self.room -= characters
        if self.room < 0:
            raise Unlistable(f"all answers and their parts have more than {CHARACTERS:,} characters together")
