"""Collect labelled answers for a verifier from the recorded episodes of a run: the question, the reply, and whether the
environment rewarded it as right. Only tasks of the training split are used, so a verifier is never trained on the tasks
of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from interplay.config import JudgeSection
from interplay.config.judges import GOLD
from interplay.errors import DataError, did_you_mean
from interplay.rollout import records
from interplay.rollout.subjects import subjects

SPLIT = "train"


def collected(run: Path, component: str, roles: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield a row for every reply that has the reward `component`. It is right if the reward is more than 0. `group` is
    the beginning of the episode, so later rounds, and a question that is drawn again, belong to the same question."""
    path = run / "episodes.jsonl"
    if not path.is_file():
        raise DataError(
            f"'{run}' has no episodes.jsonl; expected the folder of a run with records.episodes_per_step above 0."
        )
    section, found, seen = JudgeSection(kind="pointwise", who=GOLD + component, scope="reply"), 0, set[str]()
    for record in records.read(path):
        episode = record.episode
        if f"-{SPLIT}-" not in episode.task.id:
            continue
        seen |= episode.seats.keys()
        begun = "\n".join(m.content for t in episode.line()[:1] for m in t.observation.messages)
        for subject in subjects(episode, section, roles or list(episode.seats)):
            value = subject.gold(component)
            if value is None or not subject.turn.is_model:
                continue
            found += 1
            question = [[m.role, m.content] for m in subject.question]
            yield {"question": question, "answer": subject.reply, "right": value > 0, "group": begun}
    if unknown := set(roles) - seen:
        name = min(unknown)
        raise DataError(f"--role is '{name}', which no episode of '{run}' has; {did_you_mean(name, seen)}")
    if not found:
        raise DataError(
            f"no reply of a training task in '{run}' has the reward '{component}'; expected a component that the "
            "environment gives to each reply, such as match in nli."
        )
