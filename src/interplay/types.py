"""The whole vocabulary on one page. Standard library only.

One datum walks through these records: a `Task` makes an `Env`, whose `Observation`s become the prompt
of a `Turn`; turns and their `Rewards` make an `Episode`; credit writes `Turn.advantage`; the learner
trains on `Turn.prompt + Turn.action`. Token ids are sampled once and carried unchanged to the loss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

Role = str


def seed_of(*parts: object) -> int:
    """A 63-bit seed that is a pure function of `parts`: all randomness is counter-based on keys.

    >>> seed_of(0, "task-1", 3) == seed_of(0, "task-1", 3) != seed_of(0, "task-1", 4)
    True
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is the chat role (system, user, assistant, tool), not the seat.

    `images` (PNG files) belong to the words; a model that cannot see is given the words alone."""

    role: str
    content: str
    images: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def words(self) -> Message:
        """The message without its images."""
        return replace(self, images=()) if self.images else self


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be played. With the actions it reproduces the episode exactly.

    `data` holds the environment's options and, for dataset environments, the item itself.
    """

    id: str
    env: str
    seed: int
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool; `type` is JSON's: string, integer, number or boolean."""

    name: str
    description: str
    type: str = "string"
    required: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """What a role may call inside its turn: `run(**arguments)` gives the text that the caller reads next.

    A tool reads the environment and changes nothing. A caller's mistake is an answer like any other ("error: no such
    table"); what `run` raises is a failure of the machinery, and so is running past `seconds`: a tool limits itself.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    run: Callable[..., str] = field(repr=False, compare=False)
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Observation:
    """What one role sees when it must act.

    `messages` are new since that role last acted, or, with `fresh`, the whole prompt. `legal` lists the
    legal actions as text where they can be listed. `phase` names the part of the game, for grouping. `tools` may be
    called, some times, before the action is given; the environment never sees those calls.
    """

    messages: tuple[Message, ...]
    fresh: bool = False
    legal: tuple[str, ...] = ()
    phase: str = ""
    tools: tuple[Tool, ...] = ()


class Level(StrEnum):
    """Who a reward belongs to: one action (process), one role (agent), or everybody (team)."""

    PROCESS = "process"
    AGENT = "agent"
    TEAM = "team"


@dataclass(frozen=True, slots=True)
class Reward:
    """One named number. `value=None` means it was never scored, which is not zero."""

    name: str
    level: Level
    role: Role | None
    value: float | None


@dataclass(frozen=True, slots=True)
class Rewards:
    """Reward records, kept apart by name and level until credit mixes them."""

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
        """The records that reach `role`: its own and the team's."""
        return Rewards(tuple(r for r in self.records if r.role is None or r.role == role))

    def scaled(self, factor: float) -> Rewards:
        if factor == 1.0:
            return self
        return Rewards(
            tuple(Reward(r.name, r.level, r.role, None if r.value is None else r.value * factor) for r in self.records)
        )

    @staticmethod
    def mean(parts: Iterable[Rewards], count: int) -> Rewards:
        """The record-wise mean of `count` reward sets; a record absent from a set counts as 0."""
        sums: dict[tuple[str, Level, Role | None], float | None] = {}
        for part in parts:
            for r in part:
                key = (r.name, r.level, r.role)
                if r.value is None or sums.get(key, 0.0) is None:
                    sums[key] = None
                else:
                    sums[key] = (sums.get(key) or 0.0) + r.value / count
        return Rewards(tuple(Reward(*key, value) for key, value in sums.items()))


class Stop(StrEnum):
    """Why a completion ended."""

    END = "end"  # the end-of-turn token
    LENGTH = "length"  # the token limit


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine gives back: sampled ids, their log-probs under the distribution they were sampled from.

    A remote model gives neither: then `text` is what it said, and `used` how many tokens its server counted."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int
    stop: Stop
    text: str = ""
    used: int = 0


class Status(StrEnum):
    """How a turn ended, as data for the metrics. Every one of these is the policy's doing."""

    OK = "ok"
    LENGTH = "length"
    ILLEGAL = "illegal"


@dataclass(frozen=True, slots=True)
class Keys:
    """Stamped on a turn when it is sampled. A grouping is a subset of these names."""

    task: str
    replica: int
    episode: str
    decision: int
    role: Role
    phase: str
    tool: str
    prompt: str

    def pick(self, names: tuple[str, ...]) -> tuple[object, ...]:
        return tuple(getattr(self, n) for n in names)


KEY_NAMES = ("task", "replica", "episode", "decision", "role", "phase", "tool", "prompt")


@dataclass(slots=True)
class Turn:
    """One action in one seat: a model call, or a bot's move (`policy` is then `bot:name`, no tokens).

    In a tree, the K candidates of a decision are K turns with `candidate` 0..K-1, one of them `kept`;
    `outlook` is what this candidate earned on its own fork, step rewards plus (mean) continuation, discounted to
    this turn (empty where all candidates said the same, and only their differences count); turns sampled only to
    estimate it have `playout` set. Those are recorded when asked for, never trained.

    Where a role called tools before it acted, the turn is its last model call, whose text is the action; `calls` are
    the earlier ones, each a turn whose text calls a tool and whose output is in the next one's prompt. All share one
    decision, its keys and its credit.
    """

    id: str
    parent: str | None
    role: Role
    decision: int
    keys: Keys
    policy: str
    version: int
    prompt: tuple[int, ...]
    action: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    temperature: float = 1.0
    candidate: int = 0
    call: int = 0  # which of its decision's model calls this is
    calls: tuple[Turn, ...] = ()  # those that came before this one
    kept: bool = True
    playout: int | None = None
    status: Status = Status.OK
    merged: bool = False  # the prompt extends the previous turn of this role, token for token
    seconds: float = 0.0
    messages: tuple[Message, ...] = ()  # what was new in this prompt, for people to read
    fresh: bool = False  # those messages are the whole prompt
    legal: tuple[str, ...] = ()  # the legal actions, where the environment lists them
    masked: tuple[tuple[int, ...], ...] = ()  # the only replies that could be sampled, as ids, where others were masked
    state: str = ""  # Env.state() before this decision, for central critics; empty in playouts
    rewards: Rewards = field(default_factory=Rewards)
    outlook: Rewards | None = None
    coalitions: Mapping[str, Rewards] = field(default_factory=dict)  # "a,b": the outlook had only a and b acted
    value: float | None = None  # the critic's, at the end of the prompt
    target: float | None = None  # what the critic should have said
    token_values: tuple[float, ...] | None = None  # the same two before each sampled token, for token-level credit
    token_targets: tuple[float, ...] | None = None
    ref_logprobs: tuple[float, ...] | None = None
    advantage: float | None = None
    token_advantages: tuple[float, ...] | None = None  # where they differ; `advantage` is then the largest in size
    used: int = 0  # tokens of a remote model's reply, as its server counted them: their ids are not known
    legal_logprobs: tuple[tuple[float, ...], ...] | None = None  # of every reply in `masked`, where all are weighed
    legal_advantages: tuple[float, ...] | None = None  # of each of them, in place of that of the reply that was sampled

    @property
    def is_model(self) -> bool:
        return bool(self.action)

    def weighed(self) -> list[Turn]:
        """What is trained: this turn or, where all legal replies are weighed, one turn for each of them."""
        if self.legal_advantages is None:
            return [self]
        assert self.legal_logprobs is not None
        out = []
        for k, (reply, found) in enumerate(zip(self.masked, self.legal_logprobs, strict=True)):
            sampled = self.logprobs if reply == self.action else found  # the engine's own where it drew this one
            advantage = self.legal_advantages[k]
            turn = replace(self, id=f"{self.id}~{k}", action=reply, logprobs=sampled, advantage=advantage)
            turn.ref_logprobs = None
            out.append(turn)
        return out

    @property
    def whole(self) -> tuple[Turn, ...]:
        """Every model call of this decision, this one last."""
        return (*self.calls, self)

    @property
    def asked(self) -> tuple[int, ...]:
        """The prompt that this decision answers, before any tool spoke."""
        return self.whole[0].prompt

    @property
    def sampled(self) -> int:
        """Tokens sampled for this decision, here or by a remote model; a bot has none."""
        return sum(len(t.action) or t.used for t in self.whole)


@dataclass(slots=True)
class Episode:
    """One play of one task. `error` is set when the machinery failed: such an episode is never trained on."""

    id: str
    task: Task
    replica: int
    seats: Mapping[str, str]
    turns: list[Turn] = field(default_factory=list)
    rewards: Rewards = field(default_factory=Rewards)
    truncated: bool = False
    error: str | None = None
    seconds: float = 0.0
    final_state: str = ""
    answered: bool = True  # whether that holds an answer, where answers are what is played for
    sampled: Mapping[Role, float] = field(default_factory=dict)  # a tree that keeps the best plays above its policy:
    # what each role's mix came to over all candidates, before any was chosen

    def line(self, role: Role | None = None) -> list[Turn]:
        """The turns that were really played, in order; of one role if given."""
        return [t for t in self.turns if t.kept and t.playout is None and (role is None or t.role == role)]
