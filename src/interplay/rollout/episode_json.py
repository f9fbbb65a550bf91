"""An episode as JSON and back: what a line of `episodes.jsonl` holds (`records.py`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import chain, groupby
from typing import Any

from interplay.errors import InterplayError
from interplay.rollout.media import MediaFolder
from interplay.types import (
    Advantage,
    ByTurn,
    Credit,
    Episode,
    Keys,
    Level,
    Media,
    MediaSpan,
    Message,
    Observation,
    Occupant,
    One,
    Outlook,
    Parameter,
    ProgramCall,
    Remote,
    Reward,
    Rewards,
    Sample,
    SoftMedia,
    Spoken,
    Status,
    Task,
    Tool,
    ToolCall,
    Turn,
)
from interplay.types.occupant import parse, parse_one


def media(episode: Episode) -> Iterator[Media]:
    """All pictures, sounds and soft messages shown in an episode."""
    for turn in episode.turns:
        shown = (turn.observation.messages, *(sample.messages for sample in turn.samples))
        for message in chain.from_iterable(shown):
            yield from message.media
            for one in message.media:
                if isinstance(one, SoftMedia):  # also the pictures and sounds that its sender saw
                    yield from (span.media for span in one.seen if span.media is not None)


# -- out --------------------------------------------------------------------------------------------------------------


def to_json(episode: Episode, credit: Credit | None = None) -> dict[str, Any]:
    """An episode as plain JSON values. Media are given by their digests only."""
    given = credit or Credit()
    out = {f.name: getattr(episode, f.name) for f in fields(Episode) if f.name not in ("cut", "used")}
    task = episode.task
    out["task"] = {"id": task.id, "env": task.env, "seed": task.seed, "data": dict(task.data)}
    out["seats"] = {role: _seat_out(who) for role, who in episode.seats.items()}
    out["rewards"] = _rewards_out(episode.rewards)
    out["plays"] = None if episode.plays is None else [_rewards_out(play) for play in episode.plays]
    out["turns"] = [_turn_out(t, given) for t in episode.turns]
    out["judged"] = [_turn_out(t, given) for t in episode.judged]
    return out


def _seat_out(who: Occupant) -> Any:
    """The text of an occupant. A remote model is marked, since its text looks like that of a policy; so is a list of
    players with a remote model in it."""
    if isinstance(who, ByTurn) and any(isinstance(one, Remote) for one in who.takers):
        return {"turns": [_seat_out(one) for one in who.takers], "always": who.always}
    return {"remote": who.name} if isinstance(who, Remote) else str(who)


def _turn_out(turn: Turn, credit: Credit) -> dict[str, Any]:
    seen, outlook = turn.observation, turn.outlook
    return {
        "id": turn.id,
        "parent": turn.parent,
        "keys": {f.name: getattr(turn.keys, f.name) for f in fields(Keys)},
        "policy": turn.policy,
        "text": turn.text,
        "status": turn.status,
        "rewards": _rewards_out(turn.rewards),
        "seen": {
            "messages": [_message_out(m) for m in seen.messages],
            "fresh": seen.fresh,
            "legal": seen.legal,
            "phase": seen.phase,
            "tools": [_tool_out(t) for t in seen.tools],
            **({} if seen.call is None else {"call": _call_out(seen.call)}),
        },
        "state": turn.state,
        "candidate": turn.candidate,
        "kept": turn.kept,
        "playout": turn.playout,
        "outlook": None
        if outlook is None
        else {
            "rewards": _rewards_out(outlook.rewards),
            "coalitions": {who: _rewards_out(r) for who, r in outlook.coalitions.items()},
            **({"refused": True} if outlook.refused else {}),
        },
        "samples": [_sample_out(s, seen.messages, credit) for s in turn.samples],
    }


def _sample_out(sample: Sample, seen: tuple[Message, ...], credit: Credit) -> dict[str, Any]:
    return {
        "id": sample.id,
        "prompt": sample.prompt,
        "action": sample.action,
        "logprobs": sample.logprobs,
        "versions": [[version, len(list(run))] for version, run in groupby(sample.versions)],
        "text": sample.text,
        "temperature": sample.temperature,
        "mask": sample.mask,
        "media": [[m.start, m.length, m.digest] for m in sample.media],
        "extends": sample.extends,
        "messages": None if sample.messages == seen else [_message_out(m) for m in sample.messages],
        "tool": sample.tool,
        "used": sample.used,
        "seconds": sample.seconds,
        **({"history": sample.history} if sample.history else {}),
        "credit": {name: table[sample.id] for name, table in _tables(credit).items() if sample.id in table},
    }


def _tables(credit: Credit) -> dict[str, dict[str, Any]]:
    return {
        "advantage": credit.advantages,
        "value": credit.values,
        "target": credit.targets,
        "reference": credit.reference,
        "gap": credit.gap,
        "entropy": credit.entropy,
    }


def _rewards_out(rewards: Rewards) -> list[list[Any]]:
    rows = ([r.name, r.level.value, r.role, r.value] for r in rewards)
    return [row if r.turn is None else [*row, r.turn] for row, r in zip(rows, rewards, strict=True)]


def _message_out(message: Message) -> Any:
    """Role and content, then a table of other fields if there are any."""
    rest: dict[str, Any] = {}
    if message.name is not None:
        rest["name"] = message.name
    if message.tool_calls:
        rest["tool_calls"] = [[c.id, c.name, c.arguments] for c in message.tool_calls]
    if message.tool_call_id is not None:
        rest["tool_call_id"] = message.tool_call_id
    if message.media:
        rest["media"] = [[m.kind, m.digest] for m in message.media]
    return [message.role, message.content, rest] if rest else [message.role, message.content]


def _tool_out(tool: Tool) -> dict[str, Any]:
    parameters = [[p.name, p.description, p.type, p.required] for p in tool.parameters]
    return {"name": tool.name, "description": tool.description, "parameters": parameters, "seconds": tool.seconds}


def _call_out(call: ProgramCall) -> dict[str, Any]:
    """What an outside program asked for. Of replies, only the accepted ones are written, with their words and calls."""
    out = {f.name: getattr(call, f.name) for f in fields(ProgramCall)}
    return {**out, "only": [[s.content, [[c.id, c.name, c.arguments] for c in s.calls]] for s in call.only]}


# -- in ---------------------------------------------------------------------------------------------------------------


def from_json(data: Mapping[str, Any], store: MediaFolder) -> tuple[Episode, Credit]:
    """Read what `to_json` wrote: the episode, and the credit of its samples."""
    credit = Credit()
    turns = [_turn_in(t, store, credit) for t in data["turns"]]
    seats = {role: _seat_in(who) for role, who in data["seats"].items()}
    judged = [_turn_in(t, store, credit) for t in data.get("judged", ())]
    apart = ("task", "seats", "turns", "judged", "rewards", "plays", "sampled")
    rest = {k: v for k, v in data.items() if k not in apart}
    rewards, plays = _rewards_in(data["rewards"]), data.get("plays")  # older records have a mean instead, `sampled`
    own = None if plays is None else tuple(_rewards_in(play) for play in plays)
    made = Episode(
        task=Task(**data["task"]), seats=seats, turns=turns, judged=judged, rewards=rewards, plays=own, **rest
    )
    return made, credit


def _seat_in(data: Any) -> Occupant:
    if isinstance(data, str):
        return parse(data)
    if "turns" in data:
        return ByTurn(tuple(_one_in(one) for one in data["turns"]), data["always"])
    return _one_in(data)


def _one_in(data: Any) -> One:
    return parse_one(data) if isinstance(data, str) else Remote(data["remote"])


def _turn_in(data: Mapping[str, Any], store: MediaFolder, credit: Credit) -> Turn:
    seen, outlook = data["seen"], data["outlook"]
    messages = tuple(_message_in(store, *m) for m in seen["messages"])
    tools = tuple(_tool_in(t) for t in seen["tools"])
    plain = ("id", "parent", "policy", "text", "state", "candidate", "kept", "playout")
    return Turn(
        **{name: data[name] for name in plain},
        keys=Keys(**data["keys"]),
        status=Status(data["status"]),
        rewards=_rewards_in(data["rewards"]),
        observation=Observation(messages, seen["fresh"], tuple(seen["legal"]), seen["phase"], tools, _call_in(seen)),
        outlook=None
        if outlook is None
        else Outlook(
            _rewards_in(outlook["rewards"]),
            {who: _rewards_in(rows) for who, rows in outlook["coalitions"].items()},
            outlook.get("refused", False),
        ),
        samples=tuple(_sample_in(s, messages, store, credit) for s in data["samples"]),
    )


def _call_in(seen: Mapping[str, Any]) -> ProgramCall | None:
    if "call" not in seen:
        return None
    known = seen["call"]
    only = tuple(Spoken(words, tuple(ToolCall(*c) for c in calls)) for words, calls in known["only"])
    return ProgramCall(**{**known, "tools": tuple(known["tools"]), "stop": tuple(known["stop"]), "only": only})


def _sample_in(data: Mapping[str, Any], seen: tuple[Message, ...], store: MediaFolder, credit: Credit) -> Sample:
    for name, table in _tables(credit).items():
        if name in data["credit"]:
            table[data["id"]] = _tupled(data["credit"][name])
    plain = ("id", "text", "temperature", "extends", "tool", "used", "seconds")
    new = data["messages"]
    return Sample(
        **{name: data[name] for name in plain},
        history=data.get("history", ""),
        prompt=tuple(data["prompt"]),
        action=tuple(data["action"]),
        logprobs=tuple(data["logprobs"]),
        versions=tuple(version for version, count in data["versions"] for _ in range(count)),
        mask=tuple(map(tuple, data["mask"])),
        media=tuple(MediaSpan(*span) for span in data["media"]),
        messages=seen if new is None else tuple(_message_in(store, *m) for m in new),
    )


def _tupled(value: Any) -> Advantage:
    return tuple(value) if isinstance(value, list) else value


def _rewards_in(rows: Iterable[Iterable[Any]]) -> Rewards:
    return Rewards(tuple(Reward(name, Level(level), *rest) for name, level, *rest in rows))


def _message_in(store: MediaFolder, role: str, content: str, rest: Mapping[str, Any] | None = None) -> Message:
    found = rest or {}
    return Message(
        role,
        content,
        found.get("name"),
        tuple(ToolCall(*call) for call in found.get("tool_calls", ())),
        found.get("tool_call_id"),
        tuple(store.get(kind, digest) for kind, digest in found.get("media", ())),
    )


def _tool_in(data: Mapping[str, Any]) -> Tool:
    parameters = tuple(Parameter(*p) for p in data["parameters"])
    return Tool(data["name"], data["description"], parameters, _recorded, data["seconds"])


def _recorded(**_: Any) -> str:
    raise InterplayError("a tool that was read from a record cannot be run; make the environment again from its task.")


def finite(data: Any) -> Any:
    """JSON data in which numbers that are not finite are replaced by null."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {k: finite(v) for k, v in data.items()}
    return [finite(v) for v in data] if isinstance(data, list | tuple) else data
