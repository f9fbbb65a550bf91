"""Leduc hold'em: six cards, two rounds of betting, one public card. Two players, zero-sum, hidden cards.

Rules         The deck is J J Q Q K K. Both put 1 in the pot and get one card. In each of two rounds p0 acts first. A
              raise is 2 chips in the first round and 4 in the second, with at most two raises per round. A round ends
              when a raise is called, or when both call without a raise. Between the rounds one public card is turned
              up. At the end a pair with it wins, else the higher card; equal cards share the pot.
Roles         p0 and p1.
Observation   own card, public card, the betting of both rounds and the chips, never the other's card. Every prompt is
              fresh and complete.
Actions       `fold` (only after a raise), `call` (which is also a check), `raise` (at most two per round).
Rewards       `payoff` (agent, at the end): chips won or lost, from −13 to +13. An illegal reply folds and costs its
              player an additional −1, `illegal` (process).
Options       `brief` (only cards and betting, without the rules).
Version       1. Rules as in OpenSpiel's `leduc_poker`. Suits are not shown, because they never matter.
"""

from __future__ import annotations

import random

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import Env, register
from interplay.types import Message, Observation, Rewards, Role, Task

DECK = ("J", "J", "Q", "Q", "K", "K")
RAISES = (2, 4)
MAX_RAISES = 2
_RULES = Message(
    "system",
    "Play Leduc poker. The deck is J J Q Q K K. Each player has one card and put 1 in the pot. There are two rounds of "
    "betting, raises are 2 then 4 chips, at most two a round; one public card is turned up between them. A pair with "
    "the public card wins, else the higher card. Reply fold, call or raise; call without a raise is a check.",
)


class Options(Section):
    brief: bool = Field(False, description="show only cards and betting, for models that are trained from scratch")


@register("leduc")
class Leduc(Env):
    Options = Options
    reward_names = ("payoff", "illegal")
    roles = ("p0", "p1")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.cards = tuple(self.rng.sample(DECK, 2))
        self.public: str | None = None
        self.betting: tuple[tuple[str, ...], ...] = ((),)
        self.chips = (1, 1)
        self.folded: Role | None = None
        self.over = False

    def _legal(self) -> tuple[str, ...]:
        behind = self.chips[0] != self.chips[1]
        more = self.betting[-1].count("raise") < MAX_RAISES
        return (*(("fold",) if behind else ()), "call", *(("raise",) if more else ()))

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        me = len(self.betting[-1]) % 2
        rounds = " | ".join(" ".join(actions) or "-" for actions in self.betting)
        if self.task.data["brief"]:
            shown: tuple[Message, ...] = (Message("user", f"{self.cards[me]} {self.public or '-'} | {rounds}"),)
        else:
            text = (
                f"You are {self.roles[me]} and hold {self.cards[me]}. Public card: {self.public or 'not yet'}. "
                f"Betting, p0 first in each round: {rounds}. Chips in: p0 {self.chips[0]}, p1 {self.chips[1]}. "
                f"Your move: {' or '.join(self._legal())}?"
            )
            shown = (_RULES, Message("user", text))
        return {self.roles[me]: Observation(shown, fresh=True, legal=self._legal())}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        action, me = text.strip().strip(".").lower(), self.roles.index(role)
        if action not in self._legal():
            self.folded, self.over = role, True
            return Rewards.process("illegal", {role: -1.0})
        now = (*self.betting[-1], action)
        self.betting = (*self.betting[:-1], now)
        if action == "fold":
            self.folded, self.over = role, True
            return Rewards()
        put = max(self.chips) + (RAISES[len(self.betting) - 1] if action == "raise" else 0)
        self.chips = (put, self.chips[1]) if me == 0 else (self.chips[0], put)
        if action == "call" and len(now) > 1:  # a raise is called, or both players checked
            if self.public is not None:
                self.over = True
            else:
                self.public = self.rng.choice(_without(self.cards))
                self.betting += ((),)
        return Rewards()

    def outcome(self) -> Rewards:
        if not self.over:  # truncated: nobody has won anything
            return Rewards.agent("payoff", dict.fromkeys(self.roles, 0.0))
        if self.folded is not None:
            loser = self.roles.index(self.folded)
        else:
            a, b = ((card == self.public, DECK.index(card)) for card in self.cards)
            if a == b:
                return Rewards.agent("payoff", dict.fromkeys(self.roles, 0.0))
            loser = 0 if a < b else 1
        won = float(self.chips[loser])
        return Rewards.agent("payoff", {r: -won if i == loser else won for i, r in enumerate(self.roles)})

    def state(self) -> str:
        rounds = " | ".join(" ".join(actions) or "-" for actions in self.betting)
        end = f"; over{f', {self.folded} is out' if self.folded else ''}" if self.over else ""
        return f"p0 {self.cards[0]}, p1 {self.cards[1]}, public {self.public or '-'}; {rounds}{end}"

    def fork(self, seed: int | None = None) -> Leduc:
        twin = self.twin()  # all values are immutable, except the generator for the public card
        twin.rng = random.Random(seed)
        if seed is None:
            twin.rng.setstate(self.rng.getstate())
        return twin

    def redeal(self, role: Role, rng: random.Random) -> Leduc:
        twin, me = self.fork(rng.getrandbits(62)), self.roles.index(role)
        seen = (self.cards[me], *((self.public,) if self.public else ()))
        other = rng.choice(_without(seen))
        twin.cards = (self.cards[0], other) if me == 0 else (other, self.cards[1])
        return twin


def _without(cards: tuple[str, ...]) -> list[str]:
    left = list(DECK)
    for card in cards:
        left.remove(card)
    return left
