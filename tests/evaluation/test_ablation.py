"""Ablations of a scripted team, where the truth is known."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from interplay.agents.bots import Bot, register_bot
from interplay.config import parse
from interplay.envs import Env
from interplay.errors import ConfigError
from interplay.evaluation import ablation
from interplay.evaluation.ablation import Change, swaps, without
from interplay.evaluation.benchmark import Lineup, lineups
from interplay.evaluation.field import Field
from interplay.evaluation.games import TwoKeys
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.seats import RunPlan
from interplay.types import Occupant, Policy, Role, Scripted

KEYS = "interplay.evaluation.games:TwoKeys"  # p0 and p1 each know a word for their number; only both together pay


class Dull(TwoKeys):
    """Two keys, and a third role whose words nobody hears."""

    roles = ("p0", "p1", "p2")

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        self.numbers["p2"] = 0

    def worth(self) -> float:
        shift = {"p0": 1, "p1": 2}
        return float(all(self.words[(self.numbers[r] + s) % 3] == self.said[0][r] for r, s in shift.items()))


@pytest.fixture(scope="module", autouse=True)
def scripted() -> Iterator[None]:
    """`key:1` says the right word of p0 in any seat, `key:2` that of p1."""

    @register_bot("key")
    class Key(Bot):
        """The right word for a shift."""

        takes = "the shift"

        def __init__(self, env_name: str, setting: str = "") -> None:
            super().__init__(env_name, setting)
            self.shift = int(setting)

        def act(self, env: Env, role: Role, rng: random.Random) -> str:
            assert isinstance(env, TwoKeys)
            return env.words[(env.numbers[role] + self.shift) % 3]

    yield
    from interplay.agents.bots import bot

    del bot.BOTS.classes["key"]


def planned(env: str, seats: dict[str, str], **section: Any) -> RunPlan:
    recipe = {
        "name": "t", "device": "cpu", "env": {"name": env}, "policies": {"p": {"base": "tiny-16x1"}}, "seats": "p",
        "algorithm": {"name": "grpo"}, "eval": {"opponents": ["team"], "success": "solved", **section},
    }  # fmt: skip
    plan = resolve(parse(recipe))
    return replace(plan, seats={role: plan.occupant(who) for role, who in seats.items()})


def field(plan: RunPlan, games: int = 60) -> Field:
    """Only bots are seated, so no policy is loaded."""
    return Field(plan, Team(plan.recipe.model_copy(update={"policies": {}})), games)


def changes(plan: RunPlan, found: Iterator[tuple[str, dict[Role, Occupant]]], games: int = 60) -> list[Change]:
    here = field(plan, games)
    (whole,) = lineups(plan, ["team"])

    async def go() -> list[Change]:
        base = await here.play(whole.seats)
        return [ablation.change(plan.recipe, what, whole, seats, base, await here.play(seats)) for what, seats in found]

    return asyncio.run(go())


def test_leaving_one_out_costs_what_it_did() -> None:
    """Both keys are needed: with a random word in place of either, a third of the doors open. Nobody hears p2."""
    plan = planned(f"{__name__}:Dull", {"p0": "bot:key:1", "p1": "bot:key:2", "p2": "bot:key:0"})
    found = changes(plan, without(plan, dict.fromkeys(plan.roles, Scripted("random"))), games=120)
    assert [c.what for c in found] == ["p0 = bot:random", "p1 = bot:random", "p2 = bot:random"]
    for c in found[:2]:
        assert c.won_drop is not None and c.won.low <= 1 / 3 <= c.won.high
        assert c.won_drop.low <= 2 / 3 <= c.won_drop.high and c.won_drop.low > 0.5
    assert found[2].won.value == 1.0 and found[2].won_drop == (0.0, 0.0, 0.0) and found[2].games == 120


def test_exchanged_policies_do_each_others_work_badly() -> None:
    """Each says the other's word, which is never right for its own lock."""
    plan = planned(KEYS, {"p0": "bot:key:1", "p1": "bot:key:2"})
    (whole,) = lineups(plan, ["team"])
    (c,) = changes(plan, swaps(plan, whole), games=30)
    assert c.what == "p0 ↔ p1" and c.seats == {"p0": Scripted("key:2"), "p1": Scripted("key:1")}
    assert c.won.value == 0.0 and c.won_drop == (1.0, 1.0, 1.0) and c.score_drop == (1.0, 1.0, 1.0)


def test_against_an_opponent_the_others_take_the_role() -> None:
    plan = planned(KEYS, {"p0": "a", "p1": "b"})
    lineup = Lineup("a", "bot:random", "p0", {"p0": Policy("a"), "p1": Scripted("random")})
    assert list(swaps(plan, lineup)) == [("b as p0", {"p0": Policy("b"), "p1": Scripted("random")})]
    same = planned(KEYS, {"p0": "a", "p1": "a"})
    assert list(swaps(same, next(lineups(same, ["team"])))) == []


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"ablations": ["swap"]}, r"eval.ablations has 'swap', but a single policy plays every role"),
        ({"ablations": ["without"], "opponents": ["bot:random"]}, r'set eval.opponents = \["team"\]'),
        (
            {"ablations": ["without"], "substitute": "bass"},
            r"eval.substitute is 'bass'; expected base, start, bot:NAME",
        ),
        ({"ablations": ["budget"]}, r"eval.single is missing; expected options that leave only one role"),
    ],
)
def test_what_cannot_be_asked_is_refused(section: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ablation.check(planned(KEYS, {"p0": "p", "p1": "p"}, **section))
