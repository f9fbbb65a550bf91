"""A frozen opponent or a bot in a role earns different rewards, which must not be part of a policy's baseline."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from interplay import algorithms
from interplay.algorithms import Algorithm
from interplay.config import RewardSection, validate
from interplay.errors import GuardError
from interplay.types import Credit, Episode, Rewards, Turn

MakeTurn = Callable[..., Turn]
MakeEpisode = Callable[..., Episode]


def make(name: str, gamma: float = 1.0, **settings: Any) -> Algorithm:
    cls = algorithms.lookup(name)
    return cls(validate(cls.Settings, settings, prefix="algorithm"), RewardSection(gamma=gamma))


def league(make_turn: MakeTurn, make_episode: MakeEpisode, frozen: float) -> tuple[list[Episode], list[Turn]]:
    """Two tasks in which the player has role X and earns 1 and 0, and two in which its past version has this role and
    earns `frozen`. Returns the player's turns."""
    episodes, mine = [], []
    for task, (policy, reward) in enumerate([("player", 1.0), ("player@start", frozen)] * 2):
        turn = make_turn("X", reward if policy == "player@start" or task == 0 else 0.0, task=f"t{task}")
        turn.policy = policy
        mine += [turn] if policy == "player" else []
        episodes.append(make_episode([turn], seats={"X": policy, "O": "player"}))
    return episodes, mine


BATCH = {"plan": {"kind": "independent"}, "grouping": ["task", "role"], "credit": "batch"}


@pytest.mark.parametrize(("name", "settings"), [("rae", {}), ("custom", BATCH), ("reinforce_pp", {})])
def test_what_a_frozen_opponent_earns_does_not_move_the_policys_advantages(
    make_turn: MakeTurn, make_episode: MakeEpisode, name: str, settings: dict[str, Any]
) -> None:
    found = []
    for earned in (0.0, 50.0):
        algorithm = make(name, **settings)
        for _ in range(2):  # a running baseline is read in the second batch
            given = Credit()
            episodes, mine = league(make_turn, make_episode, earned)
            algorithm.credit(episodes, given)
        found.append([given.advantage(turn) for turn in mine])
    assert found[0] == found[1] and found[0][0] != found[0][1]


def shared(make_turn: MakeTurn, replica: int, rewards: list[float], policies: list[str]) -> list[Turn]:
    """A role whose turns are taken by several players in this order."""
    turns = [make_turn("X", r, replica=replica, decision=d, prompt=str(d)) for d, r in enumerate(rewards)]
    for turn, policy in zip(turns, policies, strict=True):
        turn.policy = policy
    return turns


PARTNERS = ["player", "player@start"]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("custom", BATCH | {"grouping": ["task", "role", "prompt"]}),
        ("custom", {"plan": {"kind": "independent", "replicas": 2}, "grouping": ["task", "role", "phase"]}),
        ("reinforce_pp", {}),
    ],
)
def test_a_frozen_partner_in_the_same_role_has_means_of_its_own(
    make_turn: MakeTurn, make_episode: MakeEpisode, name: str, settings: dict[str, Any]
) -> None:
    """The past version moves first and earns `early`; then the player moves and earns 1 in one episode, 0 in the
    other."""
    found = []
    for early in (0.0, 30.0):
        lines = [shared(make_turn, i, [early, float(i)], PARTNERS[::-1]) for i in range(2)]
        given = Credit()
        seats = {"X": "player@start, then player", "O": "player"}
        make(name, **settings).credit([make_episode(line, seats=seats) for line in lines], given)
        found.append([given.advantage(line[1]) for line in lines])
    assert found[0] == found[1] and found[0][0] != found[0][1]


@pytest.mark.parametrize("level", ["turn", "token"])
def test_ppo_trains_a_policy_that_shares_its_role_with_a_frozen_one(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit, level: str
) -> None:
    """γ ½. The player earns 1, its partner 2 and 4, then the player 8. The partner counts as part of the environment:
    the first return is 1 + ½·2 + ¼·4 + ⅛·8 = 4, the second 8. Values 0 and 16: with λ 0 the first advantage is 3 + ⅛·16
    − 0."""
    rewards, policies = [1.0, 2.0, 4.0, 8.0], ["player", "player@start", "player@start", "player"]
    turns = shared(make_turn, 0, rewards, policies)
    given.values |= {turns[0].last.id: (0.0,), turns[3].last.id: (16.0,)}
    ppo = make("ppo", gamma=0.5, gae_lambda=0.0, level=level)
    episode = make_episode(turns, seats={"X": "player, player@start, player@start, then player"})
    try:
        ppo.credit([episode], given)
    except GuardError as error:
        pytest.fail(f"the turns of a frozen policy have no critic's value, and need none: {error}")
    assert [given.target(t) for t in turns] == [4.0, None, None, 8.0]
    first, second = 3.0 + 2.0, 8.0 - 16.0
    middle, spread = (first + second) / 2, abs(first - second) / 2
    wanted = [(first - middle) / spread, (second - middle) / spread]
    assert [given.advantage(turns[n]) for n in (0, 3)] == pytest.approx(wanted, rel=1e-5)
    assert given.advantage(turns[1]) is None and given.advantage(turns[2]) is None


def test_two_policies_in_one_role_are_whitened_apart(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """PPO: the rival's returns are 100 higher; each policy's own two returns differ by 2."""
    earned = [("player", 1.0), ("player", -1.0), ("rival", 101.0), ("rival", 99.0)]
    turns = [make_turn("X", value, replica=i, value=0.0) for i, (_, value) in enumerate(earned)]
    for turn, (policy, _) in zip(turns, earned, strict=True):
        turn.policy = policy
    make("ppo").credit([make_episode([t]) for t in turns], given)
    assert [given.advantage(t) for t in turns] == pytest.approx([1.0, -1.0, 1.0, -1.0], rel=1e-5)


@pytest.mark.parametrize("name", ["grpo", "dr_mas", "rae", "reinforce_pp", "ppo", "maporl"])
def test_what_comes_on_a_bots_turn_was_earned_by_the_role(
    make_turn: MakeTurn, make_episode: MakeEpisode, name: str
) -> None:
    """The player moves first, a bot takes the role's next turn, and then the reward arrives: it belongs to the first
    move."""
    episodes, openings, given = [], [], Credit()
    for replica, won in enumerate((1.0, -1.0)):
        opening, reply = shared(make_turn, replica, [0.0, won], ["player", "bot:random"])
        reply.samples = ()
        given.values[opening.last.id] = (0.0,)
        openings.append(opening)
        episodes.append(make_episode([opening, reply], seats={"X": "player, then bot:random"}))
    make(name).credit(episodes, given)
    found = [given.advantage(turn) for turn in openings]
    if name == "maporl":  # judges answers one by one: what came on the bot's is the bot's
        assert found == [0.0, 0.0]
    else:
        assert found[0] is not None and found[0] > 0.5 and found[1] is not None and found[1] < -0.5


def test_a_remote_models_words_have_no_tokens_to_train(make_turn: MakeTurn, given: Credit) -> None:
    turn = make_turn("X", 1.0, tokens=0)
    given.give(turn, 1.0)
    assert given.advantages == {}


def test_vdn_centres_each_policys_own_process_rewards(make_turn: MakeTurn, make_episode: MakeEpisode) -> None:
    """A frozen opponent in the role pays format penalties. This must not make the policy's own replies look better."""
    found = []
    for penalty in (0.0, -5.0):
        episodes, mine, given = [], [], Credit()
        for task, policy in enumerate(["player", "player@start"] * 2):
            turn = make_turn("X", 1.0, task=str(task))
            turn.policy = policy
            turn.rewards += Rewards.process("format", {"X": penalty if policy == "player@start" else -1.0})
            mine += [turn] if policy == "player" else []
            episodes.append(make_episode([turn], seats={"X": policy}))
        make("vdn", warmup=0).credit(episodes, given)
        found.append([given.advantage(turn) for turn in mine])
    assert found[0] == found[1] and all(math.isfinite(a or 0.0) for a in found[0])
