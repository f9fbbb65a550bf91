"""One run of a study: trains an arm with a seed, then tests it once. A run that was stopped can be continued.

The folder of a run is OUT/STUDY/ARM/seed-N. Its test.json is written after training and testing, and is never changed
again: to change something after the test, begin a new study.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interplay import envs
from interplay.config import Recipe
from interplay.errors import ConfigError, did_you_mean
from interplay.publishing import measures
from interplay.publishing.files import object_in
from interplay.publishing.study import Study
from interplay.rewards.gold import component_sum
from interplay.rollout.resolve import resolve
from interplay.training.interrupt import Interrupted
from interplay.types import Episode

TESTED = "test.json"
OPTIMA = "optima.json"  # of a study: see `optima`


def begin(study: Study, folder: Path) -> None:
    """Write down the study before its first run, and refuse a folder that holds runs of a different study."""
    folder.mkdir(parents=True, exist_ok=True)
    noted = folder / "study.json"
    about = {"digest": study.digest, "given": list(study.given), **study.section.model_dump()}
    if noted.is_file() and object_in(noted, "digest")["digest"] not in study.digests:
        raise ConfigError(
            f"'{folder}' holds runs of another study of this name: something in the study's file or in its recipe has "
            "changed; expected the same files, or another folder in --out."
        )
    noted.write_text(json.dumps(about, indent=1) + "\n")
    if study.section.best == "task":
        (folder / OPTIMA).write_text(json.dumps(optima(study), indent=1) + "\n")


def optima(study: Study) -> dict[str, dict[str, float | None]]:
    """For every test, the highest gold that is possible in each of its tasks."""
    section = study.section
    out: dict[str, dict[str, float | None]] = {}
    for name, test in section.tests.items():
        found = out[name] = {}
        for seed in section.seeds:
            who = Examinee(next(iter(section.arms)), seed, {})
            plan = resolve(_tested_recipe(study, who, test.options, next(iter(test.seats), [])), training=False)
            tasks = [plan.task(index, "test") for index in range(section.games)]
            found |= {task.id: envs.make(task).optimum(section.role) for task in tasks}
    return out


def check_measures(study: Study) -> None:
    """Refuse a study that counts or compares something that its tests do not measure, before anything is run."""
    section = study.section
    cells = [(arm, test) for arm in section.arms for test in section.tests]
    wanted = [("gold", section.gold, *cell) for cell in cells]
    if section.success is not None and not section.whole:
        wanted += [("success", section.success, *cell) for cell in cells]
    for c in section.contrasts:
        wanted += [("the measure of a contrast", c.measure, arm, c.test) for arm in (c.first, c.second)]
    found = {cell: measured(study, *cell) for cell in cells}
    for key, name, arm, test in wanted:
        known = found[arm, test]
        if known is not None and name not in known:
            raise ConfigError(
                f"in study '{section.name}', {key} is '{name}', which test '{test}' does not measure for arm '{arm}'; "
                f"{did_you_mean(name, known)}"
            )


def measured(study: Study, arm: str, test: str) -> set[str] | None:
    """The names of everything that a test measures for an arm; None if the environment does not list its rewards."""
    section, seed = study.section, study.section.seeds[0]
    if section.whole:
        from interplay.publishing.whole import names_of

        return names_of(study.recipe(arm, seed), arm in section.resets)
    options, seats = section.tests[test].options, next(iter(section.tests[test].seats), [])
    env = _tested_recipe(study, Examinee(arm, seed, {}), options, seats).env
    rewards = envs.make(envs.sample_task(env.name, env.options, "test", 0, seed)).reward_names
    more = {"regret"} if section.best is not None else set()
    more |= {"success"} if section.success is not None else set()
    return {*rewards, "win", "preference", "start", "failed", *more} if rewards else None


def run_folder(folder: Path, arm: str, seed: int) -> Path:
    return folder / arm / f"seed-{seed}"


_asked: list[Callable[[], bool]] = []


def end_when(asked: Callable[[], bool]) -> None:
    """From now on, `late` is also true in this process when `asked()` is: somebody wants the work to end."""
    _asked.append(asked)


@contextmanager
def ended_by(asked: Callable[[], bool]) -> Iterator[None]:
    """`end_when`, for this context only."""
    end_when(asked)
    try:
        yield
    finally:
        _asked.pop()


def late(until: float | None) -> bool:
    """Whether the time limit of the experiment, in seconds since the epoch, has passed, or it was asked to end."""
    return (until is not None and time.time() > until) or any(asked() for asked in _asked)


def _trained(
    study: Study, arm: str, seed: int, where: Path, until: float | None
) -> tuple[dict[str, float], list[int], dict[str, dict[str, Any]]] | int:
    """What the training cost, the steps at which partners changed, and the tests of whole teams; or the step at which
    it was interrupted. Nothing of the run stays in memory afterwards, so that the tests can use all of it."""
    from interplay.publishing.whole import WholeTest
    from interplay.training.trainer import Observer, Trainer

    section = study.section
    trainer = Trainer(resolve(study.recipe(arm, seed)), where)
    whole = WholeTest(trainer, arm in section.resets) if section.whole else None
    ready = whole.begin if whole is not None else lambda: None
    trainer.observer = Observer(ready=ready, stepped=lambda *_: trainer.interrupt.ask() if late(until) else None)
    try:
        trainer.train()
        if trainer.stopping:
            return trainer.step_index
        learners = trainer.plan.trainable if section.whole else [section.learner]
        counts = {
            "steps": trainer.step_index,
            "learner_tokens": sum(trainer.tokens[one] for one in learners),
            "all_tokens": sum(trainer.tokens.values()),
            "labels": sum(p.labels for p in trainer.judges.pupils.values()),
            "seconds": trainer.seconds,
        }
        found = {} if whole is None else {test: whole.end() for test in section.tests}
        return counts, switches(trainer.plan.recipe, trainer.step_index), found
    finally:
        trainer.close()


def one_run(study: Study, folder: Path, arm: str, seed: int, until: float | None = None) -> str:
    """Train one arm with one seed (or continue it), test it, and write the result. After the time `until` the run
    stops at the next step, and the next call continues it."""
    section, where = study.section, run_folder(folder, arm, seed)
    name = f"{section.name} {arm} seed {seed}"
    trained = _trained(study, arm, seed, where, until)
    if isinstance(trained, int):
        line = f"{name}: interrupted at step {trained}"
        if not late(until):  # a signal reached the run itself
            raise Interrupted(line)
        return line
    counts, changed, found = trained
    found = found or {test: tested(study, arm, seed, test, newest(where)) for test in section.tests}
    data = {"arm": arm, "seed": seed, "counts": counts, "switches": changed, "tests": found}
    work = where / f".{TESTED}"
    work.write_text(json.dumps(data, indent=1) + "\n")
    work.replace(where / TESTED)
    if not section.keep:
        shutil.rmtree(where / "checkpoints")
    gold = ", ".join(f"{test} {rows['mean'][section.gold]:.3f}" for test, rows in found.items())
    return f"{name}: {section.gold} {gold}"


@dataclass(frozen=True)
class Examinee:
    """Who is tested: the run whose recipe is used, the weights by policy name (a policy without an entry has its
    initial weights), and the settings of policies that are not in the recipe of the run."""

    arm: str
    seed: int
    weights: Mapping[str, str]
    policies: Mapping[str, Any] = field(default_factory=dict)


def tested(study: Study, arm: str, seed: int, name: str, checkpoint: Path) -> dict[str, Any]:
    """Test the trained learner with each line-up of a test, on tasks of the test split. Return the mean of every reward
    component, and a comparison with the untrained learner on the same tasks."""
    section, test = study.section, study.section.tests[name]
    trained = Examinee(arm, seed, {section.learner: str(checkpoint / "policies" / section.learner)})
    lineups: list[dict[str, Any]] = []
    sums: dict[str, list[float]] = defaultdict(list)
    for seats in test.seats or [[]]:
        found = play_line_up(study, trained, test.options, seats, section.games)
        start = play_line_up(study, Examinee(arm, seed, {}), test.options, seats, section.games)
        ours, theirs = found["tasks"], start["tasks"]
        means = found["mean"] | {
            "win": measures.win_rate(ours, theirs),
            "preference": measures.preference(ours, theirs, section.rater),
            "start": start["mean"][section.gold],
        }
        if isinstance(section.best, float):
            means["regret"] = section.best - means[section.gold]
        lineups.append({"seats": seats, **means, "tasks": ours})
        for key, value in means.items():
            sums[key].append(value)
    return {"mean": {k: sum(v) / len(v) for k, v in sums.items()}, "lineups": lineups}


def play_line_up(
    study: Study, who: Examinee, options: Sequence[str], seats: Sequence[str], games: int
) -> dict[str, dict[str, float]]:
    """Play tasks of the test split. Return the mean of every reward component, and the gold of each task."""
    from interplay.evaluation.field import Field
    from interplay.rollout.team import Team

    section = study.section
    recipe = _tested_recipe(study, who, options, seats)
    plan = resolve(recipe, training=False)
    team = Team(recipe, who.weights)
    try:
        episodes = asyncio.run(Field(plan, team, games, "test", recipe.eval.temperature).play(plan.seats))
    finally:
        team.close()
    gold = {e.task.id: component_sum(e.rewards, section.gold, section.role) for e in episodes if e.error is None}
    means = _means(episodes, section.role)
    if section.success is not None:
        done = [component_sum(e.rewards, section.success, section.role) or 0.0 for e in episodes if e.error is None]
        means["success"] = sum(value >= section.success_least for value in done) / max(1, len(done))
    return {"mean": means, "tasks": {task: value for task, value in gold.items() if value is not None}}


def _tested_recipe(study: Study, who: Examinee, options: Sequence[str], seats: Sequence[str]) -> Recipe:
    """Return the recipe for a test: only the seats of the test, without judges and matchups."""
    section = study.section
    plain = study.recipe(who.arm, who.seed)
    taken = {section.role: section.learner, **dict(s.split("=", 1) for s in seats)}
    kept = {section.learner: plain.policies[section.learner].model_dump(), **who.policies}
    text = ", ".join(f'{role} = "{name}"' for role, name in taken.items())
    data = plain.model_dump(exclude={"seats", "matchups", "judges", "league", "policies", "warmstart", "curriculum"})
    data |= {"policies": kept, "algorithm": {"name": "grpo"}, "reward": {}}
    data["train"] |= {"budget_policy": None}
    data["eval"] |= {"opponents": [], "every": 0, "legal": plain.sampling.legal}
    from interplay.config import parse

    return parse({**data, "seats": {}}, [f"seats={{ {text} }}", *options])


def switches(recipe: Recipe, steps: int) -> list[int]:
    """Return the steps (from 0) at which the partners with the largest share of the episodes change."""

    def most(step: int) -> int:
        shares = [m.share_at(step) for m in recipe.matchups]
        shares.append(1.0 - sum(shares))
        return shares.index(max(shares))

    return [step for step in range(1, steps) if most(step) != most(step - 1)]


def newest(run: Path) -> Path:
    """Return the last checkpoint of a run."""
    return max((run / "checkpoints").glob("step-*"))


def _means(episodes: Sequence[Episode], role: str) -> dict[str, float]:
    good = [e for e in episodes if e.error is None]
    names = sorted({r.name for e in good for r in e.rewards if r.role in (None, role)})
    out = {}
    for name in names:
        values = [component_sum(e.rewards, name, role) for e in good]
        known = [v for v in values if v is not None]
        if known:
            out[name] = sum(known) / len(known)
    return {**out, "failed": float(len(episodes) - len(good))}
