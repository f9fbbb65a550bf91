"""The loop: tasks → rollout → reward → score → credit → batch → step → publish → log.

Blind to the algorithm, the environment and who sits where. All randomness is a function of (seed, step, …), so a run
that was killed and resumed is the run that never was.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from interplay.agents.agent import MALFORMED
from interplay.algorithms import credit
from interplay.config import START
from interplay.engines.local import LocalEngine
from interplay.errors import CheckpointError, ConfigError, GuardError, did_you_mean
from interplay.policies.policy import sitting
from interplay.rollout.curriculum import make_curriculum
from interplay.rollout.resolve import Plan
from interplay.rollout.runner import Runner
from interplay.rollout.team import Team
from interplay.training import checkpoint
from interplay.training.checkpoint import Checkpoint
from interplay.training.critic import StateCritic, make_critics, view_of
from interplay.training.forward import logprobs
from interplay.training.guards import Guards
from interplay.training.identity import made_of, refuse_another
from interplay.training.learner import Learner, step
from interplay.training.memory import explained, is_shortage, short_of_memory
from interplay.training.records import RunRecords
from interplay.training.season import Season
from interplay.training.sft import warmstart
from interplay.training.snapshots import Snapshots
from interplay.types import Episode, Task, Turn

log = logging.getLogger("interplay")


@dataclass
class Observer:
    """What a caller wants to be told; the command line draws its progress bar from this."""

    warmstarted: Callable[[str, int, int, float], None] = lambda name, done, of, loss: None
    ready: Callable[[], None] = lambda: None  # imitation is done, reinforcement learning begins
    stepped: Callable[[int, Mapping[str, float]], None] = lambda step, metrics: None
    # Measures the policy while it trains (evaluation is a sibling room, so it is handed in).
    evaluate: Callable[[Team, int], Awaitable[Mapping[str, float]]] | None = None


@dataclass
class Trainer:
    plan: Plan
    folder: Path
    observer: Observer = field(default_factory=Observer)
    step_index: int = 0
    stopping: bool = False
    best: tuple[int, float] | None = None  # the step that checkpoint.best found best, and its value
    _share_saved: float = 0.0
    seconds: float = 0.0  # spent training by this process: imitation, steps and the short evaluations between them

    def __post_init__(self) -> None:
        found = checkpoint.latest(self.folder / "checkpoints")
        self.fresh = found is None
        self._saved = found.step if found else -1
        if found:
            refuse_another(self.plan, found)
        self.bases: dict[str, str] = found.trainer["bases"] if found else {}  # imitated, where adapters stand on them
        self.plan = self.plan.on(self.bases)
        recipe = self.plan.recipe
        sources = {n: str(found.policy(n)) for n in self.plan.trainable} if found else {}
        self.team = Team.load(recipe, sources)
        self.learners = {name: self._make_learner(name) for name in self.plan.trainable}
        self.algorithm = self.plan.algorithm
        section = recipe.curriculum
        self.curriculum = None if section is None else make_curriculum(section, recipe.seed)
        self.snapshots = Snapshots(self.folder / "snapshots", self.team)
        self.references = {name: name + START for name in self.plan.trainable if self.algorithm.reference}
        self.season = None if recipe.league is None else Season(self.plan, self.team, self.learners, self.snapshots)
        critic = self.algorithm.critic
        self.critics = make_critics(self.team, recipe, critic, self.plan.trainable) if critic is not None else {}
        self.state_critic = self._make_state_critic()
        self.guards = Guards(recipe.train)
        self.records = RunRecords(self.folder, recipe)
        self._rolling: asyncio.Future[list[Episode]] | None = None
        self.runner = Runner(
            recipe.seed, recipe.rollout, self.algorithm.plan, recipe.reward, recipe.records.playouts, self.state_critic
        )
        if found:
            self._restore(found)

    def _make_learner(self, name: str) -> Learner:
        member, settings = self.team.members[name], self.plan.settings(name)
        return Learner(name, member.loaded.model, settings, settings.lr, self.plan.recipe.seed, member.adapter)

    def _make_state_critic(self) -> StateCritic | None:
        if self.algorithm.critic is None or "values" in self.algorithm.needs:
            return None
        renderers = {name: member.renderer for name, member in self.team.members.items()}
        return StateCritic(self.critics, renderers, self.plan.recipe.reward)

    # -- the loop -------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Run to the recipe's last step, or to a Ctrl-C; either way the newest checkpoint holds all of it."""
        began = time.monotonic()
        with self._ctrl_c(), explained(self.plan):
            if self.fresh and self.plan.recipe.warmstart is not None:
                section, told = self.plan.recipe.warmstart, self.observer.warmstarted
                where = self.folder / "bases"
                self.bases = warmstart(self.plan, self.team, self.learners, section, where, told)
                self._publish(self.plan.trainable)
                for engine in self.team.engines:  # a base may have moved under whoever plays it as it is
                    engine.publish(engine.version)
            if self.fresh:  # step 0 holds the imitation: a resumed run does not do it again
                self._save()
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
            if self.stopping and self._saved != self.step_index:
                self._save()

    async def _one_step(self) -> dict[str, float] | None:
        clock = Clock()
        tasks = self._tasks()
        episodes = await self._rollout(tasks)
        if episodes is None:
            return None
        clock.lap("rollout")
        episodes, metrics = self._reward(episodes)
        self._score(episodes)
        clock.lap("score")
        metrics |= self._credit(episodes)
        if self.curriculum is not None:  # after credit, which the critics' targets come from
            metrics |= self.curriculum.record(self.step_index, episodes, self.learners)
        if self.season is not None:
            metrics |= self.season.league.record(episodes)
        batches = self._batch(episodes)
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
        self._watch(metrics)
        return self._log(episodes, metrics, clock)

    def _tasks(self) -> list[Task]:
        count = self.plan.recipe.rollout.tasks
        if self.curriculum is not None:
            return self.curriculum.choose(self.step_index, count, lambda i, options: self.plan.task(i, options=options))
        return [self.plan.task(self.step_index * count + i) for i in range(count)]

    def _seats_for(self, task: Task) -> Mapping[str, str]:
        whose = self.plan if self.season is None else self.season.league
        return whose.seats_for(task, self.step_index)

    def _prompt_tokens(self) -> tuple[int, int]:
        """How many the engines were asked for so far, and how many of them they found in their caches."""
        counters = [e.scheduler for e in self.team.engines if isinstance(e, LocalEngine)]
        return sum(c.prompt_tokens for c in counters), sum(c.saved_tokens for c in counters)

    async def _rollout(self, tasks: Sequence[Task]) -> list[Episode] | None:
        sampling = self.plan.recipe.sampling
        self._seat_snapshots()
        for engine in self.team.engines:  # nothing cached by an evaluation, or in an earlier step, is reused
            engine.publish(engine.version)
        seating = self.team.seating(self._seats_for, sampling.temperature, sampling.max_tokens, sampling.legal)
        rolling = self._rolling = asyncio.ensure_future(self.runner.run(tasks, seating))
        asked, saved = self._prompt_tokens()
        try:
            episodes = await rolling
            asked, saved = (now - before for now, before in zip(self._prompt_tokens(), (asked, saved), strict=True))
            self._share_saved = saved / max(1, asked)
            return episodes
        except asyncio.CancelledError:
            return None
        finally:
            self._rolling = None

    def _reward(self, episodes: list[Episode]) -> tuple[list[Episode], dict[str, float]]:
        """Tally every component by name; episodes that the machinery failed are counted and dropped."""
        good = [e for e in episodes if e.error is None]
        metrics: dict[str, float] = {"episodes": len(good), "episodes_failed": len(episodes) - len(good)}
        if not good:
            first = next(e.error for e in episodes if e.error)
            if is_shortage(first):
                raise short_of_memory(self.plan, first)
            raise GuardError(f"all {len(episodes)} episodes of step {self.step_index} failed; the first: {first}")
        sums: dict[str, list[float]] = defaultdict(list)
        for episode in good:
            for r in episode.rewards:
                if r.value is not None:
                    sums[f"reward/{r.name}/{r.role or 'team'}"].append(r.value)
        metrics |= {name: sum(values) / len(good) for name, values in sorted(sums.items())}
        played = [t for e in good for t in e.line() if t.is_model]
        trainable = [t for t in played if t.policy in self.learners]
        metrics["turns_illegal"] = sum(t.status == "illegal" for t in trainable) / max(1, len(trainable))
        metrics["turns_cut"] = sum(t.status == "length" for t in trainable) / max(1, len(trainable))
        metrics["turns_merged"] = sum(t.merged for t in trainable) / max(1, len(trainable))
        if calls := [c for t in trainable for c in t.calls]:
            metrics["tool_calls"] = len(calls) / len(trainable)
            metrics["tool_calls_malformed"] = sum(MALFORMED in c.keys.tool for c in calls) / len(calls)
        metrics["episodes_truncated"] = sum(e.truncated for e in good)
        metrics["turns_per_episode"] = len(played) / len(good)
        weights = self.plan.recipe.reward
        ours = {who for e in good for who in e.seats.values() if any(n in self.learners for n in sitting(who))}
        mine = [(e, role) for e in good for role, who in e.seats.items() if who in ours]
        kept = [credit.mix(e.rewards, role, weights) for e, role in mine]
        drawn = [e.sampled.get(role, value) for (e, role), value in zip(mine, kept, strict=True)]
        metrics["reward"] = sum(drawn) / max(1, len(mine))
        parts: dict[str, float] = defaultdict(float)
        for e, role in mine:
            for r in e.rewards.of(role):
                if r.value is not None:
                    parts[f"reward_level/{r.level.value}"] += credit.weight_of(r, weights) * r.value / len(mine)
        metrics |= sorted(parts.items())
        if any(e.sampled for e in good):  # the line that a greedy tree keeps is better than the policy
            metrics["reward_kept"] = sum(kept) / max(1, len(mine))
        return good, metrics

    def _score(self, episodes: Sequence[Episode]) -> None:
        """What the algorithm needs before credit: critic values, log-probs of the reference or of all legal replies."""
        if self.algorithm.reference:
            limit = self.plan.recipe.train.micro_batch_tokens
            for name, turns in self._turns_by_policy(episodes).items():
                then = self.team.members[self.references[name]]
                adapters = {} if then.adapter is None else {name: then.adapter}
                for turn, found in zip(turns, logprobs(then.loaded.model, turns, limit, adapters), strict=True):
                    turn.ref_logprobs = tuple(found)
        if "legal" in self.algorithm.needs:
            for name, turns in self._turns_by_policy(episodes).items():
                masked = [t for t in turns if t.masked]
                replies = [replace(t, id=f"{t.id}~{k}", action=a) for t in masked for k, a in enumerate(t.masked)]
                every = iter(self.learners[name].logprobs(replies))
                for turn in masked:
                    turn.legal_logprobs = tuple(tuple(next(every)) for _ in turn.masked)
        if "values" in self.algorithm.needs:
            for name, turns in self._turns_by_policy(episodes).items():
                seen = self._seen_by_critic(name, turns)
                if "tokens" in self.algorithm.needs:
                    for turn, values in zip(turns, self.critics[name].token_values(seen), strict=True):
                        turn.token_values, turn.value = values, values[0]
                    continue
                for turn, value in zip(turns, self.critics[name].values(seen), strict=True):
                    turn.value = value

    def _seen_by_critic(self, name: str, turns: Sequence[Turn]) -> Sequence[Turn]:
        """The turns with what their critic reads as the prompt: what the policy was asked, or the whole state."""
        if "central" not in self.algorithm.needs:
            if "tokens" in self.algorithm.needs:
                return turns
            return [replace(t, prompt=t.asked, merged=False) if t.calls else t for t in turns]
        renderer = self.team.members[name].renderer
        return [replace(t, prompt=view_of(renderer, t.role, t.state), merged=False) for t in turns]

    def _credit(self, episodes: Sequence[Episode]) -> dict[str, float]:
        metrics = dict(self.algorithm.shape(episodes))
        metrics |= self.algorithm.credit(episodes)
        credit.share(t for e in episodes for t in e.turns)
        metrics |= self.algorithm.update(episodes)
        return metrics

    def _batch(self, episodes: Sequence[Episode]) -> dict[str, list[Turn]]:
        """Split by policy, each turn under a key that no timing can change."""
        found = self._turns_by_policy(episodes)
        return {name: [x for t in sorted(turns, key=_order) for x in t.weighed()] for name, turns in found.items()}

    def _turns_by_policy(self, episodes: Sequence[Episode]) -> dict[str, list[Turn]]:
        out: dict[str, list[Turn]] = {name: [] for name in self.learners}
        for episode in episodes:
            for turn in episode.turns:
                if turn.policy in out and turn.playout is None:
                    out[turn.policy] += turn.whole
        return out

    def _step(self, batches: Mapping[str, list[Turn]], episodes: Sequence[Episode]) -> dict[str, float]:
        settings = self.algorithm.settings
        critic = self.algorithm.critic
        warming = critic is not None and self.step_index < critic.warmup
        metrics: dict[str, float] = {}
        found: dict[str, dict[str, float]] = {name: {} for name in batches}
        for together in [] if warming else self._sharing(batches):
            found |= step(together, batches, self.algorithm.loss, settings.average, settings.regularised)
        for name, turns in batches.items():
            self._gate(name, found[name])
            if name in self.critics and self.state_critic is None:
                found[name] |= self.critics[name].step(self._seen_by_critic(name, turns))
            metrics |= {f"{name}/{key}": value for key, value in found[name].items()}
        if self.state_critic is not None:
            metrics |= self.state_critic.learn(credit.lines(episodes))
        return metrics

    def _sharing(self, batches: Mapping[str, list[Turn]]) -> list[list[Learner]]:
        """The learners whose step it is and who have something to learn, those of one model together."""
        by_model: dict[int, list[Learner]] = defaultdict(list)
        for name in self.plan.updated(self.step_index):
            if any(t.advantage is not None for t in batches[name]):
                by_model[id(self.learners[name].model)].append(self.learners[name])
        return list(by_model.values())

    def _gate(self, name: str, found: Mapping[str, float]) -> None:
        """Promise 2, every step: the learner's log-probs before the step are those the engine sampled with.

        Past `gap_stop` the learner itself refuses the step; this is the earlier warning."""
        train, rounded = self.plan.recipe.train, self.learners[name].rounded
        key, limit = ("gap_mean", train.gap_mean_warn) if rounded else ("gap", train.gap_warn)
        gap, ratio = found.get(key, 0.0), found.get("ratio_mean" if rounded else "ratio", 1.0)
        if gap > limit:
            log.warning("policy '%s': engine and learner disagree by %.2e in log-prob (train.%s_warn)", name, gap, key)
        if math.log(ratio) > limit:
            sentence = "policy '%s': the ratio at the first minibatch is %.4f, expected 1 (train.%s_warn)"
            log.warning(sentence, name, ratio, key)

    def _watch(self, metrics: Mapping[str, float]) -> None:
        """The guards' warnings; where the recipe says so, they end the run."""
        zero = {
            k.removeprefix("credit/zero_share/"): v for k, v in metrics.items() if k.startswith("credit/zero_share/")
        }
        found = []
        for i, name in enumerate(self.learners):
            mine = {k.removeprefix(f"{name}/"): v for k, v in metrics.items() if k.startswith(f"{name}/")}
            found += self.guards.look(name, mine, {} if i else zero)  # a role's credit is spoken of once
        if found and self.plan.recipe.train.stop_on_guard:
            raise GuardError(f"step {self.step_index}: {'; '.join(found)}; train.stop_on_guard is set.")
        for sentence in found:
            log.warning("step %d: %s", self.step_index, sentence)

    def _publish(self, names: Iterable[str]) -> None:
        for name in names:
            self.team.members[name].publish(self.team.members[name].version + 1)

    def _log(self, episodes: Sequence[Episode], metrics: dict[str, float], clock: Clock) -> dict[str, float]:
        sampled = sum(t.sampled for e in episodes for t in e.turns)
        engines = self.team.engines
        total = sum(getattr(e, "generated_tokens", 0) for e in engines)
        metrics["tokens_sampled"] = sampled
        metrics["tokens_per_second"] = (total - self.records.tokens_seen) / max(clock.times.get("rollout", 0.0), 1e-9)
        self.records.tokens_seen = total
        metrics["prompt_tokens_saved"] = self._share_saved
        metrics |= {f"seconds/{k}": v for k, v in clock.times.items()}
        self.records.step(self.step_index, episodes, metrics)
        due = self.step_index % self.plan.recipe.checkpoint.every == 0
        if self._is_best(metrics) or due or self.step_index == self.plan.recipe.train.steps:
            self._save()
        return metrics

    # -- state ----------------------------------------------------------------------------------------------------

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

    def _save(self) -> None:
        state: dict[str, Any] = {
            "learners": {n: x.state_dict() for n, x in self.learners.items()},
            "critics": {n: c.state_dict() for n, c in self.critics.items()},
        }
        trainer = {
            "bases": self.bases,
            "made_of": made_of(self.plan, self.bases),
            "best": self.best,
            "versions": {n: self.team.members[n].version for n in self.learners},
            "algorithm": self.algorithm.state_dict(),
            "curriculum": None if self.curriculum is None else self.curriculum.state_dict(),
            "league": None if self.season is None else self.season.state_dict(),
            "references": self.references,
            "snapshots": {name: self.snapshots.digest(name) for name in sorted(self._kept_snapshots())},
            "guards": self.guards.state_dict(),
            "records": self.records.offsets(),
        }
        policies = {n: self.team.members[n].save for n in self.learners}
        root, keep = self.folder / "checkpoints", self.plan.recipe.checkpoint.keep
        best = None if self.best is None else self.best[0]
        checkpoint.save(root, self.step_index, policies, state, trainer, keep, best)
        self._saved = self.step_index
        self.snapshots.prune(checkpoint.snapshots(self.folder / "checkpoints"))

    def _kept_snapshots(self) -> set[str]:
        """What a run that goes on from here may need."""
        if self.fresh and self.step_index == 0:
            return set()  # they are what this checkpoint holds, and are made from it
        league = [] if self.season is None else self.season.league.snapshots.values()
        return {*self.plan.snapshots, *self.references.values(), *(name for mine in league for name in mine)}

    def _seat_snapshots(self) -> None:
        """Whom this step needs as they were: the start where a matchup names it, references, the league's opponents."""
        named = {name for m in self.plan.recipe.matchups for name in m.named.values() if name.endswith(START)}
        drawn = set() if self.season is None else self.season.opponents(self.step_index)
        self.snapshots.seat(named | set(self.references.values()) | drawn)

    def _refresh_references(self) -> None:
        every = self.algorithm.settings.kl_refresh
        if every and self.step_index % every == 0:
            for name in self.references:
                self.references[name] = f"{name}@{self.step_index}"
                self.snapshots.keep(self.references[name])

    def _restore(self, found: Checkpoint) -> None:
        state = found.state()
        if set(state["critics"]) != set(self.critics):
            raise CheckpointError(
                f"checkpoint '{found.folder}' has critics for {sorted(state['critics'])}, "
                f"this recipe for {sorted(self.critics)}."
            )
        for name, learner in self.learners.items():
            learner.load_state_dict(state["learners"][name])
        for name, critic in self.critics.items():
            critic.load_state_dict(state["critics"][name])
        self.algorithm.load_state_dict(found.trainer["algorithm"])
        self.guards.load_state_dict(found.trainer["guards"])
        if self.curriculum is not None and found.trainer.get("curriculum") is not None:  # else it begins now
            self.curriculum.load_state_dict(found.trainer["curriculum"])
        if self.season is not None:
            if found.trainer.get("league") is None:
                raise CheckpointError(f"checkpoint '{found.folder}' has no league, this recipe has; begin a new run.")
            self.season.load_state_dict(found.trainer["league"])
        self.references |= {n: s for n, s in found.trainer.get("references", {}).items() if n in self.references}
        self.snapshots.digests = dict(found.trainer.get("snapshots", {}))
        for name, version in found.trainer["versions"].items():
            self.team.members[name].publish(version)
        self.records.rewind(found.trainer["records"])
        self.best = None if found.trainer["best"] is None else tuple(found.trainer["best"])
        self.step_index = found.step

    @contextmanager
    def _ctrl_c(self) -> Iterator[None]:
        """The first Ctrl-C ends after the work that must not be cut in half; the second ends at once."""

        def handle(signum: int, frame: FrameType | None) -> None:
            if self.stopping:
                raise KeyboardInterrupt
            self.stopping = True
            rolling = self._rolling
            if rolling is not None:
                rolling.get_loop().call_soon_threadsafe(rolling.cancel)

        try:
            before = signal.signal(signal.SIGINT, handle)
        except ValueError:  # not the main thread: whoever runs us handles signals
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def parameters(self) -> dict[str, int]:
        """How many each trained policy has."""
        return {n: sum(p.numel() for p in x.masters.own) for n, x in self.learners.items()}

    def close(self) -> None:
        self.team.close()
        self.records.close()


def _order(turn: Turn) -> tuple[str, int, str, int, int]:
    """By episode and in the order of play, so that a turn stands behind the one it extends."""
    return turn.keys.episode, turn.decision, turn.role, turn.candidate, turn.call


class Clock:
    """Seconds per phase of a step."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.times[name] = now - self._last
        self._last = now
