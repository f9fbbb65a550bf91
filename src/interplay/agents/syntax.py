"""How each model family writes tool calls, and how its chat template is told about tools.

A `Syntax` converts messages and tools to the input of the template, parses the calls in a reply, and writes a call in
the form of the family (for demonstrations). Replies stay as they were sampled. If the template inserts the assistant's
text unchanged, the call is inserted unchanged too, and the next prompt extends the same ids. A call that cannot be
parsed is `Malformed`, with a sentence that tells the model what is wrong. Templates without tool support, or with
another call format, use `Plain`: the first message describes the tools, and a line `@NAME argument` calls one.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interplay.types import Message, Parameter, Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Arguments = Mapping[str, Any]
Chat = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Call:
    tool: Tool
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class Malformed:
    why: str


Wanted = list[Call | Malformed]


class Syntax(ABC):
    native = True  # the tools are passed to the template

    def chat(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Chat:
        """The messages in the form that the template takes."""
        return [{"role": m.role, "content": m.content} for m in messages]

    @abstractmethod
    def calls(self, text: str, tools: Sequence[Tool]) -> Wanted:
        """The calls in a reply, in order; empty if the reply calls no tool."""

    @abstractmethod
    def write(self, call: Call) -> str:
        """A reply that makes this call; `calls` can parse it."""


class Hermes(Syntax):
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>` (Hermes, Qwen), or Qwen's later
    `<tool_call><function=NAME><parameter=P>value</parameter></function></tool_call>`."""

    _BLOCK = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.S)
    _FUNCTION = re.compile(r"<function=([^>\s]+)>(.*?)</function>", re.S)
    _PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.S)

    def __init__(self, tagged: bool = False) -> None:
        self.tagged = tagged  # the template uses the later form

    def calls(self, text: str, tools: Sequence[Tool]) -> Wanted:
        found: Wanted = []
        for body, closed in self._BLOCK.findall(text):
            if not closed:
                found.append(Malformed("the call has no </tool_call>."))
            elif tagged := self._FUNCTION.search(body):
                found.append(checked(tagged[1], dict(self._PARAMETER.findall(tagged[2])), tools))
            else:
                found.append(_from_json(body, tools))
        return found

    def write(self, call: Call) -> str:
        if not self.tagged:
            return f"<tool_call>\n{_json(call, 'arguments')}\n</tool_call>"
        given = "".join(f"<parameter={p}>\n{_plain(v)}\n</parameter>\n" for p, v in call.arguments.items())
        return f"<tool_call>\n<function={call.tool.name}>\n{given}</function>\n</tool_call>"


class Llama(Syntax):
    """Llama 3: `{"name": …, "parameters": {…}}`, either as the whole reply or after `<|python_tag|>`. After that tag,
    `tool.call(name="value")` is also a call, and anything else is a program for the tool `python`."""

    TAG = "<|python_tag|>"
    _BUILTIN = re.compile(r"(\w+)\.call\((.*)\)\s*\Z", re.S)

    def calls(self, text: str, tools: Sequence[Tool]) -> Wanted:
        before, tag, body = text.partition(self.TAG)
        if not tag:
            bare = before.strip()
            return [_from_json(bare, tools)] if bare.startswith("{") and '"name"' in bare else []
        body = body.strip()
        if body.startswith("{"):
            return [_from_json(part, tools) for part in body.split(";\n")]
        if builtin := self._BUILTIN.match(body):
            given = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', builtin[2]))
            return [checked(builtin[1], given, tools)]
        program = next((t for t in tools if t.name == "python"), None)
        if program is None:
            return [Malformed(f"nothing here runs Python. {_listing(tools)}")]
        return [checked("python", {program.parameters[0].name: body}, tools)]

    def write(self, call: Call) -> str:
        return _json(call, "parameters")


class Mistral(Syntax):
    """`[TOOL_CALLS] [{"name": …, "arguments": {…}}]`, or the later `[TOOL_CALLS]NAME[ARGS]{…}`.

    Its templates require structured calls with ids, so the template rewrites earlier calls."""

    MARK = "[TOOL_CALLS]"

    def __init__(self, later: bool = False) -> None:
        self.later = later

    def chat(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Chat:
        out: Chat = []
        unanswered: list[str] = []
        for m in messages:
            if m.role == "assistant" and self.MARK in m.content:
                functions = [_shown(given) for given in self._objects(m.content)]
                ids = [f"call{len(out):03d}{n:02d}" for n in range(len(functions))]
                unanswered += ids
                calls = [{"id": i, "type": "function", "function": f} for i, f in zip(ids, functions, strict=True)]
                out.append({"role": "assistant", "content": "", "tool_calls": calls})
            elif m.role == "tool":
                out.append({"role": "tool", "content": m.content, "tool_call_id": unanswered.pop(0)})
            else:
                out.append({"role": m.role, "content": m.content})
        return out

    def calls(self, text: str, tools: Sequence[Tool]) -> Wanted:
        return [_from_object(given, tools) for given in self._objects(text)]

    def _objects(self, text: str) -> list[Any]:
        """The JSON object of each call, as the model wrote it."""
        out: list[Any] = []
        for body in text.split(self.MARK)[1:]:
            name, later, arguments = body.partition("[ARGS]")
            given = {"name": name.strip(), "arguments": _loads(arguments)} if later else _loads(body)
            out += given if isinstance(given, list) and given else [given]
        return out

    def write(self, call: Call) -> str:
        if self.later:
            return f"{self.MARK}{call.tool.name}[ARGS]{_dumps(dict(call.arguments))}"
        return f"{self.MARK} [{_json(call, 'arguments')}]"


class Plain(Syntax):
    """For all other models: a line that begins with `@NAME` calls a tool; the rest of the reply is the argument.

    A tool with several arguments takes a JSON object. The output comes back as a tool message if the template supports
    these, otherwise as a user message."""

    native = False
    _LINE = re.compile(r"^@(\w+)[ \t:]*", re.M)

    def __init__(self, speaker: str = "tool") -> None:
        self.speaker = speaker

    def chat(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Chat:
        out = [{"role": self.speaker if m.role == "tool" else m.role, "content": m.content} for m in messages]
        if tools:
            out[0] = {**out[0], "content": f"{out[0]['content']}\n{describe(tools)}"}
        return out

    def calls(self, text: str, tools: Sequence[Tool]) -> Wanted:
        known = {t.name: t for t in tools}
        for line in self._LINE.finditer(text):
            tool = known.get(line[1])
            if tool is None:
                if line.start() == 0:
                    return [Malformed(f"there is no tool '{line[1][:40]}'. {_listing(tools)}")]
                continue
            body = text[line.end() :].strip()
            needed = [p for p in tool.parameters if p.required] or list(tool.parameters)
            if len(needed) == 1 and len(tool.parameters) == 1:
                return [checked(tool.name, {needed[0].name: body}, tools)]
            given = _loads(body or "{}")
            if not isinstance(given, dict):
                return [Malformed(f"@{tool.name} takes a JSON object with {_named(tool.parameters)}.")]
            return [checked(tool.name, given, tools)]
        return []

    def write(self, call: Call) -> str:
        if len(call.tool.parameters) == 1:
            return f"@{call.tool.name} {_plain(next(iter(call.arguments.values()), ''))}".rstrip()
        return f"@{call.tool.name} {_dumps(dict(call.arguments))}"


FORMS: tuple[Syntax, ...] = (Hermes(), Mistral(), Llama(), Plain())


def syntax_of(tokenizer: PreTrainedTokenizerBase) -> Syntax:
    """The tool-call syntax of a tokenizer's model, recognised from its chat template."""
    text = tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else ""
    if "[TOOL_CALLS]" in text:
        return Mistral(later="[ARGS]" in text)
    if "tools" in text and "<tool_call>" in text and "<arg_key>" not in text:
        return Hermes(tagged="<function=" in text)
    if "tools" in text and ("<|python_tag|>" in text or "ipython" in text):
        return Llama()
    probe = [Message("user", "a"), Message("assistant", "b"), Message("tool", "probe")]
    try:
        shown = "probe" in str(tokenizer.apply_chat_template(Plain().chat(probe, ()), tokenize=False))
    except Exception:  # the template refused the message: jinja can raise anything
        shown = False
    return Plain("tool" if shown else "user")


def schema(tool: Tool) -> dict[str, Any]:
    """The tool's JSON schema, as chat templates take it."""
    properties = {p.name: {"type": p.type, "description": p.description} for p in tool.parameters}
    required = [p.name for p in tool.parameters if p.required]
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def describe(tools: Sequence[Tool]) -> str:
    """The description of the tools for a model whose template has no tool support."""
    lines = [
        "Before you answer you may call a tool: reply with one line and nothing else, and you will see its output."
    ]
    for t in tools:
        one = len(t.parameters) == 1
        form = t.parameters[0].name.upper() if one else "{" + ", ".join(f'"{p.name}": …' for p in t.parameters) + "}"
        lines.append(f"@{t.name} {form}: {t.description}")
    return "\n".join(lines)


# -- writing and reading arguments ----------------------------------------------------------------------------------

_UNREADABLE = object()


def _json(call: Call, arguments: str) -> str:
    return _dumps({"name": call.tool.name, arguments: dict(call.arguments)})


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _dumps(value)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # non-ASCII letters unescaped, as the templates write them


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _UNREADABLE


def _from_json(text: str, tools: Sequence[Tool]) -> Call | Malformed:
    return _from_object(_loads(text.strip()), tools)


def _from_object(given: Any, tools: Sequence[Tool]) -> Call | Malformed:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        return Malformed("the call is not a JSON object with a name and arguments.")
    arguments = given.get("arguments", given.get("parameters", {}))
    if isinstance(arguments, str):  # some models write the object as a JSON string
        arguments = _loads(arguments)
    if not isinstance(arguments, dict):
        return Malformed(f"the arguments of {given['name'][:40]} are not a JSON object.")
    return checked(given["name"], arguments, tools)


def _shown(given: Any) -> dict[str, Any]:
    """A call in the form that the template takes for earlier messages, even if it could not be parsed."""
    known = given if isinstance(given, dict) else {}
    arguments = known.get("arguments")
    return {"name": str(known.get("name", "unreadable")), "arguments": arguments if isinstance(arguments, dict) else {}}


def checked(name: str, given: Mapping[str, Any], tools: Sequence[Tool]) -> Call | Malformed:
    """Check a call and convert its arguments to their types."""
    tool = next((t for t in tools if t.name == name), None)
    if tool is None:
        return Malformed(f"there is no tool '{name[:40]}'. {_listing(tools)}")
    known = {p.name: p for p in tool.parameters}
    if extra := sorted(given.keys() - known.keys()):
        return Malformed(f"{name} has no argument '{extra[0][:40]}'; expected {_named(tool.parameters)}.")
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
    """`value` converted to the JSON type `kind` (also from text, such as "3"); None if it has another type."""
    if kind == "string":
        return value if isinstance(value, str) else None if isinstance(value, dict | list | None) else json.dumps(value)
    if isinstance(value, str):
        value = _loads(value)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > 1e300:
        return None
    if kind == "integer":
        return int(value) if float(value).is_integer() else None
    return float(value)


def _named(parameters: Sequence[Parameter]) -> str:
    return ", ".join(f'"{p.name}"' for p in parameters) or "none"


def _listing(tools: Sequence[Tool]) -> str:
    return f"Tools: {', '.join(t.name for t in tools) or 'none'}."
