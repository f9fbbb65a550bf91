"""A game of Interplay as an outside program: it keeps every role's conversation itself and asks for moves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interplay import envs
from interplay.types import Reward, Rewards, Task


class Game:
    """The game, each role's conversation, and rewards that say which decision they are for."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.env = envs.make(Task(row["id"], row["env"], row["seed"], row["options"]))
        self.told: dict[str, list[dict[str, str]]] = {role: [] for role in self.env.roles}
        self.latest: dict[str, int] = {}
        self.rewards = Rewards()
        self.decision = 0

    def asks(self) -> dict[str, list[dict[str, str]]]:
        seen = self.env.observe()
        for role, o in seen.items():
            before = [] if o.fresh else self.told[role]
            self.told[role] = [*before, *({"role": m.role, "content": m.content} for m in o.messages)]
        self.how = {role: {"only": o.legal, "phase": o.phase} for role, o in seen.items()}
        return {role: list(self.told[role]) for role in seen}

    def moves(self, said: Mapping[str, str]) -> None:
        for role, text in said.items():
            self.told[role].append({"role": "assistant", "content": text})
            self.latest[role] = self.decision
        self._earn(self.env.step(dict(said)))
        self.decision += 1

    def end(self) -> list[list[Any]]:
        self.rewards += envs.outcome_of(self.env)
        return [[r.name, r.level.value, r.role, r.value, r.turn] for r in self.rewards]

    def _earn(self, rewards: Rewards) -> None:
        at = {**self.latest, None: self.decision}
        self.rewards += Rewards(tuple(replace(r, turn=at.get(r.role)) for r in rewards))


async def team(row: Mapping[str, Any], ask: Any) -> list[list[Any]]:
    game = Game(row)
    while asks := game.asks():
        said = await asyncio.gather(*(ask(role, messages, **game.how[role]) for role, messages in asks.items()))
        game.moves({role: str(reply) for role, reply in zip(asks, said, strict=True)})
    return game.end()


def reward(row: Mapping[str, Any], result: list[list[Any]]) -> Rewards:
    from interplay.types import Level

    return Rewards(tuple(Reward(name, Level(level), role, value, turn) for name, level, role, value, turn in result))
