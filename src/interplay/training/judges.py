"""The judges of a run that have a state: reward models, the labels that they learn from, and the watch that compares
their rewards with a gold reward.

After some steps a rater compares the run's own episodes, and the reward model learns from these labels. Some questions
are held out by their content. If the accuracy on them falls below its limit, the model goes back to its last version
whose whole confidence interval was above the limit. If there is no such version, the run stops.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from interplay.config import JudgeSection, JudgeTrainSection
from interplay.config.judges import BASE, GOLD, HTTP, SCORING
from interplay.engines.census import census
from interplay.engines.desk import Desk
from interplay.errors import GuardError, JudgeError
from interplay.models.device import device_of, dtype_of
from interplay.rewards.agreement import Agreement, agreement, wilson
from interplay.rewards.audit import Fixed, Watch
from interplay.rewards.function import FunctionScorer
from interplay.rewards.gold import Rater, Scored
from interplay.rewards.judge import Scoring
from interplay.rewards.preference import Pair, Verdict, balanced, even_lengths, held_out
from interplay.rewards.remote import RemoteScorer
from interplay.rollout.subjects import Subject, pairs_of, subjects
from interplay.seats import RunPlan
from interplay.training.preference import Better, Conversation, Fitting, RewardModel, load_reward_model
from interplay.training.preference import new_reward_model as new_model
from interplay.types import Episode, Message, Role, Task, seed_of

log = logging.getLogger("interplay")


class ModelScorer(Desk[Conversation, float]):
    """A reward model as a service: conversations of many groups are scored in one pass."""

    def __init__(self, name: str, model: RewardModel) -> None:
        super().__init__()
        self.name, self.model = name, model

    async def scores(self, asked: Sequence[Conversation]) -> list[float]:
        found = await census().gather(self.ask(one) for one in asked)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return [one for one in found if not isinstance(one, BaseException)]

    def rank(self, question: Conversation) -> Any:
        return question[1], [m.content for m in question[0]]

    def answers(self, questions: Sequence[Conversation]) -> list[float | Exception]:
        return [score if math.isfinite(score) else self._refused(score) for score in self.model.scores(questions)]

    def _refused(self, score: float) -> JudgeError:
        return JudgeError(
            f"the reward model gave the score {score}; expected a finite number. Its weights are broken: train it "
            f"again, with a lower judges.{self.name}.train.lr if it learns in the run."
        )

    def broken(self, error: Exception) -> JudgeError:
        return JudgeError(f"the reward model of judges.{self.name} failed: {type(error).__name__}: {error}")


@dataclass(frozen=True)
class Labelled:
    """A rater's answer: which of two replies to a question is better (first: 1, ½, 0), or whether a reply is right."""

    question: tuple[Message, ...]
    first: str
    second: str | None
    label: float
    task: str
    content: str  # identifies the task's question (`content_of`)

    def better(self) -> Better:
        one = (self.question, self.first)
        if self.second is None:
            return Better(one, None, self.label)
        other = (self.question, self.second)
        return Better(other, one, 1.0 - self.label) if self.label < 0.5 else Better(one, other, self.label)

    def to_json(self) -> list[Any]:
        asked = [[m.role, m.content] for m in self.question]
        return [asked, self.first, self.second, self.label, self.task, self.content]

    @staticmethod
    def from_json(row: Sequence[Any]) -> Labelled:
        question, *rest = row
        return Labelled(tuple(Message(*m) for m in question), *rest)


@dataclass
class Pupil:
    """A reward model that learns in the run."""

    name: str
    section: JudgeSection
    model: RewardModel
    seed: int
    seen: list[Labelled] = field(default_factory=list)  # trained on
    tested: list[Labelled] = field(default_factory=list)  # of held-out tasks
    labels: int = 0
    good: dict[str, Any] | None = None  # the last version that passed
    _told: bool = False  # whether it was reported that there is nothing to learn from

    @property
    def settings(self) -> JudgeTrainSection:
        assert self.section.train is not None
        return self.section.train

    def due(self, step: int) -> bool:
        s = self.settings
        return (step - 1) % s.every == 0 and (not s.until or step <= s.until)

    def collect(self, every: Sequence[Subject]) -> None:
        """Let the rater answer up to `pairs` comparisons of these episodes."""
        s = self.settings
        rater = Rater(s.temperature, s.noise, s.bias.length, s.bias.first, seed_of("rater", self.seed, self.name))
        name = s.labels.removeprefix(GOLD)
        new = self._answers(every, name, rater) if self.section.kind == "verifier" else self._pairs(every, name, rater)
        self.labels += len(new)
        for one in new:
            (self.tested if held_out(one.content, s.holdout, self.seed) else self.seen).append(one)
        self.seen, self.tested = self.seen[-s.keep :], self.tested[-s.keep :]

    def _pairs(self, every: Sequence[Subject], component: str, rater: Rater) -> list[Labelled]:
        out = []
        for one, other in pairs_of(every, "ask", self.seed)[: self.settings.pairs]:
            a, b = _scored(one, component), _scored(other, component)
            label = rater.label(f"{one.name} {other.name}", a, b)
            task = one.episode.task
            out.append(Labelled(one.question, one.reply, other.reply, label, task.id, content_of(task)))
        return out

    def _answers(self, every: Sequence[Subject], component: str, rater: Rater) -> list[Labelled]:
        right = Scored("", 0.5)
        rows = []
        for s in sorted(every, key=lambda s: seed_of("ask", self.seed, s.name)):
            label, task = rater.label(s.name, _scored(s, component), right), s.episode.task
            rows.append(Labelled(s.question, s.reply, None, label, task.id, content_of(task)))
        how = self.settings.balance
        assert how != "length"  # the recipe is refused
        return balanced(rows, lambda r: r.label > 0.5, lambda r: r.content, how, self.seed, self.settings.pairs)

    def _balanced(self) -> list[Labelled]:
        """The comparisons to learn from; a verifier's answers were balanced when they were collected."""
        if self.settings.balance != "length":
            return self.seen
        return even_lengths(self.seen, lambda one: (one.first, one.second or "", one.label), self.seed)

    def learn(self) -> dict[str, float]:
        """Train and test. If this version is not good enough, go back to one that was."""
        s, out = self.settings, {f"judge/{self.name}/labels": float(self.labels)}
        kept = self._balanced()
        if not kept:
            if not self._told:
                log.warning(
                    "judges.%s has nothing to learn from yet, so all of its rewards are the same. %s. This warning is "
                    "shown once; the metric judge/%s/labels counts its labels.", self.name, self._needs(), self.name,
                )  # fmt: skip
            self._told = True
            return out
        rows = [one.better() for one in kept]
        out[f"judge/{self.name}/loss"] = self.model.fit(rows, Fitting(s.epochs, s.batch, s.lr, self.seed))
        found = self.test()
        if found is None:
            return out
        known = {
            "accuracy": found.accuracy,
            "longer": found.longer,
            "shorter": found.shorter,
            "calibration": found.calibration,
        }
        out |= {f"judge/{self.name}/{key}": value for key, value in known.items() if not math.isnan(value)}
        if found.accuracy >= s.least:
            if found.passes(s.least):
                self.good = self.model.state_dict()
            return out
        if self.good is None:
            raise GuardError(
                f"judges.{self.name} is right about {found.accuracy:.1%} of {found.count} held-out comparisons, below "
                f"judges.{self.name}.train.least ({s.least:g}), and no earlier version was above this limit; give it "
                "more or cleaner comparisons (pairs, noise), or lower least."
            )
        version = self.model.version
        self.model.load_state_dict(self.good, s.lr)
        log.warning(
            "judges.%s: the held-out accuracy %.1f%% is below %.1f%%; version %d is replaced by version %d",
            self.name, 100 * found.accuracy, 100 * s.least, version, self.model.version,
        )  # fmt: skip
        return {**out, f"judge/{self.name}/rolled_back": 1.0}

    def _needs(self) -> str:
        """What must happen before it can learn."""
        if self.seen:
            return (
                "The longer reply won all of its comparisons, or none, so balance = 'length' leaves none; "
                f"raise judges.{self.name}.train.pairs, or set judges.{self.name}.train.balance = 'none'"
            )
        if self.labels:
            return f"All labels are of held-out tasks; lower judges.{self.name}.train.holdout, or play more tasks"
        if self.section.kind == "verifier":
            return "It needs right and wrong answers to the same question; sample more of each task"
        return (
            "It needs different replies to the same prompt; raise algorithm.group (or candidates) or "
            "sampling.temperature"
        )

    def test(self) -> Agreement | None:
        """How well it agrees with the rater on held-out tasks."""
        rows = [one for one in self.tested if one.label != 0.5]
        if not rows:
            return None
        if self.section.kind == "verifier":
            p = self.model.scores([(one.question, one.first) for one in rows])
            hits = sum((x > 0.5) == (one.label > 0.5) for x, one in zip(p, rows, strict=True))
            nan = float("nan")
            return Agreement(hits / len(rows), *wilson(hits, len(rows)), nan, 1.0, nan, nan, len(rows))
        both = [Better((r.question, r.first), (r.question, r.second or "")) for r in rows]
        verdicts = [Verdict(x) for x in self.model.probabilities(both)]
        return agreement([Pair("", r.question, r.first, r.second or "", r.label) for r in rows], verdicts)

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "good": self.good}

    def papers(self) -> dict[str, Any]:
        rows = {"seen": self.seen, "tested": self.tested}
        return {"labels": self.labels, **{k: [one.to_json() for one in v] for k, v in rows.items()}}

    def load(self, state: Mapping[str, Any], papers: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"], self.settings.lr)
        self.good, self.labels = state["good"], papers["labels"]
        self.seen = [Labelled.from_json(r) for r in papers["seen"]]
        self.tested = [Labelled.from_json(r) for r in papers["tested"]]


def content_of(task: Task) -> str:
    """A text that identifies a task's question: its row of a data set, which is the same in later epochs. Without a
    data set, the id of the task."""
    row = task.data.get("row")
    return task.id if row is None else json.dumps(row, sort_keys=True, default=str)


def _scored(subject: Subject, component: str) -> Scored:
    value = subject.gold(component)
    if value is None:
        raise JudgeError(
            f"'{subject.name}' has no reward '{component}' for the rater to compare; expected a reward in "
            "judges.NAME.train.labels that the environment gives to everything that the judge scores."
        )
    return Scored(subject.reply, value)


class Judges:
    """The reward models and watches of a run, by the names of their judges."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.pupils: dict[str, Pupil] = {}
        self.scorers: dict[str, Scoring] = {}
        recipe = plan.recipe
        self.watches = {n: Watch(s.audit.drop, s.audit.window) for n, s in recipe.judges.items() if s.audit}
        self._warned: set[str] = set()  # judges whose alarm was already reported
        self.fixed = {n: Fixed() for n, s in recipe.judges.items() if s.audit and "drift" in s.audit.checks}
        device = device_of(recipe) if recipe.judges else "cpu"
        for name, section in recipe.judges.items():
            if section.kind not in SCORING:
                continue
            if section.kind == "function":
                self.scorers[name] = FunctionScorer(f"judges.{name}.who", section.who, section.timeout)
                continue
            if section.who.startswith(HTTP):
                self.scorers[name] = RemoteScorer(section)
                continue
            dtype = dtype_of(recipe, device)
            seed = seed_of("judge", recipe.seed, name) % 2**31
            adapter = section.train.adapter if section.train else None
            if section.who.startswith(BASE):
                base = section.who.removeprefix(BASE)
                model = new_model(section.kind, base, recipe.train, (device, dtype), seed, adapter)  # type: ignore[arg-type]
            else:
                folder = Path(section.who).expanduser()
                model = load_reward_model(folder, recipe.train, device, dtype, section.kind)  # type: ignore[arg-type]
            self.scorers[name] = ModelScorer(name, model)
            if section.train is not None:
                self.pupils[name] = Pupil(name, section, model, seed)

    def roles(self, section: JudgeSection) -> Sequence[Role]:
        return section.roles or list(self.plan.learning)

    def after(self, step: int, episodes: Sequence[Episode]) -> dict[str, float]:
        """Train the judges on the episodes of a step, and compare their rewards with the gold reward."""
        metrics: dict[str, float] = {}
        for name, section in self.plan.recipe.judges.items():
            every = [s for e in episodes for s in subjects(e, section, self.roles(section))]
            pupil = self.pupils.get(name)
            if pupil is not None and pupil.due(step):
                pupil.collect(every)
                metrics |= pupil.learn()
            if section.audit is not None and section.audit.gold and step % section.audit.every == 0:
                metrics |= self._watch(name, section, every, step)
        return metrics

    def _watch(self, name: str, section: JudgeSection, every: Sequence[Subject], step: int) -> dict[str, float]:
        assert section.audit is not None and section.audit.gold is not None
        both = [(s.gold(section.audit.gold.removeprefix(GOLD)), s.gold(name)) for s in every]
        known = [(g, p) for g, p in both if g is not None and p is not None]
        if not known:
            return {}
        gold, proxy = fmean(g for g, _ in known), fmean(p for _, p in known)
        rang = self.watches[name].see(gold, proxy)
        if rang:
            sentence = (
                f"judges.{name}: the gold reward has fallen more than {section.audit.drop:g} below its best while the "
                f"judge's reward rose (step {step}: gold {gold:.3f}, judge {proxy:.3f}). The policy has learned to "
                "please the judge; raise algorithm.kl_reward, or train the judge further."
            )
            if section.audit.stop:
                raise GuardError(sentence)
            if name not in self._warned:
                log.warning("%s This warning is shown once; the metric judge/%s/rang has every step.", sentence, name)
            self._warned.add(name)
        return {f"judge/{name}/gold": gold, f"judge/{name}/proxy": proxy, f"judge/{name}/rang": float(rang)}

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state that consists of tensors."""
        return {name: pupil.state_dict() for name, pupil in self.pupils.items()}

    def papers(self) -> dict[str, Any]:
        """The state that consists of plain JSON values."""
        return {
            "pupils": {name: pupil.papers() for name, pupil in self.pupils.items()},
            "watches": {name: watch.state_dict() for name, watch in self.watches.items()},
            "fixed": {name: fixed.state_dict() for name, fixed in self.fixed.items()},
        }

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Load the reward models of a checkpoint, to use them without training them further."""
        for name, pupil in self.pupils.items():
            pupil.model.load_weights(state[name]["model"])

    def load(self, state: Mapping[str, Any], papers: Mapping[str, Any]) -> None:
        for name, pupil in self.pupils.items():
            pupil.load(state[name], papers["pupils"][name])
        for name, watch in self.watches.items():
            watch.load_state_dict(papers["watches"].get(name, ()))
        for name, fixed in self.fixed.items():
            fixed.load_state_dict(papers.get("fixed", {}).get(name, ()))
