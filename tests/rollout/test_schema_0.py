"""Records of early versions, written by the code of that time (commit f7ce2f1), are read field by field.

tools.jsonl   PPO by turn, with a reference, and PPO by token; both call a tool
trees.jsonl   C3 with recorded playouts against a bot; Shapley values with their coalitions
legal.jsonl   MADDPG's Gumbel actor over masked replies; a remote model that was shown a picture and called a tool
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from interplay.rollout import episode_json, records
from interplay.types import Credit, Media, Message, Observation, Rewards, Sample, Status, Turn

FOLDER = Path(__file__).parents[1] / "data" / "schema_0"
FILES = sorted(FOLDER.glob("*.jsonl"))
# Every field of a turn as it was then. The last three were not kept beyond their step, or can be counted.
KEPT = {
    "id", "parent", "role", "decision", "keys", "policy", "version", "prompt", "action", "logprobs", "text",
    "temperature", "candidate", "calls", "kept", "playout", "status", "merged", "seconds", "messages", "fresh", "legal",
    "masked", "state", "rewards", "outlook", "coalitions", "value", "target", "token_values", "token_targets",
    "ref_logprobs", "advantage", "token_advantages", "used",
}  # fmt: skip
DROPPED = {"legal_logprobs", "legal_advantages", "call"}
EPISODE = {
    "id", "task", "replica", "seats", "turns", "rewards", "truncated", "error", "seconds", "final_state", "answered",
    "sampled",
}  # fmt: skip


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def plain(rewards: Rewards) -> list[list[Any]]:
    return [[r.name, str(r.level), r.role, r.value] for r in rewards]


def shown(messages: tuple[Message, ...]) -> list[list[Any]]:
    """Messages as they were written at that time."""
    out: list[list[Any]] = []
    for m in messages:
        pictures = [base64.b64encode(x.data).decode() for x in m.media if x.kind == "image"]
        out.append([m.role, m.content, pictures] if pictures else [m.role, m.content])
    return out


def check_turn(turn: Turn, old: dict[str, Any], credit: Credit) -> None:
    assert set(old) == KEPT | DROPPED
    calls = [*old["calls"], old] if not old["policy"].startswith("bot:") else []
    assert (turn.id, turn.policy, turn.text, turn.state) == (old["id"], old["policy"], old["text"], old["state"])
    assert turn.parent == (calls[0] if calls else old)["parent"]
    assert (turn.role, turn.decision) == (old["role"], old["decision"])
    assert {name: getattr(turn.keys, name) for name in old["keys"]} == old["keys"]
    assert (turn.candidate, turn.kept, turn.playout) == (old["candidate"], old["kept"], old["playout"])
    assert turn.status is Status(old["status"]) and plain(turn.rewards) == old["rewards"]
    seen = Observation(turn.observation.messages, old["fresh"], tuple(old["legal"]), old["keys"]["phase"])
    assert turn.observation == seen and shown(seen.messages) == (calls[0] if calls else old)["messages"]
    if old["outlook"] is None:
        assert turn.outlook is None and not old["coalitions"]
    else:
        assert turn.outlook is not None and plain(turn.outlook.rewards) == old["outlook"]
        assert {who: plain(r) for who, r in turn.outlook.coalitions.items()} == old["coalitions"]
    assert len(turn.samples) == len(calls)
    for sample, call in zip(turn.samples, calls, strict=True):
        check_sample(sample, call, credit, last=call is old)


def check_sample(sample: Sample, old: dict[str, Any], credit: Credit, last: bool) -> None:
    assert set(old) == KEPT | DROPPED
    assert (sample.id, sample.text, sample.temperature) == (old["id"], old["text"], old["temperature"])
    assert (list(sample.prompt), list(sample.action)) == (old["prompt"], old["action"])
    assert list(sample.logprobs) == old["logprobs"] and sample.versions == (old["version"],) * len(old["action"])
    assert [list(reply) for reply in sample.mask] == old["masked"] and sample.media == ()
    assert sample.extends == (old["parent"] if old["merged"] else None)
    assert (sample.used, sample.seconds) == (old["used"], old["seconds"])
    assert shown(sample.messages) == old["messages"]
    assert sample.tool == ("" if last else old["keys"]["tool"])

    def each(many: str, one: str) -> Any:
        return old[many] if old[many] is not None else None if old[one] is None else [old[one]]

    found = credit.advantages.get(sample.id)
    assert (list(found) if isinstance(found, tuple) else found) == (
        old["advantage"] if old["token_advantages"] is None else old["token_advantages"]
    )
    for table, wanted in (
        (credit.values, each("token_values", "value")),
        (credit.targets, each("token_targets", "target")),
        (credit.reference, old["ref_logprobs"]),
    ):
        assert table.get(sample.id) == (None if wanted is None else tuple(wanted))
    assert sample.id not in credit.legal


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_field_of_an_early_record_is_read(path: Path) -> None:
    found, old = list(records.read(path)), rows(path)
    assert len(found) == len(old) == 2
    for record, row in zip(found, old, strict=True):
        assert (record.schema, record.step) == (0, row["step"])
        episode, was = record.episode, row["episode"]
        assert set(was) == EPISODE
        task = episode.task
        assert {"id": task.id, "env": task.env, "seed": task.seed, "data": dict(task.data)} == was["task"]
        for name in EPISODE - {"task", "turns", "rewards", "sampled"}:
            found_ = {r: str(w) for r, w in episode.seats.items()} if name == "seats" else getattr(episode, name)
            assert found_ == was[name], name
        assert plain(episode.rewards) == was["rewards"]
        assert len(episode.turns) == len(was["turns"]) > 0
        for turn, its in zip(episode.turns, was["turns"], strict=True):
            check_turn(turn, its, record.credit)


def test_the_early_records_here_have_what_early_records_could_have() -> None:
    """Guards the test above: each field has a value in some line."""
    turns = [t for path in FILES for row in rows(path) for t in row["episode"]["turns"]]
    every = [call for t in turns for call in (t, *t["calls"])]
    filled = {name for name in KEPT | DROPPED for call in every if call[name] not in (None, [], {}, "", 0, False)}
    assert (KEPT | DROPPED) - filled == {"playout"} and any(t["playout"] == 0 for t in turns)
    assert any(not t["kept"] for t in turns)
    assert {t["status"] for t in turns} >= {"ok", "length"} and any(t["policy"].startswith("bot:") for t in turns)
    assert any(len(m) == 3 for call in every for m in call["messages"]), "a picture"


def test_a_picture_of_an_early_record_is_known_by_its_digest() -> None:
    *_, record = records.read(FOLDER / "legal.jsonl")
    (picture,) = {*episode_json.media(record.episode)}
    assert picture.kind == "image" and picture.data.startswith(b"\x89PNG")
    assert picture == Media("image", picture.data)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_an_early_record_written_again_is_the_same_episode(tmp_path: Path, path: Path) -> None:
    found = list(records.read(path))
    for record in found:
        records.write(tmp_path / "episodes.jsonl", [record.episode], record.step, record.credit)
    again = list(records.read(tmp_path / "episodes.jsonl"))
    assert [(r.episode, r.credit, r.step) for r in again] == [(r.episode, r.credit, r.step) for r in found]
    assert [r.schema for r in again] == [records.SCHEMA] * 2


def test_the_places_of_early_records_are_looked_up() -> None:
    """They have no index, but one episode can still be read without the others."""
    path = FOLDER / "trees.jsonl"
    entries = records.index(path)
    assert [(e.step, e.id, e.task) for e in entries] == [
        (row["step"], row["episode"]["id"], row["episode"]["task"]["id"]) for row in rows(path)
    ]
    assert [records.read_one(path, e) for e in entries] == list(records.read(path))
