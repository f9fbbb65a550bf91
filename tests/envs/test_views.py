"""Puzzles that are shown as pictures."""

from __future__ import annotations

import io
from typing import Any

import pytest

from interplay import envs
from interplay.envs.check import check
from interplay.envs.env import sample_task
from interplay.envs.games.plan_path import PlanPath
from interplay.envs.picture import Look, draw


def made(name: str, **options: Any) -> Any:
    return envs.make(sample_task(name, {"team": "single", **options}))


@pytest.mark.parametrize("name", ["plan_path", "sokoban"])
def test_a_view_shows_words_a_picture_or_both(name: str) -> None:
    text, image, both = (made(name, view=view, brief=True) for view in ("text", "image", "both"))
    (a,), (b,), (c,) = (e.observe()["actor"].messages for e in (text, image, both))
    assert a.content == c.content == text.view() and b.content == ""
    assert a.media == () and b.media == c.media and b.media[0].kind == "image"
    assert (text.caption("actor"), image.caption("actor")) == ("", image.view())
    assert type(image).needs(image.task.data) == {"image"} and not type(image).needs(both.task.data)
    (system, _) = made(name, view="image").observe()["actor"].messages
    assert "blue disc" in system.content


@pytest.mark.parametrize("name", ["plan_path", "sokoban"])
def test_every_position_has_a_picture_of_its_own(name: str) -> None:
    """Two positions have the same picture if and only if they have the same words."""
    words, pictures = set(), set()
    for index in range(12):
        env = envs.make(sample_task(name, {"team": "single", "view": "image"}, index=index))
        while seen := env.observe():
            words.add(env.view())
            pictures.add((env.view(), seen["actor"].messages[-1].media[0].digest))
            env.step({"actor": seen["actor"].legal[env.turn % len(seen["actor"].legal)]})
    assert len(pictures) == len(words) == len({digest for _, digest in pictures}) > 12


def test_a_blank_picture_tells_nothing() -> None:
    boards = [envs.make(sample_task("plan_path", {"view": "image", "shown": "blank"}, index=i)) for i in range(5)]
    assert len({b.observe()["planner"].messages[-1].media[0].digest for b in boards}) == 1
    assert {b.caption("planner") for b in boards} == {""}


@pytest.mark.parametrize("name", ["plan_path", "sokoban"])
def test_the_picture_of_another_board_stays_during_an_episode_and_is_not_the_own_one(name: str) -> None:
    found = set()
    for index in range(8):
        task = sample_task(name, {"team": "single", "view": "image", "shown": "other"}, index=index)
        env, own = envs.make(task), envs.make(sample_task(name, {"team": "single", "view": "image"}, index=index))
        first = env.observe()["actor"]
        env.step({"actor": first.legal[0]})
        seen = [first, *env.observe().values()]
        digests = {observation.messages[-1].media[0].digest for observation in seen}
        assert len(digests) == 1 and env.caption("actor") == ""
        assert own.observe()["actor"].messages[-1].media[0].digest not in digests
        found |= digests
    assert len(found) == 8, "each task has a picture of its own"


def test_the_picture_has_one_square_for_each_cell() -> None:
    image = pytest.importorskip("PIL.Image")
    env = made("plan_path", view="image", size=5, cell=10)
    picture = image.open(io.BytesIO(env.observe()["actor"].messages[-1].media[0].data))
    assert picture.size == (50, 50) and picture.mode == "RGB"
    for cell, symbol in enumerate(env.view().split()):
        look = PlanPath.looks[symbol]
        row, column = divmod(cell, 5)
        middle = picture.getpixel((10 * column + 5, 10 * row + 5))
        assert middle == (look.colour if look.shape else look.ground)
        assert picture.getpixel((10 * column, 10 * row)) == look.ground


def test_a_picture_is_made_of_tiles() -> None:
    image = pytest.importorskip("PIL.Image")
    looks = {"a": Look((1, 2, 3)), "b": Look((9, 9, 9), (200, 0, 0), "square")}
    picture = image.open(io.BytesIO(draw("a b", looks, 8)))
    assert picture.size == (16, 8)
    assert picture.getpixel((3, 3)) == (1, 2, 3) and picture.getpixel((12, 4)) == (200, 0, 0)


def test_a_puzzle_in_pictures_passes_the_conformance_suite() -> None:
    assert [f for f in check("plan_path", {"view": "image", "size": 4}) if not f.passed] == []
