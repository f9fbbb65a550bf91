"""Taboo: a hinter describes an object without its name or its taboo words, and a guesser names it. Asymmetric team.

Rules         `objects` objects are named to both. One is the secret, known only to the hinter, with `taboo` words that
              belong to it. In each of `rounds` rounds the hinter gives a clue and the guesser names one object. A clue
              must not contain a taboo word or an object on the table, nor its plural, nor either of them spelt out;
              and no number, place in the list or spelling, which would point at an object without describing it. The
              episode ends with the right name, or after the last round.
Roles         hinter (acts first) and guesser.
Observation   each role sees the objects in its own order, and the clues and guesses so far; the hinter also sees the
              secret and the taboo words. Every prompt is fresh and complete.
Actions       hinter: a clue of at most 80 characters; an illegal clue counts as silence. Guesser: the name of an object
              that was not guessed yet; an illegal reply uses up the round.
Rewards       `found` (team, at the end): 1 in the first round, and 1/(2 · rounds) less for every further round; 0 if it
              was not found. `illegal` (process): −0.1.
Limits        a name in a cipher (rot13) or in another language is not recognised; no rule can tell it from a rare
              word, so read a team's clues before you believe its score.
Difficulty    objects, rounds, taboo.
Version       2
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.envs.games.objects import (
    OBJECTS,
    QUESTIONS,
    draw,
    fair_clue,
    names_one,
    order_for,
    statement,
    understood,
)
from interplay.types import Message, Observation, Rewards, Role, Task, seed_of


class Options(Section):
    objects: int = Field(12, ge=2, le=64, description="number of objects on the table")
    rounds: int = Field(3, ge=1, le=20, description="the most clues, and the most guesses")
    taboo: int = Field(3, ge=0, le=8, description="words that clues must not contain, besides the names")


@cache
def taboo_words(secret: str, count: int) -> tuple[str, ...]:
    """Words for properties of the secret, first those that few objects have and that would give it away."""
    told = sorted(OBJECTS[secret], key=lambda key: (sum(key in facts for facts in OBJECTS.values()), key))
    return tuple(told[:count])


@register("taboo")
class Taboo(Env):
    Options = Options
    reward_names = ("found", "illegal")
    version = "2"  # version 1 showed both roles the same order, and accepted any clue without a forbidden word
    roles = ("hinter", "guesser")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.names, self.secret = draw(seed_of("taboo", task.seed) & ~3 | task.seed & 3, task.data["objects"])
        self.clues: tuple[str, ...] = ()
        self.guesses: tuple[str, ...] = ()  # one for each clue, except perhaps the last

    @property
    def difficulty(self) -> Mapping[str, float]:
        return {key: self.task.data[key] for key in ("objects", "rounds", "taboo")}

    @property
    def taboo(self) -> tuple[str, ...]:
        return taboo_words(self.secret, self.task.data["taboo"])

    @property
    def found(self) -> bool:
        return self.secret in self.guesses

    @property
    def over(self) -> bool:
        return self.found or len(self.guesses) >= self.task.data["rounds"]

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        now = f"{self._log()}Round {len(self.guesses) + 1} of {self.task.data['rounds']}."
        if len(self.clues) == len(self.guesses):
            barred = f" or one of these words: {', '.join(self.taboo)}" if self.taboo else ""
            rules = (
                f"{self._table('hinter')} Describe {self.secret} to a guesser, in one short clue without a name of a "
                f"thing{barred}, and without a number, a place in the list or its spelling."
            )
            return {"hinter": Observation((Message("system", rules), Message("user", now)), True, (), "clue")}
        rules = f"{self._table('guesser')} Somebody describes one of them. Reply with its name alone."
        legal = tuple(name for name in self.listed("guesser") if name not in self.guesses)
        return {"guesser": Observation((Message("system", rules), Message("user", now)), True, legal, "guess")}

    def listed(self, role: Role) -> tuple[str, ...]:
        """The objects in the order in which `role` sees them."""
        return order_for(role, self.task.seed, self.names)

    def _table(self, role: Role) -> str:
        return f"Taboo. The things on the table: {', '.join(self.listed(role))}."

    def _log(self) -> str:
        ends = [*(f" Guess: {guess or 'none'}. Wrong.\n" for guess in self.guesses), "\n"]
        return "".join(f"Clue: {clue or '(silence)'}{end}" for clue, end in zip(self.clues, ends, strict=False))

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        if role == "hinter":
            clue = fair_clue(text, (*self.names, *self.taboo))
            fair = bool(clue)
            self.clues = (*self.clues, clue)
        else:
            name = " ".join(text[:200].lower().strip(" \t\r\n.,!").split())
            fair = name in self.names and name not in self.guesses
            self.guesses = (*self.guesses, name if fair else "")
        return Rewards() if fair else Rewards.process("illegal", {role: PENALTY})

    def outcome(self) -> Rewards:
        late = (len(self.guesses) - 1) / (2 * self.task.data["rounds"])
        return Rewards.team("found", 1.0 - late if self.found else 0.0)

    def state(self) -> str:
        now = "over" if self.over else f"{next(iter(self.observe()))} to speak"
        return f"{self.secret} among {', '.join(self.names)}; taboo: {', '.join(self.taboo)}\n{self._log()}{now}"

    def fork(self, seed: int | None = None) -> Taboo:
        return self.twin()  # all values are immutable, and there is no randomness after the draw

    def redeal(self, role: Role, rng: random.Random) -> Taboo:
        twin = self.fork()
        if role == "guesser":
            twin.secret = rng.choice([name for name in self.names if name not in self.guesses])
        return twin

    # -- for scripted players -------------------------------------------------------------------------------------

    def fitting(self) -> list[str]:
        """The objects that fit all clues in the form of statements and were not guessed."""
        told = [read for clue in self.clues if (read := understood(clue))]
        left = [name for name in self.names if name not in self.guesses]
        return [name for name in left if all((key in OBJECTS[name]) == holds for key, holds in told)] or left

    def best_clue(self, rng: random.Random) -> str:
        """A true statement without a forbidden word that fits as few as possible of the remaining objects."""
        left, counts = self.fitting(), dict[str, int]()
        for key in QUESTIONS:
            holds = key in OBJECTS[self.secret]
            clue = statement(key, holds)
            if clue not in self.clues and not names_one(clue, (*self.names, *self.taboo)):
                counts[clue] = sum((key in OBJECTS[name]) == holds for name in left)
        fewest = min(counts.values(), default=0)
        return rng.choice([clue for clue, count in counts.items() if count == fewest] or ["I have nothing to add."])
