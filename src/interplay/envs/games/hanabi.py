"""Hanabi: a team builds fireworks from cards that everybody sees except their holder. Cooperative, 2 to 5 players.

Rules         Each colour's firework is built 1, 2, 3, …. Each colour has three 1s, one card of the top rank and two of
              every other rank. In turn a player does one of three things. Play a card: if it is the next of its colour,
              it is added, and completing a colour returns a hint; if not, it is discarded and a life is lost. Discard
              a card: this returns a hint, and is allowed only if a hint was spent. Give a hint: this spends one and
              points out all cards of one colour or one rank in another player's hand (at least one card). A played or
              discarded card is replaced from the deck. When the last card is drawn, every player has one more turn,
              including the player who drew it. The game ends then, or when all fireworks are complete, or when the
              last life is lost.
Roles         p0, p1, … in turn.
Observation   tokens, fireworks, discards, the others' cards with what these know about them, what hints say about one's
              own cards (also hints that did not touch a card), and the moves since one's last turn. One's own cards
              are never shown. Every prompt is fresh and complete.
Actions       `play 1`, `discard 3` (a place in one's hand, oldest card first), `hint p1 R`, `hint p1 4`.
Rewards       `score` (team, each step): +1 for a card added. With `strikes = "zero"` the whole score is taken back when
              the last life is lost, as in the Hanabi learning environment; with `"keep"` it stays. An illegal reply
              ends the game, takes back the score and costs its player −1, `illegal` (process).
Options       `players`; `variant`: `full` (5 colours, 8 hints, 3 lives, hands of 5 cards, or of 4 with 4 or 5 players)
              or `small` (2 colours, 3 hints, 1 life, hands of 2); `strikes`; `brief` (without the rules).
Version       1. Replays the recorded games of the Hanabi learning environment 0.0.4.
"""

from __future__ import annotations

import random
from typing import Literal, NamedTuple

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import Env, register
from interplay.types import Message, Observation, Rewards, Role, Task


class Variant(NamedTuple):
    colours: str
    ranks: str
    hand: tuple[int, ...]  # cards in a hand, by the number of players from two on
    hints: int
    lives: int

    def deck(self) -> list[str]:
        """All cards; `R1` is a red 1."""
        last = len(self.ranks) - 1
        copies = [3 if i == 0 else 1 if i == last else 2 for i in range(len(self.ranks))]
        return [c + r for c in self.colours for r, n in zip(self.ranks, copies, strict=True) for _ in range(n)]


VARIANTS = {
    "full": Variant("RYGWB", "12345", (5, 5, 4, 4), hints=8, lives=3),
    "small": Variant("RY", "12345", (2, 2, 2, 2), hints=3, lives=1),
}


class Held(NamedTuple):
    """A card in a hand, and what hints say about it: the colours and ranks that it can still have."""

    card: str
    colours: str
    ranks: str

    def fits(self, card: str) -> bool:
        return card[0] in self.colours and card[1] in self.ranks

    def told(self, value: str) -> Held:
        """The card after a hint of this colour or rank to its hand."""
        possible = self.ranks if value.isdigit() else self.colours
        left = value if value in self.card else possible.replace(value, "")
        return self._replace(ranks=left) if value.isdigit() else self._replace(colours=left)


class HanabiMove(NamedTuple):
    """What everybody saw of one turn: the action, the card that it showed (if any), the places that a hint named."""

    player: int
    action: str
    card: str = ""
    places: tuple[int, ...] = ()
    added: bool = False


class Options(Section):
    players: int = Field(2, ge=2, le=5, description="number of players")
    variant: Literal["full", "small"] = Field(
        "full", description="the number of colours, hints, lives and cards in hand"
    )
    strikes: Literal["zero", "keep"] = Field("zero", description="what the score becomes when the last life is lost")
    brief: bool = Field(False, description="show only the table, without the rules")


@register("hanabi")
class Hanabi(Env):
    Options = Options
    reward_names = ("score", "illegal")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        players = task.data["players"]
        self.variant = VARIANTS[task.data["variant"]]
        self.roles = tuple(f"p{i}" for i in range(players))
        self.deck = self.variant.deck()  # not shuffled: a card is drawn at random when it is needed
        self.hands: list[list[Held]] = [[] for _ in self.roles]
        for hand in self.hands:
            for _ in range(self.variant.hand[players - 2]):
                self._deal(hand)
        self.fireworks = dict.fromkeys(self.variant.colours, 0)
        self.discards: list[str] = []
        self.hints, self.lives = self.variant.hints, self.variant.lives
        self.moves: list[HanabiMove] = []
        self.last_turns = players  # turns that are left when the deck is empty
        self.score = 0
        self.over = False

    @property
    def player(self) -> int:
        """The player whose turn it is."""
        return len(self.moves) % len(self.roles)

    def legal(self) -> list[str]:
        """Discards, plays, hints of colours and hints of ranks, by place, and by seat from the next player on."""
        me, n = self.player, len(self.roles)
        places = range(1, len(self.hands[me]) + 1)
        actions = [f"discard {i}" for i in places] if self.hints < self.variant.hints else []
        actions += [f"play {i}" for i in places]
        if self.hints:
            for at, values in ((0, self.variant.colours), (1, self.variant.ranks)):
                for other in ((me + k) % n for k in range(1, n)):
                    held = {h.card[at] for h in self.hands[other]}
                    actions += [f"hint p{other} {v}" for v in values if v in held]
        return actions

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        table = Message("user", self._seen_by(self.player))
        messages = (table,) if self.task.data["brief"] else (self._rules(), table)
        return {self.roles[self.player]: Observation(messages, fresh=True, legal=tuple(self.legal()))}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        said = " ".join(text.split()).removesuffix(".").lower() if len(text) < 100 else ""
        action = next((a for a in self.legal() if a.lower() == said), None)
        if action is None:
            self.over = True
            return Rewards.process("illegal", {role: -1.0}) + self._scored(-self.score)
        if not self.deck:
            self.last_turns -= 1
        hand = self.hands[self.player]
        what, _, rest = action.partition(" ")
        rewards = self._hint(rest) if what == "hint" else self._use(what, int(rest) - 1)
        full = self.score == len(self.variant.colours) * len(self.variant.ranks)
        self.over = not self.lives or full or not self.last_turns
        if what != "hint" and self.deck and not self.over:
            self._deal(hand)
        if not self.lives and self.task.data["strikes"] == "zero":
            rewards += self._scored(-self.score)
        return rewards

    def _hint(self, what: str) -> Rewards:
        whom, value = what.split()
        hand = self.hands[int(whom[1:])]
        places = tuple(i for i, h in enumerate(hand) if value in h.card)
        hand[:] = [h.told(value) for h in hand]
        self.hints -= 1
        self.moves.append(HanabiMove(self.player, f"hint {what}", places=places))
        return Rewards()

    def _use(self, what: str, place: int) -> Rewards:
        hand = self.hands[self.player]
        card = hand.pop(place).card
        colour, rank = card[0], self.variant.ranks.index(card[1]) + 1
        added = what == "play" and self.fireworks[colour] == rank - 1
        if added:
            self.fireworks[colour] = rank
        else:
            self.discards.append(card)
            self.lives -= what == "play"
        if what == "discard" or (added and rank == len(self.variant.ranks)):
            self.hints = min(self.hints + 1, self.variant.hints)
        self.moves.append(HanabiMove(self.player, f"{what} {place + 1}", card, added=added))
        return self._scored(1) if added else Rewards()

    def _scored(self, points: int) -> Rewards:
        self.score += points
        return Rewards.team("score", float(points)) if points else Rewards()

    def _deal(self, hand: list[Held]) -> None:
        hand.append(Held(self._draw(), self.variant.colours, self.variant.ranks))

    def _draw(self) -> str:
        return self.deck.pop(self.rng.randrange(len(self.deck)))

    def outcome(self) -> Rewards:
        return Rewards()  # the score was given card by card

    def state(self) -> str:
        hands = "\n".join(
            f"p{i}: " + ", ".join(f"{h.card} {h.colours} {h.ranks}" for h in hand) for i, hand in enumerate(self.hands)
        )
        turn = "over" if self.over else f"p{self.player} to move"
        return f"{self._table()}\n{hands}\nturn {len(self.moves) + 1}, last turns {self.last_turns}, {turn}"

    def fork(self, seed: int | None = None) -> Hanabi:
        twin = self.twin()
        twin.deck, twin.discards, twin.moves = self.deck.copy(), self.discards.copy(), self.moves.copy()
        twin.hands, twin.fireworks = [hand.copy() for hand in self.hands], self.fireworks.copy()
        twin.rng = random.Random(seed)
        if seed is None:
            twin.rng.setstate(self.rng.getstate())
        return twin

    def redeal(self, role: Role, rng: random.Random) -> Hanabi:
        """Draw the own hand again from all cards that `role` cannot see, uniformly among those that the hints allow."""
        twin = self.fork(rng.getrandbits(62))
        hand = twin.hands[self.roles.index(role)]
        unseen = [*self.deck, *(h.card for h in hand)]
        choices = [sum(h.fits(card) for card in unseen) for h in hand]
        drawn: list[str] = []
        while len(drawn) < len(hand):  # draw place by place, and accept in proportion to the choices still left
            left, drawn = unseen.copy(), []
            for h, n in zip(hand, choices, strict=True):
                fitting = [i for i, card in enumerate(left) if h.fits(card)]
                if rng.randrange(n) >= len(fitting):
                    break
                drawn.append(left.pop(rng.choice(fitting)))
        hand[:] = [h._replace(card=card) for h, card in zip(hand, drawn, strict=True)]
        twin.deck = left
        return twin

    def _rules(self) -> Message:
        v, n = self.variant, len(self.roles)
        return Message(
            "system",
            f"Play Hanabi with {n - 1} other{'s' if n > 2 else ''}: together build a firework of each colour "
            f"({' '.join(v.colours)}), {v.ranks[0]} to {v.ranks[-1]} in order. You see the others' cards but not your "
            "own. Of each colour there are three 1s, "
            f"one {v.ranks[-1]} and two of the rest. A wrong play costs a life, a hint costs a hint token, a discard "
            "returns one. [RY 12] after a card says what its holder has been told it can be. Reply with one move, like "
            "play 1, discard 2, hint p1 R or hint p1 3; places count from your oldest card, 1.",
        )

    def _table(self) -> str:
        built = " ".join(f"{c}{n}" for c, n in self.fireworks.items())
        return (
            f"Hints {self.hints} of {self.variant.hints}, lives {self.lives}, cards in the deck {len(self.deck)}.\n"
            f"Fireworks: {built}\nDiscarded: {' '.join(sorted(self.discards)) or 'none'}"
        )

    def _seen_by(self, me: int) -> str:
        n = len(self.roles)
        lines = [self._table()]
        for other in ((me + k) % n for k in range(1, n)):
            lines.append(f"p{other}: " + " ".join(f"{h.card} [{h.colours} {h.ranks}]" for h in self.hands[other]))
        own = " ".join(f"{i} [{h.colours} {h.ranks}]" for i, h in enumerate(self.hands[me], 1))
        lines.append(f"You are p{me} and hold: {own}")
        if not self.deck:
            lines.append(f"The deck is empty: {self.last_turns} turns are left, this one included.")
        since = [_told(move) for move in self.moves[-(n - 1) :]]
        lines.append(f"Since your last turn: {'; '.join(since) or 'nothing'}.")
        return "\n".join(lines)


def _told(move: HanabiMove) -> str:
    if move.places:
        return f"p{move.player} {move.action} at {' '.join(str(i + 1) for i in move.places)}"
    result = "" if move.action.startswith("discard") else ", added" if move.added else ", wrong"
    return f"p{move.player} {move.action}: {move.card}{result}"
