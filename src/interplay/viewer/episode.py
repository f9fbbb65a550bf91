"""An episode as the page shows it: turns with what each role saw and said, without token ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interplay.algorithms import credit
from interplay.config import RewardSection
from interplay.viewer.summary import rewards_of, seat_name, was_illegal

_PLAYOUTS = 4000  # turns of playouts that are sent at most


def episode_page(episode: Mapping[str, Any], weights: RewardSection) -> dict[str, Any]:
    turns = [_turn(t, weights) for t in episode["turns"] if t["playout"] is None]
    playouts = [_playout(t) for t in episode["turns"] if t["playout"] is not None]
    rewards = rewards_of(episode["rewards"])
    return {
        "id": episode["id"],
        "task": episode["task"],
        "replica": episode["replica"],
        "seats": {role: seat_name(who) for role, who in episode["seats"].items()},
        "reward": {role: credit.mix(rewards, role, weights) for role in episode["seats"]},
        "rewards": reward_rows(episode["rewards"], weights),
        "truncated": episode["truncated"],
        "error": episode["error"],
        "seconds": episode["seconds"],
        "final_state": episode["final_state"],
        "turns": turns,
        "seen": _seen(turns, list(episode["seats"])),
        "playouts": playouts[:_PLAYOUTS],
        "playouts_left_out": max(0, len(playouts) - _PLAYOUTS),
    }


def reward_rows(rows: Iterable[Sequence[Any]], weights: RewardSection) -> list[dict[str, Any]]:
    """Rewards by name, each with its weight in the sum."""
    return [
        {"name": r.name, "level": r.level.value, "role": r.role, "value": r.value,
         "weight": credit.weight_of(r, weights), "turn": r.turn}
        for r in rewards_of(list(rows))
    ]  # fmt: skip


def advantage_of(sample: Mapping[str, Any]) -> float | None:
    """The advantage of a sample; if each token has its own, the one with the largest absolute value."""
    found = sample["credit"].get("advantage")
    return max(found, key=abs, default=None) if isinstance(found, list) else found


def _turn(turn: Mapping[str, Any], weights: RewardSection) -> dict[str, Any]:
    samples, keys, outlook = turn["samples"], turn["keys"], turn["outlook"]
    last = samples[-1] if samples else None
    worth = None if outlook is None or not outlook["rewards"] else rewards_of(outlook["rewards"])
    value = last["credit"].get("value") if last else None
    return {
        "id": turn["id"],
        "role": keys["role"],
        "decision": keys["decision"],
        "phase": keys["phase"],
        "policy": turn["policy"],
        "text": turn["text"],
        "status": turn["status"],
        "illegal": was_illegal(turn),
        "rewards": reward_rows(turn["rewards"], weights),
        "messages": [message_row(m) for m in turn["seen"]["messages"]],
        "legal": turn["seen"]["legal"],
        "tools": [tool["name"] for tool in turn["seen"]["tools"]],
        "calls": [_call(s) for s in samples[:-1]],
        "answers": [[message_row(m) for m in s["messages"] or ()] for s in samples[1:]],  # those to each call
        "state": turn["state"],
        "candidate": turn["candidate"],
        "kept": turn["kept"],
        "outlook": None if worth is None else credit.mix(worth, keys["role"], weights),
        "advantage": advantage_of(last) if last else None,
        "value": value[0] if value else None,
        "tokens": sum(len(s["action"]) or s["used"] for s in samples),
        "prompt": len(samples[0]["prompt"]) if samples else 0,
        "version": min((v for v, _ in last["versions"]), default=None) if last else None,
        "seconds": sum(s["seconds"] for s in samples),
    }


def _call(sample: Mapping[str, Any]) -> dict[str, str]:
    return {"text": sample["text"], "tool": sample["tool"]}


def _playout(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": turn["id"], "playout": turn["playout"], "candidate": turn["candidate"], "role": turn["keys"]["role"],
        "decision": turn["keys"]["decision"], "text": turn["text"], "policy": turn["policy"],
        "rewards": [[row[0], row[2], row[3]] for row in turn["rewards"]],
    }  # fmt: skip


def message_row(row: Sequence[Any]) -> dict[str, Any]:
    rest = row[2] if len(row) > 2 else {}
    return {
        "role": row[0],
        "content": row[1],
        "name": rest.get("name"),
        "calls": [[name, arguments] for _, name, arguments in rest.get("tool_calls", ())],
        "media": [{"kind": kind, "digest": digest} for kind, digest in rest.get("media", ())],
    }


def _seen(turns: Sequence[Mapping[str, Any]], roles: Sequence[str]) -> dict[str, list[str]]:
    """For each turn of the main line, the other roles that were shown its text: one of their later prompts contains it
    as a whole word. This finds quotations only; it does not show what a role could infer."""
    line = [t for t in turns if t["kept"]]
    found: dict[str, list[str]] = {}
    for at, turn in enumerate(line):
        text = turn["text"].strip()
        later = {t["role"]: t for t in reversed(line[at + 1 :]) if t["role"] != turn["role"]}  # the next of each role
        found[turn["id"]] = [
            role
            for role in roles
            if role in later and text and any(_quoted(text, m["content"]) for m in later[role]["messages"])
        ]
    return found


def _quoted(text: str, prompt: str) -> bool:
    return text in prompt and re.search(r"(?<!\w)" + re.escape(text) + r"(?!\w)", prompt) is not None
