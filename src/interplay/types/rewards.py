"""Rewards by name and level. They stay separate until credit sums them with the weights of the recipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

Role = str


class Level(StrEnum):
    """What a reward is given for: one action (process), one role (agent), or all roles together (team)."""

    PROCESS = "process"
    AGENT = "agent"
    TEAM = "team"


@dataclass(frozen=True, slots=True)
class Reward:
    """One named number. `value=None` means that it was not scored, which is not the same as 0. `turn` is the decision
    that it is for, counted from 0; without `turn`, the reward belongs to the latest turn of its role."""

    name: str
    level: Level
    role: Role | None
    value: float | None
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Rewards:
    """Reward records, kept separate by name and level until credit sums them."""

    records: tuple[Reward, ...] = ()

    @staticmethod
    def process(name: str, values: Mapping[Role, float | None]) -> Rewards:
        return Rewards(tuple([Reward(name, Level.PROCESS, r, v) for r, v in values.items()]))

    @staticmethod
    def agent(name: str, values: Mapping[Role, float | None]) -> Rewards:
        return Rewards(tuple([Reward(name, Level.AGENT, r, v) for r, v in values.items()]))

    @staticmethod
    def team(name: str, value: float | None) -> Rewards:
        return Rewards((Reward(name, Level.TEAM, None, value),))

    def __add__(self, other: Rewards) -> Rewards:
        return Rewards(self.records + other.records) if other.records else self

    def __iter__(self) -> Iterator[Reward]:
        return iter(self.records)

    def __bool__(self) -> bool:
        return bool(self.records)

    def of(self, role: Role) -> Rewards:
        """The records that count for `role`: its own and those of the team."""
        mine = [r for r in self.records if r.role is None or r.role == role]
        return self if len(mine) == len(self.records) else Rewards(tuple(mine))

    def scaled(self, factor: float) -> Rewards:
        if factor == 1.0:
            return self
        return Rewards(tuple(replace(r, value=None if r.value is None else r.value * factor) for r in self.records))

    @staticmethod
    def mean(parts: Iterable[Rewards], count: int) -> Rewards:
        """The mean of `count` reward sets, record by record. A record that is missing from a set counts as 0; a record
        that is None in one set is None in the mean."""
        sums: dict[tuple[str, Level, Role | None, int | None], float | None] = {}
        for part in parts:
            for r in part:
                key = (r.name, r.level, r.role, r.turn)
                if r.value is None or sums.get(key, 0.0) is None:
                    sums[key] = None
                else:
                    sums[key] = (sums.get(key) or 0.0) + r.value / count
        return Rewards(tuple(Reward(*key[:3], value, key[3]) for key, value in sums.items()))
