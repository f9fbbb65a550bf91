"""Read episode records without a version number, as early versions wrote them.

In these, each tool call was a turn inside the turn that it belonged to, credit was stored on turns, pictures were
stored as text, and the tools that a role could call were not recorded.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from interplay.types import (
    Credit,
    Episode,
    Keys,
    Level,
    Media,
    Message,
    Observation,
    Outlook,
    Reward,
    Rewards,
    Sample,
    Status,
    Task,
    Turn,
)
from interplay.types.occupant import BOT, parse


def from_json(data: Mapping[str, Any]) -> tuple[Episode, Credit]:
    credit = Credit()
    turns = [_turn(t, credit) for t in data["turns"]]
    seats = {role: parse(text) for role, text in data["seats"].items()}
    rest = {k: v for k, v in data.items() if k not in ("task", "seats", "turns", "rewards", "sampled")}
    rewards = _rewards(data["rewards"])
    return Episode(task=Task(**data["task"]), seats=seats, turns=turns, rewards=rewards, **rest), credit


def _turn(data: Mapping[str, Any], credit: Credit) -> Turn:
    whole = [] if data["policy"].startswith(BOT) else [*data["calls"], data]
    samples = tuple(_sample(call, credit, call is data) for call in whole)
    first = whole[0] if whole else data  # its parent is the previous turn; that of a later call is the previous call
    seen = Observation(_messages(first["messages"]), data["fresh"], tuple(data["legal"]), data["keys"]["phase"])
    outlook = data["outlook"]
    coalitions = {who: _rewards(rows) for who, rows in data["coalitions"].items()}
    return Turn(
        data["id"],
        first["parent"],
        Keys(**data["keys"]),
        data["policy"],
        data["text"],
        seen,
        samples,
        Status(data["status"]),
        _rewards(data["rewards"]),
        data["state"],
        data["candidate"],
        data["kept"],
        data["playout"],
        None if outlook is None else Outlook(_rewards(outlook), coalitions),
    )


def _sample(data: Mapping[str, Any], credit: Credit, last: bool) -> Sample:
    name = data["id"]
    advantage = data["advantage"] if data["token_advantages"] is None else tuple(data["token_advantages"])
    if advantage is not None:
        credit.advantages[name] = advantage
    for table, one, each in ((credit.values, "value", "token_values"), (credit.targets, "target", "token_targets")):
        if data[each] is not None:
            table[name] = tuple(data[each])
        elif data[one] is not None:
            table[name] = (data[one],)
    if data["ref_logprobs"] is not None:
        credit.reference[name] = tuple(data["ref_logprobs"])
    return Sample(
        name,
        tuple(data["prompt"]),
        tuple(data["action"]),
        tuple(data["logprobs"]),
        (data["version"],) * len(data["action"]),
        data["text"],
        data["temperature"],
        tuple(map(tuple, data["masked"])),
        extends=data["parent"] if data["merged"] else None,
        messages=_messages(data["messages"]),
        tool="" if last else data["keys"]["tool"],  # the last one has the names of all tools of the turn
        used=data["used"],
        seconds=data["seconds"],
    )


def _rewards(rows: Iterable[Iterable[Any]]) -> Rewards:
    return Rewards(tuple(Reward(name, Level(level), role, value) for name, level, role, value in rows))


def _messages(rows: Iterable[Iterable[Any]]) -> tuple[Message, ...]:
    return tuple(_message(*row) for row in rows)


def _message(role: str, content: str, images: Iterable[str] = ()) -> Message:
    return Message(role, content, media=tuple(Media("image", base64.b64decode(image)) for image in images))
