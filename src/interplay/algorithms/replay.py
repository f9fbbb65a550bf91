"""Joint decisions as plain records, stored for networks that learn from more than the last batch. No torch.

A `Step` holds the global state and what every role did at one decision. Texts become hashed words, so the networks need
no tokenizer and accept any text.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from interplay.algorithms.credit import in_play, mix, weight_of
from interplay.config import RewardSection
from interplay.types import Episode, Level, Reward, Rewards, Role, Turn

BUCKETS = 2048
Bag = tuple[int, ...]


def bag(*words: str) -> Bag:
    return tuple(map(_bucket, words))


@lru_cache(maxsize=1 << 16)  # the same roles, prompts, tokens and actions come again in every step
def _bucket(word: str) -> int:
    return zlib.crc32(word.encode()) % BUCKETS


def history(turn: Turn) -> Bag:
    """What an agent knew: its role, a key of its whole prompt, and the last tokens of the prompt."""
    return bag(turn.role, f"{turn.role}:{turn.keys.prompt}", *(f"{turn.role}#{t}" for t in turn.asked[-32:]))


@lru_cache(maxsize=4096)  # a critic asks for the same legal actions in every update
def said(text: str) -> Bag:
    return bag(text, *(f"'{word}" for word in text.split()[:32]))


@dataclass(frozen=True)
class Move:
    role: Role
    history: Bag
    action: str
    legal: tuple[str, ...]


def move_of(turn: Turn) -> Move:
    return Move(turn.role, history(turn), turn.text, turn.observation.legal)


@dataclass(frozen=True)
class Step:
    """One joint decision: what every role did, and what it earned.

    `rewards` holds each role's own mix of rewards. `team` is the team-level rewards plus the mean over roles of the
    agent-level rewards. `ahead` is the discounted sum of `team` from this decision on. If a limit cut the episode off,
    `ahead` ends before the last decision; the value of the last decision, times `tail`, stands for the rest.
    """

    decision: int
    state: str
    moves: tuple[Move, ...]
    idle: tuple[Move, ...]  # the roles that wait at this decision, with what they know so far
    rewards: Mapping[Role, float]
    team: float
    ahead: float
    tail: float = 0.0


class Trajectory(NamedTuple):
    """The decisions of one episode. `cut` means that a limit cut the episode off, so what would have followed the last
    decision is unknown."""

    steps: list[Step]
    cut: bool = False


class Transition(NamedTuple):
    """A decision, the decision after it (None if the game was over), and the last decision of the episode if the
    episode was cut off."""

    step: Step
    after: Step | None
    last: Step | None = None


def steps(episode: Episode, weights: RewardSection) -> list[Step]:
    """The decisions that were played, in order. γ discounts from each decision to the next."""
    earned = in_play(episode)
    by_decision: dict[int, list[Turn]] = defaultdict(list)
    waiting: dict[int, tuple[Move, ...]] = {}
    latest: dict[Role, Turn] = {}
    for turn in episode.line():
        if turn.decision not in by_decision:
            waiting[turn.decision] = tuple(map(_wait, latest.values()))
        by_decision[turn.decision].append(turn)
        latest[turn.role] = turn
    everybodys = _arrivals(episode, earned, weights)
    out: list[Step] = []
    ahead, tail = 0.0, 0.0
    for decision, turns in reversed(by_decision.items()):
        single = sum(_worth(r, weights) for t in turns for r in earned[t.id] if r.level is Level.AGENT)
        team = everybodys[decision] + single / len(episode.seats)
        if episode.cut is not None and not out:
            tail = 1.0
        else:
            ahead, tail = team + weights.gamma * ahead, weights.gamma * tail
        rewards = dict.fromkeys(episode.seats, 0.0) | {t.role: mix(earned[t.id], t.role, weights) for t in turns}
        idle = tuple(move for move in waiting[decision] if move.role not in {t.role for t in turns})
        moves = tuple(map(move_of, turns))
        out.append(Step(decision, turns[0].state, moves, idle, rewards, team, ahead, tail))
    return out[::-1]


def _wait(turn: Turn) -> Move:
    """The move of a role that waits, made from its latest turn: it knows what it knew then and what it said."""
    return Move(turn.role, history(turn) + bag(f"{turn.role} said {turn.text}"), "", ("",))


def _arrivals(episode: Episode, earned: Mapping[str, Rewards], weights: RewardSection) -> dict[int, float]:
    """What the team earned at each decision. The latest turn of every role holds a copy of a team reward, and the
    reward belongs to the last decision that has a copy. Roles that first acted later hold fewer copies, so the copies
    are matched from the end."""
    held: dict[Role, list[tuple[int, float]]] = defaultdict(list)
    for turn in episode.line():
        held[turn.role] += [(turn.decision, _worth(r, weights)) for r in earned[turn.id] if r.level is Level.TEAM]
    out: dict[int, float] = defaultdict(float)
    for copies in itertools.zip_longest(*(records[::-1] for records in held.values())):
        decision, value = max(copy for copy in copies if copy is not None)
        out[decision] += value
    return out


def _worth(reward: Reward, weights: RewardSection) -> float:
    return 0.0 if reward.value is None else weight_of(reward, weights) * reward.value


class Replay:
    """The last `size` episodes, from which transitions are drawn at random with `seed`. The last decision of an episode
    that was cut off is never drawn, because what would have followed it is unknown."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.plays: list[Trajectory] = []

    def add(self, plays: Iterable[Trajectory]) -> None:
        self.plays = [*self.plays, *(p for p in plays if len(p.steps) > p.cut)][-self.size :]

    def sample(self, count: int, seed: int) -> list[Transition]:
        rng = random.Random(seed)
        out: list[Transition] = []
        for _ in range(count):
            steps, cut = rng.choice(self.plays)
            i = rng.randrange(len(steps) - cut)
            out.append(Transition(steps[i], steps[i + 1] if i + 1 < len(steps) else None, steps[-1] if cut else None))
        return out

    def state_dict(self) -> list[Any]:
        return [{"steps": [asdict(step) for step in play.steps], "cut": play.cut} for play in self.plays]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        self.plays = [Trajectory([_step(step) for step in play["steps"]], play["cut"]) for play in state]


def _step(data: Mapping[str, Any]) -> Step:
    return Step(**{**data, "moves": _moves(data["moves"]), "idle": _moves(data["idle"])})


def _moves(rows: Sequence[Mapping[str, Any]]) -> tuple[Move, ...]:
    return tuple(Move(m["role"], tuple(m["history"]), m["action"], tuple(m["legal"])) for m in rows)
