"""Reads messages and tools in the format of chat APIs. A mistake in them is a `WireError` with one sentence."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from interplay.errors import EnvError
from interplay.types import Media, MediaKind, Message, ToolCall

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
Names = Literal["prefix", "drop"]
_SIGNATURES = {"image": b"\x89PNG\r\n\x1a\n", "audio": b"RIFF"}  # the first bytes of PNG and WAV files


MESSAGES = 10_000  # the most messages of a conversation


class WireError(EnvError):
    """A request of a program that cannot be served as it is."""


def messages_of(
    given: str | Sequence[Message | Mapping[str, Any]], names: Names = "prefix", first: str = ""
) -> tuple[Message, ...]:
    """A conversation. A text becomes one user message. With `prefix`, the name in a user message is written before its
    text, because chat templates have no place for names."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if isinstance(given, Mapping) or not isinstance(given, Sequence):
        raise WireError(f"messages is a {type(given).__name__}; expected a list of messages.")
    if len(given) > MESSAGES:
        raise WireError(f"messages has {len(given):,} messages; at most {MESSAGES:,} are read.")
    begin = (Message("system", first),) if first else ()
    out = begin + tuple(one if isinstance(one, Message) else _message(one, n, names) for n, one in enumerate(given))
    if not out:
        raise WireError("messages is empty; expected at least one message.")
    return tuple(map(_encodable, out))


def _encodable(message: Message) -> Message:
    """Replace half of a surrogate pair, which JSON can contain but no tokenizer can encode, by a question mark."""
    calls = [(c.id, c.name, c.arguments) for c in message.tool_calls]
    try:
        "".join([message.content, str(message.name or ""), *itertools.chain(*calls)]).encode()
    except UnicodeEncodeError:
        name = None if message.name is None else _whole(str(message.name))
        whole = tuple(ToolCall(*map(_whole, call)) for call in calls)
        return replace(message, content=_whole(message.content), name=name, tool_calls=whole)
    return message


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _message(given: Any, number: int, names: Names) -> Message:
    role = given.get("role") if isinstance(given, Mapping) else given
    if not isinstance(given, Mapping) or not isinstance(role, str) or role not in ROLES:
        raise WireError(f"messages.{number} has the role {role!r}; expected one of {', '.join(ROLES)}.")
    role = ROLES[role]
    content, media = words_of(given.get("content"), f"messages.{number}.content")
    name = given.get("name")
    if name and role == "user" and names == "prefix":
        content = f"{name}: {content}"
    calls = tuple(_call(c, f"messages.{number}.tool_calls.{i}") for i, c in enumerate(given.get("tool_calls") or ()))
    return Message(role, content, name, calls, given.get("tool_call_id"), media)


def _call(given: Any, where: str) -> ToolCall:
    try:
        function = given["function"]
        return ToolCall(str(given["id"]), str(function["name"]), str(function["arguments"]))
    except (TypeError, KeyError):
        raise WireError(f"{where} is no call; expected an id and a function with name and arguments.") from None


def words_of(content: Any, where: str) -> tuple[str, tuple[Media, ...]]:
    """The text of a content, and its pictures and sounds. A model is shown these before the text."""
    if content is None:
        return "", ()
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, Sequence):
        raise WireError(f"{where} is a {type(content).__name__}; expected a text or a list of parts.")
    words, media = [], []
    for n, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("text", "input_text", "output_text"):
            words.append(str(part.get("text", "")))
        elif kind == "refusal":
            words.append(str(part.get("refusal", "")))
        elif kind in ("image_url", "input_image"):
            url = part.get("image_url")
            media.append(_media("image", url.get("url") if isinstance(url, Mapping) else url, f"{where}.{n}"))
        elif kind == "input_audio":
            sound = part.get("input_audio") or {}
            media.append(_decoded("audio", sound.get("data"), sound.get("format"), f"{where}.{n}"))
        else:
            raise WireError(f"{where}.{n} is a part of type {kind!r}; expected text, image_url or input_audio.")
    return "".join(words), tuple(media)


def _media(kind: MediaKind, url: Any, where: str) -> Media:
    head, comma, data = str(url).partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise WireError(f"{where} names a picture elsewhere; expected its bytes, as data:image/png;base64,…")
    return _decoded(kind, data, head.removeprefix("data:").removesuffix(";base64").rpartition("/")[2], where)


def _decoded(kind: MediaKind, data: Any, form: Any, where: str) -> Media:
    wanted = {"image": "png", "audio": "wav"}[kind]
    if form != wanted:
        raise WireError(f"{where} has the format {form!r}; expected {wanted}.")
    try:
        found = base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError):
        raise WireError(f"{where} is not in base64; expected the bytes of a {wanted.upper()} file.") from None
    if not found.startswith(_SIGNATURES[kind]):
        raise WireError(f"{where} says that it is {wanted}, and its bytes are not; expected a {wanted.upper()} file.")
    return Media(kind, found)


def tools_of(given: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Tools as JSON text, each in the form that chat completions use."""
    out = []
    for n, tool in enumerate(given):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if tool.get("type") == "function" and function is None and "name" in tool:  # as the responses API writes them
            function = {k: tool[k] for k in ("name", "description", "parameters", "strict") if tool.get(k) is not None}
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise WireError(f"tools.{n} is no function with a name; only functions can be called here.")
        schema = function.get("parameters") or {}
        if not isinstance(schema, Mapping) or not isinstance(schema.get("properties") or {}, Mapping):
            raise WireError(
                f"tools.{n} has parameters that are no JSON schema of an object; expected an object schema."
            )
        out.append(json.dumps({"type": "function", "function": dict(function)}, ensure_ascii=False))
    return tuple(out)
