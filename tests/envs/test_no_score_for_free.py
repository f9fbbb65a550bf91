"""Only playing is rewarded: no cheat earns more than 0.01 above random legal play, in any environment."""

from __future__ import annotations

import math
import random
from statistics import fmean, pstdev

import pytest
from cheats import CHEATS, FREE, OTHER_TEAMS, Entry, Gain, cheating, earned, named

from interplay import envs
from interplay.envs import Env
from interplay.errors import ConfigError
from interplay.types import Observation, Role


def test_every_environment_has_registered_its_cheats() -> None:
    """A new task or game lists what a policy could try to earn rewards without playing."""
    assert {*envs.known(), *envs.prefixes()} == set(CHEATS)


def made(name: str, entry: Entry) -> Env:
    try:
        return envs.make(envs.sample_task(named(name, entry), dict(entry.options)))
    except ConfigError as error:
        if name.endswith(":"):
            pytest.skip(str(error))
        raise


SLOW = {
    "code", "debugging", "hardware", "math", "nli", "reasoning_gym:", "science", "search", "social_deduction", "tables",
    "textarena:",
}  # fmt: skip
ENTRIES = [
    pytest.param(
        name,
        entry,
        id=f"{name} {' '.join(map(str, entry.options.values()))}".strip(),
        marks=[pytest.mark.slow] if name in SLOW else [],
    )
    for name, entry in [*CHEATS.items(), *OTHER_TEAMS]
]


@pytest.mark.parametrize(("name", "entry"), ENTRIES)
def test_no_cheat_pays(name: str, entry: Entry) -> None:
    """The mean of what a cheat earns above random legal play, on the same tasks and with the same partners; three
    standard errors are allowed. `python benchmarks/cheats.py` plays more tasks and allows none."""
    fair: dict[tuple[Role, int], float] = {}
    found: list[tuple[Role, str, float, float]] = []
    for role in made(name, entry).roles:
        for cheat, reply, tasks in cheating(entry, role):
            gain = Gain(role, cheat, reply)
            for index in range(tasks):
                if (role, index) not in fair:
                    fair[role, index] = earned(name, entry, index, {}, role)
                gain.add(earned(name, entry, index, {role: reply}, role) - fair[role, index])
            if gain.mean > FREE + 3 * gain.error:
                found.append((role, cheat, round(gain.mean, 3), round(gain.error, 3)))
    assert found == []


@pytest.mark.parametrize("name", ["taboo", "social_deduction"])
def test_a_team_that_agrees_on_places_wins_nothing(name: str) -> None:
    """Audit B1, for both roles at once: one names a place in its list, the other picks this place in its own list."""
    entry = CHEATS[name]
    speak = entry.cheats["hinter" if name == "taboo" else "*"]
    clue = next(reply for cheat, reply in speak.items() if cheat.startswith("the place"))

    def listen(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
        if not seen.legal:
            return clue(env, role, seen, rng)
        told = [int(word) for m in seen.messages for word in m.content.split() if word.isdecimal()]
        return seen.legal[(told[-1] - 1) % len(seen.legal) if told else 0]

    gains = []
    for index in range(300):
        role = "guesser" if name == "taboo" else "p0"
        team = dict.fromkeys(("hinter", "guesser") if name == "taboo" else ("p0", "p1", "p2", "p3"), listen)
        gains.append(earned(name, entry, index, team, role) - earned(name, entry, index, {}, role))
    assert fmean(gains) <= FREE + 3 * pstdev(gains) / math.sqrt(len(gains))
