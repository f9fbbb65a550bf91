"""The advantages of all other algorithms, compared with numbers computed by hand, and what must hold for teams."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st

from interplay import algorithms
from interplay.algorithms import Algorithm, Independent, Tree, credit
from interplay.algorithms.losses import dpo_loss, ipo_loss
from interplay.algorithms.maddpg import MADDPG
from interplay.algorithms.maporl import debated, influence
from interplay.algorithms.networks import Mixer, TeamValue
from interplay.algorithms.replay import steps
from interplay.algorithms.vdn import VDN
from interplay.config import Open, RewardSection
from interplay.errors import ConfigError, GuardError
from interplay.types import Credit, Episode, Observation, Outlook, Rewards, Turn, seed_of

MakeTurn = Callable[..., Turn]
MakeEpisode = Callable[..., Episode]
NUMBERS = st.lists(st.floats(-100, 100), min_size=1, max_size=8)


def make(name: str, reward: Mapping[str, Any] | None = None, **options: Any) -> Algorithm:
    return algorithms.make(Open(name=name, **options), RewardSection(**(reward or {})), seed=0)


def solo(make_turn: MakeTurn, make_episode: MakeEpisode, returns: list[float], **options: Any) -> list[Episode]:
    """One episode with one turn of X for each return, all of the same task."""
    return [make_episode([make_turn("X", r, replica=i, **options)]) for i, r in enumerate(returns)]


def advantages(episodes: list[Episode], given: Credit) -> list[float | None]:
    return [given.advantage(t) for e in episodes for t in e.turns]


# -- groups -----------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@hypothesis.given(NUMBERS)
def test_group_baselines_have_zero_mean(values: list[float]) -> None:
    for rule in credit.RULES.values():
        assert math.fsum(rule(values)) == pytest.approx(0.0, abs=1e-6)


def test_rloo_leaves_itself_out(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """Returns 3, 0, 0: 3 − 0, 0 − 1.5, 0 − 1.5."""
    episodes = solo(make_turn, make_episode, [3.0, 0.0, 0.0])
    make("rloo").credit(episodes, given)
    assert advantages(episodes, given) == pytest.approx([3.0, -1.5, -1.5])


def test_what_the_losses_are_means_over() -> None:
    """GRPO and GSPO average over the tokens of each reply and then over replies; DAPO and CISPO over the tokens of the
    batch; Dr.GRPO uses a constant length. The clip bounds are those of the papers."""
    found = {n: make(n).settings for n in ("grpo", "gspo", "dapo", "cispo", "dr_grpo", "ppo")}
    assert {n: s.average for n, s in found.items()} == {
        "grpo": "turn", "gspo": "turn", "dapo": "token", "cispo": "token", "dr_grpo": 64, "ppo": "token",
    }  # fmt: skip
    assert {n: (s.clip_low, s.clip_high) for n, s in found.items()} == {
        "grpo": (0.2, 0.2), "gspo": (3e-4, 4e-4), "dapo": (0.2, 0.28), "cispo": (1.0, 5.0), "dr_grpo": (0.2, 0.2),
        "ppo": (0.2, 0.2),
    }  # fmt: skip


def test_dr_grpo_divides_by_nothing_of_the_replys_own() -> None:
    algorithm = make("dr_grpo", average=32)
    assert (algorithm.settings.average, algorithm.settings.scale) == (32, False)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="average is 0"):
        make("dr_grpo", average=0)


def test_reinforce_pp_whitens_the_whole_batch_of_a_policy(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """Returns 3 and 1 of different tasks: mean 2, deviation 1. Returns of another policy are not included."""
    turns = [make_turn("X", 3.0, task="a"), make_turn("X", 1.0, task="b"), make_turn("O", 50.0, task="c")]
    turns[2].policy = "rival"
    make("reinforce_pp").credit([make_episode([t]) for t in turns], given)
    assert [given.advantage(t) for t in turns] == pytest.approx([1.0, -1.0, 0.0], rel=1e-5)


def test_reinforce_pp_whitens_each_seat_of_a_policy(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """One policy plays both seats of a game in which X earns 10 more: the seat alone must not give an advantage."""
    earned = [("a", "X", 13.0), ("a", "O", 1.0), ("b", "X", 11.0), ("b", "O", 3.0)]
    turns = [make_turn(role, value, task=task, prompt=role) for task, role, value in earned]
    make("reinforce_pp").credit([make_episode(turns[:2]), make_episode(turns[2:])], given)
    assert [given.advantage(t) for t in turns] == pytest.approx([1.0, -1.0, -1.0, 1.0], rel=1e-5)


def test_reinforce_pp_baseline_takes_the_groups_mean_and_the_batchs_deviation(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """Task a: 3, 1 → ±1. Task b: 0.2, 0 → ±0.1. Deviation of the batch √((1 + 0.01)/2)."""
    found = [("a", 3.0), ("a", 1.0), ("b", 0.2), ("b", 0.0)]
    turns = [make_turn("X", r, task=t, replica=i % 2) for i, (t, r) in enumerate(found)]
    make("reinforce_pp", group=2).credit([make_episode([t]) for t in turns], given)
    deviation = math.sqrt((1 + 0.01) / 2)
    assert [given.advantage(t) for t in turns] == pytest.approx([x / deviation for x in (1, -1, 0.1, -0.1)], rel=1e-4)


def test_dapo_drops_groups_that_tie(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """A dropped turn has no advantage, which is not 0: it does not count in the mean over tokens either."""
    tied = solo(make_turn, make_episode, [1.0, 1.0], task="a")
    apart = solo(make_turn, make_episode, [1.0, 0.0], task="b")
    metrics = make("dapo").credit([*tied, *apart], given)
    assert advantages(tied, given) == [None, None]
    assert advantages(apart, given) == pytest.approx([1.0, -1.0], rel=1e-5)
    assert metrics["credit/groups_dropped"] == 1
    assert metrics["credit/zero_share/X"] == 0.5, "those that tied, though they are not trained"


def test_whitening_ties_gives_exact_zeros(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """Rounding in the mean must not become an advantage, because the optimiser would then take a step."""
    for value in (0.1, 0.3, 1 / 3, -0.7):
        episodes = [make_episode([make_turn("X", value, task=str(i), tokens=1 + i % 3)]) for i in range(7)]
        make("reinforce_pp").credit(episodes, given)
        assert set(advantages(episodes, given)) == {0.0}


@pytest.mark.parametrize("name", ["grpo", "dapo", "rae", "ppo", "qmix", "maddpg", "at_grpo", "online_dpo", "shapley"])
def test_a_batch_in_which_only_bots_played_has_nothing_to_credit(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit, name: str
) -> None:
    """As in a matchup of bots: there is no error and no advantage, and the algorithm's own networks still work."""
    turn = make_turn("X", 1.0)
    turn.samples, turn.policy = (), "bot:random"
    algorithm = make(name)
    episodes = [make_episode([turn])]
    algorithm.credit(episodes, given)
    algorithm.update(episodes)
    assert advantages(episodes, given) == [None]


def test_dr_mas_counts_turns_of_one_agent(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """X has an episode worth 3 with three turns, and one worth −1 with one turn: mean (3·3 − 1)/4 = 2, variance 3. O is
    computed separately."""
    long = [make_turn("X", 3.0 if d == 2 else 0.0, decision=d, prompt=str(d)) for d in range(3)]
    short = [make_turn("X", -1.0, replica=1), make_turn("O", 100.0, replica=1, decision=1, prompt="q")]
    make("dr_mas").credit([make_episode(long), make_episode(short)], given)
    assert [given.advantage(t) for t in [*long, *short]] == pytest.approx(
        [1 / math.sqrt(3)] * 3 + [-math.sqrt(3), 0.0], rel=1e-5
    )


# -- shaping ----------------------------------------------------------------------------------------------------------


def test_overlong_grows_evenly_over_the_margin() -> None:
    """Length 10, margin 4: no penalty up to 6, half at 8, the whole penalty from 10 on."""
    assert [credit.overlong(n, 10, 4) for n in (1, 6, 7, 8, 10, 50)] == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]


def test_shaping_adds_named_process_rewards_once(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """Log-probs −1, −1 against a reference of −2, −1.5: k1 is 1.5, times 0.1. Outlook and rewards both get the
    penalty."""
    turn = make_turn("X", 1.0, tokens=2, outlook=2.0)
    given.reference[turn.last.id] = (-2.0, -1.5)
    algorithm = make("grpo", kl_reward=0.1, overlong={"length": 4, "margin": 4})
    assert algorithm.reference
    metrics = algorithm.shape([make_episode([turn])], given)
    assert metrics == pytest.approx({"reward/kl/X": -0.15, "reward/overlong/X": -0.5})
    assert credit.mix(turn.rewards, "X", RewardSection()) == pytest.approx(1 - 0.15 - 0.5)
    assert credit.mix(turn.outlook.rewards, "X", RewardSection(process=0.0)) == 2.0  # type: ignore[union-attr]
    assert make("grpo").shape([make_episode([turn])], given) == {}


def test_token_gae_skips_what_others_said(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """λ is 1; γ is 0.5 between turns and 1 inside a turn. A turn has 2 tokens; the next has 2 tokens and earns 4. The
    return is 4 before each of the last two tokens and 2 before each of the first two. The targets are these returns."""
    ppo = make("ppo", {"gamma": 0.5}, gae_lambda=1.0, level="token")
    assert "tokens" in ppo.needs
    line = [make_turn("X", 0.0, tokens=2, value=0.5), make_turn("X", 4.0, tokens=2, value=1.0, decision=2, prompt="q")]
    given.values |= {line[0].id: (0.5, 1.5), line[1].id: (1.0, 3.0)}
    ppo.credit([make_episode(line)], given)
    assert [given.targets[t.id] for t in line] == [(2.0, 2.0), (4.0, 4.0)]
    flat = [a for t in line for a in given.advantages[t.id]]  # type: ignore[union-attr]
    raw = [1.5, 0.5, 3.0, 1.0]
    mean, deviation = 1.5, math.sqrt(sum((a - 1.5) ** 2 for a in raw) / 4)
    assert flat == pytest.approx([(a - mean) / deviation for a in raw], rel=1e-5, abs=1e-6)
    assert given.advantage(line[1]) == pytest.approx(max(flat[2:], key=abs))


@settings(max_examples=50)
@hypothesis.given(NUMBERS, st.data(), st.floats(0, 1))
def test_gae_with_lambda_one_is_monte_carlo_minus_value(rewards: list[float], data: Any, gamma: float) -> None:
    n = len(rewards)
    values = data.draw(st.lists(st.floats(-100, 100), min_size=n, max_size=n))
    returns = [sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(n)]
    found = credit.gae(rewards, values, 0.0, gamma, 1.0)
    assert found == pytest.approx([g - v for g, v in zip(returns, values, strict=True)], abs=1e-6)


def test_mappo_asks_for_central_values() -> None:
    assert make("mappo").needs == {"values", "central"} and make("mappo").critic is not None


# -- trees ------------------------------------------------------------------------------------------------------------


def group_of(make_turn: MakeTurn, outlooks: list[float], role: str = "X", **options: Any) -> list[Turn]:
    return [make_turn(role, outlook=v, candidate=k, kept=k == 0, **options) for k, v in enumerate(outlooks)]


def test_c3_compares_with_its_siblings_and_keeps_the_first(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    turns = group_of(make_turn, [1.0, 0.0, 0.0])
    c3 = make("c3", candidates=3)
    c3.credit([make_episode(turns)], given)
    assert [given.advantage(t) for t in turns] == pytest.approx([1.0, -0.5, -0.5])
    assert c3.plan == Tree(3, "playout", 2, "first", compares=True)


def test_coma_trains_what_was_played_against_what_was_not(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """Q of the played reply is 2, of the others 1 and 0: 2 − 0.5. The others are only its baseline."""
    turns = group_of(make_turn, [2.0, 1.0, 0.0])
    coma = make("coma", candidates=3)
    coma.credit([make_episode(turns)], given)
    assert [given.advantage(t) for t in turns] == [1.5, None, None]
    assert coma.critic is not None and coma.plan == Tree(3, "critic", 1, "first", compares=True)


def test_magrpo_plans_joint_actions() -> None:
    plan = make("magrpo", joint="crossed").plan
    assert plan == Tree(4, "playout", 1, "uniform", joint="crossed", compares=True)


def valued(make_turn: MakeTurn, role: str, worth: Mapping[str, float]) -> Turn:
    """A turn with the team reward that each coalition earned."""
    turn = make_turn(role, prompt=role)
    coalitions = {credit.coalition(k.split(",") if k else []): Rewards.team("goal", v) for k, v in worth.items()}
    turn.outlook = Outlook(coalitions["O,X"], coalitions)
    return turn


def test_difference_and_shapley_where_either_is_enough(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """v = 1 unless nobody acts. Each role's difference is 0, although together they earned 1; Shapley gives ½ each."""
    worth = {"O,X": 1.0, "X": 1.0, "O": 1.0, "": 0.0}
    turns = [valued(make_turn, role, worth) for role in ("X", "O")]
    make("difference").credit([make_episode(turns)], given)
    assert [given.advantage(t) for t in turns] == [0.0, 0.0]
    make("shapley").credit([make_episode(turns)], given)
    assert [given.advantage(t) for t in turns] == [0.5, 0.5]
    assert make("shapley", default="pass").plan == Tree(
        1, "playout", 1, "first", joint="coalitions", default="pass"
    )  # fmt: skip


def test_shapley_by_hand() -> None:
    """A glove game: X holds a left glove, O and P right ones; a pair is worth 1. X gets 4/6, the others 1/6 each."""
    worth = {
        credit.coalition(s): float("X" in s and len(s) > 1) for n in range(4) for s in itertools.combinations("XOP", n)
    }
    assert credit.shapley(worth, list("XOP"), 0) == pytest.approx({"X": 4 / 6, "O": 1 / 6, "P": 1 / 6})


@settings(max_examples=25)
@hypothesis.given(st.integers(1, 6), st.randoms(use_true_random=False))
def test_shapley_sums_to_what_the_team_added(n: int, rng: Any) -> None:
    """With all orders or with sampled orders, the shares add up to v(N) − v(∅)."""
    roles = [f"p{i}" for i in range(n)]
    worth = {credit.coalition(s): rng.uniform(-9, 9) for k in range(n + 1) for s in itertools.combinations(roles, k)}
    shares = credit.shapley(worth, roles, seed=n)
    assert math.fsum(shares.values()) == pytest.approx(worth[credit.coalition(roles)] - worth[""], abs=1e-9)


# -- preferences ------------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@hypothesis.given(st.floats(-1, 1), st.floats(-1, 1))
def test_an_order_swapped_judge_gives_the_negated_preference(one: float, other: float) -> None:
    """Also for a judge that prefers whatever comes first: if its verdict depends on the order, it counts as no
    verdict."""
    biased = lambda a, b: a - b + 0.5  # noqa: E731
    assert credit.preference(biased, one, other) == -credit.preference(biased, other, one)
    if abs(one - other) < 0.5:
        assert credit.preference(biased, one, other) == 0.0
    assert credit.preference(lambda a, b: None, one, other) == 0.0


def test_a_tournament_is_antisymmetric() -> None:
    table = credit.tournament([2.0, 1.0, 1.0], lambda a, b: a - b)
    assert table == [[0, 1, 1], [-1, 0, 0], [-1, 0, 0]]


@pytest.mark.parametrize("kind", ["dpo", "ipo"])
def test_online_dpos_advantages_are_the_gradient_of_its_loss(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit, kind: str
) -> None:
    """The gradient of the pair loss by a reply's log-prob is minus its advantage. The pairs are (a, b), (a, c); b and c
    tie."""
    turns = group_of(make_turn, [1.0, 0.0, 0.0])
    for turn, logp, ref in zip(turns, (-1.0, -0.5, -2.0), (-1.5, -1.0, -1.0), strict=True):
        turn.samples = (replace(turn.last, logprobs=(logp,)),)
        given.reference[turn.id] = (ref,)
    algorithm = make("online_dpo", beta=0.7, kind=kind)
    assert algorithm.reference and algorithm.credit([make_episode(turns)], given)["credit/pairs"] == 2
    logp = torch.tensor([t.last.logprobs[0] for t in turns], requires_grad=True)
    drift = logp - torch.tensor([given.reference[t.id][0] for t in turns])
    margin = torch.stack([drift[0] - drift[1], drift[0] - drift[2]])
    (dpo_loss if kind == "dpo" else ipo_loss)(margin, 0.7).backward()
    assert [-g for g in logp.grad.tolist()] == pytest.approx([given.advantage(t) for t in turns], rel=1e-5)  # type: ignore[union-attr]


def test_wins_by_hand(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """Returns 9, 1, 1, 0: the first wins all three, the middle two win one and lose one, the last loses all."""
    assert credit.wins([9.0, 1.0, 1.0, 0.0]) == [1.0, 0.0, 0.0, -1.0]
    assert credit.wins([5.0]) == [0.0]
    turns = group_of(make_turn, [9.0, 1.0, 1.0, 0.0])
    algorithm = make("online_dpo", kind="wins")
    assert not algorithm.reference
    algorithm.credit([make_episode(turns)], given)
    assert [given.advantage(t) for t in turns] == [1.0, 0.0, 0.0, -1.0]


def test_online_dpo_needs_a_reference(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    with pytest.raises(GuardError, match="reference log-probs"):
        make("online_dpo").credit([make_episode(group_of(make_turn, [1.0, 0.0]))], given)


# -- MAPoRL -----------------------------------------------------------------------------------------------------------


def debate(make_turn: MakeTurn, right: list[tuple[bool, bool]], replica: int = 0, penalty: float = 0.0) -> list[Turn]:
    """Rounds of answers of X and O, with 1 for a right answer; `penalty` is a format penalty on X's first turn."""
    turns = []
    for t, round_ in enumerate(right):
        for role, good in zip(("X", "O"), round_, strict=True):
            rewards = Rewards.agent("right", {role: float(good)})
            if penalty and role == "X" and t == 0:
                rewards += Rewards.process("format", {"X": penalty})
            turns.append(make_turn(role, rewards=rewards, decision=t, replica=replica, prompt=f"{role}{t}"))
    return turns


def test_maporl_by_hand(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """γ 0.5; X is right and then right, O wrong and then right. R(0, X) = (1 + 0.5·1)/1.5 = 1, R(0, O) = (0 + 0.5)/1.5
    = ⅓, R(1, ·) = 1. Compared with an episode in which nobody is ever right, each advantage is half of this."""
    turns = debate(make_turn, [(True, False), (True, True)])
    nothing = debate(make_turn, [(False, False), (False, False)], replica=1)
    make("maporl", discount=0.5).credit([make_episode(turns), make_episode(nothing)], given)
    assert [given.advantage(t) for t in turns] == pytest.approx([0.5, 1 / 6, 0.5, 0.5])


def test_a_format_penalty_is_its_own_agents_alone(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """Teammates' advantages are the same with and without it. X's own first turn loses half (a group of two)."""
    found = []
    for penalty in (0.0, -5.0):
        turns = debate(make_turn, [(True, False), (True, True)], penalty=penalty)
        nothing = debate(make_turn, [(False, False), (False, False)], replica=1)
        make("maporl", persuading=1.0, persuaded=1.0).credit([make_episode(turns), make_episode(nothing)], given)
        found.append([given.advantage(t) for t in turns])
    assert found[0][1:] == found[1][1:]
    assert found[1][0] == pytest.approx(found[0][0] - 2.5)  # type: ignore[operator]


ALL = list(itertools.product((0, 1), repeat=3))


@pytest.mark.parametrize("right", list(itertools.product(ALL, repeat=2)))
def test_helping_is_never_punished_and_misleading_never_paid(right: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Tests all 64 ways in which three agents can change their answers once."""
    rounds = [{r: (f"{t}{r}", bool(v)) for r, v in zip("abc", values, strict=True)} for t, values in enumerate(right)]
    found = influence(rounds)
    for role, was, now in zip("abc", *right, strict=True):
        said = found.get(f"0{role}", (0.0, 0.0))[1]
        assert said >= 0 if was else said <= 0
        changed = found.get(f"1{role}", (0.0, 0.0))[0]
        assert changed == 0 or (changed > 0) == (now > was)


def test_influence_by_hand() -> None:
    """a is right and stays right; b was wrong and is convinced; c was wrong and stays wrong. a helped one of two: ½."""
    rounds = [
        {"a": ("a0", True), "b": ("b0", False), "c": ("c0", False)},
        {"a": ("a1", True), "b": ("b1", True), "c": ("c1", False)},
    ]
    assert influence(rounds) == {"a0": (0.0, 0.5), "b0": (0.0, 0.0), "c0": (0.0, 0.0), "b1": (1.0, 0.0)}
    assert debated(rounds) == pytest.approx(
        {
            "right/0": 1 / 3,
            "right/1": 2 / 3,
            "improved": 1 / 3,
            "declined": 0.0,
            "unchanged": 2 / 3,
            "rescued": 1 / 3,
            "misled": 0.0,
            "majority_right": 1.0,
            "any_right": 1.0,
        }
    )


# -- fitted models ----------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@hypothesis.given(st.integers(0, 10_000))
def test_qmix_never_falls_with_a_utility(seed: int) -> None:
    """∂Q_tot/∂Q_i ≥ 0 at any weights, states and utilities."""
    torch.manual_seed(seed)
    mixer = Mixer(3)
    utilities = (torch.randn(16, 3) * 10).requires_grad_()
    mixer(utilities, torch.randn(16, 32) * 3).sum().backward()
    assert utilities.grad is not None and (utilities.grad >= 0).all()


def test_vdn_is_the_sum() -> None:
    net = TeamValue(["a", "b"], mixed=False)
    assert net.total(torch.tensor([[1.0, 2.5]]), []).tolist() == [3.5]


def pair(make_turn: MakeTurn, payoff: float, words: tuple[str, str], replica: int, legal: bool = True) -> list[Turn]:
    turns = []
    for role, word in zip(("X", "O"), words, strict=True):
        turn = make_turn(role, rewards=Rewards.team("goal", payoff), replica=replica, prompt=f"{role} moves")
        turn.text, turn.state = word, "start"
        turn.observation = Observation((), legal=("l", "r") if legal else ())
        turns.append(turn)
    return turns


def sweep(make_turn: MakeTurn, make_episode: MakeEpisode, legal: bool = True) -> list[Episode]:
    """All joint moves of an additive game: r is worth 1 more than l for X, and 2 more for O."""
    joints = itertools.product(("l", "r"), repeat=2)
    worth = [(x == "r") + 2.0 * (o == "r") for x, o in itertools.product(("l", "r"), repeat=2)]
    return [
        make_episode(pair(make_turn, w, joint, i, legal))
        for i, (joint, w) in enumerate(zip(joints, worth, strict=True))
    ]


@pytest.mark.parametrize("name", ["vdn", "qmix", "maddpg"])
@pytest.mark.parametrize("legal", [True, False])
def test_fitted_models_give_each_agent_its_own_share(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit, name: str, legal: bool
) -> None:
    """After fitting, r instead of l is worth 1 for X and 2 for O, whatever the other did. Before fitting, all values
    are 0.

    With legal actions the baseline is their mean, so A = ±½ and ±1. With text it is the mean of the three other replies
    to the same prompt (l once or twice), so A = ±⅔ and ±4/3."""
    algorithm = make(name, updates=60, batch=16, warmup=0)
    episodes = sweep(make_turn, make_episode, legal)
    metrics = algorithm.credit(episodes, given)
    assert metrics["credit/legal"] == float(legal) and advantages(episodes, given) == [0.0] * 8
    for _ in range(2):
        algorithm.update(episodes)
    algorithm.credit(episodes, given)
    size = 0.5 if legal else 2 / 3
    for turn in (t for e in episodes for t in e.turns):
        share = (1.0 if turn.role == "X" else 2.0) * (size if turn.text == "r" else -size)
        assert given.advantage(turn) == pytest.approx(share, abs=0.2)


@pytest.mark.parametrize("name", ["vdn", "qmix", "maddpg"])
def test_fitted_models_survive_a_checkpoint(make_turn: MakeTurn, make_episode: MakeEpisode, name: str) -> None:
    """Networks, targets, optimiser and replay continue bit for bit after loading."""
    one, other = make(name, updates=3, batch=4), make(name, updates=3, batch=4)
    episodes = sweep(make_turn, make_episode)
    one.update(episodes)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for algorithm in (one, other):
        algorithm.update(episodes)
    assert one.state_dict() == other.state_dict()


@pytest.mark.parametrize("name", ["vdn", "maddpg"])
def test_no_policy_moves_before_the_networks_have_seen_something(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit, name: str
) -> None:
    """During the warm-up turns have no advantage, which is not the same as an advantage of 0. Afterwards they have
    one."""
    algorithm = make(name, warmup=1, updates=1)
    episodes = sweep(make_turn, make_episode)
    algorithm.credit(episodes, given)
    assert advantages(episodes, given) == [None] * 8
    algorithm.update(episodes)
    algorithm.credit(episodes, given)
    assert None not in advantages(episodes, given)


def test_q_learning_looks_ahead_by_the_best_legal_move(make_turn: MakeTurn, make_episode: MakeEpisode) -> None:
    """Two decisions, with a reward only in the second: the first is worth the best of the second, not the mean."""
    episodes = []
    for i, (word, payoff) in enumerate([("l", 0.0), ("r", 1.0)]):
        turns = [make_turn("X", replica=i, prompt="h0"), make_turn("X", payoff, replica=i, decision=1, prompt="h1")]
        for turn, text, legal in zip(turns, ("go", word), (("go",), ("l", "r")), strict=True):
            turn.text, turn.observation = text, Observation((), legal=legal)
        episodes.append(make_episode(turns, seats={"X": "player"}))
    vdn = make("vdn", updates=40, batch=8, target_every=1)
    assert isinstance(vdn, VDN)
    for _ in range(4):
        vdn.update(episodes)
    (first, _) = steps(episodes[0], RewardSection())
    assert vdn.value.total(vdn.value.table([first]), [first]).item() == pytest.approx(1.0, abs=0.15)


def test_steps_are_joint_decisions_in_order(make_turn: MakeTurn, make_episode: MakeEpisode) -> None:
    """γ 0.5: X earns 1 and then 2, O nothing. The team earns the mean over roles, ½ and 1, so 1 from the start on."""
    turns = [make_turn("X", 1.0), make_turn("O", decision=0, prompt="q"), make_turn("X", 2.0, decision=1, prompt="r")]
    found = steps(make_episode(turns), RewardSection(gamma=0.5))
    assert [[m.role for m in s.moves] for s in found] == [["X", "O"], ["X"]]
    assert [s.rewards for s in found] == [{"X": 1.0, "O": 0.0}, {"X": 2.0, "O": 0.0}]
    assert [(s.team, s.ahead) for s in found] == [(0.5, 1.0), (1.0, 1.0)]


def test_a_team_reward_counts_once_when_it_came(make_turn: MakeTurn, make_episode: MakeEpisode) -> None:
    """X moves, then O; then X is finished and O moves again. The final 4 is stored on X's first turn and on O's second,
    and belongs to O's second. The earlier 1 is stored on X's first turn and O's first. A penalty of O is not the
    team's."""
    one, four = Rewards.team("step", 1.0), Rewards.team("goal", 4.0)
    turns = [
        make_turn("X", rewards=one + four),
        make_turn("O", rewards=one + Rewards.process("format", {"O": -9.0}), decision=1, prompt="q"),
        make_turn("O", rewards=four, decision=2, prompt="r"),
    ]
    found = steps(make_episode(turns), RewardSection(gamma=0.5, team=2.0))
    assert [s.team for s in found] == [0.0, 2.0, 8.0]
    assert [s.ahead for s in found] == [3.0, 6.0, 8.0]
    assert [[m.role for m in s.idle] for s in found] == [[], ["X"], ["X"]], "X waits, and still knows what it knew"
    assert found[1].rewards == {"X": 0.0, "O": 2.0 - 9.0}, "each role's own critic is told all of its own"


# -- MADDPG's own actor --------------------------------------------------------------------------------------------


def test_the_gumbel_actor_weighs_every_legal_reply(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """The gradient of the straight-through sample by the log-prob of reply a is s_a (Q_a − Σ s·Q), where s is the
    softmax of log-probs and noise. It is multiplied by the number of replies, because each counts as that part of a
    sample."""
    maddpg = make("maddpg", actor="gumbel", warmup=0, updates=30, batch=16)
    assert isinstance(maddpg, MADDPG) and maddpg.needs == {"legal"}
    episodes = sweep(make_turn, make_episode)
    for _ in range(2):
        maddpg.update(episodes)
    turn = episodes[1].turns[1]
    turn.samples = (replace(turn.last, mask=((5, 0), (6, 0))),)
    given.legal[turn.id] = ((-0.9, -0.1), (-0.2, -0.3))
    maddpg.credit(episodes, given)
    rng = random.Random(seed_of("gumbel", 0, maddpg.steps, turn.id))
    noisy = [math.exp(lp - math.log(rng.expovariate(1.0))) for lp in (-1.0, -0.5)]
    soft = [x / sum(noisy) for x in noisy]
    (values,) = maddpg.action_values("O", [(turn, {"X": "l", "O": "r"}, ("l", "r"))])
    mean = sum(s * q for s, q in zip(soft, values, strict=True))
    expected = [2 * s * (q - mean) for s, q in zip(soft, values, strict=True)]
    replies = maddpg.weighed(turn.last, given)
    assert [w.advantage for w in replies] == pytest.approx(expected, rel=1e-4)
    assert [w.share for w in replies] == [0.5, 0.5], "together they count as one sample"
    assert expected[1] > 0 > expected[0], "r is worth 2 more than l"
    assert given.advantage(turn) == max((w.advantage for w in replies), key=abs)  # type: ignore[arg-type]
    assert [(w.sample.action, w.sample.logprobs) for w in replies] == [((5, 0), (-0.9, -0.1)), ((6, 0), (-0.2, -0.3))]
    assert all(len(w.sample.versions) == len(w.sample.action) for w in replies)
    assert len({turn.id, *(w.sample.id for w in replies)}) == 3
    drawn = replace(turn.last, action=(6, 0), logprobs=(-0.21, -0.31))
    logprobs = [w.sample.logprobs for w in maddpg.weighed(drawn, given)]
    assert logprobs == [(-0.9, -0.1), (-0.21, -0.31)], "what was drawn keeps what it was"
    other = episodes[0].turns[0]
    free = maddpg.weighed(other.last, given)
    assert free == [(other.last, given.advantage(other), 1.0)], "free text goes by the score function"


def test_the_gumbel_actor_refuses_kl_and_the_average_per_turn() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.kl is above 0.*no reference log-probs.*kl_reward"):
        make("maddpg", actor="gumbel", kl=0.1)
    assert make("maddpg", actor="gumbel", kl_reward=0.1).reference
    with pytest.raises(
        ConfigError, match=r"algorithm.average = 'turn' divides the loss of each legal reply by its own length"
    ):
        make("maddpg", actor="gumbel", average="turn")


def test_the_gumbel_actor_waits_for_its_critic(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    episodes = sweep(make_turn, make_episode)
    turn = episodes[0].turns[0]
    turn.samples = (replace(turn.last, mask=((5,), (6,))),)
    given.legal[turn.id] = ((-1.0,), (-1.0,))
    maddpg = make("maddpg", actor="gumbel", warmup=1)
    maddpg.credit(episodes, given)
    assert given.advantage(turn) is None and maddpg.weighed(turn.last, given) == [(turn.last, None, 1.0)]


# -- what must hold for teams ------------------------------------------------------------------------------------------

FLAT_NAMES = ["grpo", "rloo", "dr_grpo", "dr_mas", "dapo", "reinforce_pp", "rae", "ppo", "mappo", "maporl"]
FLAT_NAMES += ["vdn", "qmix", "maddpg"]
TREE_NAMES = ["at_grpo", "magrpo", "c3", "coma", "online_dpo"]


@pytest.mark.parametrize("name", FLAT_NAMES)
@pytest.mark.parametrize("level", ["format", "none"])
def test_one_agents_format_penalty_leaves_its_teammates_alone(
    make_turn: MakeTurn, make_episode: MakeEpisode, name: str, level: str
) -> None:
    """X pays 5 for the form of one reply: O's advantages are exactly the same, X's are not."""
    found: list[dict[str, list[float | None]]] = []
    for penalty in (0.0, -5.0 if level == "format" else 0.0):
        episodes = sweep(make_turn, make_episode)
        given = Credit(values={t.id: (0.25,) for e in episodes for t in e.turns})
        episodes[0].turns[0].rewards += Rewards.process("format", {"X": penalty})
        fitted = {"warmup": 0, "updates": 5, "batch": 8} if name in ("vdn", "qmix", "maddpg") else {}
        algorithm = make(name, **fitted)
        algorithm.update(episodes)
        algorithm.credit(episodes, given)
        found.append({r: [given.advantage(t) for e in episodes for t in e.turns if t.role == r] for r in ("X", "O")})
    assert found[0]["O"] == found[1]["O"]
    assert (found[0]["X"] == found[1]["X"]) == (level == "none")


@pytest.mark.parametrize("name", TREE_NAMES)
def test_one_replys_format_penalty_stays_with_its_agent_in_trees(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit, name: str
) -> None:
    found = []
    for penalty in (0.0, -5.0):
        turns = []
        for role in ("X", "O"):
            for turn in group_of(make_turn, [1.0, 0.0, 0.5], role, prompt=role):
                assert turn.outlook is not None
                given.reference[turn.id] = (-1.0,)
                if role == "X" and turn.kept:
                    turn.outlook = Outlook(turn.outlook.rewards + Rewards.process("format", {"X": penalty}))
                turns.append(turn)
        make(name).credit([make_episode(turns)], given)
        found.append([[given.advantage(t) for t in turns if t.role == r] for r in ("X", "O")])
    assert found[0][1] == found[1][1] and found[0][0] != found[1][0]


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("settings_", [{}, {"persuading": 1.0, "persuaded": 1.0}, {"discount": 1.0, "persuading": 0.5}])
def test_in_the_end_helping_pays_and_misleading_costs(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit, right: bool, settings_: dict[str, float]
) -> None:
    """Two episodes differ in one thing: whether O, who had another answer, was convinced by X's first answer. If X was
    right, its first answer gets more credit for it, and if X was wrong, less. The same holds for O's own change."""
    swayed = debate(make_turn, [(right, not right), (right, right)])
    firm = debate(make_turn, [(right, not right), (right, not right)], replica=1)
    make("maporl", **settings_).credit([make_episode(swayed), make_episode(firm)], given)
    sign = 1.0 if right else -1.0
    for n in (0, 3):  # X's first answer, O's second
        assert sign * given.advantage(swayed[n]) > 0 > sign * given.advantage(firm[n])  # type: ignore[operator]


def test_answers_one_after_the_other_are_rounds_too(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """The same debate with X and O speaking in turn has the same credit: a round consists of everybody's n-th
    answer."""
    found = []
    for spread in (False, True):
        episodes = []
        for i, right in enumerate([[(True, False), (True, True)], [(False, False), (False, True)]]):
            turns = debate(make_turn, right, replica=i)
            for d, turn in enumerate(turns if spread else []):
                turn.keys = replace(turn.keys, decision=d)
            episodes.append(make_episode(turns))
        make("maporl", persuading=1.0).credit(episodes, given)
        found.append(advantages(episodes, given))
    assert found[0] == found[1]


# -- by hand ----------------------------------------------------------------------------------------------------------

TREE = {"kind": "tree", "candidates": 3}
FLAT = {"kind": "independent", "replicas": 4}
ONE_PROMPT = ["episode", "decision", "role"]


def test_a_composition_by_hand_is_the_algorithm_it_spells_out(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """RLOO and C3, composed from their parts."""
    episodes = solo(make_turn, make_episode, [3.0, 0.0, 0.0])
    rloo = make("custom", plan=FLAT, grouping=["task", "role"], credit="leave_one_out")
    rloo.credit(episodes, given)
    assert rloo.plan == Independent(4) and advantages(episodes, given) == pytest.approx([3.0, -1.5, -1.5])
    turns = group_of(make_turn, [1.0, 0.0, 0.0])
    replay = {"kind": "replay", "candidates": 3, "playouts": 2}
    c3 = make("custom", plan=replay, grouping=["episode", "decision", "role"], credit="leave_one_out", loss="cispo")
    c3.credit([make_episode(turns)], given)
    assert c3.plan == make("c3", candidates=3).plan and c3.settings.loss == "cispo"
    assert [given.advantage(t) for t in turns] == pytest.approx([1.0, -0.5, -0.5])


def test_plans_by_name() -> None:
    """The sampling of the plans independent, tree, crossed and replay."""
    group = ["episode", "decision", "role"]
    plans = {kind: make("custom", plan={"kind": kind}, grouping=group).plan for kind in ("tree", "crossed", "replay")}
    assert plans["tree"] == make("at_grpo").plan
    assert plans["crossed"] == make("magrpo", joint="crossed", keep="greedy").plan
    assert plans["replay"] == make("coma", continuation="playout").plan
    assert make("custom", plan=FLAT, grouping=["task", "role"]).plan == make("grpo", group=4).plan


@pytest.mark.parametrize("settings_", [{"credit": "batch"}, {"grouping": ["task", "role", "prompt"]}])
def test_replies_that_are_compared_with_those_of_other_episodes_are_all_scored(settings_: dict[str, Any]) -> None:
    tree = {"plan": {"kind": "tree"}, "grouping": ["episode", "decision", "role"]}
    assert make("custom", **tree).plan.compares and not make("custom", **{**tree, **settings_}).plan.compares


def test_a_grouping_by_phase_compares_what_follows(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """Bids are compared with bids: the returns from there are 1 + 1 and 0 + 0; then 1 and 0."""
    episodes = []
    for i, reward in enumerate([1.0, 0.0]):
        turns = [make_turn("X", reward, replica=i, decision=d, prompt=f"{i}{d}") for d in range(2)]
        for turn, phase in zip(turns, ("bid", "play"), strict=True):
            turn.keys = replace(turn.keys, phase=phase)
        episodes.append(make_episode(turns))
    make("custom", plan=FLAT, grouping=["task", "role", "phase"]).credit(episodes, given)
    assert advantages(episodes, given) == [1.0, 0.5, -1.0, -0.5]


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"plan": FLAT, "grouping": ["task", "rolle"]}, ["'rolle'", "Did you mean 'role'?"]),
        ({"plan": FLAT, "grouping": ["task", "role", "turn"]}, ["'turn'", "called 'decision'"]),
        ({"plan": TREE | {"continuation": "none", "playouts": 2}, "grouping": ONE_PROMPT}, ["plan.playouts", "'none'"]),
        ({"plan": FLAT, "grouping": ["task", "role"], "critic": {"lr": 1e-3}}, ["algorithm.critic", "'independent'"]),
        ({"plan": FLAT, "grouping": ["task"]}, ["mix tasks or roles", "'role'"]),
        ({"plan": FLAT, "grouping": ["task", "role", "decision"]}, ["different prompts", "'prompt'"]),
        ({"plan": FLAT, "grouping": ["episode", "role"]}, ["one member", "'task' in place of 'episode'"]),
        ({"plan": {"kind": "independent"}, "grouping": ["task", "role"]}, ["plan.replicas is 1", "at least 2"]),
        ({"plan": TREE, "grouping": ["task", "role"]}, ["replies to one prompt", "'decision'"]),
        ({"plan": TREE | {"candidates": 1}, "grouping": ["episode", "decision", "role"]}, ["candidates is 1"]),
        ({"plan": {"kind": "replay", "keep": "greedy"}, "grouping": ONE_PROMPT}, ["plan.keep", "'replay'", "remove"]),
        ({"plan": {"kind": "crossed", "joint": "first"}, "grouping": ONE_PROMPT}, ["plan.joint", "'crossed'"]),
        ({"plan": FLAT | {"playouts": 2}, "grouping": ["task", "role"]}, ["plan.playouts", "settings: replicas"]),
        ({"plan": {"kind": "crossed"}, "grouping": ["task", "role"]}, ["a crossed compares", "'decision'"]),
        ({"plan": {"kind": "forest"}, "grouping": ["task", "role"]}, ["algorithm.plan.kind", "'tree'"]),
        ({"grouping": ["task", "role"]}, ["algorithm.plan is missing"]),
    ],
)  # fmt: skip
def test_an_impossible_composition_is_refused_with_the_reason(settings_: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        make("custom", **settings_)
    assert all(word in str(caught.value) for word in words), str(caught.value)
