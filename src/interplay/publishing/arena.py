"""The arena of a study: the learner of every arm plays with the learner of every arm, which takes another role.

If the context agent of an arm learns too, the arm is also played across seeds (cross-play): a learner that only
understands the partner it was trained with does worse with the partner of another seed. Results are written once and
never changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from interplay.publishing.experiment import TESTED, Examinee, newest, play_line_up, run_folder
from interplay.publishing.study import Study
from interplay.rollout.resolve import resolve

OTHER = "other"  # the policy that plays the other role


def play_arena(study: Study, folder: Path, told: Callable[[str], None]) -> None:
    """Play the games of all seeds whose runs are done."""
    if study.section.arena is None:
        return
    where = folder / "arena"
    where.mkdir(exist_ok=True)
    done = [
        s for s in study.section.seeds if all((run_folder(folder, a, s) / TESTED).is_file() for a in study.section.arms)
    ]
    for seed in done:
        _once(where / f"seed-{seed}.json", lambda s=seed: _arms(study, folder, s), told)  # type: ignore[misc]
    for arm in study.section.arms:
        if len(done) > 1 and (context := _context(study, arm)) is not None:
            name = f"cross-{arm}-{len(done)}.json"
            _once(where / name, lambda a=arm, c=context: _cross(study, folder, (a, c), done), told)  # type: ignore[misc]


def _once(path: Path, play: Callable[[], dict[str, Any]], told: Callable[[str], None]) -> None:
    if path.is_file():
        return
    work = path.with_name(f".{path.name}")
    work.write_text(json.dumps(play(), indent=1) + "\n")
    work.replace(path)
    told(f"arena: {path.stem}")


def _context(study: Study, arm: str) -> str | None:
    """Return the policy other than the learner that is trained in an arm, if there is one."""
    plan = resolve(study.recipe(arm, study.section.seeds[0]))
    return next((name for name in plan.trainable if name != study.section.learner), None)


def _gold(study: Study, folder: Path, mine: tuple[str, int], other: tuple[str, int, str]) -> float:
    """Return the gold of the learner of `mine` (arm, seed) when it plays with `other` (arm, seed, policy)."""
    arena = study.section.arena
    assert arena is not None
    theirs = study.recipe(*other[:2]).policies[other[2]].model_dump()
    seated = Examinee(
        *mine,
        {study.section.learner: _weights(folder, *mine, study.section.learner), OTHER: _weights(folder, *other)},
        {OTHER: theirs},
    )
    found = [play_line_up(study, seated, arena.options, seats, study.section.arena_games) for seats in arena.seats]
    return fmean(one["mean"][study.section.gold] for one in found)


def _weights(folder: Path, arm: str, seed: int, policy: str) -> str:
    return str(newest(run_folder(folder, arm, seed)) / "policies" / policy)


def _arms(study: Study, folder: Path, seed: int) -> dict[str, Any]:
    """Return, for one seed, the gold of each arm's learner when it plays with the learner of each arm."""
    section = study.section
    pairs = {
        arm: {other: _gold(study, folder, (arm, seed), (other, seed, section.learner)) for other in section.arms}
        for arm in section.arms
    }
    return {"seed": seed, "gold": pairs}


def _cross(study: Study, folder: Path, of: tuple[str, str], seeds: list[int]) -> dict[str, Any]:
    """Return the gold of an arm's learner of each seed when it plays with the context agent of each seed."""
    arm, context = of
    found = {str(i): {str(j): _gold(study, folder, (arm, i), (arm, j, context)) for j in seeds} for i in seeds}
    return {"arm": arm, "gold": found}
