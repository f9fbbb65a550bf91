"""The spy: all players but one know a secret word. They give clues and then vote on who the spy is.

Rules         `words` are on the table for all to see. One player is the spy; all others know which word is the
              secret. In each of `rounds` rounds the players give a short clue, one after the other. Then all vote at
              once for another player. The player with the most votes is found out, unless there is a tie. A spy who is
              found out may still name the secret word, and wins if it is right; otherwise the others win. If nobody or
              somebody else is found out, the spy wins.
Roles         p0, p1, … (`players` of them); the spy is drawn at random.
Observation   the words in the player's own order, whether the player is the spy, the secret if not, and every clue so
              far. Votes are hidden until all have voted. Every prompt is fresh and complete.
Actions       a clue of at most 80 characters that names none of the words and contains no number, place in the list or
              spelling, which would point at a word without describing it; then a player's name; for a spy who was
              found out, a word. An illegal clue counts as silence, an illegal vote counts for nobody, and an illegal
              last word as no word.
Rewards       `win` (agent, at the end): 1 for the side that wins, −1 for the other. `illegal` (process): −1, as much as
              a win is worth.
Difficulty    players, rounds, words.
Version       2
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import Env, register
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
    players: int = Field(4, ge=3, le=10, description="number of players, one of whom is the spy")
    rounds: int = Field(1, ge=1, le=5, description="rounds of clues before the vote")
    words: int = Field(8, ge=2, le=32, description="words on the table")
    last_word: bool = Field(True, description="a spy who is found out may still name the secret")


@register("social_deduction")
class SocialDeduction(Env):
    Options = Options
    reward_names = ("win", "illegal")
    version = "2"  # version 1 showed everybody the same order, and accepted any clue that named no word

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        data = task.data
        self.roles = tuple(f"p{i}" for i in range(data["players"]))
        self.words, self.secret = draw(task.seed, data["words"])
        # Not from the generator that drew the words, or the words on the table would hint at the spy.
        self.spy: Role = self.roles[seed_of("spy", task.seed) % len(self.roles)]
        self.clues: tuple[str, ...] = ()
        self.votes: tuple[tuple[Role, Role | None], ...] = ()  # set when all have voted
        self.last: str | None = None  # the word that a spy who was found out named

    @property
    def difficulty(self) -> Mapping[str, float]:
        data = self.task.data
        return {"players": data["players"], "rounds": data["rounds"], "words": data["words"]}

    @property
    def phase(self) -> str:
        if len(self.clues) < len(self.roles) * self.task.data["rounds"]:
            return "clue"
        if not self.votes:
            return "vote"
        asked = self.task.data["last_word"] and self.last is None
        return "word" if self.found_out == self.spy and asked else "over"

    @property
    def found_out(self) -> Role | None:
        """The player with the most votes; None if there is a tie."""
        ranking = Counter(vote for _, vote in self.votes if vote is not None).most_common(2)
        if not ranking or (len(ranking) == 2 and ranking[0][1] == ranking[1][1]):
            return None
        return ranking[0][0]

    def observe(self) -> dict[Role, Observation]:
        phase = self.phase
        if phase == "over":
            return {}
        if phase == "clue":
            role = self.roles[len(self.clues) % len(self.roles)]
            ask = f"Your turn, {role}: give a short clue that names none of the words, no number and no place."
            return {role: self._seen(role, ask, ())}
        if phase == "word":
            return {
                self.spy: self._seen(self.spy, "You were found out. Which is the secret word?", self.listed(self.spy))
            }
        seen = {}
        for role in self.roles:
            others = tuple(r for r in self.roles if r != role)
            seen[role] = self._seen(role, f"Vote, {role}: who is the spy? Reply with {', '.join(others)}.", others)
        return seen

    def listed(self, role: Role) -> tuple[str, ...]:
        """The words in the order in which `role` sees them."""
        return order_for(role, self.task.seed, self.words)

    def _seen(self, role: Role, ask: str, legal: tuple[str, ...]) -> Observation:
        know = "You are the spy: you do not know which." if role == self.spy else f"It is: {self.secret}."
        end = ", unless the spy then names the secret" if self.task.data["last_word"] else ""
        rules = (
            f"Words: {', '.join(self.listed(role))}. One is the secret, known to all but the spy. {know} Everybody "
            f"gives a clue, then all vote: a spy with most votes loses{end}; otherwise the spy wins."
        )
        said = [f"{self.roles[i % len(self.roles)]}: {clue or '(silence)'}" for i, clue in enumerate(self.clues)]
        messages = (Message("system", rules), Message("user", "\n".join([*said, ask])))
        return Observation(messages, True, legal, self.phase)

    def step(self, actions: dict[Role, str]) -> Rewards:
        phase = self.phase
        if phase == "vote":
            heard_votes = {role: _name(actions[role]) for role in self.roles}
            fair = {role: vote if vote in self.roles and vote != role else None for role, vote in heard_votes.items()}
            self.votes = tuple(fair.items())
            return Rewards.process("illegal", {role: -1.0 for role, vote in fair.items() if vote is None})
        ((role, text),) = actions.items()
        if phase == "word":
            self.last = _name(text) if _name(text) in self.words else ""
            return Rewards() if self.last else Rewards.process("illegal", {role: -1.0})
        # No word may be named, by the spy too: a rule only for those who know the secret would give it away.
        clue = fair_clue(text, self.words)
        self.clues = (*self.clues, clue)
        return Rewards() if clue else Rewards.process("illegal", {role: -1.0})

    def outcome(self) -> Rewards:
        if not self.votes:  # truncated
            return Rewards.agent("win", dict.fromkeys(self.roles, None))
        spy_wins = self.found_out != self.spy or self.last == self.secret
        return Rewards.agent("win", {r: 1.0 if (r == self.spy) == spy_wins else -1.0 for r in self.roles})

    def state(self) -> str:
        votes = " ".join(f"{role}>{vote or '-'}" for role, vote in self.votes)
        head = f"{self.phase}; spy {self.spy}, secret {self.secret} of {', '.join(self.words)}"
        return f"{head}\nclues: {' | '.join(self.clues)}\nvotes: {votes}; last word: {self.last}"

    def fork(self, seed: int | None = None) -> SocialDeduction:
        return self.twin()  # all values are immutable, and there is no randomness after the draw

    def redeal(self, role: Role, rng: random.Random) -> SocialDeduction:
        """For the spy, the secret is hidden; for the others, who the spy is. Clues are words and fit any deal."""
        twin = self.fork()
        if role == self.spy:
            twin.secret = rng.choice(self.words)
        elif not self.votes:  # after the vote only a spy acts
            twin.spy = rng.choice([r for r in self.roles if r != role])
        return twin

    # -- for scripted players -------------------------------------------------------------------------------------

    def advise(self, role: Role, rng: random.Random) -> str:
        """Clues are true or false statements from the table of properties. Votes go to the player who fits them least.

        It uses only what `role` sees. The spy says what fits most of the words, and guesses what fits most clues.
        """
        if self.phase == "clue":
            return self._clue(role, rng)
        marks = {r: 0.0 for r in self.roles if r != role}
        fits = dict.fromkeys(self.words, 0)
        for i, clue in enumerate(self.clues):
            speaker = self.roles[i % len(self.roles)]
            if (read := understood(clue)) is None:
                continue
            key, holds = read
            for word in self.words:
                fits[word] += (key in OBJECTS[word]) == holds
            if speaker in marks and role != self.spy:
                rare = sum((key in OBJECTS[word]) == holds for word in self.words)
                marks[speaker] += len(self.words) if (key in OBJECTS[self.secret]) != holds else rare
        if self.phase == "word":
            best = max(fits.values())
            return rng.choice([word for word, count in fits.items() if count == best])
        worst = max(marks.values())
        return rng.choice([r for r, mark in marks.items() if mark == worst])

    def _clue(self, role: Role, rng: random.Random) -> str:
        said = {read[0] for clue in self.clues if (read := understood(clue))}
        options = []
        for key in QUESTIONS:
            for holds in (True, False):
                count = sum((key in OBJECTS[word]) == holds for word in self.words)
                true = role == self.spy or (key in OBJECTS[self.secret]) == holds
                fresh = key not in said and not names_one(statement(key, holds), self.words)
                if true and count < len(self.words) and fresh:
                    options.append((count, key, holds))
        if not options:
            return "I have nothing to add."
        # The spy says what fits most words. The others are more specific, but do not give the secret away.
        aim = max(o[0] for o in options) if role == self.spy else min(max(2, len(self.words) // 3), len(self.words) - 1)
        near = min(abs(o[0] - aim) for o in options)
        _, key, holds = rng.choice([o for o in options if abs(o[0] - aim) == near])
        return statement(key, holds)


def _name(text: str) -> str:
    return " ".join(text[:200].lower().strip(" \t\r\n.,!:").split())
