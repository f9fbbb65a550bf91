"""One training step, from played episodes to new weights: reward → score → credit → batch → step.

It runs on the learner's own thread. It does not depend on the algorithm, the environment or the seats.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from interplay.algorithms import credit
from interplay.envs.programs.counts import refuse_bug
from interplay.envs.programs.counts import take as program_counts
from interplay.errors import EngineLost, GuardError
from interplay.training.critic import StateCritic
from interplay.training.learner import Learner, Objective
from interplay.training.score import Scorer
from interplay.training.shortage import is_shortage, short_of_memory
from interplay.training.state import RunState
from interplay.training.tally import Clock, tally
from interplay.training.tries import Example, by_policy, order
from interplay.training.watch import TokenWatch
from interplay.types import Credit, Episode, Sample

log = logging.getLogger(__name__)
MOST_TOLD = 20  # how many different errors of episodes a run shows


@dataclass(frozen=True)
class Batch:
    """One policy's part of a step: the examples for the policy, and those for its critic."""

    trained: list[Example]
    valued: list[Example]


@dataclass
class Learned:
    """The result of a step: the episodes that it was trained on, their credit, each policy's batch, and metrics."""

    episodes: list[Episode]
    credit: Credit
    batches: dict[str, Batch]
    metrics: dict[str, float] = field(default_factory=dict)


class Learning:
    def __init__(self, state: RunState, state_critic: StateCritic | None) -> None:
        self.state, self.state_critic = state, state_critic
        self.algorithm = state.algorithm
        self.scorer = Scorer(state.algorithm, state.team, state.learners, state.references)
        self._told: set[str] = set()  # errors of episodes that were shown, without their numbers

    @property
    def step(self) -> int:
        """The number of the step that is being computed, as the run's lines and metrics.jsonl will show it."""
        return self.state.step_index + 1

    def learn(self, played: Sequence[Episode], clock: Clock) -> Learned:
        state = self.state
        episodes, metrics = self._reward(played)
        given = self._score(episodes)
        clock.lap("score")
        metrics |= self._credit(episodes, given)
        batches = self._batch(episodes, given)
        metrics |= self._ages(batches) | self._step(batches, episodes, given)
        metrics |= state.publish_copies(state.plan.updated(state.step_index))
        clock.lap("learn")
        return Learned(episodes, given, batches, metrics)

    def _reward(self, episodes: Sequence[Episode]) -> tuple[list[Episode], dict[str, float]]:
        """Compute metrics of the rewards. Episodes with errors are counted and dropped."""
        plan = self.state.plan
        refuse_bug(episodes, self.step)
        good = [e for e in episodes if e.error is None]
        self.forget(e for e in episodes if e.error is not None)
        metrics: dict[str, float] = {"episodes": len(good), "episodes_failed": len(episodes) - len(good)}
        metrics |= program_counts()
        if not good:
            first = next(e.error for e in episodes if e.error)
            if is_shortage(first):
                raise short_of_memory(plan, first)
            if first.startswith(f"{EngineLost.__name__}: "):
                raise EngineLost(first.partition(": ")[2])
            raise GuardError(
                f"all {len(episodes)} episodes of step {self.step} failed; the error of the first one: {first}"
            )
        self._tell([e.error for e in episodes if e.error is not None], len(episodes))
        return good, metrics | tally(good, self.state.learners, plan.recipe.reward)

    def forget(self, episodes: Iterable[Episode]) -> None:
        """These episodes will not be learned from."""
        if self.state_critic is not None:
            self.state_critic.forget(episodes)

    def _tell(self, errors: Sequence[str], among: int) -> None:
        """Show each kind of error once. Errors that differ only in numbers are of one kind."""
        for error in errors:
            kind = re.sub(r"\d+", "0", error)
            if kind in self._told or len(self._told) == MOST_TOLD:
                continue
            self._told.add(kind)
            log.warning(
                "step %d: %d of %d episodes failed and are not trained on. One of the errors, which is shown once: %s",
                self.step, len(errors), among, error if len(error) <= 600 else f"{error[:600]} …",
            )  # fmt: skip

    def _score(self, episodes: Sequence[Episode]) -> Credit:
        given = Credit()
        due = [turn for e in episodes if e.cut is not None for turn in e.cut.due]
        self.scorer.score(by_policy(episodes, self.state.learners), due, given)
        return given

    def _credit(self, episodes: Sequence[Episode], given: Credit) -> dict[str, float]:
        metrics = dict(self.algorithm.shape(episodes, given))
        metrics |= self.algorithm.credit(episodes, given)
        metrics |= self.algorithm.update(episodes)
        return metrics

    def _batch(self, episodes: Sequence[Episode], given: Credit) -> dict[str, Batch]:
        """Split by policy, in an order that does not depend on timing."""
        out = {}
        for name, turns in by_policy(episodes, self.state.learners).items():
            ordered = sorted(turns, key=order)
            trained = [
                Example(
                    name,
                    w.sample,
                    w.advantage,
                    given.reference.get(w.sample.id),
                    lags=self._lags(name, w.sample),
                    share=w.share,
                    decision=f"{turn.keys.episode}/{turn.decision}{turn.role}",
                )
                for turn in ordered
                for drawn in turn.samples
                for w in self.algorithm.weighed(drawn, given)
            ]
            valued = [
                Example(name, sample, None, None, given.values.get(sample.id, ()), given.targets.get(sample.id))
                for turn in (ordered if "values" in self.algorithm.needs else ())
                for sample in self.scorer.seen_by_critic(name, turn)
            ]
            out[name] = Batch(trained, valued)
        return out

    def _ages(self, batches: Mapping[str, Batch]) -> dict[str, float]:
        """The share of tokens of each age in training steps, and of those that are too old to train on."""
        limit = self.state.plan.recipe.stream.max_staleness
        if not limit:
            return {}
        examples = [e for batch in batches.values() for e in batch.trained]
        ages = Counter(lag for e in examples for lag in e.lags or (0,) * len(e.sample.action))
        total = max(1, ages.total())
        shares = {f"stream/age/{age}": ages[age] / total for age in range(limit + 1)}
        return {**shares, "stream/masked": sum(count for age, count in ages.items() if age > limit) / total}

    def _lags(self, name: str, sample: Sample) -> tuple[int, ...] | None:
        """The age of each token in training steps; None if all were sampled with the newest weights."""
        if not self.state.plan.recipe.stream.max_staleness:
            return None
        lags = self.state.versions.lags(name, sample.versions, self.state.step_index)
        return lags if any(lags) else None

    def _step(self, batches: Mapping[str, Batch], episodes: Sequence[Episode], credited: Credit) -> dict[str, float]:
        state, settings, critic = self.state, self.algorithm.settings, self.algorithm.critic
        staleness = state.plan.recipe.stream.max_staleness
        watch = self._watch(episodes, credited)
        objective = Objective(self.algorithm.loss, settings.average, settings.regularised, staleness, watch)
        warming = critic is not None and state.step_index < critic.warmup
        metrics: dict[str, float] = {}
        found: dict[str, dict[str, float]] = {name: {} for name in batches}
        given = {name: batch.trained for name, batch in batches.items()}
        groups = [] if warming else self._sharing(batches)
        for stepped in _at_once(groups, lambda group: group[0].step_together(group, given, objective)):
            found |= stepped
        if watch is not None:
            watch.write()
        for name, batch in batches.items():
            learner = state.learners[name]
            state.guards.gate(name, found[name], learner.rounded)
            if learner.critic is not None and self.state_critic is None:
                found[name] |= learner.fit(batch.valued, "tokens" in self.algorithm.needs)
        metrics |= {f"{name}/{key}": value for name, each in found.items() for key, value in each.items()}
        if self.state_critic is not None:
            metrics |= self.state_critic.learn(credit.lines(episodes))
        return metrics

    def _watch(self, episodes: Sequence[Episode], credited: Credit) -> TokenWatch | None:
        """Watches the tokens of the episodes that are recorded; None if there are none."""
        if not self.state.plan.recipe.records.tokens:
            return None
        recorded = self.state.records.chosen(episodes)
        wanted = [s.id for e in recorded for t in e.turns if t.playout is None for s in t.samples]
        return TokenWatch(credited, wanted) if wanted else None

    def _sharing(self, batches: Mapping[str, Batch]) -> list[list[Learner]]:
        """The learners that take this step and have credited examples, grouped by model."""
        by_model: dict[int, list[Learner]] = defaultdict(list)
        for name in self.state.plan.updated(self.state.step_index):
            if any(e.advantage is not None for e in batches[name].trained):
                learner = self.state.learners[name]
                by_model[id(learner.shares)].append(learner)
        return list(by_model.values())


def _at_once(
    groups: Sequence[Sequence[Learner]], step: Callable[[Sequence[Learner]], dict[str, dict[str, float]]]
) -> list[dict[str, dict[str, float]]]:
    """Take the step of each group of learners: at the same time if they all have processes of their own, otherwise one
    after another."""
    if len(groups) < 2 or not all(learner.apart for group in groups for learner in group):
        return [step(group) for group in groups]
    with ThreadPoolExecutor(len(groups), "interplay-group") as pool:
        return list(pool.map(step, groups))
