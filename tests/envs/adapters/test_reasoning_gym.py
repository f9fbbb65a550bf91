"""The reasoning-gym adapter, compared with reasoning-gym itself."""

from __future__ import annotations

import re

import pytest

from interplay import envs
from interplay.envs.check import check
from interplay.envs.env import Env
from interplay.errors import ConfigError


def made(game: str, index: int = 0, **options: object) -> Env:
    return envs.make(envs.sample_task(f"reasoning_gym:{game}", options, index=index))


def solved(env: Env, reply: str) -> float | None:
    twin = env.fork()
    twin.step({"solver": reply})
    return next(r.value for r in twin.outcome() if r.name == "solved")


@pytest.mark.parametrize("game", ["chain_sum", "countdown", "mini_sudoku"])
def test_conformance(game: str) -> None:
    assert [f for f in check(f"reasoning_gym:{game}", {}, episodes=3) if not f.passed] == []


def test_a_scorer_that_takes_anything_is_held_to_the_answer() -> None:
    env = next(e for e in (made("game_of_life_halting", i) for i in range(20)) if "answer: True" in e.state())
    assert env.dataset.score_answer("☃", env.item) == 1.0  # type: ignore[attr-defined]
    assert (solved(env, "☃"), solved(env, "True")) == (0.0, 1.0)


@pytest.mark.slow
def test_every_task_takes_its_own_answer() -> None:
    """Full marks for the task's own answer and none for an empty one, for all tasks that can be made offline."""
    import reasoning_gym

    played = []
    for game in sorted(reasoning_gym.factory.DATASETS):
        if game == "composite":  # a mixture: it needs a list of others
            continue
        env = made(game)
        answer = env.item["answer"]  # type: ignore[attr-defined]
        if isinstance(answer, str):
            assert solved(env, f"I think <answer>{answer}</answer>") == 1.0, game
            played.append(game)
        assert solved(env, "") == 0.0 and solved(env, "☃") == 0.0, game
    assert len(played) > 90


def test_the_question_is_reasoning_gyms_own() -> None:
    import reasoning_gym

    env = made("sudoku", 4)
    item = reasoning_gym.create_dataset("sudoku", seed=env.task.seed % 2**32, size=1)[0]
    assert env.observe()["solver"].messages[-1].content == item["question"]
    assert solved(env, item["answer"]) == 1.0
    assert made("sudoku", 4).observe() == env.observe() != made("sudoku", 5).observe()


def test_an_echo_or_a_list_of_guesses_earns_nothing() -> None:
    """The package's own scorer gives marks for containing the answer; only `score` shows them, and only on request."""
    env = made("chain_sum", 1, partial=True)
    guesses = " ".join(str(n) for n in range(-300, 300))
    env.step({"solver": guesses})
    rewards = {r.name: r.value or 0.0 for r in env.outcome()}
    assert rewards["solved"] == 0.0 < rewards["score"] < 0.1
    plain = made("chain_sum", 1)
    assert solved(plain, plain.observe()["solver"].messages[-1].content) == 0.0


def test_levels_come_from_its_curriculum() -> None:
    def length(level: int) -> float:
        return sum(len(made("chain_sum", i, level=level).observe()["solver"].messages[-1].content) for i in range(10))

    assert length(0) < length(2) < length(4)
    (sum_,) = re.findall(r": (.+) =", made("chain_sum", arguments={"min_terms": 9, "max_terms": 9}).state())
    assert len(re.split(r" [+-] ", sum_)) == 9
    with pytest.raises(ConfigError, match=r"does not accept env\.arguments"):
        made("chain_sum", arguments={"terms": 3})
