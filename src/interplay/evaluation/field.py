"""Plays the games of an evaluation. Every line-up gets the same tasks with the same seeds, in the same chunks.

Episodes are returned in the order of (seed, task, sample). If `played` is set, each chunk is saved once it is played.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from interplay import __version__, envs
from interplay.algorithms import Independent
from interplay.engines.census import census
from interplay.errors import InterplayError
from interplay.evaluation.played import Played, fingerprint, key_of
from interplay.rollout.runner import Runner
from interplay.rollout.team import Speech, Team
from interplay.seats import RunPlan
from interplay.types import ByTurn, Episode, Occupant, Role, Scripted, Task


@dataclass(frozen=True)
class Chunk:
    """The tasks of one chunk, and the seed with which they are played."""

    seed: int
    tasks: tuple[Task, ...]


@dataclass
class Field:
    plan: RunPlan
    team: Team
    games: int
    split: str = "test"
    temperature: float = 1.0
    seeds: Sequence[int] = ()  # if empty, the recipe's seed
    samples: int = 1
    played: Played | None = None
    done: Callable[[Episode], None] = lambda _: None

    def parts(self, options: Mapping[str, Any] | None = None) -> Iterator[Chunk]:
        """The chunks of all seeds. `options` override those of [env]."""
        chunk = self.plan.recipe.eval.chunk
        for seed in self.seeds or (self.plan.recipe.seed,):
            plan = replace(self.plan, recipe=self.plan.recipe.model_copy(update={"seed": seed}))
            for start in range(0, self.games, chunk):
                indices = range(start, min(self.games, start + chunk))
                yield Chunk(seed, tuple(plan.task(i, self.split, options) for i in indices))

    @property
    def speech(self) -> Speech:
        """How models sample replies during an evaluation."""
        return Speech(self.temperature, self.plan.recipe.sampling.max_tokens, self.plan.recipe.eval.legal)

    @property
    def size(self) -> int:
        """The number of episodes of one line-up."""
        return self.games * self.samples * max(1, len(self.seeds))

    async def play(self, seats: Mapping[Role, Occupant], samples: int | None = None) -> list[Episode]:
        """Plays `samples` games of every task with these seats. Raises an error only if all games fail."""
        recipe, count = self.plan.recipe, samples or self.samples
        seating = self.team.seating(lambda _: seats, self.speech)
        out: list[Episode] = []
        for part in self.parts():
            runner = Runner(part.seed + 1, recipe.rollout, Independent(count), recipe.reward)
            tasks, done = part.tasks, self.done
            out += await self.keep(part, seats, ("play", count), lambda r=runner, t=tasks, d=done: r.run(t, seating, d))  # type: ignore[misc]
        if all(e.error is not None for e in out):
            who = ", ".join(f"{r} = {w}" for r, w in seats.items())
            raise InterplayError(f"all {len(out)} games with {who} failed; the error of the first one: {out[0].error}")
        return out

    async def keep(
        self,
        part: Chunk,
        seats: Mapping[Role, Occupant],
        how: tuple[object, ...],
        play: Callable[[], Awaitable[list[Episode]]],
    ) -> list[Episode]:
        """Returns the saved episodes of this chunk if there are any, else runs `play`, and saves its episodes if none
        failed. `how` names everything that the result depends on besides seats, tasks and the recipe."""
        key = "" if self.played is None else self._key(part, seats, how)
        choosing = self.team.choosing
        same = choosing is None or choosing.version  # else the judge may now choose other replies
        found = self.played.get(key) if self.played is not None and same else None
        if found is not None:
            for episode in found:
                if episode.replica < self.samples:
                    self.done(episode)
            return found
        if not self.team.on_cpu:  # on a GPU no result repeats exactly, so no episode has to wait for slow environments
            census().deterministic = self.team.deterministic
        for engine in self.team.engines:  # empty the cache, so that a chunk does not depend on the one before it
            engine.flush()
        found = list(await play())
        if self.played is not None and all(e.error is None for e in found):
            self.played.put(key, found)
        return found

    def _key(self, part: Chunk, seats: Mapping[Role, Occupant], how: tuple[object, ...]) -> str:
        recipe, choosing = self.plan.recipe, self.team.choosing
        who = sorted((role, *self._weights(occupant)) for role, occupant in seats.items())
        tasks = [(t.id, t.env, t.seed, sorted(t.data.items())) for t in part.tasks]
        limits = (
            self.temperature,
            recipe.sampling.max_tokens,
            recipe.sampling.stop,
            recipe.rollout.max_episode_tokens,
            recipe.eval.legal,
            () if choosing is None else (choosing.count, recipe.eval.best_by, str(recipe.judges), choosing.version),
            recipe.tools,
        )
        where = (recipe.device, recipe.dtype, __version__, envs.lookup(recipe.env.name).version)
        wires = [([fingerprint(s) for s in self.team.sources[n]], c.mute) for n, c in self.team.pool.channels.items()]
        return key_of(how, part.seed, who, tasks, limits, where, *([wires] if wires else []))

    def _weights(self, occupant: Occupant) -> tuple[list[list[str]], bool]:
        """What identifies the weights of everybody who takes turns in a seat, and what they may see."""
        takers, always = (occupant.takers, occupant.always) if isinstance(occupant, ByTurn) else ((occupant,), True)
        sources = self.team.sources
        return [
            [str(who)]
            if isinstance(who, Scripted)
            else [*(fingerprint(s) for s in sources[str(who)]), *self._sight(str(who))]
            for who in takers
        ], always

    def _sight(self, name: str) -> list[str]:
        member = self.team.members.get(name)
        senses = None if member is None else member.loaded.senses
        return [] if senses is None else [f"{senses.max_pixels} pixels, {senses.limit} media"]
