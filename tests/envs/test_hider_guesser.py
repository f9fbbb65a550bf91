"""Twenty questions: a table that distinguishes objects, answers that it checks, and a secret that stays hidden."""

from __future__ import annotations

import random
from typing import Any

import pytest

from interplay.envs import SPLITS, make, sample_task
from interplay.envs.games.hider_guesser import OBJECTS, QUESTIONS, HiderGuesser
from interplay.types import Rewards


def game(index: int = 0, split: str = "train", **options: Any) -> HiderGuesser:
    env = make(sample_task("hider_guesser", options, split, index))
    assert isinstance(env, HiderGuesser)
    return env


def named(rewards: Rewards) -> dict[str, float | None]:
    return {f"{r.name} {r.role}": r.value for r in rewards}


def test_the_table_tells_all_objects_apart() -> None:
    """No two objects agree on every question, every property has a question, and every question is useful."""
    assert len(OBJECTS) >= 200
    assert len(set(OBJECTS.values())) == len(OBJECTS)
    assert set().union(*OBJECTS.values()) == set(QUESTIONS)
    assert all(name == name.lower().strip() and name.replace(" ", "").isalpha() for name in OBJECTS)
    assert "water lily" in OBJECTS and "water" in OBJECTS["water lily"], "names of two words are read whole"
    assert len(set(QUESTIONS.values())) == len(QUESTIONS)


def test_a_true_answer_narrows_and_a_second_asking_does_not() -> None:
    """The guesser earns the share of information that was gained, once."""
    env = game()
    key = next(k for k in QUESTIONS if 0 < sum(k in OBJECTS[n] for n in env.names) < len(env.names))
    gains = []
    for _ in range(2):
        assert not env.step({"guesser": QUESTIONS[key].lower().rstrip("?")})
        rewards = named(env.step({"hider": env.truth()}))
        gains.append(rewards["narrowed guesser"])
        assert set(rewards) == {"narrowed guesser"}
    assert gains[0] is not None and gains[0] > 0 and gains[1] == 0
    assert all((key in OBJECTS[n]) == (key in OBJECTS[env.secret]) for n in env.fits)


def test_a_lie_is_punished_and_corrected() -> None:
    """To a listed question the guesser hears the truth, whatever the hider said."""
    env, honest = game(), game()
    for one, lie in ((env, True), (honest, False)):
        one.step({"guesser": QUESTIONS["alive"]})
        truth = one.truth()
        rewards = named(one.step({"hider": ({"yes": "no", "no": "yes"}[truth]) if lie else f" {truth.upper()}. "}))
        assert rewards.get("lie hider") == (-1.0 if lie else None)
    assert env.observe() == honest.observe()


def test_an_answer_that_is_neither_is_illegal() -> None:
    """It is heard as the truth; for a free question as unknown."""
    env = game(free=True)
    env.step({"guesser": QUESTIONS["alive"]})
    truth = env.truth()
    assert named(env.step({"hider": "perhaps"}))["illegal hider"] == -1.0
    assert env.log[-1] == (QUESTIONS["alive"], truth)
    env.step({"guesser": "Have I seen it today?"})
    assert list(env.observe()) == ["hider"]
    assert named(env.step({"hider": "perhaps"})) == {"illegal hider": -1.0}
    assert env.log[-1] == ("Have I seen it today?", "unknown")
    env.step({"guesser": "Would you like it?"})
    assert not env.step({"hider": "no"}), "a free question is not checked"


def test_guesses() -> None:
    """A right guess ends the game; a wrong one uses up a question and excludes the object; the last question ends
    it."""
    env = game(questions=3)
    wrong = [name for name in env.names if name != env.secret]
    assert named(env.step({"guesser": f"guess {wrong[0]}"}))["narrowed guesser"] != 0
    assert wrong[0] not in env.fits
    assert named(env.step({"guesser": f"Is it a {wrong[0]}?"})) == {"narrowed guesser": 0.0}
    twin = env.fork()
    env.step({"guesser": f"Guess: {env.secret}."})
    assert env.found and not env.observe() and named(env.outcome()) == {"win guesser": 1.0, "win hider": -1.0}
    twin.step({"guesser": "guess nothing of the kind"})
    assert not twin.observe() and named(twin.outcome()) == {"win guesser": -1.0, "win hider": 1.0}
    helper = game(questions=1, hider="helper")
    helper.step({"guesser": f"guess {helper.secret}"})
    assert named(helper.outcome()) == {"win guesser": 1.0, "win hider": 1.0}


def test_the_secret_is_hidden_from_the_guesser_alone() -> None:
    """After a redeal, another object fits everything that the guesser has heard; the hider sees the object."""
    env, rng = game(objects=40), random.Random(0)
    for key in ("alive", "made"):
        env.step({"guesser": QUESTIONS[key]})
        assert env.secret in str(env.observe()["hider"])
        env.step({"hider": env.truth()})
    secrets = {env.redeal("guesser", rng).secret for _ in range(60)}
    assert secrets <= set(env.fits) and len(secrets) > 3
    assert env.redeal("hider", rng).secret == env.secret


def test_splits_never_share_a_game() -> None:
    """Objects in play and the hidden one, together, belong to one split."""
    seen = {s: {(g.names, g.secret) for g in (game(i, s, objects=2) for i in range(300))} for s in SPLITS}
    assert sum(map(len, seen.values())) == len(set().union(*seen.values()))


@pytest.mark.parametrize("text", ["", "guess", "guess unicorn", "Is it a unicorn?", "What is it?", "x" * 500 + "?"])
def test_what_is_neither_question_nor_guess_is_illegal(text: str) -> None:
    """A question is used up."""
    env = game()
    assert named(env.step({"guesser": text})) == {"illegal guesser": -0.1}
    assert len(env.log) == 1 and list(env.observe()) == ["guesser"]
