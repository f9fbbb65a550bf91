"""The arena of a study: the learner of every arm plays with the learner of every arm, which takes another role.

If the context agent of an arm learns too, the arm is also played across seeds (cross-play): a learner that only
understands the partner it was trained with does worse with the partner of another seed. Results are written once and
never changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from interplay.publishing.experiment import TESTED, Examinee, late, newest, play_line_up, run_folder
from interplay.publishing.study import Study
from interplay.rollout.resolve import resolve

OTHER = "other"  # the policy that plays the other role


def arena_left(study: Study, folder: Path) -> list[str]:
    """Return the names of the files that can be written now: one for each seed whose runs are all done and, once all
    seeds are done, the cross-play of each arm whose context agent learns. Files that exist are left out."""
    if study.section.arena is None:
        return []
    done = [
        s for s in study.section.seeds if all((run_folder(folder, a, s) / TESTED).is_file() for a in study.section.arms)
    ]
    names = [f"seed-{seed}" for seed in done]
    if len(study.section.seeds) > 1 and len(done) == len(study.section.seeds):
        names += [f"cross-{arm}-{len(done)}" for arm in study.section.arms if context_of(study, arm) is not None]
    return [name for name in names if not (folder / "arena" / f"{name}.json").is_file()]


def play_arena(study: Study, folder: Path, name: str, until: float | None = None) -> str:
    """Play the games of one file. After the time `until` nothing is written, and the next call plays them again."""
    arena = _Arena(study, folder, until)
    kind, _, rest = name.partition("-")
    try:
        found = arena.arms(int(rest)) if kind == "seed" else arena.cross(rest.rpartition("-")[0])
    except TimeoutError:
        return f"{study.section.name} arena {name}: stopped by the time limit"
    path = folder / "arena" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    work = path.with_name(f".{path.name}")
    work.write_text(json.dumps(found, indent=1) + "\n")
    work.replace(path)
    return f"{study.section.name} arena {name}: played"


def context_of(study: Study, arm: str) -> str | None:
    """Return the policy other than the learner that is trained in an arm, if there is one."""
    plan = resolve(study.recipe(arm, study.section.seeds[0]))
    return next((name for name in plan.trainable if name != study.section.learner), None)


def _weights(folder: Path, arm: str, seed: int, policy: str) -> str:
    return str(newest(run_folder(folder, arm, seed)) / "policies" / policy)


@dataclass(frozen=True)
class _Arena:
    study: Study
    folder: Path
    until: float | None

    def arms(self, seed: int) -> dict[str, Any]:
        """Return, for one seed, the gold of each arm's learner when it plays with the learner of each arm."""
        section = self.study.section
        pairs = {
            arm: {other: self._gold((arm, seed), (other, seed, section.learner)) for other in section.arms}
            for arm in section.arms
        }
        return {"seed": seed, "gold": pairs}

    def cross(self, arm: str) -> dict[str, Any]:
        """Return the gold of an arm's learner of each seed when it plays with the context agent of each seed."""
        context, seeds = context_of(self.study, arm), self.study.section.seeds
        assert context is not None
        found = {str(i): {str(j): self._gold((arm, i), (arm, j, context)) for j in seeds} for i in seeds}
        return {"arm": arm, "gold": found}

    def _gold(self, mine: tuple[str, int], other: tuple[str, int, str]) -> float:
        """Return the gold of the learner of `mine` (arm, seed) when it plays with `other` (arm, seed, policy)."""
        if late(self.until):
            raise TimeoutError
        study, arena = self.study, self.study.section.arena
        assert arena is not None
        theirs = study.recipe(*other[:2]).policies[other[2]].model_dump()
        weights = {
            study.section.learner: _weights(self.folder, *mine, study.section.learner),
            OTHER: _weights(self.folder, *other),
        }
        seated = Examinee(*mine, weights, {OTHER: theirs})
        found = [play_line_up(study, seated, arena.options, seats, study.section.arena_games) for seats in arena.seats]
        return fmean(one["mean"][study.section.gold] for one in found)
