"""The base class of a recipe's sections, a strict pydantic model, and the error sentence for a mistake in one.

The sentence names the key, what was expected and the nearest known name.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from interplay.errors import ConfigError, did_you_mean

M = TypeVar("M", bound=BaseModel)


class Section(BaseModel):
    """A part of the recipe: unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Open(BaseModel):
    """A section that names an environment or an algorithm. Its other keys are the options of that class."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: str
    _before: str | None = PrivateAttr(default=None)  # the name in the file, if an override changed only the name

    def renamed(self, before: str) -> None:
        self._before = before

    @contextmanager
    def explained(self, table: str) -> Iterator[None]:
        """If an override changed only the name, the other keys still belong to the name in the file. An error about an
        unknown key then also says how to replace the whole table."""
        try:
            yield
        except ConfigError as error:
            if self._before is None or not str(error).startswith("unknown key"):
                raise
            raise ConfigError(
                f"{error} The other keys of [{table}] are those of '{self._before}' in the recipe; to replace the "
                f"whole table give '{table}={{name = \"{self.name}\"}}'."
            ) from None

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def validate(model: type[M], data: Mapping[str, Any], prefix: str = "") -> M:
    """Make `model` from `data`. Any mistake is a `ConfigError` of one sentence; its key begins with `prefix`."""
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(_sentence(model, error, prefix)) from None


def _sentence(model: type[BaseModel], error: ValidationError, prefix: str) -> str:
    # A misspelt key is both unknown and missing; the unknown key explains more.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    above = [prefix] if prefix else []
    named, wanted = _reach(model, [str(p) for p in first["loc"]])
    kind, key = first["type"], ".".join(above + named)
    if kind == "extra_forbidden":
        where = ".".join(above + named[:-1])
        owner = _reach(model, named[:-1])[1]
        known = owner.model_fields if _is_model(owner) else {}
        mistake = f"unknown key '{named[-1]}' in {'[' + where + ']' if where else 'the recipe'}; "
        if elsewhere := _places(model, named[-1]):
            return f"{mistake}known: {', '.join(sorted(known))}. Did you mean {' or '.join(elsewhere)}?"
        return mistake + did_you_mean(named[-1], known)
    if kind == "missing":
        return f"{key} is missing; expected {_described(wanted)}."
    bound = first["msg"].removeprefix("Input should be") if kind.startswith(("greater", "less")) else ""
    return f"{key} is {first.get('input')!r}; expected {_described(wanted)}{bound}."


def _places(model: type[BaseModel], key: str) -> list[str]:
    """The places of the recipe where a key of exactly this name is known: at its top, or in one of its tables."""
    tables = {name: _unwrap(info.annotation) for name, info in model.model_fields.items()}
    inside = [f"'{name}.{key}'" for name, table in tables.items() if _is_model(table) and key in table.model_fields]
    return [f"'{key}' at the top of the recipe"] * (key in tables) + inside


def _reach(model: type[BaseModel], loc: Sequence[str]) -> tuple[list[str], Any]:
    """The recipe keys in `loc`, without the union members that pydantic adds, and the type expected there."""
    current: Any = model
    named: list[str] = []
    for part in loc:
        if _is_model(current):
            info = current.model_fields.get(part)
            current = _unwrap(info.annotation) if info else None
        elif typing.get_origin(current) in (dict, list):
            current = _unwrap(typing.get_args(current)[-1])
        else:
            break
        named.append(part)
    return named, current


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _unwrap(annotation: Any) -> Any:
    """The type T of an optional `T | None`; any other type unchanged."""
    members = [a for a in typing.get_args(annotation) if a is not type(None)]
    return members[0] if _is_union(annotation) and len(members) == 1 else annotation


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


_ONE = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
_MANY = {int: "whole numbers", float: "numbers", str: "strings"}


def _described(annotation: Any) -> str:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(repr(a) for a in parts)
    if _is_union(annotation):
        return " or ".join(_described(a) for a in parts)
    if origin in (dict, list):
        kind = "a table" if origin is dict else "a list"
        return f"{kind} of {_MANY[parts[-1]]}" if parts[-1] in _MANY else kind
    return "a table" if _is_model(annotation) else _ONE.get(annotation, "a value of the right type")
