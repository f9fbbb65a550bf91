"""Twenty questions: a guesser asks, and a hider who knows the object answers yes or no. Asymmetric roles.

Rules         the game knows about 300 objects. `objects` of them are named to both players, and one of these is hidden.
              The guesser asks or guesses, at most `questions` times in all; questions go to the hider. The episode ends
              with a right guess, or when all questions are used up.
Roles         guesser (acts first) and hider.
Observation   guesser: the objects in play, the listed questions (with `free = false`), and what was asked and answered.
              Hider: the object, and the question. Every prompt is fresh and complete.
Actions       guesser: a question, or `guess` and the name of an object. With `free = false` only the listed questions
              are legal. With `free = true` anything with a question mark at the end and at most 200 characters is.
              Hider: yes or no. To a listed question the guesser always hears the truth: a false answer is corrected.
              An answer that is neither yes nor no is heard as the truth, or for a free question as "unknown".
Rewards       `win` (agent, at the end): the guesser gets 1 for finding the object, else −1. The hider gets the
              opposite or, with `hider = "helper"`, the same. `narrowed` (process, guesser): how much a question or
              guess reduced the objects that fit, as a share of all that can be learned; asking again earns nothing.
              `lie` (process, hider): −1 for a false answer to a listed question. `illegal` (process): −1 for the
              hider, −0.1 for the guesser, whose question is used up.
Difficulty    objects, questions.
Version       1
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.envs.games.objects import OBJECTS, QUESTIONS, draw
from interplay.envs.speech import heard
from interplay.types import Message, Observation, Rewards, Role, Task

_ASKED = {re.sub(r"\W+", " ", text.lower()).strip(): key for key, text in QUESTIONS.items()}
_GUESS = re.compile(r"(?:guess|is it)\W+(?:an? |the )?([a-z ]+?)\W*")


class Options(Section):
    objects: int = Field(16, ge=2, le=len(OBJECTS), description="number of objects in play")
    questions: int = Field(20, ge=1, le=100, description="questions and guesses together")
    free: bool = Field(False, description="let the guesser ask anything, not only the listed questions")
    hider: Literal["rival", "helper"] = Field("rival", description="whether the hider wants the guesser to fail")


@register("hider_guesser")
class HiderGuesser(Env):
    Options = Options
    reward_names = ("win", "narrowed", "lie", "illegal")
    roles = ("guesser", "hider")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.names, self.secret = draw(task.seed, task.data["objects"])
        self.fits = self.names  # the objects that fit all answers so far
        self.log: tuple[tuple[str, str], ...] = ()
        self.pending: str | None = None  # the question that is not answered yet
        self.found = False

    @property
    def difficulty(self) -> Mapping[str, float]:
        return {"objects": len(self.names), "questions": self.task.data["questions"]}

    @property
    def over(self) -> bool:
        return self.found or (self.pending is None and len(self.log) >= self.task.data["questions"])

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        if self.pending is not None:
            rules = Message("system", f"Twenty questions. The object is: {self.secret}. Answer yes or no, truthfully.")
            asked = Message("user", self.pending)
            return {"hider": Observation((rules, asked), True, ("yes", "no"), "answer")}
        free = self.task.data["free"]
        form = "Ask a yes-or-no question" if free else f"Ask one of these: {' '.join(QUESTIONS.values())}\nAsk"
        text = f"Twenty questions. Find the object: {', '.join(self.names)}.\n{form}, or reply: guess NAME."
        log = "".join(f"{asked} {answer}\n" for asked, answer in self.log)
        now = f"{log}Question {len(self.log) + 1} of {self.task.data['questions']}."
        legal = () if free else (*QUESTIONS.values(), *(f"guess {name}" for name in self.names))
        return {"guesser": Observation((Message("system", text), Message("user", now)), True, legal, "ask")}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        return self._answer(text) if role == "hider" else self._ask(text)

    def _ask(self, text: str) -> Rewards:
        plain = " ".join(text.lower().split()) if len(text) <= 200 else ""
        key = _ASKED.get(re.sub(r"\W+", " ", plain).strip())
        guess = _GUESS.fullmatch(plain)
        if key is not None:
            self.pending = QUESTIONS[key]
        elif guess and guess[1] in self.names:
            self.found = guess[1] == self.secret
            self.log = (*self.log, (f"guess {guess[1]}", "right" if self.found else "wrong"))
            keep = (self.secret,) if self.found else tuple(name for name in self.fits if name != guess[1])
            return Rewards.process("narrowed", {"guesser": self._narrow(keep)})
        elif self.task.data["free"] and len(plain) > 1 and plain.endswith("?"):
            self.pending = heard(text, 200)
        else:
            self.log = (*self.log, ("(a reply that was refused)", ""))
            return Rewards.process("illegal", {"guesser": PENALTY})
        return Rewards()

    def _answer(self, text: str) -> Rewards:
        assert self.pending is not None
        said = text.strip(" \t\r\n.,!").lower()
        key = _ASKED.get(re.sub(r"\W+", " ", self.pending.lower()).strip())
        truth = None if key is None else "yes" if key in OBJECTS[self.secret] else "no"
        known = said in ("yes", "no")
        self.log = (*self.log, (self.pending, truth or (said if known else "unknown")))
        self.pending = None
        rewards = Rewards() if known else Rewards.process("illegal", {"hider": -1.0})
        if truth is not None and known and said != truth:
            rewards += Rewards.process("lie", {"hider": -1.0})
        if key is not None:
            keep = tuple(name for name in self.fits if (key in OBJECTS[name]) == (truth == "yes"))
            rewards += Rewards.process("narrowed", {"guesser": self._narrow(keep)})
        return rewards

    def _narrow(self, keep: tuple[str, ...]) -> float:
        before, self.fits = len(self.fits), keep
        return math.log(before / len(keep)) / math.log(len(self.names))

    def outcome(self) -> Rewards:
        guesser = 1.0 if self.found else -1.0
        hider = guesser if self.task.data["hider"] == "helper" else -guesser
        return Rewards.agent("win", {"guesser": guesser, "hider": hider})

    def state(self) -> str:
        log = "; ".join(f"{asked} {answer}".strip() for asked, answer in self.log)
        now = "over" if self.over else self.pending or "guesser to ask"
        return f"{self.secret} among {', '.join(self.names)}\n{log}\n{now}"

    def fork(self, seed: int | None = None) -> HiderGuesser:
        return self.twin()  # all values are immutable, and there is no randomness after the draw

    def redeal(self, role: Role, rng: random.Random) -> HiderGuesser:
        twin = self.fork()
        if role == "guesser":
            twin.secret = rng.choice(self.fits)
        return twin

    # -- for scripted players -------------------------------------------------------------------------------------

    def truth(self) -> str:
        """The hider's true answer to the open question; no for a question that is not listed."""
        key = _ASKED.get(re.sub(r"\W+", " ", (self.pending or "").lower()).strip())
        return "yes" if key in OBJECTS[self.secret] else "no"

    def best_question(self) -> str:
        """The listed question that splits the remaining objects most evenly; a guess if no question helps."""
        last = len(self.log) + 1 >= self.task.data["questions"]
        if len(self.fits) <= 2 or last:
            return f"guess {self.fits[0]}"
        half = len(self.fits) / 2
        key = min(QUESTIONS, key=lambda k: abs(sum(k in OBJECTS[name] for name in self.fits) - half))
        return QUESTIONS[key]
