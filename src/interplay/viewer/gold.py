"""Where a judge and a gold reward disagree: pairs of episodes of one task that they order differently.

Gold is a component of the environment's own reward: the one of `judges.NAME.audit.gold`, or another that is asked for.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from interplay.config.judges import GOLD, JudgeSection
from interplay.errors import InterplayError
from interplay.viewer.run import RunReader

_SECONDS = 0.6  # how long records are read, the newest first
_ROWS = 20  # the disagreements that are shown


class _Scored(NamedTuple):
    """What a role did in an episode, and its mean reward by name."""

    step: int
    episode: str
    role: str
    text: str
    values: Mapping[str, float]


def disagreements(run: RunReader, query: Mapping[str, str]) -> dict[str, Any]:
    """For every judge, how often it orders two episodes of a task as gold does, and the pairs that it orders most
    differently. `query["gold"]` names another component to compare with."""
    sections = {} if run.recipe is None else run.recipe.judges
    groups, read = _groups(run)
    names = sorted({name for group in groups for one in group for name in one.values})
    judges: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for judge, section in sections.items():
        gold = query.get("gold") or _gold(section)
        if gold is None or gold == judge:
            judges.append({"name": judge, "gold": None})
            continue
        pairs = [pair for group in groups for pair in _pairs(group, judge, gold)]
        same = sum(one * other > 0 for one, other, _, _ in pairs)
        tied = sum(one * other == 0 for one, other, _, _ in pairs)
        judges.append({"name": judge, "gold": gold, "pairs": len(pairs), "same": same, "tied": tied})
        apart = sorted((p for p in pairs if p[0] * p[1] < 0), key=lambda p: -abs(p[0] * p[1]))
        rows += [
            {"judge": judge, "gold": gold, "replies": [_reply(one, judge, gold) for one in both]}
            for *_, first, second in apart[:_ROWS]
            for both in [(first, second)]
        ]
    components = [name for name in names if name not in sections]
    return {"judges": judges, "rows": rows, "components": components, "episodes": read}


def _gold(section: JudgeSection) -> str | None:
    """The component that the recipe itself compares a judge with."""
    audit, train = section.audit, section.train
    named = (audit.gold if audit is not None else None) or (train.labels if train is not None else None)
    return None if named is None else named.removeprefix(GOLD)


def _groups(run: RunReader) -> tuple[list[list[_Scored]], int]:
    """The latest recorded episodes, by step, task and role, and how many were read."""
    index, until = run.source("train"), time.monotonic() + _SECONDS
    groups: dict[tuple[int, str, str], list[_Scored]] = defaultdict(list)
    read = 0
    for number in range(len(index.places) - 1, -1, -1):
        if time.monotonic() > until:
            break
        place = index.places[number]
        try:
            data = index.read(number)
            for role in data["seats"]:
                groups[place.step, place.task, role].append(_scored(place.step, data, role))
        except (InterplayError, KeyError, TypeError, ValueError, IndexError):
            continue
        read += 1
    return list(groups.values()), read


def _scored(step: int, data: Mapping[str, Any], role: str) -> _Scored:
    values: dict[str, list[float]] = defaultdict(list)
    for name, _, owner, value, *_ in data["rewards"]:
        if owner in (None, role) and value is not None:
            values[name].append(value)
    said = [t["text"] for t in data["turns"] if t["kept"] and t["playout"] is None and t["keys"]["role"] == role]
    return _Scored(step, data["id"], role, "\n\n".join(said), {name: fmean(v) for name, v in values.items()})


def _pairs(group: Sequence[_Scored], judge: str, gold: str) -> Iterator[tuple[float, float, _Scored, _Scored]]:
    """For every two episodes that have both rewards: the difference of the judge's reward, the difference of gold, and
    the two episodes."""
    known = [one for one in group if judge in one.values and gold in one.values]
    for a, b in itertools.combinations(known, 2):
        yield a.values[judge] - b.values[judge], a.values[gold] - b.values[gold], a, b


def _reply(one: _Scored, judge: str, gold: str) -> dict[str, Any]:
    return {
        "step": one.step, "episode": one.episode, "role": one.role, "text": one.text,
        "judge": one.values[judge], "gold": one.values[gold],
    }  # fmt: skip
