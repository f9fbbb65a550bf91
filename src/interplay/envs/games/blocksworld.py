"""Blocksworld: move blocks one at a time until they stand as asked. A planner advises an actor.

Rules         blocks stand in stacks on a table that has room for all of them. A move takes a block with nothing on it
              and puts it on another such block or on the table. The episode ends when every block stands as in the
              goal, or at the turn limit (by default two more than twice the length of the shortest plan).
Roles         planner, who speaks first in every turn, and actor, who moves; `team = "single"`: the actor alone.
Observation   the present stacks and the wanted stacks, each from bottom to top. The actor also sees what the planner
              said in this turn. Every prompt is fresh and complete.
Actions       actor: `A on B` or `A on table`, up to `moves` of them, separated by commas. It is illegal to move a
              covered block, or to move a block onto a covered block, onto itself or to where it already is. An illegal
              move and the rest of the reply are not played, and the turn is used up. Planner: free text, cut at 400
              characters, or with `speech = "action"` a reply that the actor could give.
Rewards       `solved` (team, at the end): 1 if all blocks stand as asked, else 0. `progress` (team, each turn): the
              change in the number of blocks that stand right down to the table, as a share of those that did not at
              first. `illegal` (process): −0.1. `format` (agent): −0.1 more for a reply that cannot be parsed.
Difficulty    blocks, length of the shortest plan (between `min_length` and `max_length`).
Version       1
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import Field, model_validator

from interplay.envs.env import register
from interplay.envs.games.puzzle import Mine, Puzzle, PuzzleLevel, PuzzleOptions
from interplay.errors import ConfigError

NAMES = "ABCDEFGH"
TABLE = -1
Support = tuple[int, ...]  # for each block, the block that it stands on, or TABLE
_MOVE = re.compile(r"(?:MOVE\s+|PUT\s+)?([A-H])\s+(?:ON|ONTO|TO)\s+(?:THE\s+)?(TABLE|[A-H])")


class Options(PuzzleOptions):
    blocks: int = Field(4, ge=3, le=8, description="number of blocks")
    min_length: int = Field(2, ge=1, description="smallest length of the shortest plan, in moves")
    max_length: int = Field(0, ge=0, description="largest length of the shortest plan, in moves; 0: no limit")

    @model_validator(mode="after")
    def _lengths_are_a_range(self) -> Options:
        if self.max_length and self.max_length < self.min_length:
            raise ConfigError(f"env.max_length is {self.max_length}; expected 0, or at least env.min_length.")
        return self


def scatter(rng: random.Random, blocks: int) -> Support:
    """Blocks in random order, each on the table or on one of the stacks made so far."""
    order = list(range(blocks))
    rng.shuffle(order)
    on = [TABLE] * blocks
    tops: list[int] = []
    for block in order:
        place = rng.randrange(len(tops) + 1)
        if place < len(tops):
            on[block], tops[place] = tops[place], block
        else:
            tops.append(block)
    return tuple(on)


def right(on: Support, goal: Support) -> list[bool]:
    """For each block, whether it and all blocks below it stand as in the goal."""
    known: dict[int, bool] = {TABLE: True}

    def holds(block: int) -> bool:
        if block not in known:
            known[block] = on[block] == goal[block] and holds(goal[block])
        return known[block]

    return [holds(block) for block in range(len(on))]


def moves_of(on: Support) -> Iterator[tuple[int, int]]:
    clear = [block for block in range(len(on)) if block not in on]
    for block in clear:
        for to in (TABLE, *clear):
            if to not in (block, on[block]):
                yield block, to


@lru_cache(maxsize=8192)
def plan(on: Support, goal: Support) -> tuple[tuple[int, int], ...]:
    """A shortest plan, by A*: every block that does not stand right must move at least once."""
    queue = [(right(on, goal).count(False), 0, on)]
    came: dict[Support, tuple[Support, tuple[int, int]] | None] = {on: None}
    cost = {on: 0}
    while queue:
        _, minus, now = heapq.heappop(queue)
        if now == goal:
            break
        if -minus > cost[now]:
            continue
        placed = right(now, goal)
        for block, to in moves_of(now):
            if placed[block]:  # it is never necessary to move a block that stands right
                continue
            after = (*now[:block], to, *now[block + 1 :])
            spent = 1 - minus
            if spent < cost.get(after, 10**6):
                cost[after], came[after] = spent, (now, (block, to))
                heapq.heappush(queue, (spent + right(after, goal).count(False), -spent, after))
    steps = []
    while (link := came[goal]) is not None:
        goal, move = link
        steps.append(move)
    return tuple(steps[::-1])


def written(block: int, to: int) -> str:
    return f"{NAMES[block]} on {'table' if to == TABLE else NAMES[to]}"


def stacks(on: Sequence[int]) -> str:
    """The stacks from bottom to top, one after the other."""
    above = {below: block for block, below in enumerate(on) if below != TABLE}
    found = []
    for block, below in enumerate(on):
        if below == TABLE:
            stack = [block]
            while stack[-1] in above:
                stack.append(above[stack[-1]])
            found.append(" ".join(NAMES[b] for b in stack))
    return " | ".join(found)


@dataclass(frozen=True)
class Blocks(PuzzleLevel):
    start: Support
    goal: Support


@register("blocksworld")
class Blocksworld(Puzzle):
    Options = Options
    rules = (
        "Blocks stand in stacks, written from bottom to top. Move one free block at a time until they stand as asked."
    )
    form = "A move is A on B, or A on table."
    level: Blocks

    @classmethod
    def draw(cls, rng: random.Random, data: Mapping[str, Any], mine: Mine) -> PuzzleLevel | None:
        start, goal = scatter(rng, data["blocks"]), scatter(rng, data["blocks"])
        key = f"{start} {goal}"
        if not mine(key):
            return None
        length = len(plan(start, goal))
        if not data["min_length"] <= length <= (data["max_length"] or 99):
            return None
        return Blocks(key, length, {"blocks": data["blocks"], "length": length}, start, goal)

    def begin(self) -> None:
        self.on = self.level.start

    def view(self) -> str:
        return f"{stacks(self.on)}\nGoal: {stacks(self.level.goal)}"

    def legal_moves(self) -> list[str]:
        return [written(block, to) for block, to in moves_of(self.on)]

    def read(self, text: str) -> list[str] | None:
        moves = []
        for part in re.split(r"[,;\n]+", text.strip(" \t\r\n.,;").upper()):
            if not (found := _MOVE.fullmatch(part.strip())):
                return None
            moves.append(f"{found[1]} on {'table' if found[2] == 'TABLE' else found[2]}")
        return moves

    def play(self, move: str) -> bool:
        name, to = move.split(" on ")
        pair = NAMES.index(name), TABLE if to == "table" else NAMES.index(to)
        if pair not in moves_of(self.on):
            return False
        self.on = (*self.on[: pair[0]], pair[1], *self.on[pair[0] + 1 :])
        return True

    def measure(self) -> float:
        return right(self.on, self.level.goal).count(True) / len(self.on)

    @property
    def solved(self) -> bool:
        return self.on == self.level.goal

    def solution(self) -> list[str]:
        """A shortest plan from here."""
        return [written(*move) for move in plan(self.on, self.level.goal)]
