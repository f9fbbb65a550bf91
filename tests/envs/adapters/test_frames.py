"""Games of other packages, shown by their frames."""

from __future__ import annotations

import io
import sys
import types
from typing import Any

import numpy as np
import pytest

from interplay import envs
from interplay.envs.adapters.frames import frame, is_picture
from interplay.envs.check import check
from interplay.envs.env import sample_task
from interplay.errors import ConfigError

pytest.importorskip("pygame")


def media_of(env: Any) -> list[Any]:
    return [m for o in env.observe().values() for message in o.messages for m in message.media]


@pytest.mark.parametrize("name", ["gymnasium:FrozenLake-v1", "pettingzoo:connect_four_v3"])
def test_a_frame_is_shown_alone_or_with_the_words(name: str) -> None:
    image = pytest.importorskip("PIL.Image")
    made = {view: envs.make(sample_task(name, {"view": view, "pixels": 64})) for view in ("text", "image", "both")}
    assert media_of(made["text"]) == []
    (picture,), (other,) = media_of(made["image"]), media_of(made["both"])
    assert picture == other and max(image.open(io.BytesIO(picture.data)).size) == 64
    words = {view: next(iter(env.observe().values())).messages[-1].content for view, env in made.items()}
    assert words["image"].startswith("\nLegal actions: ") and not words["both"].startswith("\n")
    assert type(made["image"]).needs({"view": "image"}) == {"image"} and not type(made["both"]).needs({"view": "both"})


@pytest.mark.parametrize("name", ["gymnasium:CartPole-v1", "pettingzoo:tictactoe_v3"])
def test_the_frame_follows_the_game_and_a_fork_draws_its_own(name: str) -> None:
    env = envs.make(sample_task(name, {"view": "image", "pixels": 48, "brief": True}))
    before = media_of(env)
    twin = env.fork()
    assert media_of(twin) == before
    for _ in range(2):
        env.step({role: seen.legal[0] for role, seen in env.observe().items()})
    assert media_of(env) != before == media_of(twin)
    again = envs.make(env.task)
    for _ in range(2):
        again.step({role: seen.legal[0] for role, seen in again.observe().items()})
    assert media_of(again) == media_of(env), "the same game has the same pictures"


def test_games_by_frames_pass_the_conformance_suite() -> None:
    options = {"view": "image", "pixels": 16, "max_steps": 4}
    for name in ("gymnasium:FrozenLake-v1", "pettingzoo:tictactoe_v3"):
        assert [f for f in check(name, options, episodes=1) if not f.passed] == []


def test_frames_that_may_show_what_is_hidden_are_refused() -> None:
    with pytest.raises(ConfigError, match="may show what is hidden from a player"):
        envs.make(sample_task("pettingzoo:leduc_holdem_v4", {"view": "image"})).observe()


def test_an_agent_whose_observation_is_a_picture_sees_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = pytest.importorskip("gymnasium.spaces")

    class Rooms:
        """Two agents, each in a room of its own colour."""

        possible_agents, agents = ("a", "b"), ["a", "b"]
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

        def __init__(self, render_mode: str | None = None) -> None:
            self.render_mode = render_mode

        def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
            colours = {"a": 10, "b": 200}
            return {n: np.full((8, 8, 3), c, np.uint8) for n, c in colours.items()}, {}

        def action_space(self, agent: str) -> Any:
            return spaces.Discrete(2)

    module = types.ModuleType("somebody.rooms")
    module.parallel_env = Rooms  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "somebody", types.ModuleType("somebody"))
    monkeypatch.setitem(sys.modules, "somebody.rooms", module)
    env = envs.make(sample_task("pettingzoo:somebody.rooms", {"view": "image"}))
    assert len({m.digest for m in media_of(env)}) == 2
    assert "a sees: a picture" in env.state()


def test_a_smaller_frame_has_the_mean_colours() -> None:
    image = pytest.importorskip("PIL.Image")
    large = np.zeros((40, 20, 3), np.uint8)
    large[:20] = (200, 100, 0)
    large[20:, ::2] = 100
    small = np.asarray(image.open(io.BytesIO(frame(large, "x", 10).data)))
    assert small.shape == (10, 5, 3)
    assert (small[:5] == (200, 100, 0)).all() and (small[5:] == 50).all()
    assert is_picture(large) and not is_picture(large[..., 0])
    with pytest.raises(ConfigError, match="'x' renders NoneType; expected a game that can be rendered"):
        frame(None, "x", 10)
