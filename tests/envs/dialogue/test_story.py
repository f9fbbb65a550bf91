"""Stories: what can happen is worth something, what cannot contradicts it, and partners keep their styles."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from interplay import envs
from interplay.agents.bots import make_bot
from interplay.config import load
from interplay.envs.dialogue.story import Story, grammar
from interplay.errors import ConfigError


def story(**options: object) -> Story:
    made = envs.make(envs.sample_task("story", options))
    assert isinstance(made, Story)
    made.place, made.lies = {"A": "4", "B": "4", "C": "5"}, {"1": "4", "2": "5", "3": "6"}
    return made


def tell(env: Story, *sentences: str) -> list[float | None]:
    return [r.value for s in sentences for r in env.step({env.acting: s}) if r.name == "gold"]


def test_a_story_by_hand() -> None:
    env = story(team="single", sentences=8, cap=3)
    told = ["A+1", "A1B", "A-1", "B>5", "B-1", "C+1", ".", "Cx"]
    # taken and given (new); Ann has it no longer; gone (new, the third); cap; Cleo is there; filler; dead.
    assert tell(env, *told) == [1.0, 1.0, -1.0, 1.0, 0.5, 0.5, -1.0, 0.5]
    assert env.lies["1"] == "5" and env.dead == {"C"} and not env.observe()
    assert not env.can(grammar("signs")["C>4"])  # type: ignore[arg-type]


def test_the_same_story_in_words_is_worth_the_same() -> None:
    signs, words = grammar("signs"), grammar("words")
    by_meaning = {s: text for text, s in words.items()}
    told = ["A+1", "A1B", "A-1", "B>5"]
    env = story(team="single", mode="words")
    assert tell(env, *(by_meaning[signs[s]] for s in told)) == tell(story(team="single"), *told)


def test_alone_the_bound_is_reached_and_never_passed() -> None:
    """By search over every story of two sentences, and by a play of four."""
    best = -9.0
    for pair in itertools.product(grammar("signs"), repeat=2):
        best = max(best, sum(v or 0.0 for v in tell(story(team="single", sentences=2), *pair)))
    assert best == story(team="single", sentences=2).best() == 2.0
    assert sum(v or 0.0 for v in tell(story(team="single"), "A>5", "A+2", "A>6", "A-2")) == 4.0


@pytest.mark.parametrize(("options", "gold"), [({}, -1.0), ({"filler": -0.2}, -0.2)])
def test_filler_alone_always_loses(options: dict[str, object], gold: float) -> None:
    """By default as much as contradictions; the published study charged less."""
    env = story(team="single", **options)
    assert tell(env, ".", ".", ".", ".") == [gold] * 4
    assert [(r.name, r.value) for r in env.outcome()] == [("consistent", 0.0)]


def test_the_recipe_of_the_published_study_charges_filler_as_it_did() -> None:
    assert load(Path(__file__).parents[3] / "recipes" / "rlhf" / "story.toml").env.options["filler"] == -0.2


def test_nobody_knows_what_free_text_is_worth() -> None:
    env = story(mode="free")
    assert tell(env, "Once upon a time.") == [None]
    assert [r.name for r in env.step({"partner": "  "})] == ["gold", "illegal"]


@pytest.mark.parametrize("style", ["plain", "traveller", "collector", "liar"])
def test_a_writer_keeps_its_style(style: str) -> None:
    env, rng = story(team="single", sentences=20), random.Random(0)
    bot = make_bot(f"writer:{style}", "story")
    found = []
    while env.observe():
        text = bot.act(env, "learner", rng)
        found.append((grammar("signs")[text], tell(env, text)[0]))
    assert all((value == -1.0) == (style == "liar") for _, value in found)
    if style == "traveller":
        assert {s.verb for s, _ in found if s} == {"go"}


def test_a_replayed_partner_does_not_react() -> None:
    """What it says depends on the task alone, whatever it hears."""
    said = []
    for heard in (".", "Ax"):
        env, bot = envs.make(envs.sample_task("story", {})), make_bot("replay:writer:plain", "story")
        assert isinstance(env, Story)
        for _ in range(4):
            env.step({"learner": heard})
            env.step({"partner": bot.act(env, "partner", random.Random(0))})
        said.append(env.told[1::2])
    assert said[0] == said[1]


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'liar'"):
        make_bot("writer:lair", "story")


@pytest.mark.parametrize("style", ["tough", "soft", "mirror"])
def test_hagglers_bargain_legally_and_end(style: str) -> None:
    bots = {"p0": make_bot(f"haggler:{style}", "negotiation"), "p1": make_bot("haggler:soft", "negotiation")}
    deals = 0
    for index in range(20):
        env = envs.make(envs.sample_task("negotiation", {"talk": False, "gold": True}, index=index))
        rng = random.Random(index)
        while seen := env.observe():
            ((role, observation),) = seen.items()
            action = bots[role].act(env, role, rng)
            assert action in observation.legal
            env.step({role: action})
        values = {(r.name, r.role): r.value or 0.0 for r in envs.env.outcome_of(env)}
        payoffs = [values["payoff", r] for r in env.roles]
        assert values["gold", "p0"] <= payoffs[0] / 10 - 0.05 * abs(payoffs[0] - payoffs[1]) + 1e-9
        deals += max(payoffs) > 0
    assert deals > 5
