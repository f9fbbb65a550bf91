"""Reads the requests of the two APIs that programs use: chat completions and responses.

Temperature, top_p and seed are set by the recipe, so those in a request are ignored. Stop strings, tools, tool_choice,
n and the token limit are set by the program. A strict JSON schema or a required tool choice is enforced if all answers
can be listed (`schema.py`); otherwise the request is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from interplay.envs.programs.options import OutsideOptions
from interplay.envs.programs.run import Inquiry
from interplay.envs.programs.schema import LIMIT, Unlistable, every
from interplay.envs.programs.talk import Names, WireError, messages_of, tools_of, words_of
from interplay.types import HistoryMatch, Message, ProgramCall, Spoken, ToolCall

Json = Mapping[str, Any]
STOPS = 64  # the most stop strings of a call
# Fields that would change the answer, or what the model is shown, and what to use instead. A request with one of them
# is refused, because without them it would be answered wrongly and nobody would know why.
INSTEAD = {
    "functions": "tools", "function_call": "tool_choice", "web_search_options": "tools, which the program runs itself",
    "logit_bias": "guided_choice with the list of allowed replies", "conversation": "previous_response_id",
    "prompt": "instructions and input", "background": "stream, or a request that waits for its answer",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChatOrder:
    """One request: a conversation that is to be answered `n` times, and how the answer is written."""

    api: Literal["chat", "responses"]
    model: str
    messages: tuple[Message, ...]
    call: ProgramCall
    n: int = 1
    stream: bool = False
    usage: bool = False  # streaming: whether the last chunk has the numbers of tokens
    phase: str = ""


def route(order: ChatOrder, options: OutsideOptions) -> Inquiry:
    """The question for the first role whose patterns match, or for the role that has the model's name."""
    system = next((m.content for m in order.messages if m.role == "system"), "")
    for role, how in options.route.items():
        if how.model or how.system:
            fits = not how.model or fnmatchcase(order.model, how.model)
            if fits and (not how.system or fnmatchcase(system, how.system)):
                return _asked(role, order, options)
    name = order.model.rpartition("/")[2]
    if name in options.roles:
        return _asked(name, order, options)
    raise WireError(
        f"model '{order.model}' is no role; known: {', '.join(options.roles)}. Expected one of these as the model's "
        "name, or env.route with a pattern of the model or of the system prompt."
    )


def _asked(role: str, order: ChatOrder, options: OutsideOptions) -> Inquiry:
    return Inquiry(role, order.messages, listed(order.call, role, options), order.phase)


def listed(call: ProgramCall, role: str, options: OutsideOptions) -> ProgramCall:
    """The call with the replies that the recipe allows the role, unless the program lists replies itself."""
    only = options.route[role].only if role in options.route else []
    return call if call.only or not only else replace(call, only=tuple(map(Spoken, only)))


# -- chat completions -------------------------------------------------------------------------------------------------


def _refuse_unknown(body: Json) -> None:
    for field, instead in INSTEAD.items():
        if body.get(field):
            raise WireError(f"{field} is not served here; expected {instead}.")


def chat_order(body: Json, names: Names, history: HistoryMatch) -> ChatOrder:
    _refuse_unknown(body)
    tools = tools_of(body.get("tools") or ())
    tools, only = _choice(tools, body.get("tool_choice"))
    form = body.get("response_format") or {}
    only = only or _formed(form, form.get("json_schema") or {}, "response_format", tools)
    if body.get("guided_choice"):  # vLLM's name for a list of the allowed replies
        only = tuple(Spoken(str(text)) for text in body["guided_choice"])
        if len(only) > LIMIT:
            raise WireError(f"guided_choice has {len(only):,} replies; expected at most {LIMIT:,}.")
    if (body.get("top_logprobs") or 0) > 0:
        raise WireError("top_logprobs is more than 0; only the sampled token's log-prob is known, expected 0.")
    call = ProgramCall(
        tools,
        _stops(body.get("stop")),
        _limit(body.get("max_tokens") if body.get("max_completion_tokens") is None else body["max_completion_tokens"]),
        only,
        bool(body.get("logprobs")),
        body.get("parallel_tool_calls") is not False,
        history,
    )
    n = 1 if body.get("n") is None else body["n"]
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 128:
        raise WireError(f"n is {n!r}; expected a whole number from 1 to 128.")
    usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return ChatOrder(
        "chat",
        _model(body),
        messages_of(body.get("messages") or (), names),
        call,
        n,
        bool(body.get("stream")),
        usage,
        _phase(body),
    )


def _model(body: Json) -> str:
    if not isinstance(body.get("model"), str):
        raise WireError("model is missing; expected the name of a role.")
    return str(body["model"])


def _phase(body: Json) -> str:
    """A program may say which part of its work a call belongs to: `metadata = {"phase": ...}`."""
    metadata = body.get("metadata")
    return str(metadata.get("phase", "")) if isinstance(metadata, Mapping) else ""


def _stops(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, Sequence) or not all(isinstance(s, str) and s for s in stops):
        raise WireError(f"stop is {given!r}; expected a string, or a list of strings that are not empty.")
    if len(stops) > STOPS:
        raise WireError(f"stop has {len(stops):,} strings; expected at most {STOPS}.")
    return tuple(stops)


def _limit(given: Any) -> int | None:
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise WireError(f"the token limit is {given!r}; expected a whole number of at least 1.")
    return given


def _choice(tools: tuple[str, ...], choice: Any) -> tuple[tuple[str, ...], tuple[Spoken, ...]]:
    """The tools that are shown and, if a call is required, the allowed replies."""
    if choice in (None, "auto"):
        return tools, ()
    if choice == "none":
        return (), ()
    named = None
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        named = (choice.get("function") or choice).get("name")
    elif choice not in ("required", "any"):
        raise WireError(f"tool_choice is {choice!r}; expected auto, none, required or one function.")
    if not tools:
        raise WireError(f"tool_choice is {choice!r}, but the request has no tools; expected tools, or no tool_choice.")
    wanted = [tool for tool in tools if named in (None, _function(tool)["name"])]
    if not wanted:
        raise WireError(f"tool_choice names '{named}', which is not among the tools; expected one of them.")
    return tools, _calls(wanted, "tool_choice requires a call of", "expected tool_choice 'auto'")


def _function(tool: str) -> dict[str, Any]:
    """The function in a tool's JSON text."""
    return dict(json.loads(tool)["function"])


def _calls(tools: Sequence[str], why: str, instead: str, room: int = LIMIT) -> tuple[Spoken, ...]:
    """All calls of the tools, at most `room`. If they cannot be listed, the request is refused because of `why`."""
    only: list[Spoken] = []
    for function in map(_function, tools):
        name = function["name"]
        try:
            values = every(function.get("parameters") or {"type": "object"})
        except Unlistable as reason:
            raise WireError(
                f"{why} '{name}', which can be enforced only if every call can be listed, but {reason}; {instead}."
            ) from None
        only += [Spoken("", (ToolCall("", name, json.dumps(v)),)) for v in values]
        if len(only) > room:
            raise WireError(f"{why} '{name}', and with it more than {LIMIT:,} replies would be allowed; {instead}.")
    return tuple(only)


def _formed(given: Json, form: Json, where: str, tools: tuple[str, ...]) -> tuple[Spoken, ...]:
    """All replies in the format that is `given`, whose schema is in `form`. Empty if any reply is allowed. A model that
    has tools may also call one of them."""
    kind = given.get("type", "text")
    if kind == "text":
        return ()
    if kind != "json_schema":
        raise WireError(
            f"{where} '{kind}' cannot be enforced here; expected a strict json_schema whose answers can be listed, or "
            f"no {where}."
        )
    if not form.get("strict"):
        return ()
    try:
        answers = tuple(Spoken(json.dumps(value)) for value in every(form.get("schema") or {}))
    except Unlistable as why:
        raise WireError(
            f"{where} is a strict JSON schema, which can be enforced only if all answers can be listed, but {why}; "
            "expected enums, booleans and bounded integers, or strict = false."
        ) from None
    room = LIMIT - len(answers)
    calls = _calls(tools, f"{where} is a strict JSON schema, beside which the model may call",
                   "expected tool_choice 'none' or strict = false", room)  # fmt: skip
    return answers + calls


# -- responses --------------------------------------------------------------------------------------------------------


def responses_order(body: Json, before: tuple[Message, ...], names: Names, history: HistoryMatch) -> ChatOrder:
    """`before` is the conversation that `previous_response_id` names, its answer included."""
    _refuse_unknown(body)
    tools, only = _choice(tools_of(body.get("tools") or ()), body.get("tool_choice"))
    form = (body.get("text") or {}).get("format") or {}
    only = only or _formed(form, form, "text.format", tools)
    parallel = body.get("parallel_tool_calls") is not False
    call = ProgramCall(tools, (), _limit(body.get("max_output_tokens")), only, False, parallel, history)
    given = body.get("input")
    items: Sequence[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else given or ()
    told = tuple(m for m in before if m.role != "system") if body.get("instructions") else before
    first = str(body.get("instructions") or "")
    messages = told + tuple(_items(items, names))
    if first:
        messages = (Message("system", first), *messages)
    if not messages:
        raise WireError("input is empty; expected a text or a list of items.")
    return ChatOrder("responses", _model(body), messages, call, stream=bool(body.get("stream")), phase=_phase(body))


def _items(items: Sequence[Any], names: Names) -> list[Message]:
    """The items as messages. An assistant's text and the calls that follow it were one reply."""
    out: list[Message] = []
    for n, item in enumerate(items):
        kind = item.get("type", "message") if isinstance(item, Mapping) else None
        if kind == "message":
            out += messages_of([{k: v for k, v in item.items() if k in ("role", "content", "name")}], names)
        elif kind == "function_call":
            call = ToolCall(str(item.get("call_id")), str(item.get("name")), str(item.get("arguments")))
            if out and out[-1].role == "assistant":
                out[-1] = replace(out[-1], tool_calls=(*out[-1].tool_calls, call))
            else:
                out.append(Message("assistant", "", tool_calls=(call,)))
        elif kind == "function_call_output":
            output = item.get("output")
            text = output if isinstance(output, str) else words_of(output, f"input.{n}.output")[0]
            out.append(Message("tool", text, tool_call_id=str(item.get("call_id"))))
        elif kind != "reasoning":
            raise WireError(f"input.{n} is of type {kind!r}; expected message, function_call or function_call_output.")
    return out
