"""Who plays a role. Recipes, records and metrics name an occupant by a text, which is parsed once, when it is read.

player            a policy of the run
player@start      the policy as it was when reinforcement learning began; player@120: after step 120
player@now        the policy with its current weights; it plays but does not learn
player@base       the base model that the policy was made from
player@league     a snapshot of the policy, drawn by the league; @league: a snapshot of any policy
bot:NAME          a scripted player
a, b, then c      several players who take the role's turns in that order
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

BOT = "bot:"
_AT, _LEAGUE, _NEXT, _REST, _NO_ONE = "@", "@league", ", ", "then ", "then no one"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of the run whose weights are held in this process."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Remote:
    """A policy whose model runs on a remote server."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A policy that plays and does not learn. `at` says with which weights: "start", the number of a training step,
    "now" or "base"."""

    policy: str
    at: str = "start"

    def __str__(self) -> str:
        return f"{self.policy}{_AT}{self.at}"

    @property
    def is_now(self) -> bool:
        """Whether it plays with the policy's current weights, which training keeps changing."""
        return self.at == "now"

    @property
    def step(self) -> int:
        """The training step after which the snapshot was taken."""
        return 0 if self.at == "start" else int(self.at)


@dataclass(frozen=True, slots=True)
class FromLeague:
    """A player that the league draws for each task: a snapshot of `policy`, or of any policy if that is empty."""

    policy: str = ""

    def __str__(self) -> str:
        return self.policy + _LEAGUE


@dataclass(frozen=True, slots=True)
class Scripted:
    """A bot, given by its name and setting."""

    bot: str

    def __str__(self) -> str:
        return BOT + self.bot


@dataclass(frozen=True, slots=True)
class ByTurn:
    """Several players who take a role's turns in order. With `always`, the last one also takes all later turns."""

    takers: tuple[Policy | Remote | Snapshot | FromLeague | Scripted, ...]
    always: bool

    def __str__(self) -> str:
        *first, last = map(str, self.takers)
        return _NEXT.join([*first, _REST + last] if self.always else [*first, last, _NO_ONE])


One = Policy | Remote | Snapshot | FromLeague | Scripted
Occupant = One | ByTurn


def everyone(occupant: Occupant) -> tuple[One, ...]:
    """The players who take turns in a seat, without duplicates."""
    return tuple(dict.fromkeys(occupant.takers)) if isinstance(occupant, ByTurn) else (occupant,)


def learns(occupant: Occupant, learners: Container[str]) -> bool:
    """Whether one of the policies in `learners` takes turns in a seat."""
    return any(isinstance(one, Policy) and one.name in learners for one in everyone(occupant))


def replaced(occupant: Occupant, others: Mapping[Policy, Snapshot]) -> Occupant:
    """The occupant with its policies replaced by these snapshots."""
    if isinstance(occupant, ByTurn):
        takers = tuple(others.get(one, one) if isinstance(one, Policy) else one for one in occupant.takers)
        return ByTurn(takers, occupant.always)
    return others.get(occupant, occupant) if isinstance(occupant, Policy) else occupant


def parse(text: str) -> Occupant:
    """The occupant that a text names. This does not check that the policy exists.

    >>> parse("player@start"), parse("bot:random"), str(parse("draft, then revise"))
    (Snapshot(policy='player', at='start'), Scripted(bot='random'), 'draft, then revise')
    """
    *first, last = text.split(_NEXT)
    if last == _NO_ONE:
        return ByTurn(tuple(map(parse_one, first)), always=False)
    if first:
        return ByTurn(tuple(map(parse_one, [*first, last.removeprefix(_REST)])), always=True)
    return parse_one(text)


def parse_snapshot(text: str) -> Snapshot:
    """The snapshot that a text in a checkpoint names."""
    policy, _, at = text.partition(_AT)
    return Snapshot(policy, at)


def parse_one(text: str) -> One:
    if text.startswith(BOT):
        return Scripted(text.removeprefix(BOT))
    if text.endswith(_LEAGUE):
        return FromLeague(text.removesuffix(_LEAGUE))
    policy, mark, at = text.partition(_AT)
    return Snapshot(policy, at) if mark else Policy(policy)
