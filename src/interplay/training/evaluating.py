"""Short evaluations during training (`eval.every`), in a pause of the stream or beside it (`eval.beside`).

Beside the stream, copies of the policies are evaluated while training goes on. The metrics of such an evaluation are
those of a later step, which says in `eval/step` which policies they belong to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from interplay.rollout.team import Team
from interplay.training.feed import Feed
from interplay.training.state import RunState
from interplay.training.thread import LearnerThread
from interplay.types import Occupant, Policy, Role, Snapshot
from interplay.types.occupant import replaced

# Evaluates the policies in these seats, at this step. It is passed in, since this package may not import evaluation.
Evaluate = Callable[[Team, int, Mapping[Role, Occupant]], Awaitable[Mapping[str, float]]]


class Evaluating:
    def __init__(self, state: RunState, evaluate: Evaluate | None, feed: Feed, thread: LearnerThread) -> None:
        self.plan, self.team, self.snapshots = state.plan, state.team, state.snapshots
        self.evaluate, self.feed, self.thread = evaluate, feed, thread
        self._beside: tuple[int, asyncio.Future[Mapping[str, float]]] | None = None  # the step, and its evaluation

    def due(self, step: int) -> bool:
        every = self.plan.recipe.eval.every
        return self.evaluate is not None and bool(every) and step % every == 0

    async def after(self, step: int) -> Mapping[str, float]:
        """Evaluate the policies after a step that is due, and return the metrics. Beside the stream, only begin to, and
        return the metrics of the previous evaluation."""
        assert self.evaluate is not None
        if not (self.plan.recipe.eval.beside and self.plan.recipe.stream.max_staleness):
            return await self.evaluate(self.team, step, self.plan.seats)
        metrics = await self.ended()
        copies = {Policy(name): Snapshot(name, "eval") for name in self.plan.trainable}

        def copied() -> None:
            for who in copies.values():
                self.snapshots.keep(who)
            self.feed.hold(copies.values())

        await self.thread.do(copied)
        seats = {role: replaced(who, copies) for role, who in self.plan.seats.items()}
        self._beside = step, asyncio.ensure_future(self.evaluate(self.team, step, seats))
        return metrics

    async def ended(self) -> dict[str, float]:
        """Wait for the evaluation beside the stream, if there is one, and return its metrics."""
        if self._beside is None:
            return {}
        step, work = self._beside
        found = {**await work, "eval/step": float(step)}
        self._beside = None
        await self.thread.do(lambda: self.feed.hold(()))
        return found
