"""Episodes on disk: one JSON object per line, read back as the same records.

`episodes.jsonl` is what the viewer, the evaluation and the tests read. Floats are written with all their digits.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from interplay.errors import InterplayError
from interplay.types import Episode, Keys, Level, Message, Reward, Rewards, Status, Task, Turn


def to_json(episode: Episode) -> dict[str, Any]:
    out = {f.name: getattr(episode, f.name) for f in fields(Episode)}
    task = episode.task
    out["task"] = {"id": task.id, "env": task.env, "seed": task.seed, "data": dict(task.data)}
    out["seats"] = dict(episode.seats)
    out["rewards"] = _rewards_out(episode.rewards)
    out["turns"] = [_turn_out(t) for t in episode.turns]
    return out


def from_json(data: Mapping[str, Any]) -> Episode:
    turns = [_turn_in(t) for t in data["turns"]]
    rest = {k: v for k, v in data.items() if k not in ("task", "turns", "rewards")}
    return Episode(task=Task(**data["task"]), turns=turns, rewards=_rewards_in(data["rewards"]), **rest)


def write(path: Path, episodes: Iterable[Episode], extra: Mapping[str, Any]) -> None:
    """Append; `extra` (the step) stands beside each episode and is ignored when it is read back."""
    with path.open("a", encoding="utf-8") as file:
        for episode in episodes:
            file.write(json.dumps({**extra, "episode": to_json(episode)}, separators=(",", ":")) + "\n")


def read(path: Path) -> Iterator[Episode]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield from_json(json.loads(line)["episode"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InterplayError(f"{path} line {number} is no episode record ({error}).") from None


def _rewards_out(rewards: Rewards) -> list[list[Any]]:
    return [[r.name, r.level.value, r.role, r.value] for r in rewards]


def _rewards_in(rows: Iterable[Iterable[Any]]) -> Rewards:
    return Rewards(tuple(Reward(name, Level(level), role, value) for name, level, role, value in rows))


def _message_out(message: Message) -> list[Any]:
    images = [base64.b64encode(image).decode() for image in message.images]
    return [message.role, message.content, images] if images else [message.role, message.content]


def _message_in(role: str, content: str, images: Iterable[str] = ()) -> Message:
    return Message(role, content, tuple(base64.b64decode(image) for image in images))


def _turn_out(turn: Turn) -> dict[str, Any]:
    out = {f.name: getattr(turn, f.name) for f in fields(Turn)}
    out["keys"] = {f.name: getattr(turn.keys, f.name) for f in fields(Keys)}
    out["messages"] = [_message_out(m) for m in turn.messages]
    out["calls"] = [_turn_out(call) for call in turn.calls]
    out["rewards"] = _rewards_out(turn.rewards)
    out["outlook"] = None if turn.outlook is None else _rewards_out(turn.outlook)
    out["coalitions"] = {who: _rewards_out(r) for who, r in turn.coalitions.items()}
    return out


def _turn_in(data: Mapping[str, Any]) -> Turn:
    out = dict(data)
    for name in ("prompt", "action", "logprobs", "legal"):
        out[name] = tuple(data[name])
    out["masked"] = tuple(map(tuple, data["masked"]))
    for name in ("ref_logprobs", "token_values", "token_targets", "token_advantages", "legal_advantages"):
        out[name] = None if data[name] is None else tuple(data[name])
    if data["legal_logprobs"] is not None:
        out["legal_logprobs"] = tuple(map(tuple, data["legal_logprobs"]))
    out["keys"] = Keys(**data["keys"])
    out["calls"] = tuple(_turn_in(call) for call in data["calls"])
    out["messages"] = tuple(_message_in(*m) for m in data["messages"])
    out["rewards"] = _rewards_in(data["rewards"])
    out["outlook"] = None if data["outlook"] is None else _rewards_in(data["outlook"])
    out["coalitions"] = {who: _rewards_in(rows) for who, rows in data["coalitions"].items()}
    out["status"] = Status(data["status"])
    return Turn(**out)
