"""From a recipe to seats: matchups by their shares, snapshots, tasks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from interplay.config import parse
from interplay.envs import Env
from interplay.envs import env as registry
from interplay.envs.games.tictactoe import TicTacToe
from interplay.errors import ConfigError
from interplay.rollout.resolve import resolve
from interplay.seats import RunPlan
from interplay.types import Occupant, Policy, Scripted, Snapshot, Task


def plan(**changes: Any) -> RunPlan:
    data: dict[str, Any] = {
        "name": "test",
        "env": {"name": "tictactoe"},
        "policies": {"player": {"base": "tiny"}},
        "seats": "player",
        "algorithm": {"name": "grpo"},
    }
    return resolve(parse(data | changes))


PLAYER, RANDOM, START = Policy("player"), Scripted("random"), Snapshot("player", "start")
MATCHUPS = [{"share": 0.25, "seats": {"O": "player@start"}}, {"share": 0.5, "seats": {"X": "bot:random"}}]


def seatings(made: RunPlan, tasks: int = 2000) -> Counter[tuple[Occupant, Occupant]]:
    found = [made.seats_for(made.task(i)) for i in range(tasks)]
    return Counter((s["X"], s["O"]) for s in found)


def test_matchups_get_their_share_of_the_tasks() -> None:
    """A quarter against the start, half against the bot, the rest as in [seats]; roles that are not named keep their
    seat."""
    found = seatings(plan(matchups=MATCHUPS))
    assert set(found) == {(PLAYER, START), (RANDOM, PLAYER), (PLAYER, PLAYER)}
    assert found[PLAYER, START] / 2000 == pytest.approx(0.25, abs=0.03)
    assert found[RANDOM, PLAYER] / 2000 == pytest.approx(0.5, abs=0.03)


def test_matchups_that_share_everything_leave_nothing_to_the_seats() -> None:
    halves = [{"share": 0.5, "seats": {"O": "bot:first"}}, {"share": 0.5, "seats": {"O": "bot:random"}}]
    assert set(seatings(plan(matchups=halves), 300)) == {(PLAYER, Scripted("first")), (PLAYER, RANDOM)}
    assert set(seatings(plan(), 20)) == {(PLAYER, PLAYER)}


def test_who_plays_a_task_is_a_function_of_the_task_and_the_seed() -> None:
    """The same task has the same seats in every process, whatever was asked before; another seed gives other seats."""
    one, two = plan(matchups=MATCHUPS), plan(matchups=MATCHUPS)
    tasks = [one.task(i) for i in range(50)]
    backwards = [two.seats_for(t) for t in reversed(tasks)][::-1]
    assert [one.seats_for(t) for t in tasks] == backwards
    other = plan(matchups=MATCHUPS, seed=1)
    assert [other.seats_for(Task(t.id, t.env, t.seed, t.data)) for t in tasks] != backwards


def test_seating_a_task_leaves_the_seats_alone() -> None:
    made = plan(matchups=[{"share": 1.0, "seats": {"O": "bot:random"}}])
    made.seats_for(made.task(0))
    assert made.seats == {"X": PLAYER, "O": PLAYER}


def test_snapshots_are_what_matchups_and_the_reference_need() -> None:
    """`policy@start` in a matchup, and every trainable policy if the loss has a KL penalty."""
    two = {"player": {"base": "tiny"}, "rival": {"base": "tiny"}, "fixed": {"base": "tiny", "trainable": False}}
    seats = {"seats": {"X": "player", "O": "rival"}, "policies": two, "eval": {"opponents": ["fixed"]}}
    assert plan().snapshots == []
    assert plan(matchups=MATCHUPS).snapshots == [START]
    assert plan(**seats, algorithm={"name": "grpo", "kl": 0.1}).snapshots == [START, Snapshot("rival", "start")]
    assert plan(**seats).trainable == ["player", "rival"]


def test_tasks_are_numbered_and_splits_do_not_meet() -> None:
    """Training and evaluation never play the same task."""
    made = plan()
    train, test = ({made.task(i, split).seed for i in range(100)} for split in ("train", "test"))
    assert len(train) == len(test) == 100 and not train & test
    assert made.task(3) == made.task(3) == plan().task(3) != plan(seed=1).task(3)
    assert {"size": 3, "line": 3}.items() <= made.task(0).data.items(), "options are completed with their defaults"


def test_plans_that_cannot_work_are_refused_before_anything_is_loaded() -> None:
    """Too many joint actions; and (also in a custom composition) candidates that would all have the same return."""
    two = {"env": {"name": "matrix"}}
    assert plan(**two, algorithm={"name": "magrpo", "candidates": 16, "joint": "crossed"})
    with pytest.raises(ConfigError, match=r"289 joint actions.*at most 256"):
        plan(**two, algorithm={"name": "magrpo", "candidates": 17, "joint": "crossed"})
    composed = {"name": "custom", "grouping": ["episode", "decision", "role"]}
    tree = {"kind": "tree", "continuation": "none"}
    assert plan(**two, algorithm={**composed, "plan": tree})
    with pytest.raises(ConfigError, match="gives rewards only at the end"):
        plan(algorithm={**composed, "plan": tree})


def test_an_algorithm_that_compares_with_its_reference_keeps_the_start() -> None:
    assert plan(algorithm={"name": "online_dpo"}).snapshots == [START]
    assert plan(algorithm={"name": "grpo", "kl_reward": 0.1}).snapshots == [START]


def test_an_environment_that_names_no_rewards_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nameless(TicTacToe):
        reward_names = Env.reward_names

    monkeypatch.setitem(registry.ENVIRONMENTS.classes, "nameless", Nameless)
    with pytest.raises(
        ConfigError, match=r"eval.success is 'win'; expected the name of a reward of nameless, but it lists no rewards"
    ):
        plan(env={"name": "nameless"}, eval={"opponents": ["team"], "success": "win"})


@pytest.mark.parametrize("section", ["curriculum", "league"])
def test_curriculum_and_league_refuse_a_tree_that_hides_what_the_policy_earns(section: str) -> None:
    """The best of several replies is kept, and there is no playout that shows how good the others were."""
    asked: dict[str, Any] = {
        "curriculum": {"curriculum": {"kind": "replay", "success": "win"}},
        "league": {"league": {"every": 2}, "matchups": [{"share": 0.5, "one": "player", "others": "@league"}]},
    }
    tree = {"name": "at_grpo", "continuation": "critic"}
    with pytest.raises(
        ConfigError, match=rf"\[{section}\] needs to know what the policy itself earns.*expected keep = 'unif"
    ):
        plan(algorithm=tree, **asked[section])
    plan(algorithm={**tree, "keep": "uniform"}, **asked[section])
    plan(algorithm={"name": "at_grpo"}, **asked[section])
