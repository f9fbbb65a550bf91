"""A tree that keeps the best reply keeps a legal one; the share of refused replies counts every candidate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interplay.algorithms import Tree
from interplay.config import RewardSection, parse
from interplay.envs import Env
from interplay.rollout.episode_json import from_json, to_json
from interplay.rollout.league import League
from interplay.rollout.media import MediaFolder
from interplay.rollout.resolve import resolve
from interplay.training.tally import tally
from interplay.types import Episode, Message, Observation, Rewards, Role, Status, Stop, Task

OFFERS = ("1", "99", "99", "98")  # one legal move; two of the three that are refused say the same


def moves(call: Any) -> str:
    return OFFERS[call.candidate] if call.decision == 0 and not call.path else call.free[0]


def flags(episode: Episode, decision: int, role: str) -> list[bool]:
    return [t.illegal for t in episode.turns if (t.decision, t.role, t.playout) == (decision, role, None)]


@pytest.mark.parametrize("keep", ["greedy", "uniform", "first"])
@pytest.mark.parametrize("continuation", ["playout", "round"])
def test_every_candidate_that_was_refused_is_counted(table: Any, keep: Any, continuation: Any) -> None:
    plan = Tree(4, continuation, keep=keep, compares=True)
    (episode,) = table(moves, plan=plan, seats={"O": "bot:first"}).play()
    assert flags(episode, 0, "X") == [False, True, True, True]
    assert [t.status for t in episode.turns[:4]] == [Status.OK, *[Status.ILLEGAL] * 3]
    decisions = len(episode.line("X"))
    metrics = tally([episode], {"player"}, RewardSection())
    assert metrics["turns_illegal"] == pytest.approx(0.75 / decisions)
    if keep != "uniform":
        assert not any(t.illegal for t in episode.line()), "the line of play hides it"


def test_candidates_that_all_say_the_same_are_refused_together(table: Any) -> None:
    """Equal candidates are not scored, because there is nothing to compare. The environment refuses the one that is
    played, and so all of them count as refused."""
    plan = Tree(4, "playout", keep="first", compares=True)
    (episode,) = table(lambda call: "99", plan=plan, seats={"O": "bot:first"}).play()
    assert flags(episode, 0, "X") == [True] * 4
    assert tally([episode], {"player"}, RewardSection())["turns_illegal"] == 1.0


def test_a_candidate_that_was_cut_off_and_refused_is_both(table: Any) -> None:
    plan = Tree(4, "playout", compares=True)
    (episode,) = table(moves, plan=plan, seats={"O": "bot:first"}, stop=Stop.LENGTH).play()
    assert flags(episode, 0, "X") == [False, True, True, True]
    metrics = tally([episode], {"player"}, RewardSection())
    assert metrics["turns_cut"] == 1.0 and metrics["turns_illegal"] > 0


class Words(Env):
    """Two roles speak at once. Each must say `yes` or `no`, and both earn 1 if both do."""

    reward_names = ("both", "illegal")
    roles = ("a", "b")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said: dict[Role, str] = {}

    def observe(self) -> dict[Role, Observation]:
        return {} if self.said else {r: Observation((Message("user", "yes or no?"),)) for r in self.roles}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.said = dict(actions)
        return Rewards.process("illegal", {r: -1.0 for r, text in actions.items() if text not in ("yes", "no")})

    def outcome(self) -> Rewards:
        return Rewards.team("both", float(all(text in ("yes", "no") for text in self.said.values())))

    def state(self) -> str:
        return str(self.said)


@pytest.mark.parametrize("joint", ["first", "aligned", "crossed"])
def test_each_of_several_roles_that_act_at_once_answers_for_its_own_reply(
    table: Any, known_as: Any, joint: Any
) -> None:
    said = {"a": ("yes", "maybe", "maybe"), "b": ("perhaps", "no", "perhaps")}
    plan = Tree(3, "none", joint=joint)
    (episode,) = table(lambda c: said[c.role][c.candidate], env=known_as("words", Words), plan=plan).play()
    assert flags(episode, 0, "a") == [False, True, True]
    assert flags(episode, 0, "b") == [True, False, True]


def test_the_leagues_alarm_counts_replies_that_a_tree_did_not_keep(table: Any) -> None:
    alarm = {"panel": ["bot:random"], "illegal": 0.1}
    recipe: dict[str, Any] = {
        "name": "test",
        "env": {"name": "tictactoe"},
        "policies": {"player": {"base": "tiny"}},
        "seats": "player",
        "algorithm": {"name": "at_grpo"},
        "matchups": [{"share": 0.5, "one": "player", "others": "@league"}],
        "league": {"every": 2, "alarm": alarm},
    }
    league = League(resolve(parse(recipe)))
    (episode,) = table(moves, plan=Tree(4, "playout"), seats={"O": "bot:first"}).play()
    assert "turns are illegal, more than league.alarm.illegal (10%)" in (
        league.symptom("player", [episode], None) or ""
    )


def test_a_record_keeps_which_candidates_were_refused(table: Any, tmp_path: Path) -> None:
    (episode,) = table(moves, plan=Tree(4, "playout"), seats={"O": "bot:first"}).play()
    again, _ = from_json(json.loads(json.dumps(to_json(episode))), MediaFolder(tmp_path))
    assert flags(again, 0, "X") == [False, True, True, True]
