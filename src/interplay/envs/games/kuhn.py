"""Kuhn poker: three cards, one bet. Two players, zero-sum, hidden cards. Its value for the first player is −1/18.

Rules         Both put 1 in the pot and get one card of J, Q, K. In turn each player passes or bets 1 more. A pass after
              a bet folds; a bet after a bet calls. After two passes or a call the cards are shown, and the higher card
              takes the pot.
Roles         p0 (acts first) and p1.
Observation   the own card and the betting so far, never the other's card. Every prompt is fresh and complete.
Actions       `pass` or `bet`, alone in the reply.
Rewards       `payoff` (agent, at the end): chips won or lost, from −2 to +2. An illegal reply folds, whatever the
              cards, and costs its player an additional −1, `illegal` (process).
Options       `brief` (only the card and the betting, without the rules).
Version       1. Rules as in OpenSpiel's `kuhn_poker`.
"""

from __future__ import annotations

import random
from functools import lru_cache

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import Env, register
from interplay.types import Message, Observation, Rewards, Role, Task

ROLES = ("p0", "p1")
CARDS = ("J", "Q", "K")
ENDINGS = (("pass", "pass"), ("pass", "bet", "pass"), ("pass", "bet", "bet"), ("bet", "pass"), ("bet", "bet"))
_RULES = Message(
    "system",
    "Play Kuhn poker. The cards are J, Q and K; each player has one and put 1 in the pot. Reply pass, or bet to put in "
    "1 more. After a bet, pass folds and bet calls. The higher card wins.",
)


class Options(Section):
    brief: bool = Field(False, description="show only card and betting, for models that are trained from scratch")


@lru_cache  # twelve positions, each in two forms
def _seen(card: str, betting: tuple[str, ...], brief: bool) -> Observation:
    shown: tuple[Message, ...] = (Message("user", " ".join((card, *betting))),)
    if not brief:
        bets = ", ".join(f"p{i % 2} {action}" for i, action in enumerate(betting)) or "nothing"
        text = f"You are p{len(betting) % 2} and hold {card}. So far: {bets}. Your move?"
        shown = (_RULES, Message("user", text))
    return Observation(shown, fresh=True, legal=("pass", "bet"))


@lru_cache
def _paid(cards: tuple[str, ...], betting: tuple[str, ...], folded: Role | None) -> Rewards:
    if folded is not None:
        loser = ROLES.index(folded)
    elif betting[-2:] == ("bet", "pass"):
        loser = (len(betting) - 1) % 2
    elif betting in ENDINGS:
        loser = min((0, 1), key=lambda i: CARDS.index(cards[i]))
    else:  # truncated: nobody has won anything
        return Rewards.agent("payoff", dict.fromkeys(ROLES, 0.0))
    won = 1.0 + betting[loser::2].count("bet")
    return Rewards.agent("payoff", {r: -won if i == loser else won for i, r in enumerate(ROLES)})


@register("kuhn")
class Kuhn(Env):
    Options = Options
    reward_names = ("payoff", "illegal")
    roles = ROLES

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.cards = tuple(self.rng.sample(CARDS, 2))
        self.betting: tuple[str, ...] = ()
        self.folded: Role | None = None

    def observe(self) -> dict[Role, Observation]:
        if self.folded or self.betting in ENDINGS:
            return {}
        me = len(self.betting) % 2
        return {self.roles[me]: _seen(self.cards[me], self.betting, self.task.data["brief"])}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        action = text.strip().strip(".").lower()
        if action not in ("pass", "bet"):
            self.folded = role
            return Rewards.process("illegal", {role: -1.0})
        self.betting += (action,)
        return Rewards()

    def outcome(self) -> Rewards:
        return _paid(self.cards, self.betting, self.folded)

    def state(self) -> str:
        bets = " ".join(self.betting) or "nothing"
        end = f"; {self.folded} out by an illegal reply" if self.folded else ""
        return f"p0 {self.cards[0]}, p1 {self.cards[1]}; {bets}{end}"

    def fork(self, seed: int | None = None) -> Kuhn:
        return self.twin()  # all values are immutable, and there is no randomness after the deal

    def redeal(self, role: Role, rng: random.Random) -> Kuhn:
        twin, me = self.fork(), self.roles.index(role)
        other = rng.choice([card for card in CARDS if card != self.cards[me]])
        twin.cards = (self.cards[0], other) if me == 0 else (other, self.cards[1])
        return twin
