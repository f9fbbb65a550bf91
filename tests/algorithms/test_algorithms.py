"""Each algorithm's advantages are compared with numbers computed by hand, on episodes built by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from interplay import algorithms
from interplay.algorithms import Algorithm, Independent, Tree
from interplay.algorithms.at_grpo import ATGRPO
from interplay.config import Open, RewardSection
from interplay.errors import ConfigError, GuardError
from interplay.types import Credit, Episode, Rewards, Turn

MakeTurn = Callable[..., Turn]
MakeEpisode = Callable[..., Episode]
ONE = 1 / (1 + 1e-6)  # a deviation of 1, divided by itself and ε


def make(name: str, reward: Mapping[str, Any] | None = None, **settings: Any) -> Algorithm:
    return algorithms.make(Open(name=name, **settings), RewardSection(**(reward or {})), seed=0)


def test_every_algorithm_is_known_and_makes_a_plan() -> None:
    """Rollout reads the plan, and the settings reach it."""
    assert algorithms.known() == sorted({*algorithms.known(), "grpo", "at_grpo", "rae", "ppo"})
    assert make("grpo", group=4).plan == Independent(4)
    assert make("rae").plan == Independent(1)
    assert make("ppo", replicas=3).plan == Independent(3)
    tree = make("at_grpo", candidates=3, playouts=2, keep="softmax", keep_temperature=0.5).plan
    assert tree == Tree(3, "playout", 2, "softmax", 0.5, compares=True)


def test_a_rule_that_uses_returns_as_they_are_has_every_reply_scored() -> None:
    """Zeros replace a group of equal replies only if the rule would have given zeros."""

    class Plain(ATGRPO):
        def rule(self, returns: Sequence[float]) -> list[float]:
            return list(returns)

    settings = ATGRPO.Settings(candidates=3)
    assert ATGRPO(settings, RewardSection()).plan.compares and not Plain(settings, RewardSection()).plan.compares


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("cispo", {"dual_clip": 3.0}, ["algorithm.dual_clip", "'cispo'", "loss = 'clip'"]),
        ("grpo", {"kl_kind": "k3"}, ["algorithm.kl_kind", "algorithm.kl is 0"]),
        ("at_grpo", {"continuation": "none", "playouts": 2}, ["algorithm.playouts", "'none'", "'playout'"]),
        ("c3", {"critic": {"lr": 1e-3}}, ["algorithm.critic", "'playout'", "'critic'"]),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(name: str, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        make(name, **options)
    assert all(word in str(caught.value) for word in words), caught.value


def test_only_algorithms_with_a_critic_ask_for_one() -> None:
    assert make("grpo").critic is None and make("rae").critic is None
    assert make("at_grpo").critic is None
    assert make("at_grpo", continuation="critic", critic={"lr": 0.5}).critic.lr == 0.5  # type: ignore[union-attr]
    assert make("ppo").needs == {"values"} and make("ppo").critic is not None


# -- GRPO -------------------------------------------------------------------------------------------------------------


def test_grpo_compares_whole_episodes_of_one_task_and_role(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """Task a: X earns 1 and −1 (mean 0, deviation 1), O the reverse. Task b: X earns 5 and 5, a tie."""
    episodes = []
    for task, replica, wins in [("a", 0, 1.0), ("a", 1, -1.0), ("b", 0, 5.0), ("b", 1, 5.0)]:
        turns = [
            make_turn("X", 0.0, task=task, replica=replica, decision=0, prompt=f"{task}0"),
            make_turn("O", -wins, task=task, replica=replica, decision=1, prompt=f"{task}1"),
            make_turn("X", wins, task=task, replica=replica, decision=2, prompt=f"{task}2{replica}"),
        ]
        episodes.append(make_episode(turns))
    metrics = make("grpo").credit(episodes, given)
    found = [[given.advantage(t) for t in e.turns] for e in episodes]
    assert found == [[ONE, -ONE, ONE], [-ONE, ONE, -ONE], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert metrics == {"credit/groups_of_one": 0, "credit/zero_share/O": 0.5, "credit/zero_share/X": 0.5}


def test_dr_grpo_does_not_divide(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """Returns 4, 1, 1: mean 2."""
    turns = [make_turn("X", r, replica=i) for i, r in enumerate([4.0, 1.0, 1.0])]
    make("grpo", scale=False).credit([make_episode([t]) for t in turns], given)
    assert [given.advantage(t) for t in turns] == [2.0, -1.0, -1.0]


def test_grpo_counts_groups_of_one(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """If the others of a group failed, there is nothing to compare with: there is no signal, and this is reported."""
    turns = [make_turn("X", 1.0, task="a"), make_turn("X", 1.0, task="b"), make_turn("X", 0.0, task="b", replica=1)]
    metrics = make("grpo").credit([make_episode([t]) for t in turns], given)
    assert metrics["credit/groups_of_one"] == 1
    assert [given.advantage(t) for t in turns] == pytest.approx([0.0, 1.0, -1.0], abs=1e-5)
    assert given.advantage(turns[0]) == 0.0


def test_grpo_mixes_levels_and_discounts(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """R = r₀ + γ·r₁ with team rewards counted half: 1 + 0.5·(0.5·4) = 2 against 0."""
    line = [make_turn("X", 1.0), make_turn("X", rewards=Rewards.team("goal", 4.0), decision=1, prompt="q")]
    other = [make_turn("X", 0.0, replica=1)]
    make("grpo", {"gamma": 0.5, "team": 0.5}, scale=False).credit([make_episode(line), make_episode(other)], given)
    assert [given.advantage(t) for t in [*line, *other]] == [1.0, 1.0, -1.0]


# -- AT-GRPO ----------------------------------------------------------------------------------------------------------


def test_at_grpo_gives_credit_per_decision(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """Groups are (episode, decision, role): a good opening is not blamed for a later mistake."""
    opening = [make_turn("X", outlook=v, candidate=k, kept=k == 0) for k, v in enumerate([1.0, 0.0, 0.0, -1.0])]
    reply = [
        make_turn("X", outlook=v, candidate=k, kept=k == 1, decision=2, prompt="q") for k, v in enumerate([-1.0, -1.0])
    ]
    metrics = make("at_grpo", scale=False).credit([make_episode([*opening, *reply])], given)
    assert [given.advantage(t) for t in opening] == [1.0, 0.0, 0.0, -1.0]
    assert [given.advantage(t) for t in reply] == [0.0, 0.0]
    assert metrics == {"credit/groups_of_one": 0, "credit/zero_share/X": 4 / 6}


def test_at_grpo_divides_by_the_groups_own_deviation(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    turns = [make_turn("X", outlook=v, candidate=k) for k, v in enumerate([3.0, 1.0])]
    make("at_grpo").credit([make_episode(turns)], given)
    assert [given.advantage(t) for t in turns] == [ONE, -ONE]


def test_an_outcome_that_only_the_kept_line_reached_never_enters(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """The kept candidate won 100 later, but its advantage still comes from its outlook only."""
    kept = make_turn("X", reward=100.0, outlook=0.0)
    other = make_turn("X", outlook=1.0, candidate=1, kept=False)
    make("at_grpo", scale=False).credit([make_episode([kept, other])], given)
    assert (given.advantage(kept), given.advantage(other)) == (-0.5, 0.5)


def test_at_grpo_leaves_playouts_and_unscored_turns_alone(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """A bot's move has no outlook, and a playout's turn belongs to no group."""
    scored = [make_turn("X", outlook=v, candidate=k) for k, v in enumerate([1.0, 0.0])]
    bot, playout = make_turn("O", 1.0, decision=1), make_turn("X", outlook=9.0, playout=0)
    make("at_grpo", scale=False).credit([make_episode([*scored, bot, playout])], given)
    assert [given.advantage(t) for t in (*scored, bot, playout)] == [0.5, -0.5, None, None]


def test_at_grpo_refuses_a_decision_with_two_prompts(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """Promise 3 is checked in every step by the hash of the prompt."""
    turns = [make_turn("X", outlook=1.0), make_turn("X", outlook=0.0, candidate=1, prompt="other")]
    with pytest.raises(GuardError, match="different prompts"):
        make("at_grpo").credit([make_episode(turns)], given)


def test_at_grpo_counts_groups_of_one(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """A decision that lost all candidates but one continues, without a signal."""
    turn = make_turn("X", outlook=1.0)
    assert make("at_grpo").credit([make_episode([turn])], given)["credit/groups_of_one"] == 1
    assert given.advantage(turn) == 0.0


def test_at_grpo_keeps_roles_that_act_at_once_apart(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    turns = [make_turn("X", outlook=v, candidate=k) for k, v in enumerate([1.0, 0.0])]
    turns += [make_turn("O", outlook=v, candidate=k, prompt="q") for k, v in enumerate([10.0, 20.0])]
    make("at_grpo", scale=False).credit([make_episode(turns)], given)
    assert [given.advantage(t) for t in turns] == [0.5, -0.5, -5.0, 5.0]


# -- RAE --------------------------------------------------------------------------------------------------------------


def test_rae_reads_the_baseline_before_it_is_updated(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """Decay 0.5, returns 1, 1, −1 of X: b = 0, 0.5, 0.75, so A = 1, 0.5, −1.75, and b ends at −0.125."""
    rae = make("rae", decay=0.5)
    turns = [make_turn("X", r, replica=i) for i, r in enumerate([1.0, 1.0, -1.0])]
    metrics = rae.credit([make_episode([t]) for t in turns], given)
    assert [given.advantage(t) for t in turns] == [1.0, 0.5, -1.75]
    assert metrics["credit/baseline/tictactoe/X/player"] == -0.125


def test_rae_has_a_baseline_per_environment_and_role(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """In self-play of a zero-sum game, a shared baseline would be 0. These baselines store the value of each seat."""
    rae = make("rae", decay=0.5)
    game = [make_turn("X", 1.0), make_turn("O", -1.0, decision=1, prompt="q")]
    other = make_turn("X", 3.0, task="u")
    rae.credit([make_episode(game), make_episode([other], env="matrix")], given)
    assert rae.state_dict() == {
        "baselines": {"tictactoe/X/player": 0.5, "tictactoe/O/player": -0.5, "matrix/X/player": 1.5}
    }
    assert given.advantage(other) == 3.0


def test_rae_gives_each_turn_the_return_that_its_baseline_is_of(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """γ 0.5, rewards 1, 2: R = 2 for both turns. The same episode again is compared with b = 0.25·2. (If R were
    replaced by the return after each turn, late turns in games with step rewards would always look bad compared with
    the mean.)"""
    rae = make("rae", {"gamma": 0.5}, decay=0.75)
    for expected in (2.0, 1.5):
        line = [make_turn("X", 1.0), make_turn("X", 2.0, decision=2, prompt="q")]
        rae.credit([make_episode(line)], given)
        assert [given.advantage(t) for t in line] == [expected] * 2
    assert rae.state_dict() == {"baselines": {"tictactoe/X/player": 0.875}}


def test_raes_baselines_survive_a_checkpoint(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """The state is plain JSON, and a loaded algorithm continues exactly."""
    rae, again = make("rae"), make("rae")
    rae.credit([make_episode([make_turn("X", 1 / 3)])], given)
    again.load_state_dict(json.loads(json.dumps(rae.state_dict())))
    for one in (rae, again):
        turn = make_turn("X", 1.0)
        one.credit([make_episode([turn])], given)
        assert given.advantage(turn) == 1.0 - (1 - 0.95) * (1 / 3)
    assert again.state_dict() == rae.state_dict()


def test_an_algorithm_without_state_refuses_anothers() -> None:
    """A checkpoint of another algorithm is refused and not partly used."""
    make("grpo").load_state_dict({})
    with pytest.raises(ConfigError, match="baselines"):
        make("grpo").load_state_dict({"baselines": {}})


# -- PPO --------------------------------------------------------------------------------------------------------------


def test_ppo_whitens_per_role_over_tokens(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """X: advantage 4 on 1 token, 0 on 3 tokens: mean 1, variance (9 + 3·1)/4 = 3. O's numbers are not part of this."""
    ppo = make("ppo")
    first, second = make_turn("X", 4.0, value=0.0), make_turn("X", 0.0, value=0.0, tokens=3, replica=1)
    rival, other = make_turn("O", 1000.0, value=0.0), make_turn("O", -1000.0, value=0.0, replica=1)
    ppo.credit([make_episode([first, rival]), make_episode([second, other])], given)
    deviation = math.sqrt(3) + 1e-6
    assert [given.advantage(first), given.advantage(second)] == pytest.approx(
        [3 / deviation, -1 / deviation], rel=1e-12
    )
    assert [given.advantage(rival), given.advantage(other)] == pytest.approx([1.0, -1.0], rel=1e-6)
    weighted = given.advantage(first) * 1 + given.advantage(second) * 3  # type: ignore[operator]
    assert weighted == pytest.approx(0.0, abs=1e-12)


def test_ppo_targets_are_not_whitened(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """The critic learns A + V in the units of the reward: by hand (γ = λ = 0.5), A = 0.8125, −0.75, 3."""
    ppo = make("ppo", {"gamma": 0.5}, critic_lambda=0.5)
    line = [make_turn("X", r, value=v, decision=2 * d, prompt=str(d))
            for d, (r, v) in enumerate([(1.0, 0.5), (0.0, 1.0), (2.0, -1.0)])]  # fmt: skip
    ppo.credit([make_episode(line)], given)
    assert [given.target(t) for t in line] == [1.3125, 0.25, 2.0]


def test_ppos_critic_learns_the_monte_carlo_return(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """λ of the targets is 1, whatever the policy's λ is: γ 0.5, rewards 1, 0, 2 give 1.5, 1, 2. With the policy's λ at
    0, the raw advantages are the one-step errors 1 + 0.5·1 − 0.5, 0 − 0.5 − 1, 2 + 1 = 1, −1.5, 3, which are
    whitened."""
    ppo = make("ppo", {"gamma": 0.5}, gae_lambda=0.0)
    line = [make_turn("X", r, value=v, decision=2 * d, prompt=str(d))
            for d, (r, v) in enumerate([(1.0, 0.5), (0.0, 1.0), (2.0, -1.0)])]  # fmt: skip
    ppo.credit([make_episode(line)], given)
    assert [given.target(t) for t in line] == [1.5, 1.0, 2.0]
    raw = [1.0, -1.5, 3.0]
    mean, deviation = sum(raw) / 3, math.sqrt(sum((a - sum(raw) / 3) ** 2 for a in raw) / 3)
    assert [given.advantage(t) for t in line] == pytest.approx([(a - mean) / deviation for a in raw], rel=1e-5)


def test_ppo_chains_one_roles_turns_only(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """O's value and loss come between X's turns in time, but are not part of X's advantage."""
    ppo = make("ppo", gae_lambda=1.0)
    x0, o, x1 = (
        make_turn("X", 0.0, value=0.25),
        make_turn("O", -1.0, value=50.0, decision=1, prompt="q"),
        make_turn("X", 1.0, value=0.5, decision=2, prompt="r"),
    )
    ppo.credit([make_episode([x0, o, x1])], given)
    assert (given.target(x0), given.target(x1), given.target(o)) == (1.0, 1.0, -1.0)  # λ 1: the Monte-Carlo return


def test_ppo_refuses_a_line_with_a_value_missing(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """A missing value is not read as 0."""
    line = [make_turn("X", 0.0, value=0.5), make_turn("X", 1.0, decision=2, prompt="q")]
    with pytest.raises(GuardError, match="no critic value"):
        make("ppo").credit([make_episode(line)], given)


def test_ppo_leaves_lines_without_a_critic_alone(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """A frozen policy in a seat has no critic: its turns get no advantage and are not part of the whitening."""
    mine, other = make_turn("X", 1.0, value=0.0), make_turn("X", -1.0, value=0.0, replica=1)
    frozen = make_turn("X", 1000.0, replica=2)
    frozen.policy = "player@start"
    make("ppo").credit([make_episode([t]) for t in (mine, other, frozen)], given)
    assert [given.advantage(mine), given.advantage(other)] == pytest.approx([1.0, -1.0], rel=1e-5)
    assert (given.advantage(frozen), given.target(frozen)) == (None, None)
