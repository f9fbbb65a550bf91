"""The arithmetic of credit, compared with numbers computed by hand."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from interplay.algorithms import credit
from interplay.config import RewardSection
from interplay.errors import GuardError
from interplay.types import Credit, Episode, Rewards, Turn

PLAIN = RewardSection()


def test_mix_weighs_levels_and_components_and_leaves_out_what_was_never_scored() -> None:
    """process 0.5 × format −1, agent 2 × (win weighs 3) × 1, team 0.25 × goal 4: −0.5 + 6 + 1 = 6.5."""
    weights = RewardSection(process=0.5, agent=2.0, team=0.25, weights={"win": 3.0})
    rewards = (
        Rewards.process("format", {"X": -1.0, "O": -7.0})
        + Rewards.agent("win", {"X": 1.0, "O": -1.0})
        + Rewards.team("goal", 4.0)
        + Rewards.agent("judge", {"X": None})
    )
    assert credit.mix(rewards, "X", weights) == 6.5
    assert credit.mix(rewards, "O", weights) == -3.5 - 6 + 1
    assert credit.mix(Rewards.agent("judge", {"X": None}), "X", weights) == 0.0


def test_returns_discount_from_one_turn_of_a_role_to_its_next(make_turn: Callable[..., Turn]) -> None:
    """Rewards 1, 0, 4 with γ 0.5: G = 1 + 0.5·2, 0 + 0.5·4, 4."""
    turns = [make_turn("X", r, decision=d) for d, r in enumerate([1.0, 0.0, 4.0])]
    assert credit.returns(turns, RewardSection(gamma=0.5)) == [2.0, 2.0, 4.0]
    assert credit.returns(turns, PLAIN) == [5.0, 4.0, 4.0]
    assert credit.returns(turns, RewardSection(gamma=0.0)) == [1.0, 0.0, 4.0]
    assert credit.returns([], PLAIN) == []


def test_a_candidates_return_is_its_own_outlook(make_turn: Callable[..., Turn]) -> None:
    """What the kept line earned later (turn.rewards) does not count."""
    turn = make_turn("X", reward=100.0, outlook=0.25)
    assert credit.candidate_return(turn, RewardSection(agent=2.0)) == 0.5


def test_a_candidate_that_was_never_scored_has_no_return(make_turn: Callable[..., Turn]) -> None:
    """A missing return is refused and not read as zero. An empty return is a real zero."""
    with pytest.raises(GuardError, match="never scored"):
        credit.candidate_return(make_turn("X", 1.0), PLAIN)
    assert credit.candidate_return(make_turn("X", outlook=Rewards()), PLAIN) == 0.0


def test_lines_are_each_roles_own_model_turns(
    make_turn: Callable[..., Turn], make_episode: Callable[..., Episode]
) -> None:
    """For each episode and role, in the order of play, without bots, rejected candidates and playouts."""
    bot = make_turn("O", decision=1)
    bot.samples = ()
    first, third = make_turn("X", decision=0), make_turn("X", decision=2)
    others = [make_turn("X", candidate=1, kept=False), make_turn("X", decision=3, playout=0)]
    other = [make_turn("O", replica=1)]
    found = credit.lines([make_episode([first, bot, *others, third]), make_episode(other)])
    assert found == [[first, third], other]


def test_groups_share_their_keys(make_turn: Callable[..., Turn]) -> None:
    a, b, c = make_turn("X"), make_turn("X", replica=1), make_turn("O")
    assert credit.groups([a, b, c], ("task", "role")) == [[a, b], [c]]
    assert credit.groups([a, b, c], ("episode", "role")) == [[a], [b], [c]]


@pytest.mark.parametrize(
    ("grouping", "changes", "match"),
    [
        (("episode", "decision", "role"), {"prompt": "other"}, "different prompts"),
        (("task", "decision", "role"), {"replica": 1, "prompt": "other"}, "different prompts"),
        (("prompt",), {"task": "u"}, "mixes tasks or roles"),
        (("prompt",), {"role": "O"}, "mixes tasks or roles"),
        (("role",), {"task": "u"}, "mixes tasks or roles"),
        (("task",), {"role": "O"}, "mixes tasks or roles"),
        ((), {"task": "u"}, "mixes tasks or roles"),
    ],
)
def test_a_grouping_that_breaks_its_promise_is_refused(
    make_turn: Callable[..., Turn], grouping: tuple[str, ...], changes: dict[str, object], match: str
) -> None:
    """Promise 3: with decision or prompt in the grouping, a group has one prompt; every group has one task and role."""
    with pytest.raises(GuardError, match=match):
        credit.groups([make_turn(), make_turn(**changes)], grouping)


def test_a_coarse_grouping_may_hold_different_prompts(make_turn: Callable[..., Turn]) -> None:
    """Whole episodes of one task and role differ in what was seen on the way."""
    assert len(credit.groups([make_turn(), make_turn(replica=1, prompt="other")], ("task", "role"))) == 1


def test_centred_values() -> None:
    """[3, 1, 2]: mean 2, population deviation √(2/3)."""
    assert credit.centred([3.0, 1.0, 2.0], scale=False) == [1.0, -1.0, 0.0]
    deviation = (2 / 3) ** 0.5
    assert credit.centred([3.0, 1.0, 2.0], scale=True) == pytest.approx([1 / deviation, -1 / deviation, 0], abs=1e-5)
    assert credit.centred([3.0, 1.0], scale=True, epsilon=1.0) == [0.5, -0.5]


@pytest.mark.parametrize("scale", [True, False])
def test_ties_become_exact_zeros(scale: bool) -> None:
    """Rounding must not turn a tie into a gradient: 0.1 + 0.2 counts as 0.3, and there is no division by a tiny
    deviation."""
    assert credit.centred([0.1 + 0.2, 0.3, 0.3], scale) == [0.0, 0.0, 0.0]
    assert credit.centred([sum([1 / 6] * 6), 1.0], scale) == [0.0, 0.0]
    assert credit.centred([5.0], scale) == [0.0]


def test_gae_by_hand() -> None:
    """r = 1, 0, 2; V = 0.5, 1, −1; γ = λ = 0.5. δ = 1, −1.5, 3; A₂ = 3, A₁ = −1.5 + 0.25·3, A₀ = 1 + 0.25·A₁."""
    assert credit.gae([1, 0, 2], [0.5, 1, -1], bootstrap=0.0, gamma=0.5, lam=0.5) == [0.8125, -0.75, 3.0]


def test_gae_bootstraps_a_truncated_end() -> None:
    """The same with V = 4 after the last turn: δ₂ = 2 + 0.5·4 + 1 = 5."""
    assert credit.gae([1, 0, 2], [0.5, 1, -1], bootstrap=4.0, gamma=0.5, lam=0.5) == [0.9375, -0.25, 5.0]


def test_gae_with_lambda_one_is_the_return_minus_the_value(make_turn: Callable[..., Turn]) -> None:
    """And with λ = 0 it is the one-step error."""
    rng = random.Random(0)
    rewards, values = [rng.uniform(-1, 1) for _ in range(8)], [rng.uniform(-1, 1) for _ in range(8)]
    turns = [make_turn("X", r, decision=d) for d, r in enumerate(rewards)]
    found = credit.gae(rewards, values, 0.0, 0.9, lam=1.0)
    expected = [g - v for g, v in zip(credit.returns(turns, RewardSection(gamma=0.9)), values, strict=True)]
    assert found == pytest.approx(expected, abs=1e-12)
    following = [*values[1:], 0.0]
    one_step = [r + 0.9 * n - v for r, n, v in zip(rewards, following, values, strict=True)]
    assert credit.gae(rewards, values, 0.0, 0.9, lam=0.0) == pytest.approx(one_step, abs=1e-12)


def test_the_summary_counts_exact_zeros_per_role(make_turn: Callable[..., Turn], given: Credit) -> None:
    turns = [make_turn("X"), make_turn("X"), make_turn("O"), make_turn("O")]
    for turn, advantage in zip(turns, (0.0, 1.0, 0.5), strict=False):
        given.give(turn, advantage)
    assert credit.summary(turns, given) == {"credit/zero_share/O": 0.0, "credit/zero_share/X": 0.5}
