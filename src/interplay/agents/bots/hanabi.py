"""A rule-based Hanabi team with one convention, for any number of players and any variant.

The convention: the focus of a hint is the newest card that it touches for the first time (or, if there is none, the
newest card that it touches). The holder plays the focus if it could be playable by what everyone can see. So a player
gives a hint only if the focus is playable, or if the holder will see that it cannot be. Touched cards are kept; the
oldest untouched card is discarded first.

In its turn a player does the first of these that is possible: play a card that is known or signalled to be playable;
give a hint that lets another player play; give a hint that saves the last copy of a card from being discarded; play the
card most likely to be playable, if the deck is empty and a life can be lost; discard; give a hint that signals nothing.
The bot reads the hints and the other players' cards, never its own cards.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from interplay.agents.bots.bot import Bot, legal_actions, register_bot
from interplay.envs.env import Env
from interplay.envs.games.hanabi import Hanabi, Held, Variant
from interplay.types import Role


@cache
def _copies(variant: Variant) -> Mapping[str, int]:
    return Counter(variant.deck())


@dataclass(slots=True)
class _Note:
    """What the team's convention says about one held card."""

    touched: bool = False
    signalled: bool = False


@dataclass(slots=True)
class _Hint:
    """A hint that signals nothing false: how many seats after this player the receiver sits, which cards it touches,
    and how many more cards the receiver will play because of it."""

    action: str
    seats_on: int
    places: tuple[int, ...]
    plays: int
    good: int  # useful minus useless cards that it touches for the first time


class _Table:
    """What the player to move sees, and what the convention says about the moves so far."""

    def __init__(self, env: Hanabi) -> None:
        self.env, self.me, self.copies = env, env.player, _copies(env.variant)
        self.gone = Counter(env.discards)
        built = Counter(c + rank for c, height in env.fireworks.items() for rank in env.variant.ranks[:height])
        self.public = self.gone + built
        self.seen = self.public + Counter(h.card for i, hand in enumerate(env.hands) if i != self.me for h in hand)
        self.next = _next_cards(env.variant, env.fireworks, self.gone)
        self.notes = _notes(env)
        self.due = {  # cards that other players are about to play
            h.card for i, hand in enumerate(env.hands) if i != self.me
            for h, note in zip(hand, self.notes[i], strict=True) if self.plays(h, note, self.public)
        }  # fmt: skip

    def useless(self, card: str) -> bool:
        """Whether the card can never be added: it was played already, or all copies of a card below it are gone."""
        ranks, height = self.env.variant.ranks, self.env.fireworks[card[0]]
        rank = ranks.index(card[1])
        return rank < height or any(self.gone[card[0] + r] == self.copies[card[0] + r] for r in ranks[height:rank])

    def critical(self, card: str) -> bool:
        """Whether the card is the last copy of its kind and still useful."""
        return self.gone[card] == self.copies[card] - 1 and not self.useless(card)

    def could_be(self, held: Held, seen: Counter[str]) -> list[str]:
        """The cards that a held card can be, each repeated once per copy that is not in `seen`."""
        return [card for card, n in self.copies.items() if held.fits(card) for _ in range(n - seen[card])]

    def plays(self, held: Held, note: _Note, seen: Counter[str]) -> bool:
        """Whether a player who knows the cards in `seen` and the hints about this card plays it."""
        able = [card in self.next for card in self.could_be(held, seen)]
        return any(able) and (note.signalled or all(able))

    def chop(self, player: int) -> int | None:
        """The index of the card that this player discards next: the oldest untouched one. None if all are touched."""
        return next((i for i, note in enumerate(self.notes[player]) if not note.touched), None)

    def hints(self) -> list[_Hint]:
        """Every hint after which nobody plays a wrong card, or a card that another player is about to play."""
        return [h for action in self.env.legal() if action.startswith("hint") and (h := self._hint(action))]

    def _hint(self, action: str) -> _Hint | None:
        _, whom, value = action.split()
        other = int(whom[1:])
        hand, notes = self.env.hands[other], self.notes[other]
        places = tuple(i for i, h in enumerate(hand) if value in h.card)
        focus, plays = _focus(places, notes), 0
        for i, (h, note) in enumerate(zip(hand, notes, strict=True)):
            told = h.told(value)
            signal = note.signalled or (i == focus and _believable(self.next, told))
            if self.plays(told, _Note(True, signal), self.public) and not self.plays(h, note, self.public):
                if h.card not in self.next or h.card in self.due:
                    return None
                plays += 1
        fresh = [self.useless(hand[i].card) for i in places if not notes[i].touched]
        return _Hint(action, (other - self.me) % len(self.env.roles), places, plays, len(fresh) - 2 * sum(fresh))


def _next_cards(variant: Variant, fireworks: Mapping[str, int], gone: Counter[str]) -> set[str]:
    """The cards that can be added now and of which a copy is left."""
    top = len(variant.ranks)
    found = {colour + variant.ranks[height] for colour, height in fireworks.items() if height < top}
    return {card for card in found if gone[card] < _copies(variant)[card]}


def _focus(places: tuple[int, ...], notes: list[_Note]) -> int:
    return max([i for i in places if not notes[i].touched] or places)


def _believable(next_cards: set[str], held: Held) -> bool:
    """Whether the card could be playable, by what everyone can see."""
    return any(held.fits(card) for card in next_cards)


def _notes(env: Hanabi) -> list[list[_Note]]:
    """Apply the convention to all moves from the first one on. The result is the same for every player."""
    variant, players = env.variant, len(env.roles)
    size = variant.hand[players - 2]
    unknown = Held("", variant.colours, variant.ranks)
    hands = [[(unknown, _Note()) for _ in range(size)] for _ in range(players)]
    deck = len(variant.deck()) - size * players
    fireworks, gone = dict.fromkeys(variant.colours, 0), Counter[str]()
    for move in env.moves:
        what, *rest = move.action.split()
        if what == "hint":
            hand, value = hands[int(rest[0][1:])], rest[1]
            for i, (held, note) in enumerate(hand):  # only the touched places are public, not the cards
                hand[i] = (held._replace(card=value if i in move.places else "").told(value), note)
            focus = _focus(move.places, [note for _, note in hand])
            hand[focus][1].signalled |= _believable(_next_cards(variant, fireworks, gone), hand[focus][0])
            for i in move.places:
                hand[i][1].touched = True
            continue
        hands[move.player].pop(int(rest[0]) - 1)
        if move.added:
            fireworks[move.card[0]] += 1
        else:
            gone[move.card] += 1
        if deck:
            deck -= 1
            hands[move.player].append((unknown, _Note()))
    return [[note for _, note in hand] for hand in hands]


@register_bot("hanabi")
class HanabiBot(Bot):
    """A rule-based Hanabi team whose hints say which card to play. Use it in every seat."""

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        legal = legal_actions(env, role)
        if not isinstance(env, Hanabi):
            self.refuse("is another game; expected Hanabi")
        table = _Table(env)
        if move := _play(table):
            return move
        hints = table.hints()
        if move := _hint_to_play(hints) or _hint_to_save(table, hints) or _gamble(table):
            return move
        if "discard 1" in legal:
            return _discard(table)
        return hints[-1].action if hints else legal[-1]

    def suits(self, env: Env) -> None:
        if not isinstance(env, Hanabi):
            self.refuse("is another game; expected Hanabi")


def _play(table: _Table) -> str | None:
    """Play a card that is certainly playable, of the lowest possible rank; else the newest signalled card that may be
    playable."""
    certain, signalled = [], []
    for i, (held, note) in enumerate(zip(table.env.hands[table.me], table.notes[table.me], strict=True)):
        if table.plays(held, _Note(), table.seen):
            certain.append((min(held.ranks), i))
        elif table.plays(held, note, table.seen):
            signalled.append(i)
    if certain:
        return f"play {min(certain)[1] + 1}"
    return f"play {signalled[-1] + 1}" if signalled else None


def _hint_to_play(hints: list[_Hint]) -> str | None:
    """The hint that lets the most cards be played. Ties go to the hint that touches more useful cards, then to the
    player who moves sooner."""
    best = max(hints, key=lambda h: (h.plays, h.good, -h.seats_on), default=None)
    return best.action if best and best.plays else None


def _hint_to_save(table: _Table, hints: list[_Hint]) -> str | None:
    """A hint that touches the last copy of a card that its holder would discard for lack of a card to play."""
    useful = []
    for hint in hints:
        other = (table.me + hint.seats_on) % len(table.env.roles)
        hand, notes, chop = table.env.hands[other], table.notes[other], table.chop(other)
        busy = any(table.plays(h, note, table.public) for h, note in zip(hand, notes, strict=True))
        if chop in hint.places and not busy and table.critical(hand[chop].card):
            useful.append(hint)
    return min(useful, key=lambda h: (h.seats_on, -h.good)).action if useful else None


def _gamble(table: _Table) -> str | None:
    """If the deck is empty and a life can be lost, play the card that is most likely to be playable."""
    if table.env.deck or table.env.lives < 2:
        return None
    odds = []
    for i, held in enumerate(table.env.hands[table.me]):
        kinds = table.could_be(held, table.seen)
        odds.append((sum(card in table.next for card in kinds) / len(kinds), i))
    best, place = max(odds)
    return f"play {place + 1}" if best else None


def _discard(table: _Table) -> str:
    """Discard a card that is certainly useless; else the oldest untouched card; else the card with the lowest expected
    cost."""
    costs = []
    for i, held in enumerate(table.env.hands[table.me]):
        kinds = table.could_be(held, table.seen)
        if all(table.useless(card) for card in kinds):
            return f"discard {i + 1}"
        costs.append((sum(3 * table.critical(c) or 1 - table.useless(c) for c in kinds) / len(kinds), i))
    chop = table.chop(table.me)
    return f"discard {(min(costs)[1] if chop is None else chop) + 1}"
