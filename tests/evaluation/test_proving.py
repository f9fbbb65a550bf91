"""The proving ground: algorithms solve the games that they must solve, and fail where theory says that they must."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from statistics import fmean

import pytest

from interplay.algorithms.vdn import VDN
from interplay.envs.check import check
from interplay.evaluation.games import GAMES
from interplay.evaluation.proving import CONTENDERS, Contender, Ground, TableCritic, prove

GAME = {game.name: game for game in GAMES}
LABELS = {c.label: c for c in CONTENDERS}
PLAIN = [c for c in CONTENDERS if c.name not in ("vdn", "qmix", "maddpg")]  # those fit networks: slower


@pytest.mark.parametrize("name", ["RelayGame", "TwoStep", "Debate", "TwoKeys"])
def test_the_games_are_environments(name: str) -> None:
    """The games pass the conformance suite of environments."""
    findings = check(f"interplay.evaluation.games:{name}", {}, 5, 0)
    assert [f"{f.rule}: {f.detail}" for f in findings if not f.passed] == []


@pytest.mark.parametrize("contender", PLAIN, ids=lambda c: c.label)
def test_every_algorithm_finds_the_best_arm(contender: Contender) -> None:
    game = replace(GAME["bandit"], steps=50)
    assert prove(contender, game).result() >= 0.8


def test_qmix_finds_what_vdns_sum_cannot_say() -> None:
    """QMIX's own two-step game: a sum of utilities takes the safe 7, the mixer takes the 8."""
    game = GAME["two_step"]
    assert prove(LABELS["qmix"], game).result() >= game.goal > prove(LABELS["vdn"], game).result()


@pytest.mark.slow
@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda c: c.label)
@pytest.mark.parametrize("game", ["bandit", "credit", "monotonic", "two_keys"])
def test_every_algorithm_solves_what_needs_no_luck(contender: Contender, game: str) -> None:
    assert prove(contender, GAME[game]).result() >= GAME[game].goal


@pytest.mark.parametrize(
    "label", ["grpo", *(pytest.param(x, marks=pytest.mark.slow) for x in ("at_grpo", "mappo", "rae"))]
)
def test_two_keys_need_both_roles(label: str) -> None:
    """If both learn, it is solved; if either is frozen, at most a third. Each role's gain is far larger than its
    error."""
    both, *alone = (prove(LABELS[label], GAME["two_keys"], frozen=frozen).result() for frozen in ((), ("p0",), ("p1",)))
    assert both >= 0.9
    for result in alone:
        error = math.sqrt((both * (1 - both) + result * (1 - result)) / 300)
        assert result < 0.45 and both - result > 5 * error


@pytest.mark.parametrize("label", ["rloo", "coma"])
def test_a_baseline_does_not_leave_a_local_optimum(label: str) -> None:
    """The non-monotonic payoff from uniform play: the expected gradient leads to 0, with or without a baseline."""
    assert prove(LABELS[label], GAME["non_monotonic"]).result() == pytest.approx(0.0, abs=0.5)


def test_a_monotonic_mixer_cannot_represent_what_a_central_critic_can() -> None:
    """Both are fitted to uniform play of [[8, −12, −12], [−12, 0, 0], [−12, 0, 0]]: only the critic ranks the 8
    first."""
    found = {
        name: prove(LABELS[name], GAME["non_monotonic"], frozen=("p0", "p1")).believed()
        for name in ("qmix", "maddpg (score function)")
    }
    assert found["maddpg (score function)"] == ("a", "a")
    assert found["qmix"] != ("a", "a")


@pytest.mark.slow
def test_qmix_trusts_a_word_only_where_it_is_right() -> None:
    """Why QMIX fails in the debate: its mixer sees the truth, which p1 does not. p1 learns to say one word whatever it
    hears, because the weight of its utility almost vanishes in the states in which that word is wrong."""
    ground = prove(LABELS["qmix"], GAME["debate"])
    assert isinstance(ground.algorithm, VDN) and ground.result() < 0.7
    played = ground.play(100)
    slopes = ground.algorithm._slopes(played)
    said = Counter(e.line("p1")[-1].text for e in played)
    (word, times) = said.most_common(1)[0]
    assert times > 85
    weights = {right: [slopes[e.id, 1, "p1"] for e in played if (e.turns[0].state.split()[0] == word) == right]
               for right in (True, False)}  # fmt: skip
    assert fmean(weights[True]) > 20 * fmean(weights[False])


def test_self_play_averages_to_the_equilibrium() -> None:
    """Matching pennies from a start of three to one: the average strategies are nearly uniform."""
    assert prove(LABELS["grpo"], GAME["matching_pennies"]).exploitability() < 0.2


def test_maporl_learns_to_help() -> None:
    """Only p1's last word pays: p0, who knows the answer, learns to tell it."""
    assert prove(LABELS["maporl"], GAME["debate"]).result() >= 0.9


def test_a_frozen_role_does_not_move() -> None:
    game = GAME["two_keys"]
    ground = Ground(game, LABELS["grpo"].algorithm(game), tasks=2, frozen=("p0",))
    ground.train(5)
    assert ground.tables["p0"].logits.abs().max() == 0 and ground.tables["p1"].logits.abs().max() > 0


def test_a_run_is_a_function_of_its_seed() -> None:
    game = GAME["climbing"]
    found = []
    for seed in (0, 0, 1):
        ground = Ground(game, LABELS["c3"].algorithm(game), seed, tasks=2)
        ground.train(10)
        found.append(ground.tables["p0"].logits.tolist())
    assert found[0] == found[1] != found[2]


def test_a_tables_state_critic_learns_what_comes_after_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with language models: penalties of the turn that led there are not included, because its outlook has them."""
    game = replace(GAME["stag_hunt"], options={"game": "stag_hunt", "rounds": 2})
    shaped = Contender("coma", {"overlong": {"length": 1, "margin": 1}})
    ground = Ground(game, shaped.algorithm(game), tasks=4)
    told: list[tuple[str, float]] = []
    monkeypatch.setattr(TableCritic, "learn", lambda self, key, target: told.append((key, target)))
    ground.train(1)
    assert len(told) == 8, "two roles in four episodes came to a state from which they played on"
    for key, target in told:
        assert " after " in key and target + 1.0 in (0.0, 3.0, 4.0), "what the stag hunt pays once, less one reply's 1"
