"""The definition of a study: a recipe, arms that change it, seeds, the partners in the tests, and the contrasts (which
arms are compared). All of this is written down before anything runs.

    name = "story"
    recipe = "../story.toml"
    seeds = [0, 1, 2, 3, 4, 5, 6, 7]
    [arms]
    single = ["env.team=single"]
    [tests]
    unseen = { seats = ["partner=bot:writer:liar"], options = ["env.team=pair"] }
    [[contrasts]]
    first = "multi-fixed"
    second = "single"
    test = "unseen"
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from interplay.config import Recipe, Section, load, validate, values_in
from interplay.errors import ConfigError, did_you_mean


class TestSection(Section):
    """The partners with whom the learner of every arm is tested. The score is the gold component of the reward."""

    __test__ = False
    seats: list[list[str]] = Field([], description="line-ups, each of role=player for the other roles")
    options: list[str] = Field([], description="changes to the recipe, such as env.team=pair")


class ContrastSection(Section):
    """The question whether `first` is better than `second` in one test, with the same seeds."""

    first: str
    second: str
    test: str
    measure: str = Field(
        "gold", description="gold, another component of the reward, or win, preference, success, regret"
    )


class StudySection(Section):
    name: str = Field(description="name of the study; its runs are in a folder of this name")
    recipe: str = Field(description="path of the recipe that all arms change, relative to this file")
    learner: str = Field("learner", description="the policy that is tested")
    role: str = Field("learner", description="the role that the learner plays in every arm")
    whole: bool = Field(
        False,
        description="test the seats of each arm as they are, with all policies that it trains, and not one learner; "
        "the measure is the share of tasks in which eval.success was reached or, in games, the score against "
        "eval.opponents",
    )
    resets: list[str] = Field(
        [], description="whole: arms that are also tested with the initial weights in one role, for each role"
    )
    keep: bool = Field(True, description="keep the checkpoints of runs that have been tested")
    model: str = Field("", description="what the tables call the model that is trained")
    seeds: list[int]
    common: list[str] = Field([], description="changes to the recipe in every arm")
    arms: dict[str, list[str]] = Field(description="changes to the recipe, by the name of the arm")
    tests: dict[str, TestSection]
    games: int = Field(64, ge=1, description="tasks of each line-up; in a whole study eval.games of the recipe")
    gold: str = Field("gold", description="the component of the reward that the tests count")
    best: float | Literal["task"] | None = Field(
        None,
        description='the highest gold that is possible, if it is known: a number, or "task" if the environment '
        "computes it for each task",
    )
    success: str | None = Field(None, description="the component of the reward that says whether a task is done")
    success_least: float = Field(1.0, description="the task is done if the component `success` is at least this")
    rater: float = Field(
        1.0, gt=0, description="temperature of the rater who compares the trained learner with the untrained one"
    )
    arena: TestSection | None = Field(
        None, description="line-ups in which the policy `other`, the learner of another arm, has a role"
    )
    arena_games: int = Field(16, ge=1, description="tasks of each line-up of the arena")
    contrasts: list[ContrastSection] = Field([], description="the comparisons, which are fixed before the runs")
    notes: list[str] = Field(
        [], description="sentences under the tables of the study; they may be added after the runs"
    )

    @model_validator(mode="after")
    def _contrasts_name_arms(self) -> StudySection:
        for contrast in self.contrasts:
            for arm in (contrast.first, contrast.second):
                if arm not in self.arms:
                    raise ConfigError(f"a contrast names arm '{arm}'; {did_you_mean(arm, self.arms)}")
            if contrast.test not in self.tests:
                raise ConfigError(f"a contrast names test '{contrast.test}'; {did_you_mean(contrast.test, self.tests)}")
            needed = {"success": self.success, "regret": self.best}
            if not self.whole and contrast.measure in needed and needed[contrast.measure] is None:
                option = "success" if contrast.measure == "success" else "best"
                raise ConfigError(
                    f"a contrast measures {contrast.measure}, which is unknown because the study has no '{option}'; "
                    f"expected '{option}' in the study, or another measure."
                )
        for arm in self.resets:
            if arm not in self.arms:
                raise ConfigError(f"resets names arm '{arm}'; {did_you_mean(arm, self.arms)}")
        if self.whole and len(self.tests) != 1:
            raise ConfigError(f"a study with whole = true has {len(self.tests)} tests; expected one.")
        if len(set(self.seeds)) < max(1, len(self.seeds)):
            raise ConfigError(f"a study's seeds are {self.seeds}; expected at least one seed, and each only once.")
        return self


class Study:
    def __init__(self, section: StudySection, base: Path, given: Sequence[str] = ()) -> None:
        self.section, self.base = section, base
        self.given = given  # the study's file, the changes to it and --seeds, as `interplay experiment` was given them

    @staticmethod
    def read(path: Path, changes: Sequence[str] = (), seeds: int | None = None) -> Study:
        """Read a study file. `changes` are applied to the recipe of every arm; `seeds` limits the number of seeds."""
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"study '{path}' cannot be read ({error}); expected a TOML file.") from None
        if "arms" not in data and ("env" in data or "seats" in data):
            raise ConfigError(
                f"'{path}' is a recipe, which interplay train takes; expected the file of a study, which names a "
                "recipe and arms (see recipes/rlhf/experiment)."
            )
        section = validate(StudySection, data)
        section = section.model_copy(
            update={"common": [*section.common, *changes], "seeds": section.seeds[: seeds or len(section.seeds)]}
        )
        file = path.name if path.is_absolute() else path.as_posix()  # folders of this machine are not published
        few = [] if seeds is None else ["--seeds", str(seeds)]
        study = Study(section, path.parent / section.recipe, [file, *changes, *few])
        for arm in section.arms:
            made = study.recipe(arm, section.seeds[0])  # so that a mistake in any arm is refused before the first run
            if made.cluster.uses_ray:
                raise ConfigError(
                    f"arm '{arm}' of study '{section.name}' uses a Ray cluster (cluster.rollout_workers or "
                    "cluster.address), but each run of a study is trained in one process; expected "
                    "cluster.rollout_workers = 0 and cluster.address = 'local', or interplay train for each run."
                )
            if made.evolve is not None and not section.whole:
                raise ConfigError(
                    f"arm '{arm}' of study '{section.name}' has [evolve], but the tests of a study that is not whole "
                    "play the workflow of the recipe, and not the one that evolved; expected whole = true, or no "
                    "[evolve]."
                )
        return study

    def recipe(self, arm: str, seed: int, more: Sequence[str] = ()) -> Recipe:
        changes = [*self.section.common, *self.section.arms[arm], f"seed={seed}", *more]
        try:
            return load(self.base, changes)
        except ConfigError as error:
            raise ConfigError(f"arm '{arm}' of study '{self.section.name}': {error}") from None

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Every (arm, seed). All arms of one seed come before the next seed, so that pairs are complete early."""
        return [(arm, seed) for seed in self.section.seeds for arm in self.section.arms]

    @property
    def digest(self) -> str:
        """A hash of the values in the study's file and in its recipe, without `seeds`, `notes` and `best`, which may be
        added to a study later. Options that the files do not set are left out, so that a newer version of this package,
        which may have more options, can continue the runs of an older one."""
        return self._hash(values_in(self.base))

    @property
    def digests(self) -> set[str]:
        """The digests of folders with runs of this study. Earlier versions hashed the text of the recipe, with its
        comments, and not its values."""
        text = [self.base.read_text(encoding="utf-8")] if self.base.is_file() else []  # else it is in the package
        return {self.digest, *map(self._hash, text)}

    def _hash(self, recipe: Any) -> str:
        rest = self.section.model_dump(exclude={"seeds", "best", "notes"}, exclude_unset=True)
        return hashlib.blake2b(json.dumps([rest, recipe], sort_keys=True).encode(), digest_size=8).hexdigest()
