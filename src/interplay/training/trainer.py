"""The loop: tasks → rollout → reward → score → credit → batch → step → publish → log.

Blind to the algorithm, the environment and who sits where. All randomness is a function of (seed, step, …), so a run
that was killed and resumed is the run that never was.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from interplay.algorithms import credit
from interplay.errors import ConfigError, GuardError, did_you_mean
from interplay.rollout.runner import Runner
from interplay.rollout.team import Team, speech_of
from interplay.training.critic import StateCritic
from interplay.training.interrupt import Interrupt
from interplay.training.learner import Objective
from interplay.training.local import LocalLearner
from interplay.training.memory import explained, is_shortage, short_of_memory
from interplay.training.score import Scorer
from interplay.training.sft import warmstart
from interplay.training.state import RunState
from interplay.training.step import step
from interplay.training.tally import Clock, Meter, tally
from interplay.training.tries import Example, by_policy, order
from interplay.types import Credit, Episode, Occupant, Role, Snapshot, Task


@dataclass
class Observer:
    """What a caller wants to be told; the command line draws its progress bar from this."""

    warmstarted: Callable[[str, int, int, float], None] = lambda name, done, of, loss: None
    ready: Callable[[], None] = lambda: None  # imitation is done, reinforcement learning begins
    stepped: Callable[[int, Mapping[str, float]], None] = lambda step, metrics: None
    # Measures the policy while it trains (evaluation is a sibling room, so it is handed in).
    evaluate: Callable[[Team, int], Awaitable[Mapping[str, float]]] | None = None


@dataclass(frozen=True)
class Batch:
    """One policy's part of a step: what it is trained on, and what its critic is fitted to."""

    trained: list[Example]
    valued: list[Example]


@dataclass
class Trainer(RunState):
    """A run's state, and the loop that moves it."""

    observer: Observer = field(default_factory=Observer)
    seconds: float = field(
        default=0.0, init=False
    )  # spent training by this process: imitation, steps and the short evaluations between them

    def __post_init__(self) -> None:
        super().__post_init__()
        recipe = self.plan.recipe
        self.state_critic = self._make_state_critic()
        self.interrupt, self.meter = Interrupt(), Meter(self.team)
        self.scorer = Scorer(self.algorithm, self.team, self.learners, self.references)
        self.runner = Runner(
            recipe.seed, recipe.rollout, self.algorithm.plan, recipe.reward, recipe.records.playouts, self.state_critic
        )

    def _make_state_critic(self) -> StateCritic | None:
        if self.algorithm.critic is None or "values" in self.algorithm.needs:
            return None
        renderers = {name: member.renderer for name, member in self.team.members.items()}
        return StateCritic(self.critics, renderers, self.plan.recipe.reward)

    # -- the loop -------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Run to the recipe's last step, or to a Ctrl-C; either way the newest checkpoint holds all of it."""
        began = time.monotonic()
        with self.interrupt.heard(), explained(self.plan):
            if self.fresh and self.plan.recipe.warmstart is not None:
                section, told = self.plan.recipe.warmstart, self.observer.warmstarted
                where = self.folder / "bases"
                self.bases = warmstart(self.plan, self.team, self.learners, section, where, told)
                self._publish(self.plan.trainable)
                for engine in self.team.engines:  # a base may have moved under whoever plays it as it is
                    engine.flush()
            if self.fresh:  # step 0 holds the imitation: a resumed run does not do it again
                self.save()
            if self.step_index == 0:
                for name in self.plan.snapshots:
                    self.snapshots.keep(name)
            self._seat_snapshots()
            self.records.recipe(self.plan.on(self.bases).recipe)  # nothing more can refuse it
            self.seconds += time.monotonic() - began
            self.observer.ready()
            while self.step_index < self.plan.recipe.train.steps and not self.stopping:
                began = time.monotonic()
                with asyncio.Runner() as loop:
                    metrics = loop.run(self._one_step())
                self.seconds += time.monotonic() - began
                if metrics is None:  # interrupted before anything changed
                    break
                self.observer.stepped(self.step_index, metrics)
            if self.stopping and self.saved_step != self.step_index:
                self.save()

    async def _one_step(self) -> dict[str, float] | None:
        clock = Clock()
        tasks = self._tasks()
        episodes = await self._rollout(tasks)
        if episodes is None:
            return None
        clock.lap("rollout")
        episodes, metrics = self._reward(episodes)
        given = self._score(episodes)
        clock.lap("score")
        metrics |= self._credit(episodes, given)
        if self.curriculum is not None:  # after credit, which the critics' targets come from
            metrics |= self.curriculum.record(self.step_index, episodes, self.learners, given)
        if self.season is not None:
            metrics |= self.season.league.record(episodes)
        batches = self._batch(episodes, given)
        metrics |= self._step(batches, episodes)
        self._publish(self.plan.updated(self.step_index))
        clock.lap("learn")
        self.step_index += 1
        if self.season is not None:
            found, changed = await self.season.end_step(self.step_index, episodes, metrics)
            metrics |= found
            self._publish(changed)
            clock.lap("league")
        self._refresh_references()
        every = self.plan.recipe.eval.every
        if self.observer.evaluate is not None and every and self.step_index % every == 0:
            metrics |= await self.observer.evaluate(self.team, self.step_index)
            clock.lap("eval")
        self.guards.watch(self.step_index, list(self.learners), metrics)
        return self._log(episodes, given, metrics, clock)

    def _tasks(self) -> list[Task]:
        count = self.plan.recipe.rollout.tasks
        if self.curriculum is not None:
            return self.curriculum.choose(self.step_index, count, lambda i, options: self.plan.task(i, options=options))
        return [self.plan.task(self.step_index * count + i) for i in range(count)]

    def _seats_for(self, task: Task) -> Mapping[Role, Occupant]:
        whose = self.plan if self.season is None else self.season.league
        return whose.seats_for(task, self.step_index)

    async def _rollout(self, tasks: Sequence[Task]) -> list[Episode] | None:
        self._seat_snapshots()
        for engine in self.team.engines:  # nothing cached by an evaluation, or in an earlier step, is reused
            engine.flush()
        seating = self.team.seating(self._seats_for, speech_of(self.plan.recipe))
        self.meter.start()
        episodes = await self.interrupt.ends(self.runner.run(tasks, seating))
        self.meter.stop()
        return episodes

    def _reward(self, episodes: list[Episode]) -> tuple[list[Episode], dict[str, float]]:
        """Tally every component by name; episodes that the machinery failed are counted and dropped."""
        good = [e for e in episodes if e.error is None]
        metrics: dict[str, float] = {"episodes": len(good), "episodes_failed": len(episodes) - len(good)}
        if not good:
            first = next(e.error for e in episodes if e.error)
            if is_shortage(first):
                raise short_of_memory(self.plan, first)
            raise GuardError(f"all {len(episodes)} episodes of step {self.step_index} failed; the first: {first}")
        return good, metrics | tally(good, self.learners, self.plan.recipe.reward)

    def _score(self, episodes: Sequence[Episode]) -> Credit:
        given = Credit()
        self.scorer.score(by_policy(episodes, self.learners), given)
        return given

    def _credit(self, episodes: Sequence[Episode], given: Credit) -> dict[str, float]:
        metrics = dict(self.algorithm.shape(episodes, given))
        metrics |= self.algorithm.credit(episodes, given)
        metrics |= self.algorithm.update(episodes)
        return metrics

    def _batch(self, episodes: Sequence[Episode], given: Credit) -> dict[str, Batch]:
        """Split by policy, in an order that no timing can change."""
        out = {}
        for name, turns in by_policy(episodes, self.learners).items():
            ordered = sorted(turns, key=order)
            trained = [
                Example(name, sample, advantage, given.reference.get(sample.id), share=share)
                for turn in ordered
                for drawn in turn.samples
                for sample, advantage, share in self.algorithm.weighed(drawn, given)
            ]
            valued = [
                Example(name, sample, None, None, given.values.get(sample.id, ()), given.targets.get(sample.id))
                for turn in (ordered if "values" in self.algorithm.needs else ())
                for sample in self.scorer.seen_by_critic(name, turn)
            ]
            out[name] = Batch(trained, valued)
        return out

    def _step(self, batches: Mapping[str, Batch], episodes: Sequence[Episode]) -> dict[str, float]:
        settings, critic = self.algorithm.settings, self.algorithm.critic
        objective = Objective(self.algorithm.loss, settings.average, settings.regularised)
        warming = critic is not None and self.step_index < critic.warmup
        metrics: dict[str, float] = {}
        found: dict[str, dict[str, float]] = {name: {} for name in batches}
        for together in [] if warming else self._sharing(batches):
            found |= step(together, {name: batch.trained for name, batch in batches.items()}, objective)
        for name, batch in batches.items():
            learner = self.learners[name]
            self.guards.gate(name, found[name], learner.rounded)
            if learner.critic is not None and self.state_critic is None:
                found[name] |= learner.fit(batch.valued, "tokens" in self.algorithm.needs)
            metrics |= {f"{name}/{key}": value for key, value in found[name].items()}
        if self.state_critic is not None:
            metrics |= self.state_critic.learn(credit.lines(episodes))
        return metrics

    def _sharing(self, batches: Mapping[str, Batch]) -> list[list[LocalLearner]]:
        """The learners whose step it is and who have something to learn, those of one model together."""
        by_model: dict[int, list[LocalLearner]] = defaultdict(list)
        for name in self.plan.updated(self.step_index):
            if any(e.advantage is not None for e in batches[name].trained):
                by_model[id(self.learners[name].model)].append(self.learners[name])
        return list(by_model.values())

    def _publish(self, names: Iterable[str]) -> None:
        for name in names:
            self.team.members[name].publish(self.team.members[name].version + 1)

    def _log(
        self, episodes: Sequence[Episode], given: Credit, metrics: dict[str, float], clock: Clock
    ) -> dict[str, float]:
        metrics["tokens_sampled"] = sum(t.sampled for e in episodes for t in e.turns)
        metrics["tokens_per_second"] = self.meter.sampled / max(clock.times["rollout"], 1e-9)
        metrics["prompt_tokens_saved"] = self.meter.saved / max(1, self.meter.asked)
        metrics |= {f"seconds/{k}": v for k, v in clock.times.items()}
        self.records.step(self.step_index, episodes, metrics, given)
        due = self.step_index % self.plan.recipe.checkpoint.every == 0
        if self._is_best(metrics) or due or self.step_index == self.plan.recipe.train.steps:
            self.save()
        return metrics

    # -- what is kept ---------------------------------------------------------------------------------------------

    def _is_best(self, metrics: Mapping[str, float]) -> bool:
        """Whether this step is the best so far in the metric that the recipe names; it is then remembered."""
        section = self.plan.recipe.checkpoint
        if section.best is None:
            return False
        if section.best not in metrics:
            # Some come every few steps, others only where a policy had something to learn.
            if not section.best.startswith("eval/") and section.best.partition("/")[0] not in self.learners:
                raise ConfigError(f"checkpoint.best names '{section.best}'; {did_you_mean(section.best, metrics)}")
            return False
        value, sign = metrics[section.best], 1 if section.best_is == "highest" else -1
        if self.best is not None and sign * value <= sign * self.best[1]:
            return False
        self.best = (self.step_index, value)
        return True

    def _seat_snapshots(self) -> None:
        """Whom this step needs as they were: the start where a matchup names it, references, the league's opponents."""
        drawn = set() if self.season is None else self.season.opponents(self.step_index)
        self.snapshots.seat(self.plan.starts | set(self.references.values()) | drawn)

    def _refresh_references(self) -> None:
        every = self.algorithm.settings.kl_refresh
        if every and self.step_index % every == 0:
            for name in self.references:
                self.references[name] = Snapshot(name, str(self.step_index))
                self.snapshots.keep(self.references[name])

    @property
    def stopping(self) -> bool:
        """Ctrl-C was heard: the run ends with this step."""
        return self.interrupt.asked
