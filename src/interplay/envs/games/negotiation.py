"""Negotiation: two players split books, hats and balls. Each has its own values for them, unknown to the other.

Rules         There are 5 to 7 items of three kinds, at least one of each. Each player has its own value for each kind,
              a whole number; all items together are worth 10 to either. Every kind is worth something to at least one
              player, and at least one kind is worth something to both. In turn the players offer a split or accept the
              last offer, which ends the game. After `turns` turns without a deal nobody gets anything.
Roles         p0 (speaks first) and p1.
Observation   the items, one's own values, what the other said and offered; the other's values never. A conversation:
              each prompt adds what is new. Phase `offer` before the first offer, then `answer`. With `terse = true`
              prompts have only the numbers, for tiny models: `1 1 4 : 4 2 1` (the items and one's own values),
              then `you 0 0 4 turn 2` (what one would get by accepting).
Actions       any text, then on the last line, alone, `offer 1 0 2` (what one keeps for oneself, in the order books,
              hats, balls) or `accept`. The text reaches the other as one line, cut to 500 characters. With
              `talk = false` the line is the whole reply, and all legal ones are listed.
Rewards       `payoff` (agent, at the end): the value of one's share, 0 to 10; 0 without a deal. A reply without such a
              line, an offer of more than there is and accepting nothing are illegal: they end the game without a deal
              and cost their player −1, `illegal` (process).
              With `gold = true` also `gold` (agent, at the end), what a fair judge would say: a tenth of (payoff − half
              the difference of the payoffs − 1 for each offer in which one asks for more than in one's offer before).
Options       `turns`, `talk`, `gold`, `terse`.
Version       1. Instances are like those of OpenSpiel's `bargaining` (Lewis et al. 2017, DeVault et al. 2015).
"""

from __future__ import annotations

import itertools
import random
import re
from functools import cache

from pydantic import Field, model_validator

from interplay.config import Section
from interplay.envs.env import Env, register
from interplay.errors import ConfigError
from interplay.types import Message, Observation, Rewards, Role, Task

ITEMS = ("books", "hats", "balls")
WORTH = 10  # the value of all items together, for each player
INEQUALITY, RETREAT = 0.5, 1.0  # their costs in gold, in points
TALK = 500  # characters of a message that the other player gets
_LINE = re.compile(r"offer\s+(\d{1,2})\s+(\d{1,2})\s+(\d{1,2})|accept", re.IGNORECASE | re.ASCII)
Three = tuple[int, int, int]


def worth(items: Three, values: Three) -> int:
    return sum(n * v for n, v in zip(items, values, strict=True))


@cache
def valuations(pool: Three) -> tuple[Three, ...]:
    """All ways to give the pool the value `WORTH` in whole numbers."""
    a, b, c = pool
    pairs = itertools.product(range(WORTH // a + 1), range(WORTH // b + 1))
    rest = (((x, y), WORTH - a * x - b * y) for x, y in pairs)
    return tuple((x, y, left // c) for (x, y), left in rest if left >= 0 and left % c == 0)


def compatible(mine: Three, theirs: Three) -> bool:
    """Whether two valuations make an instance: every kind has a value for somebody, and one kind for both."""
    both = list(zip(mine, theirs, strict=True))
    return all(a or b for a, b in both) and any(a and b for a, b in both)


@cache
def instances(pool: Three) -> tuple[tuple[Three, Three], ...]:
    return tuple((a, b) for a in valuations(pool) for b in valuations(pool) if compatible(a, b))


@cache
def pools() -> tuple[Three, ...]:
    some = range(1, 6)
    return tuple(p for p in itertools.product(some, some, some) if 5 <= sum(p) <= 7 and instances(p))


class Options(Section):
    turns: int = Field(10, ge=2, description="turns of both players together, after which there is no deal")
    talk: bool = Field(True, description="text before the offer is allowed and reaches the other")
    gold: bool = Field(False, description="also give each player the reward `gold`, what a fair judge would say")
    terse: bool = Field(False, description="prompts have only the numbers, for tiny models; needs talk = false")

    @model_validator(mode="after")
    def _terse_prompts_have_no_room_for_talk(self) -> Options:
        if self.terse and self.talk:
            raise ConfigError("env.terse = true shows no text of the other player; expected env.talk = false with it.")
        return self


@register("negotiation")
class Negotiation(Env):
    Options = Options
    reward_names = ("payoff", "gold", "illegal")
    roles = ("p0", "p1")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.pool = self.rng.choice(pools())
        self.values = self.rng.choice(instances(self.pool))
        self.said: tuple[tuple[str, Three], ...] = ()  # for each turn, the text and the offer (what its speaker keeps)
        self.deal: tuple[Three, Three] | None = None
        self.over = False

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        me, talk = len(self.said) % 2, self.task.data["talk"]
        news = Message("user", self._news())
        messages = (news,) if len(self.said) > 1 else (self._rules(me), news)
        legal = () if talk else (*self._offers(), *(("accept",) if self.said else ()))
        phase = "answer" if self.said else "offer"
        return {self.roles[me]: Observation(messages, legal=legal, phase=phase)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, reply),) = actions.items()
        before, _, line = reply.strip().rpartition("\n")
        match = _LINE.fullmatch(line.strip().removesuffix("."))
        keeps: Three | None = (int(match[1]), int(match[2]), int(match[3])) if match and match[1] else None
        accepts = match is not None and keeps is None
        fits = keeps is not None and all(k <= n for k, n in zip(keeps, self.pool, strict=True))
        if (before and not self.task.data["talk"]) or not (fits or (accepts and self.said)):
            self.over = True
            return Rewards.process("illegal", {role: -1.0})
        if accepts:
            theirs = self.said[-1][1]
            mine = self.rest(theirs)
            self.deal = (mine, theirs) if self.roles.index(role) == 0 else (theirs, mine)
            self.over = True
        elif keeps is not None:
            text = " ".join(before.split())[:TALK]  # one line, so that it cannot look like another part of the prompt
            self.said += ((text, keeps),)
            self.over = len(self.said) >= self.task.data["turns"]
        return Rewards()

    def outcome(self) -> Rewards:
        shares = self.deal or ((0, 0, 0), (0, 0, 0))
        points = {r: float(worth(shares[i], self.values[i])) for i, r in enumerate(self.roles)}
        paid = Rewards.agent("payoff", points)
        return paid + Rewards.agent("gold", self._gold(points)) if self.task.data["gold"] else paid

    def _gold(self, points: dict[Role, float]) -> dict[Role, float]:
        """A tenth of the payoff, minus half a tenth of the difference to the other's payoff, minus a tenth for every
        offer that took back something that one had offered before."""
        inequality = abs(points["p0"] - points["p1"])
        out = {}
        for i, role in enumerate(self.roles):
            mine = [worth(keeps, self.values[i]) for _, keeps in self.said[i::2]]
            retreats = sum(after > before for before, after in itertools.pairwise(mine))
            out[role] = (points[role] - INEQUALITY * inequality - RETREAT * retreats) / WORTH
        return out

    def taken(self, role: Role) -> int:
        """The number of turns that a role has had."""
        return (len(self.said) + 1 - self.roles.index(role)) // 2

    def best_joint(self) -> int:
        """The most that both can get together: every kind goes to the player who values it more."""
        return sum(n * max(a, b) for n, a, b in zip(self.pool, *self.values, strict=True))

    def optimum(self, role: Role) -> float:
        """The gold of the best deal for `role`, made without taking back an offer."""
        me = self.roles.index(role)
        both = ((worth(k, self.values[me]), worth(self.rest(k), self.values[1 - me])) for k in self.splits())
        return max(mine - INEQUALITY * abs(mine - theirs) for mine, theirs in both) / WORTH

    def state(self) -> str:
        values = "; ".join(f"{r} values {_listed(v)}" for r, v in zip(self.roles, self.values, strict=True))
        said = "".join(f"\np{i % 2} keeps {_listed(keeps)}: {text}" for i, (text, keeps) in enumerate(self.said))
        now = f"p{len(self.said) % 2} to speak"
        if self.over:
            now = "no deal" if self.deal is None else "deal: p0 {}, p1 {}".format(*map(_listed, self.deal))
        return f"{_listed(self.pool)}; {values}; best together {self.best_joint()}{said}\n{now}"

    def fork(self, seed: int | None = None) -> Negotiation:
        return self.twin()  # all values are immutable, and there is no randomness after the deal

    def redeal(self, role: Role, rng: random.Random) -> Negotiation:
        twin, me = self.fork(), self.roles.index(role)
        own = self.values[me]
        theirs = rng.choice([v for v in valuations(self.pool) if compatible(own, v)])
        twin.values = (own, theirs) if me == 0 else (theirs, own)
        return twin

    def rest(self, keeps: Three) -> Three:
        """What is left for the other player."""
        a, b, c = (n - k for n, k in zip(self.pool, keeps, strict=True))
        return a, b, c

    def splits(self) -> list[Three]:
        """Everything that one player can keep."""
        a, b, c = (range(n + 1) for n in self.pool)
        return list(itertools.product(a, b, c))

    def _offers(self) -> list[str]:
        return [f"offer {a} {b} {c}" for a, b, c in self.splits()]

    def _news(self) -> str:
        """What is new since one's last turn."""
        number = len(self.said) + 1
        if not self.task.data["terse"]:
            return f"{self._heard()}Turn {number} of {self.task.data['turns']}. Your reply?"
        offered = f"you {_bare(self.rest(self.said[-1][1]))} " if self.said else ""
        return f"{offered}turn {number}"

    def _heard(self) -> str:
        if not self.said:
            return ""
        text, keeps = self.said[-1]
        quoted = f'They say: "{text}"\n' if text else ""
        return f"{quoted}They offer: you get {_listed(self.rest(keeps))}, they keep {_listed(keeps)}.\n"

    def _rules(self, me: int) -> Message:
        if self.task.data["terse"]:
            return Message("system", f"{_bare(self.pool)} : {_bare(self.values[me])}")
        how = (
            "Say what you like, and on the last line alone give your move: "
            if self.task.data["talk"]
            else "Reply with your move alone: "
        )
        return Message(
            "system",
            f"Split {_listed(self.pool)} with another player. To you each is worth: {_listed(self.values[me])}. They "
            f"have values of their own, and all items are worth {WORTH} to either of you. You score what you get, and "
            f"nothing if there is no deal after {self.task.data['turns']} turns. {how}offer and how many books, hats "
            "and balls you keep, like offer 1 0 1, or accept to take their last offer.",
        )


def _listed(three: Three) -> str:
    return ", ".join(f"{name} {n}" for name, n in zip(ITEMS, three, strict=True))


def _bare(three: Three) -> str:
    return " ".join(map(str, three))
