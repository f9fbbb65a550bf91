"""Story: two writers add sentences in turn, and a program tracks who is where, who holds what and who is dead.

Rules         There are three people, three things and three places. In a sentence somebody takes, drops or gives a
              thing, goes to a place, or dies; or the sentence is filler. A sentence is consistent if it can happen:
              the person who acts is alive, takes a thing that lies at the same place, drops or gives a thing that they
              hold, and gives it to a living person at the same place. A sentence that cannot happen contradicts the
              story and does not change its state.
Roles         learner and partner, each with `sentences` sentences, the learner first; `team = "single"`: learner only.
Observation   the people and things at the beginning, and the story so far. Every observation is a complete prompt.
Actions       `mode = "signs"`: A+1 (Ann takes 1), A-1 (drops it), A>4 (goes to 4), A1B (gives 1 to Bob), Ax (dies), or
              a single point (filler); all are listed as legal. `mode = "words"`: the same in a grammar of about 30
              words, such as "Ann takes the key." `mode = "free"`: any text; only its first 300 characters
              are kept. This mode is for judges with a rubric.
Rewards       `gold` (agent, each sentence, to its writer): 0.5 for a consistent sentence and −1 for a contradiction;
              0.5 more for a (verb, object) pair that is new in the story, for up to `cap` pairs; filler earns `filler`,
              by default −1 like a contradiction, so that writing filler alone earns less than random sentences. In
              free mode gold is not known, so it is not scored. `consistent` (team, at the end): the share of sentences
              that are consistent. An illegal reply is written into the story as filler, earns −1 like a contradiction
              and costs `illegal` −0.1 (process), so that saying nothing never pays.
Options       `team`, `mode`, `sentences`, `cap`, `filler`.
Version       2 (in version 1, filler earned −0.2; the recipes of the RLHF study set `filler = -0.2`)
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.types import Message, Observation, Reward, Rewards, Role, Task
from interplay.types.rewards import Level

PEOPLE = {"A": "Ann", "B": "Bob", "C": "Cleo"}
THINGS = {"1": "key", "2": "cup", "3": "map"}
PLACES = {"4": "hall", "5": "park", "6": "lake"}
FILLER, FREE = ".", 300
CONSISTENT, CONTRADICTION, NEW = 0.5, -1.0, 0.5
_SIGNS = re.compile(r"([ABC])(?:([+-])([123])|(>)([456])|([123])([ABC])|(x))")


class Sentence(NamedTuple):
    """`who` acts, `thing` is the object or the place, and `to` is the person who receives a thing."""

    who: str
    verb: str
    thing: str = ""
    to: str = ""


class Options(Section):
    team: Literal["pair", "single"] = Field("pair", description="learner and partner, or the learner alone")
    mode: Literal["signs", "words", "free"] = Field("signs", description="how sentences are written")
    sentences: int = Field(4, ge=1, le=20, description="number of sentences of each writer")
    cap: int = Field(4, ge=0, description="most new (verb, object) pairs that are rewarded for each writer")
    filler: float = Field(
        CONTRADICTION, le=0, description="gold of a filler sentence; random sentences earn about −0.5 on average"
    )


@cache
def grammar(mode: str) -> dict[str, Sentence | None]:
    """Return every legal text with its sentence; the value None is filler."""
    found: list[tuple[str, str, Sentence]] = []
    for p, name in PEOPLE.items():
        for t, thing in THINGS.items():
            found.append((f"{p}+{t}", f"{name} takes the {thing}.", Sentence(p, "take", t)))
            found.append((f"{p}-{t}", f"{name} drops the {thing}.", Sentence(p, "drop", t)))
            for q, other in PEOPLE.items():
                if q != p:
                    text = f"{name} gives the {thing} to {other}."
                    found.append((f"{p}{t}{q}", text, Sentence(p, "give", t, q)))
        found += [(f"{p}>{x}", f"{name} goes to the {place}.", Sentence(p, "go", x)) for x, place in PLACES.items()]
        found.append((f"{p}x", f"{name} dies.", Sentence(p, "die")))
    column = 0 if mode == "signs" else 1
    filler = FILLER if mode == "signs" else "It was a nice day."
    out: dict[str, Sentence | None] = {row[column]: row[2] for row in found}  # type: ignore[misc]
    return {**out, filler: None}


@register("story")
class Story(Env):
    Options = Options
    reward_names = ("gold", "consistent", "illegal")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("learner",) if task.data["team"] == "single" else ("learner", "partner")
        self.place = {p: self.rng.choice(sorted(PLACES)) for p in PEOPLE}
        self.held: dict[str, str] = {}  # thing: person
        self.lies = {t: self.rng.choice(sorted(PLACES)) for t in THINGS}  # thing: place, for things that nobody holds
        self.dead: frozenset[str] = frozenset()
        self.start = self._situation()
        self.told: tuple[str, ...] = ()
        self.good = 0
        self.used: frozenset[tuple[str, str]] = frozenset()
        self.news = dict.fromkeys(self.roles, 0)

    @property
    def acting(self) -> Role:
        return self.roles[len(self.told) % len(self.roles)]

    def observe(self) -> dict[Role, Observation]:
        data = self.task.data
        if len(self.told) >= data["sentences"] * len(self.roles):
            return {}
        if data["mode"] == "signs":
            text, rule = f"{self.start} {' '.join(self.told)}", "Write on."
        else:
            story = "\n".join(self.told) or "(nothing yet)"
            text = f"{self.start}\nThe story so far:\n{story}\nYour sentence?"
            rule = "You write a story with another writer, one sentence each in turn. Keep to what has happened, and "
            rule += "bring in something new."
            if data["mode"] == "words":
                rule += " Somebody takes, drops or gives a thing, goes to a place, or dies: like Ann takes the key."
        legal = () if data["mode"] == "free" else tuple(grammar(data["mode"]))
        messages = (Message("system", rule), Message("user", text))
        return {self.acting: Observation(messages, fresh=True, legal=legal)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, reply),) = actions.items()
        mode, said = self.task.data["mode"], " ".join(reply.split())
        if mode == "free":
            self.told += (said[:FREE],)
            bad = not said
            gold: float | None = None
        else:
            known = grammar(mode)
            bad = said not in known
            sentence = None if bad else known[said]
            self.told += (next(text for text, s in known.items() if s is None) if bad else said,)
            gold = CONTRADICTION if bad else self.task.data["filler"] if sentence is None else self._add(role, sentence)
        paid = Rewards((Reward("gold", Level.AGENT, role, gold),))
        return paid + (Rewards.process("illegal", {role: PENALTY}) if bad else Rewards())

    def _add(self, role: Role, s: Sentence) -> float:
        """Return the gold of a sentence, and change the story's state if the sentence can happen."""
        if not self.can(s):
            return CONTRADICTION
        self.good += 1
        if s.verb == "take":
            self.held, self.lies = {**self.held, s.thing: s.who}, {t: x for t, x in self.lies.items() if t != s.thing}
        elif s.verb == "drop":
            self._lay(s.thing)
        elif s.verb == "give":
            self.held = {**self.held, s.thing: s.to}
        elif s.verb == "go":
            self.place = {**self.place, s.who: s.thing}
        else:
            self.dead |= {s.who}
            for thing in [t for t, who in self.held.items() if who == s.who]:
                self._lay(thing)
        pair = (s.verb, s.thing or s.who)
        fresh = pair not in self.used and self.news[role] < self.task.data["cap"]
        self.used |= {pair}
        if fresh:
            self.news = {**self.news, role: self.news[role] + 1}
        return CONSISTENT + NEW * fresh

    def _lay(self, thing: str) -> None:
        who = self.held[thing]
        self.held = {t: p for t, p in self.held.items() if t != thing}
        self.lies = {**self.lies, thing: self.place[who]}

    def can(self, s: Sentence) -> bool:
        """Return whether a sentence can happen now."""
        if s.who in self.dead:
            return False
        if s.verb == "take":
            return self.lies.get(s.thing) == self.place[s.who]
        if s.verb == "drop":
            return self.held.get(s.thing) == s.who
        if s.verb == "give":
            there = s.to not in self.dead and self.place[s.to] == self.place[s.who]
            return there and self.held.get(s.thing) == s.who
        return s.verb == "die" or self.place[s.who] != s.thing

    def taken(self, role: Role) -> int:
        """Return how many turns a role has had."""
        return (len(self.told) + len(self.roles) - 1 - self.roles.index(role)) // len(self.roles)

    def best(self) -> float:
        """Return an upper bound of the gold of one writer. A writer who plays alone can reach it."""
        count = self.task.data["sentences"]
        return count * CONSISTENT + min(count, self.task.data["cap"]) * NEW

    def outcome(self) -> Rewards:
        if self.task.data["mode"] == "free":
            return Rewards()
        return Rewards.team("consistent", self.good / max(1, len(self.told)))

    def _situation(self) -> str:
        if self.task.data["mode"] == "signs":
            people = "".join(f"{p}{x}" for p, x in sorted(self.place.items()))
            return f"{people} {''.join(f'{t}{x}' for t, x in sorted(self.lies.items()))}"
        people = ", ".join(f"{PEOPLE[p]} is in the {PLACES[x]}" for p, x in sorted(self.place.items()))
        things = ", ".join(f"the {THINGS[t]} in the {PLACES[x]}" for t, x in sorted(self.lies.items()))
        return f"{people}; {things}."

    def state(self) -> str:
        held = ", ".join(f"{p} has {t}" for t, p in sorted(self.held.items())) or "nobody holds anything"
        return (
            f"{self.start} | {' '.join(self.told)} | {self._situation()} | {held} | dead: {''.join(sorted(self.dead))}"
        )

    def fork(self, seed: int | None = None) -> Story:
        return self.twin()  # a shallow copy is enough: values are replaced, never mutated
