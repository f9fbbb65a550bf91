"""The loop: tasks → rollout → reward → score → credit → batch → step → publish → log.

Rollout is a stream on one event loop that lasts as long as the run (`feed.py`). Learning runs on its own thread
(`learning.py`). All randomness is a function of (seed, step, …), so that a resumed run is bit-identical to an
uninterrupted one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from interplay.agents.best_of import Choosing
from interplay.envs.programs.counts import take as program_counts
from interplay.errors import ConfigError, did_you_mean
from interplay.rollout.auditing import Auditing
from interplay.rollout.judging import Judging
from interplay.rollout.runner import Runner
from interplay.rollout.stream import Group
from interplay.training.checkpoint import CheckpointPace
from interplay.training.critic import StateCritic
from interplay.training.evaluating import Evaluate, Evaluating
from interplay.training.evolving import Evolver
from interplay.training.feed import Feed, consumed
from interplay.training.fleet import Fleet
from interplay.training.interrupt import Interrupt, Interrupted
from interplay.training.learning import Learned, Learning
from interplay.training.machine import GiB, peak_bytes
from interplay.training.memory import estimated_metrics
from interplay.training.probe import Probe
from interplay.training.season import Season
from interplay.training.sft import warmstart
from interplay.training.shortage import explained
from interplay.training.state import RunState
from interplay.training.tally import Clock, Meter, used_tokens
from interplay.training.thread import LearnerThread
from interplay.types import Snapshot

_WAITING = 64  # threads for slow environments


@dataclass
class Observer:
    """Callbacks for the caller; the command line uses them for its progress bar."""

    warmstarted: Callable[[str, int, int, float], None] = lambda name, done, of, loss: None
    ready: Callable[[], None] = lambda: None  # imitation is done and reinforcement learning begins
    stepped: Callable[[int, Mapping[str, float]], None] = lambda step, metrics: None
    evaluate: Evaluate | None = None  # for short evaluations during training


@dataclass
class Trainer(RunState):
    """The state of a run, and its training loop."""

    observer: Observer = field(default_factory=Observer)
    make_fleet: Callable[[RunState], Fleet] | None = None  # None: episodes are played in this process
    interrupt: Interrupt = field(default_factory=Interrupt)  # of the caller, if it may start the run again
    judging: Judging | None = field(default=None, init=False)
    auditing: Auditing | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)
    _counted: float = field(default=0.0, init=False)  # the time up to which `seconds` counts
    _probed: dict[str, float] = field(default_factory=dict, init=False)  # the last differences of a fleet's engines

    def __post_init__(self) -> None:
        super().__post_init__()
        recipe = self.plan.recipe
        self.thread = LearnerThread()
        self.meter = Meter(self.team)
        self.fleet: Fleet | None = None
        self._estimated = estimated_metrics(self.plan)
        state_critic = self._make_state_critic()
        self.learning = Learning(self, state_critic)
        self.probe = Probe(recipe.stream.probe, self.thread)
        self.season = None if self.league is None else Season(self, self.league, self.thread)
        self.pace = CheckpointPace(recipe.checkpoint)
        evolution = self.evolution
        self.evolver = None if evolution is None else Evolver(self.plan, self.team, evolution, self.folder)
        self.runner = Runner(
            recipe.seed, recipe.rollout, self.algorithm.plan, recipe.reward, recipe.records.playouts, state_critic
        )

    def _make_state_critic(self) -> StateCritic | None:
        if self.algorithm.critic is None or "values" in self.algorithm.needs:
            return None
        renderers = {name: member.renderer for name, member in self.team.members.items()}
        return StateCritic(self.critics, renderers, self.plan.recipe)

    # -- the loop -------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Train to the recipe's last step, or until a signal (`interrupt.py`). Either way the newest checkpoint has the
        final state. If the signal comes during imitation, nothing is saved."""
        with self.interrupt.heard(), explained(self.plan):
            try:
                self._begin()
            except Interrupted:
                return
            self.observer.ready()
            program_counts()  # what an evaluation, or an earlier run of this process, has counted is not of step 1
            if self.unfinished is not None or self._goes_on:
                asyncio.run(self._run())
            if self.stopping and self.saved_step != self.step_index:
                self.save()

    def _begin(self) -> None:
        """Imitate if the recipe asks for it, and save the start of the run."""
        if self.fresh and self.plan.recipe.warmstart is not None:
            began, where = time.monotonic(), self.folder / "bases"
            self.bases = warmstart(self.plan, self.team, self.learners, where, self._imitated, self._may_go_on)
            self.seconds += time.monotonic() - began
            self._publish(self.plan.trainable)
            for engine in self.team.engines:  # imitation may have changed a base that others play
                engine.flush()
        if self.fresh:  # step 0 includes imitation, so that a resumed run does not repeat it
            self.save()
        if self.step_index == 0:
            for who in self.plan.snapshots:
                self.snapshots.keep(who)
        self.snapshots.seat(self.plan.starts | set(self.references.values()))
        self.records.recipe(self.plan.on(self.bases).recipe)  # the recipe has passed all checks
        self.follow_learners()

    def _may_go_on(self) -> None:
        if self.stopping:
            raise Interrupted

    def _imitated(self, name: str, done: int, of: int, loss: float) -> None:
        self._may_go_on()
        self.observer.warmstarted(name, done, of, loss)

    async def _run(self) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_WAITING, "interplay-slow"))
        fleet = self.fleet = None if self.make_fleet is None else self.make_fleet(self)
        stage = None
        if self.plan.recipe.judges:
            elsewhere = None if fleet is None else fleet.judge
            self.judging = Judging(self.plan, self.team, self.runner, self.judges.scorers, elsewhere)
            stage = self.judging.judge
            self.auditing = Auditing(self.judging, self.judges.fixed)
            sampling = self.plan.recipe.sampling
            if sampling.best_of > 1 and sampling.best_by is not None:
                self.team.choosing = Choosing(sampling.best_of, self.judges.scorers[sampling.best_by])
        self.feed = Feed(self, self.runner, stage, play=None if fleet is None else fleet.episode)
        self.evaluating = Evaluating(self, self.observer.evaluate, self.feed, self.thread)
        if fleet is not None:
            await self.interrupt.ends(self._refresh(fleet))
        async with self.feed.stream.running():
            self._counted = time.monotonic()
            if self.unfinished is not None:
                await self._complete(self.unfinished)
            self.meter.start()
            self.feed.begin()
            self.probe.begin(self.team.members.values())
            while self._goes_on:
                metrics = await self._one_step()
                self._count()
                if metrics is None:  # interrupted, and the step is not complete
                    break
                self.observer.stepped(self.step_index, metrics)
                if fleet is not None:
                    await self.interrupt.ends(self._refresh(fleet))
                self.feed.stream.advance(self.step_index)
            if not self.stopping:
                await self.evaluating.ended()

    async def _refresh(self, fleet: Fleet) -> None:
        """Give the other processes the newest weights, and compare their engines with the learners."""
        await fleet.sync()
        for name, learner in self.learners.items():
            self._probed |= await self.probe.compare_others(self.team.members[name], learner, fleet)

    def _count(self) -> None:
        """Add the time since the last call to `seconds`."""
        now = time.monotonic()
        self.seconds += now - self._counted
        self._counted = now

    async def _one_step(self) -> dict[str, float] | None:
        clock = Clock()
        groups = await self.interrupt.ends(self.feed.pull())
        if groups is None:
            return None
        self.learning.forget(self.feed.discarded)
        clock.lap("rollout")
        self.meter.stop()
        oldest = [self.feed.lag(e) for g in groups for e in g.played] if self.plan.recipe.stream.max_staleness else []
        played = [e for group in groups for e in group.played]
        if self.evolver is not None:
            played += self.evolver.pending()
        learned = await self.thread.do(lambda: self.learning.learn(played, clock))
        if self.judging is not None:
            learned.metrics |= self.judging.metrics()
            step = self.step_index + 1
            learned.metrics |= await self.thread.do(lambda: self.judges.after(step, learned.episodes))
            clock.lap("judge")
        learned.metrics |= self._record(learned)
        self.step_index += 1
        self.mark_versions()
        async with self.feed.stream.paused():
            learned.metrics |= await self._between(learned, clock)
            tried = await self._try_out(clock)
        if oldest:
            learned.metrics |= {
                "stream/staleness": sum(oldest) / len(oldest),
                "stream/dropped": float(self.feed.dropped),
            }
        if self.plan.recipe.stream.min_group > 1:
            learned.metrics["stream/replaced"] = float(self.feed.replaced)
        trained = {turn.role for e in learned.episodes for turn in e.turns if turn.policy in self.learners}
        self.guards.watch(self.step_index, list(self.learners), learned.metrics, trained)
        learned.metrics |= tried or {}
        await self._log(groups, learned, clock)
        if tried is None:
            self.unfinished = learned.metrics
            return None
        await self._finish(learned.metrics)
        return learned.metrics

    async def _complete(self, metrics: dict[str, float]) -> None:
        """Complete the step whose round of evolution was ended by a signal, before the run was resumed."""
        clock = Clock()
        tried = await self._try_out(clock)
        if tried is not None:
            metrics |= tried | clock.metrics()
            await self._finish(metrics)
            self.observer.stepped(self.step_index, metrics)

    def _record(self, learned: Learned) -> dict[str, float]:
        """Update curriculum and league with the step's episodes."""
        metrics: dict[str, float] = {}
        if self.curriculum is not None:  # after credit, which computes the critics' targets
            metrics |= self.curriculum.record(self.step_index, learned.episodes, self.learners, learned.credit)
        if self.league is not None:
            metrics |= self.league.record(learned.episodes)
        return metrics

    async def _between(self, learned: Learned, clock: Clock) -> dict[str, float]:
        """Work between two steps, while nothing is sampled: probe, audit, league, references. The learner's thread
        reads and writes snapshots: meanwhile tools and programs outside may need the event loop."""
        updated = self.plan.updated(self.step_index - 1)
        for name in updated:
            self.probe.remember(name, learned.batches[name].trained)
        metrics = await self.probe.compare([(self.team.members[name], self.learners[name]) for name in updated])
        clock.lap("probing")
        if self.auditing is not None:
            metrics |= await self.auditing.after(self.step_index, learned.episodes)
        if self.season is not None:
            found, changed = await self.season.end_step(self.step_index, learned.episodes, learned.metrics)
            metrics |= found
            await self.thread.do(lambda: self._publish(changed))
            clock.lap("league")
        await self.thread.do(self._refresh_references)
        if self.plan.recipe.stream.max_staleness:
            await self.thread.do(self.feed.seat_snapshots)
        return metrics

    async def _try_out(self, clock: Clock) -> dict[str, float] | None:
        """Play a round of evolution and make a short evaluation, each if it is due. Return their metrics, or None if a
        signal ended the round. Then both begin again when the run is resumed."""
        metrics: dict[str, float] = {}
        if self.evolver is not None and self.evolver.due(self.step_index):
            found = await self.interrupt.ends(self.evolver.round())
            if found is None:
                return None
            metrics |= found
            clock.lap("evolve")
        if self.evaluating.due(self.step_index):
            metrics |= await self.evaluating.after(self.step_index)
            clock.lap("eval")
        return metrics

    def _publish(self, names: Iterable[str]) -> None:
        """Publish weights that were replaced outside of a training step."""
        for name in names:
            self.publish(name)

    async def _log(self, groups: Sequence[Group], learned: Learned, clock: Clock) -> None:
        """Complete the metrics of a step, and record its episodes."""
        metrics = learned.metrics
        metrics["tokens_sampled"] = sum(t.sampled for e in learned.episodes for t in e.turns)
        self.tokens += used_tokens(groups, learned.episodes, self.feed.discarded)
        self.feed.discarded = []
        metrics |= {f"{name}/tokens": float(self.tokens[name]) for name in self.learners}
        if self.judging is not None:
            metrics["judge_tokens"] = float(sum(t.sampled for e in learned.episodes for t in e.judged))
        ahead = bool(self.plan.recipe.stream.max_staleness)
        sampled = self.meter.sampled if self.fleet is None else metrics["tokens_sampled"]
        metrics["tokens_per_second"] = sampled / max(clock.total if ahead else clock.times["rollout"], 1e-9)
        if self.fleet is None:  # the engines of other processes are not asked
            metrics |= self.meter.metrics()
        else:
            metrics |= {**self.fleet.metrics(), **self._probed}
            metrics["cluster/idle/learner"] = clock.times["rollout"] / max(clock.total, 1e-9)
        if ahead:
            metrics["stream/idle"] = clock.times["rollout"] / max(clock.total, 1e-9)
        metrics |= {"memory_gib": peak_bytes() / GiB, **self._estimated}
        self.meter.start()
        metrics |= clock.metrics()
        self.stream = self.feed.state_dict()
        rows = consumed(groups, self.step_index, self.learners)
        await self.thread.do(lambda: self._write(learned, rows))

    def _write(self, learned: Learned, rows: Sequence[Mapping[str, Any]]) -> None:
        self.records.played(self.step_index, learned.episodes, learned.credit)
        self.records.consumed(rows)

    async def _finish(self, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step and, if it is due, a checkpoint. The learner's thread writes them, since writing
        the weights of a large model would block the event loop for long."""
        self.unfinished = None
        await self.thread.do(lambda: self.records.measured(self.step_index, metrics))
        ends = self.spent or self.step_index == self.plan.recipe.train.steps
        if self._is_best(metrics) or ends or self.pace.due(self.step_index):
            self._count()
            with self.pace.writing():
                await self.thread.do(self.save)

    # -- what is kept ---------------------------------------------------------------------------------------------

    def _is_best(self, metrics: Mapping[str, float]) -> bool:
        """Whether this step is the best so far by the metric `checkpoint.best`; if so, remember it."""
        section = self.plan.recipe.checkpoint
        if section.best is None:
            return False
        if section.best not in metrics:
            # Some metrics come only every few steps, others only if a policy had something to learn.
            comes_later = section.best.startswith("eval/") or section.best.partition("/")[0] in self.learners
            if self.best is None and not comes_later:
                raise ConfigError(f"checkpoint.best names '{section.best}'; {did_you_mean(section.best, metrics)}")
            return False
        value, sign = metrics[section.best], 1 if section.best_is == "highest" else -1
        if self.best is not None and sign * value <= sign * self.best[1]:
            return False
        self.best = (self.step_index, value)
        return True

    def _refresh_references(self) -> None:
        every = self.algorithm.settings.kl_refresh
        if every and self.step_index % every == 0:
            for name in self.references:
                self.references[name] = Snapshot(name, str(self.step_index))
                self.snapshots.keep(self.references[name])

    @property
    def _goes_on(self) -> bool:
        return self.step_index < self.plan.recipe.train.steps and not self.stopping and not self.spent

    @property
    def stopping(self) -> bool:
        """Whether a signal has asked the run to end after this step."""
        return self.interrupt.asked

    def close(self, exit_code: int = 0) -> None:
        """End the run and its processes. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.fleet is not None:
                self.fleet.close()
        finally:
            self.thread.close()
            super().close(exit_code)
