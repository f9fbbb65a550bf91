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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interplay.agents.arguments import (
    Arguments,
    Call,
    Malformed,
    as_json,
    as_text,
    call_from,
    call_from_json,
    call_of,
    checked,
    dumps,
    listing,
    loads,
    named,
    named_call,
    shown_call,
    told_tool,
    unchecked,
    valued,
)
from interplay.types import Message, Tool, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Chat = list[dict[str, Any]]


Wanted = list[Call | Malformed]


class Syntax(ABC):
    native = True  # the tools are passed to the template

    def chat(self, messages: Sequence[Message], tools: Sequence[Tool | str]) -> Chat:
        """The messages in the form that the template takes."""
        return [{"role": m.role, "content": m.content} for m in messages]

    @abstractmethod
    def calls(self, text: str, tools: Sequence[Tool]) -> Wanted:
        """The calls in a reply, in order; empty if the reply calls no tool."""

    @abstractmethod
    def write(self, call: Call) -> str:
        """A reply that makes this call; `calls` can parse it."""

    @abstractmethod
    def wrote(self, call: ToolCall) -> str:
        """The same for a call of an outside program's tool, which is not checked here."""

    @abstractmethod
    def spoken(self, text: str, tools: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
        """A reply to an outside program: its words, and its calls by name and arguments (JSON text). Nothing is
        checked. Text that is not a call stays among the words, and the program gets the arguments as they were
        sampled."""


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
                found.append(call_from_json(body, tools))
        return found

    def write(self, call: Call) -> str:
        if not self.tagged:
            return f"<tool_call>\n{as_json(call, 'arguments')}\n</tool_call>"
        return self._tagged(call.tool.name, call.arguments)

    def _tagged(self, name: str, arguments: Arguments) -> str:
        given = "".join(f"<parameter={p}>\n{as_text(v)}\n</parameter>\n" for p, v in arguments.items())
        return f"<tool_call>\n<function={name}>\n{given}</function>\n</tool_call>"

    def wrote(self, call: ToolCall) -> str:
        arguments = loads(call.arguments)
        if self.tagged and isinstance(arguments, dict):
            return self._tagged(call.name, arguments)
        return f"<tool_call>\n{unchecked(call, 'arguments')}\n</tool_call>"

    def spoken(self, text: str, tools: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
        calls: list[tuple[str, str]] = []

        def read(block: re.Match[str]) -> str:
            body, closed = block.groups()
            if closed and (tagged := self._FUNCTION.search(body)):
                given = {p: valued(v) for p, v in self._PARAMETER.findall(tagged[2])}
                calls.append((tagged[1], dumps(given)))
                return ""
            found = named_call(body) if closed else None
            if found is None:
                return block[0]
            calls.append(found)
            return ""

        words = self._BLOCK.sub(read, text)
        return (words.strip() if calls else text), calls


class Llama(Syntax):
    """Llama 3: `{"name": …, "parameters": {…}}`, either as the whole reply or after `<|python_tag|>`. After that tag,
    `tool.call(name="value")` is also a call, and anything else is a program for the tool `python`."""

    TAG = "<|python_tag|>"
    _BUILTIN = re.compile(r"(\w+)\.call\((.*)\)\s*\Z", re.S)

    def calls(self, text: str, tools: Sequence[Tool]) -> Wanted:
        before, tag, body = text.partition(self.TAG)
        if not tag:
            bare = before.strip()
            return [call_from_json(bare, tools)] if bare.startswith("{") and '"name"' in bare else []
        body = body.strip()
        if body.startswith("{"):
            return [call_from_json(part, tools) for part in body.split(";\n")]
        if builtin := self._BUILTIN.match(body):
            given = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', builtin[2]))
            return [checked(builtin[1], given, tools)]
        program = next((t for t in tools if t.name == "python"), None)
        if program is None:
            return [Malformed(f"nothing here runs Python. {listing(tools)}")]
        return [checked("python", {program.parameters[0].name: body}, tools)]

    def write(self, call: Call) -> str:
        return as_json(call, "parameters")

    def wrote(self, call: ToolCall) -> str:
        return unchecked(call, "parameters")

    def spoken(self, text: str, tools: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
        words, tag, body = text.partition(self.TAG)
        parts = body.split(";\n") if tag else [words]
        calls = [named_call(part) for part in parts]
        found = [c for c in calls if c is not None]
        if not found or len(found) < len(calls):
            return text, []
        return (words.strip() if tag else ""), found


class Mistral(Syntax):
    """`[TOOL_CALLS] [{"name": …, "arguments": {…}}]`, or the later `[TOOL_CALLS]NAME[ARGS]{…}`.

    Its templates require structured calls with ids, so the template rewrites earlier calls."""

    MARK = "[TOOL_CALLS]"

    def __init__(self, later: bool = False) -> None:
        self.later = later

    def chat(self, messages: Sequence[Message], tools: Sequence[Tool | str]) -> Chat:
        out: Chat = []
        unanswered: list[str] = []
        for m in messages:
            if m.role == "assistant" and self.MARK in m.content:
                functions = [shown_call(given) for given in self._objects(m.content)]
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
        return [call_from(given, tools) for given in self._objects(text)]

    def _objects(self, text: str) -> list[Any]:
        """The JSON object of each call, as the model wrote it."""
        out: list[Any] = []
        for body in text.split(self.MARK)[1:]:
            name, later, arguments = body.partition("[ARGS]")
            given = {"name": name.strip(), "arguments": loads(arguments)} if later else loads(body)
            out += given if isinstance(given, list) and given else [given]
        return out

    def write(self, call: Call) -> str:
        if self.later:
            return f"{self.MARK}{call.tool.name}[ARGS]{dumps(dict(call.arguments))}"
        return f"{self.MARK} [{as_json(call, 'arguments')}]"

    def wrote(self, call: ToolCall) -> str:
        if self.later:
            return f"{self.MARK}{call.name}[ARGS]{call.arguments}"
        return f"{self.MARK} [{unchecked(call, 'arguments')}]"

    def spoken(self, text: str, tools: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
        found = [call_of(given) for given in self._objects(text)]
        calls = [c for c in found if c is not None]
        if not calls or len(calls) < len(found):
            return text, []
        return text.partition(self.MARK)[0].strip(), calls


class Plain(Syntax):
    """For all other models: a line that begins with `@NAME` calls a tool; the rest of the reply is the argument.

    A tool with several arguments takes a JSON object. The output comes back as a tool message if the template supports
    these, otherwise as a user message."""

    native = False
    _LINE = re.compile(r"^@(\w+)[ \t:]*", re.M)

    def __init__(self, speaker: str = "tool") -> None:
        self.speaker = speaker

    def chat(self, messages: Sequence[Message], tools: Sequence[Tool | str]) -> Chat:
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
                    return [Malformed(f"there is no tool '{line[1][:40]}'. {listing(tools)}")]
                continue
            body = text[line.end() :].strip()
            needed = [p for p in tool.parameters if p.required] or list(tool.parameters)
            if len(needed) == 1 and len(tool.parameters) == 1:
                return [checked(tool.name, {needed[0].name: body}, tools)]
            given = loads(body or "{}")
            if not isinstance(given, dict):
                return [Malformed(f"@{tool.name} takes a JSON object with {named(tool.parameters)}.")]
            return [checked(tool.name, given, tools)]
        return []

    def write(self, call: Call) -> str:
        if len(call.tool.parameters) == 1:
            return f"@{call.tool.name} {as_text(next(iter(call.arguments.values()), ''))}".rstrip()
        return f"@{call.tool.name} {dumps(dict(call.arguments))}"

    def wrote(self, call: ToolCall) -> str:
        arguments = loads(call.arguments)
        if isinstance(arguments, dict) and len(arguments) <= 1:
            return f"@{call.name} {as_text(next(iter(arguments.values()), ''))}".rstrip()
        return f"@{call.name} {call.arguments}"

    def spoken(self, text: str, tools: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
        known = {name: parameters for name, _, parameters in map(told_tool, tools)}
        for line in self._LINE.finditer(text):
            if line[1] not in known:
                continue
            body, parameters = text[line.end() :].strip(), known[line[1]]
            arguments = body or "{}"
            if len(parameters) == 1 and not isinstance(loads(body), dict):
                ((name, kind),) = parameters.items()
                arguments = dumps({name: body if kind == "string" else valued(body)})
            return text[: line.start()].strip(), [(line[1], arguments)]
        return text, []


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


def schema(tool: Tool | str) -> dict[str, Any]:
    """The tool's JSON schema, as chat templates take it. The tool of an outside program is one already, as text."""
    if isinstance(tool, str):
        return dict(json.loads(tool))
    properties = {p.name: {"type": p.type, "description": p.description} for p in tool.parameters}
    required = [p.name for p in tool.parameters if p.required]
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def describe(tools: Sequence[Tool | str]) -> str:
    """The description of the tools for a model whose template has no tool support."""
    lines = [
        "Before you answer you may call a tool: reply with one line and nothing else, and you will see its output."
    ]
    for tool in tools:
        if isinstance(tool, str):
            name, description, known = told_tool(tool)
            parameters = list(known)
        else:
            name, description, parameters = tool.name, tool.description, [p.name for p in tool.parameters]
        one = len(parameters) == 1
        form = parameters[0].upper() if one else "{" + ", ".join(f'"{p}": …' for p in parameters) + "}"
        lines.append(f"@{name} {form}: {description}")
    return "\n".join(lines)
