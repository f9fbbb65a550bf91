"""Tool calls as JSON: reads, checks and writes them.

A `Call` is a call of a tool that runs here; its arguments were checked against the tool's parameters. A call that
cannot be parsed is `Malformed`, with the sentence that the model is shown. Calls of an outside program's tools are
names and JSON texts, which are not checked here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interplay.types import Parameter, Tool, ToolCall

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    tool: Tool
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class Malformed:
    why: str


def told_tool(tool: str) -> tuple[str, str, dict[str, str]]:
    """The name, description and parameter types of an outside program's tool, from its JSON schema."""
    function = json.loads(tool)["function"]
    properties = (function.get("parameters") or {}).get("properties") or {}
    kinds = {name: str(p.get("type", "")) if isinstance(p, dict) else "" for name, p in properties.items()}
    return str(function["name"]), str(function.get("description") or ""), kinds


UNREADABLE = object()


def as_json(call: Call, arguments: str) -> str:
    return dumps({"name": call.tool.name, arguments: dict(call.arguments)})


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # letters are not escaped, because the templates do not escape them


def unchecked(call: ToolCall, key: str) -> str:
    """A call whose arguments may not be valid JSON. They are written unchanged."""
    return f'{{"name": {dumps(call.name)}, "{key}": {call.arguments}}}'


def named_call(text: str) -> tuple[str, str] | None:
    """The name and arguments of a call that is one JSON object. The arguments are copied from its text unchanged."""
    found = call_of(loads(text.strip()))
    if found is None:
        return None
    key = re.search(r'"(?:arguments|parameters)"\s*:\s*', text)
    if key is None:
        return found
    try:
        value, end = json.JSONDecoder().raw_decode(text, key.end())
    except ValueError:
        return found
    return found if isinstance(value, str) else (found[0], text[key.end() : end])


def call_of(given: Any) -> tuple[str, str] | None:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        return None
    arguments = given.get("arguments", given.get("parameters", {}))
    return given["name"], arguments if isinstance(arguments, str) else dumps(arguments)


def valued(text: str) -> Any:
    """The text of a parameter as a JSON value or, if it is not one, as a string."""
    value = loads(text)
    return text if value is UNREADABLE else value


def loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return UNREADABLE


def call_from_json(text: str, tools: Sequence[Tool]) -> Call | Malformed:
    return call_from(loads(text.strip()), tools)


def call_from(given: Any, tools: Sequence[Tool]) -> Call | Malformed:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        return Malformed("the call is not a JSON object with a name and arguments.")
    arguments = given.get("arguments", given.get("parameters", {}))
    if isinstance(arguments, str):  # some models quote the object
        arguments = loads(arguments)
    if not isinstance(arguments, dict):
        return Malformed(f"the arguments of {given['name'][:40]} are not a JSON object.")
    return checked(given["name"], arguments, tools)


def shown_call(given: Any) -> dict[str, Any]:
    """A call for the history of the template, even if it could not be parsed."""
    known = given if isinstance(given, dict) else {}
    arguments = known.get("arguments")
    return {"name": str(known.get("name", "unreadable")), "arguments": arguments if isinstance(arguments, dict) else {}}


def checked(name: str, given: Mapping[str, Any], tools: Sequence[Tool]) -> Call | Malformed:
    """The call with its arguments checked and converted to their types."""
    tool = next((t for t in tools if t.name == name), None)
    if tool is None:
        return Malformed(f"there is no tool '{name[:40]}'. {listing(tools)}")
    known = {p.name: p for p in tool.parameters}
    if extra := sorted(given.keys() - known.keys()):
        return Malformed(f"{name} has no argument '{extra[0][:40]}'; expected {named(tool.parameters)}.")
    arguments: dict[str, Any] = {}
    for p in tool.parameters:
        if p.name in given:
            value = _typed(given[p.name], p.type)
            if value is None:
                return Malformed(f"{name}: '{p.name}' is no {p.type}.")
            arguments[p.name] = value
        elif p.required:
            return Malformed(f"{name} needs the argument '{p.name}'.")
    return Call(tool, arguments)


def _typed(value: Any, kind: str) -> Any:
    """`value` as JSON's type `kind`. Numbers may be given as text. None if the value has another type."""
    if kind == "string":
        return value if isinstance(value, str) else None if isinstance(value, dict | list | None) else json.dumps(value)
    if isinstance(value, str):
        value = loads(value)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > 1e300:
        return None
    if kind == "integer":
        return int(value) if float(value).is_integer() else None
    return float(value)


def named(parameters: Sequence[Parameter]) -> str:
    return ", ".join(f'"{p.name}"' for p in parameters) or "none"


def listing(tools: Sequence[Tool]) -> str:
    return f"Tools: {', '.join(t.name for t in tools) or 'none'}."
