"""A league in a run: carries out the decisions of `rollout/league.py` on weights and files.

After every step: A policy that has collapsed goes back to its newest snapshot, with a new optimiser. A policy that is
due and has not collapsed is saved as a snapshot, so the newest snapshot is always a good one. An exploiter whose life
is over is saved and begins a new life. Ratings are measured only when a snapshot is due. The learner's thread reads and
writes the weights, since those of a large model would block the event loop for long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from interplay.algorithms import Independent
from interplay.rollout.league import League, score
from interplay.rollout.runner import Runner
from interplay.rollout.team import speech_of
from interplay.training.state import RunState
from interplay.training.thread import LearnerThread
from interplay.types import Episode, Occupant, One, Policy, Role, Snapshot

log = logging.getLogger("interplay")


class Season:
    def __init__(self, state: RunState, league: League, thread: LearnerThread) -> None:
        self.plan, self.team, self.learners, self.snapshots = state.plan, state.team, state.learners, state.snapshots
        self.league, self.thread = league, thread

    async def end_step(
        self, step: int, episodes: Sequence[Episode], metrics: Mapping[str, float]
    ) -> tuple[dict[str, float], set[str]]:
        """Take the league's actions after a step; return metrics, and the policies whose weights changed."""
        found: dict[str, float] = {}
        changed = set()
        for name in self.league.mains:
            due = step % self.league.section.every == 0
            wrong = self.league.symptom(name, episodes, metrics.get(f"{name}/entropy"))
            if due and self.league.section.alarm is not None:
                measured, fallen = await self._rate(name)
                found |= measured
                wrong = wrong or fallen
            if self.league.section.alarm is not None:
                found[f"league/alarm/{name}"] = float(wrong is not None)
            if wrong is not None and await self._answer(name, step, wrong):
                changed.add(name)
            elif due:
                await self._keep(self.league.add(name, step))
        for name in self.league.lives:
            if self.league.over(name, step):
                await self._keep(self.league.add(name, step))
                if self.league.rebirth(name, step):
                    await self._go_back(name, Snapshot(name))
                    changed.add(name)
        return found, changed

    async def _answer(self, name: str, step: int, wrong: str) -> bool:
        """Answer a collapse: roll back, or only warn. Returns whether the weights changed."""
        alarm = self.league.section.alarm
        assert alarm is not None
        if not alarm.rollback:
            log.warning("step %d: policy '%s' has collapsed: %s", step, name, wrong)
            return False
        good = self.league.roll_back(name, wrong)
        log.warning("step %d: policy '%s' has collapsed: %s; it goes back to %s", step, name, wrong, good)
        await self._go_back(name, good)
        return True

    async def _keep(self, snapshot: Snapshot) -> None:
        await self.thread.do(lambda: self.snapshots.keep(snapshot))

    async def _seat(self, more: Iterable[Snapshot]) -> None:
        await self.thread.do(lambda: self.snapshots.seat({*self.snapshots.seated, *more}))

    async def _go_back(self, name: str, snapshot: Snapshot) -> None:
        await self.thread.do(lambda: self.team.pool.restore(name, self.snapshots.source(snapshot)))
        self.learners[name].begin_again()

    async def _rate(self, name: str) -> tuple[dict[str, float], str | None]:
        first = self.league.health[name].best is None
        if first:
            await self._seat([Snapshot(name)])
        await self._seat([other for other in self.plan.panel if isinstance(other, Snapshot)])
        if first:  # rate its start for comparison
            self.league.rate(name, self.league.rating(await self._panel(Snapshot(name))))
        scores = await self._panel(Policy(name))
        rating = self.league.rating(scores)
        metrics = {f"league/panel/{name}/{opponent}": value for opponent, value in scores.items()}
        return metrics | {f"league/rating/{name}": rating}, self.league.rate(name, rating)

    async def _panel(self, who: One) -> dict[str, float]:
        """A player's score against each opponent of the panel, over all seats, always on the same held-out tasks.
        Sampling is as in training, since the alarm is about collapse in training."""
        recipe, alarm, panel = self.plan.recipe, self.league.section.alarm, self.plan.panel
        assert alarm is not None
        runner = Runner(recipe.seed + 3, recipe.rollout, Independent(), recipe.reward)
        tasks = [self.plan.task(i, "validation") for i in range(alarm.games)]

        async def one(opponent: One, role: Role) -> list[float]:
            seats: dict[Role, Occupant] = {r: who if r == role else opponent for r in self.plan.roles}
            episodes = await runner.run(tasks, self.team.seating(lambda _: seats, speech_of(recipe)))
            return [score(e, role, recipe.reward) for e in episodes if e.error is None]

        pairs = [(opponent, role) for opponent in panel for role in self.plan.roles]
        scores: dict[str, list[float]] = {str(opponent): [] for opponent in panel}
        for (opponent, _), found in zip(pairs, await asyncio.gather(*(one(*p) for p in pairs)), strict=True):
            scores[str(opponent)] += found
        return {opponent: sum(s) / max(1, len(s)) for opponent, s in scores.items()}
