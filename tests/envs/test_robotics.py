"""Blocks on a table in MuJoCo: the scripted team always carries out the order, cheats never do; states are values."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from ctypes.util import find_library
from importlib.util import find_spec
from typing import Any

import pytest
from playing import earned, expert

if not find_spec("mujoco"):  # not imported here: `Arm` imports something else before it
    pytest.skip("robotics needs interplay[robotics]", allow_module_level=True)

from interplay.envs import make, sample_task
from interplay.envs.check import check
from interplay.envs.tasks.robotics import Robotics, read
from interplay.errors import ConfigError, EnvError
from interplay.types import Observation

Say = Callable[[Robotics, str, Observation], str]


def play(say: Say, options: dict[str, Any] | None = None, split: str = "train", tasks: int = 4) -> list[float]:
    return earned("robotics", tasks, say, options or {}, split)


@pytest.mark.parametrize("options", [{}, {"team": "single"}, {"blocks": 5, "orders": 3}])
def test_the_scripted_team_always_carries_out_the_order(options: dict[str, Any]) -> None:
    assert set(play(expert, options) + play(expert, options, "test")) == {1.0}


def never_let_go(env: Robotics, role: str, o: Observation) -> str:
    return expert(env, role, o).removesuffix(", release")


CHEATS: dict[str, Say] = {
    "echo": lambda env, role, o: "\n".join(m.content for m in o.messages),
    "empty": lambda env, role, o: "",
    "format only": lambda env, role, o: "up, down, grip, release",
    "ignores the givens": lambda env, role, o: "move 0 0, down, grip, up, move 10 10, down, release",
    "hard-coded": lambda env, role, o: "up, move 5 -7, down, grip, up, move -12 20, down, release",
    "giant": lambda env, role, o: ", ".join(["up"] * 10_000),
    "off the table": lambda env, role, o: "move 500 0",
    "never lets go": never_let_go,
    "says that it is done": lambda env, role, o: "placed",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_earn_nothing(cheat: str) -> None:
    assert set(play(CHEATS[cheat], {"rounds": 2})) == {0.0}


def test_the_environment_conforms() -> None:
    findings = check("robotics", {"rounds": 2, "commands": 2}, episodes=2)
    assert [f for f in findings if not f.passed] == []


def test_the_same_commands_give_the_same_state_on_a_fork_too() -> None:
    def moved(env: Robotics) -> bytes:
        for role in ("planner", "controller"):
            env.step({role: "up, move 7 3, down, grip, up, move -3 -8"})
        return env.physics

    first = make(sample_task("robotics", {}))
    assert isinstance(first, Robotics)
    fork, start = first.fork(), first.physics
    assert isinstance(fork, Robotics)
    end = moved(first)
    assert fork.physics == start != end, "a fork is untouched"
    assert moved(fork) == end
    again = make(sample_task("robotics", {}))
    assert isinstance(again, Robotics)
    assert moved(again) == end


def test_progress_adds_up_to_the_way() -> None:
    env = make(sample_task("robotics", {"orders": 2}))
    assert isinstance(env, Robotics)
    total = 0.0
    while seen := env.observe():
        rewards = env.step({role: expert(env, role, o) for role, o in seen.items()})
        total += sum(r.value or 0.0 for r in rewards)
    assert total == pytest.approx(1.0, abs=0.02)


def test_only_the_planner_knows_the_order() -> None:
    env = make(sample_task("robotics", {}))
    assert "Order: bring the" in env.observe()["planner"].messages[1].content
    env.step({"planner": "Bring it <|end|>"})
    seen = env.observe()["controller"].messages[1].content
    assert "Order" not in seen and "Bring it < |end|>" in seen


def test_the_physics_is_real() -> None:
    """A block that is released in the air falls; a block that is not under the hand is not picked up."""
    env = make(sample_task("robotics", {"team": "single", "blocks": 1}))
    assert isinstance(env, Robotics)
    x, y = env.row["blocks"]["red"]
    env.step({"controller": f"move {x} {y}, down, grip, up"})
    lifted = env.arm.table(env.physics)
    assert lifted.held == "red" and lifted.blocks["red"][2] > 0.1
    assert "holding the red block" in env.observe()["controller"].messages[1].content
    env.step({"controller": "release"})
    fallen = env.arm.table(env.physics)
    assert fallen.held is None and fallen.blocks["red"][2] < 0.04
    env.step({"controller": f"move {-x} {-y}, down, grip"})
    assert env.arm.table(env.physics).held is None


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "no command"), ("jump", "'jump' is no command"), ("move 1", "no command"), ("move 31 0", "table ends 30 cm"),
     ("up, " * 9 + "up", "10 commands; 8"), ("x" * 500, "longer than")],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(text, 8)
    assert read("Move to 3 -4.5\nGRIP, up.", 8) == [("move", 0.03, -0.045), ("grip", 0.0, 0.0), ("up", 0.0, 0.0)]


def test_wrong_options_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"env\.orders is 3"):
        sample_task("robotics", {"blocks": 2, "orders": 3})


def test_a_picture_is_shown_beside_the_words_or_in_place_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Robotics, "picture", lambda self, size: b"%d pixels" % size)
    said = {}
    for view, shown in (("text", []), ("image", [b"64 pixels"]), ("both", [b"64 pixels"])):
        env = make(sample_task("robotics", {"view": view, "pixels": 64}))
        (told,) = env.observe().values()
        assert [m.data for m in told.messages[-1].media] == shown
        said[view] = told.messages[-1].content
        assert env.caption("planner") == (said["text"].split("\nRound")[0] if shown else "")
        assert set(Robotics.needs(env.task.data)) == ({"image"} if view == "image" else set())
    assert "red block:" in said["text"] and "zone A:" in said["text"] and said["text"] in said["both"] + "\n"
    assert not re.search("block:|zone [A-E]:", said["image"]) and "hand: up, holding nothing" in said["image"]


@pytest.mark.skipif(not find_library("OSMesa"), reason="OSMesa is not installed")
def test_triton_can_be_imported_after_the_table() -> None:
    """MuJoCo with OSMesa and then Triton ended the process with a segmentation fault: OSMesa has another LLVM."""
    pytest.importorskip("triton")
    code = "from interplay import envs; envs.make(envs.sample_task('robotics', {})); import triton"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "MUJOCO_GL": "osmesa"}, check=True)


def test_the_table_can_be_seen_where_there_is_opengl() -> None:
    env = make(sample_task("robotics", {"view": "both", "pixels": 64}))
    assert isinstance(env, Robotics)
    try:
        (told,) = env.observe().values()
    except EnvError as error:
        assert "MUJOCO_GL" in str(error)
        pytest.skip(f"no OpenGL on this machine: {error}")
    (picture,) = told.messages[-1].media
    image = picture.data
    assert picture.kind == "image" and image.startswith(b"\x89PNG") and len(image) > 500
    assert "red block:" in told.messages[-1].content and "A is orange" in told.messages[-1].content
    env.step({"planner": "Bring it."})
    (told,) = env.observe().values()
    assert told.messages[-1].media == (picture,), "nothing moved"
    env.step({"controller": env.script("controller")})
    assert env.picture(64) != image
