"""`package:game` names are resolved lazily and checked without the package, and errors say what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from interplay import envs
from interplay.agents.bots import make_bot
from interplay.envs.adapters.adapter import matching, written
from interplay.envs.check import check
from interplay.errors import ConfigError

ROOT = Path(__file__).parents[3]
NEAR = {
    "gymnasium:Taxi-v3": "Did you mean 'Taxi-v4'",
    "openspiel:kuhn_pokr": "Did you mean 'kuhn_poker'",
    "pettingzoo:tictacto_v3": "Did you mean 'tictactoe_v3'",
    "reasoning_gym:sudok": "Did you mean 'sudoku'",
    "textarena:TicTacTo-v0": "Did you mean 'TicTacToe-v0",
}
PACKAGES = {"gymnasium", "pettingzoo", "pyspiel", "reasoning_gym", "textarena"}


def test_every_adapter_is_here() -> None:
    assert envs.prefixes() == sorted([*(name.partition(":")[0] + ":" for name in NEAR), "workflow:"])
    assert not {*envs.prefixes()} & {*envs.known()}


@pytest.mark.parametrize("name", NEAR)
def test_an_unknown_game_names_its_nearest(name: str) -> None:
    prefix = name.partition(":")[0]
    with pytest.raises(
        ConfigError, match=f"{name}' is not a game of {prefix}; interplay envs {prefix} lists its games"
    ) as error:
        envs.make(envs.sample_task(name, {}))
    assert NEAR[name] in str(error.value)
    with pytest.raises(ConfigError, match="is not a game of"):  # the caller's mistake, not a finding
        check(name, {}, episodes=1)


@pytest.mark.parametrize("name", NEAR)
def test_a_missing_package_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = envs.lookup(name).package  # type: ignore[attr-defined]
    assert package in PACKAGES
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"needs the package '{package}'.*pip install 'interplay\[games\]'"):
        envs.make(envs.sample_task(name, {}))


def test_names_and_options_are_checked_without_the_packages() -> None:
    """A wrong prefix, an empty game and a wrong option are refused before anything heavy is imported."""
    code = f"""
import sys
from interplay import envs
from interplay.errors import ConfigError
for name, options in (("openspeil:kuhn_poker", {{}}), ("openspiel:", {{}}), ("openspiel", {{}}),
                      ("openspiel:kuhn_poker", {{"veiw": "state"}}), ("textarena:x", {{"max_steps": 0}})):
    try:
        envs.sample_task(name, options)
    except ConfigError as error:
        print(error)
print(sorted({PACKAGES!r} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    prefix, empty, bare, option, bound, imported = done.stdout.splitlines()
    assert "Did you mean 'openspiel:'?" in prefix
    assert "does not name a game; expected openspiel:GAME" in empty
    assert "Did you mean 'openspiel:'?" in bare
    assert "unknown key 'veiw' in [env]" in option and "Did you mean 'view'?" in option
    assert "env.max_steps is 0" in bound
    assert imported == "[]"


def test_replies_are_matched_to_actions() -> None:
    legal = ("Pass", "Bet", "x(0,1)", "pass the ball")
    assert [matching(t, legal) for t in ("Bet", " bet. ", "'PASS'", "x(0, 1)", "Pass the  ball", "", "be")] == [
        "Bet", "Bet", "Pass", None, "pass the ball", None, None,
    ]  # fmt: skip
    assert matching("a", ("A", "a")) == "a" and matching(" a", ("A", "a")) is None  # ambiguous but for the case
    assert written([0, 1, 2], lambda a: ("go", " go\n", "")[a]) == {"go": 0, "go (1)": 1, "2": 2}


@pytest.mark.parametrize("name", ["openspiel:leduc_poker", "pettingzoo:rps_v2", "textarena:TicTacToe-v0"])
@pytest.mark.parametrize("bot", ["random", "first", "greedy"])
def test_bots_play_a_whole_game(name: str, bot: str) -> None:
    """Any bot that uses legal actions can play any adapted game that lists them, and is never refused."""
    env = envs.make(envs.sample_task(name, {}))
    player, rng = make_bot(bot, name), env.dice(1)
    player.suits(env)
    while seen := env.observe():
        assert "illegal" not in {r.name for r in env.step({role: player.act(env, role, rng) for role in seen})}
    assert env.outcome() or env.history  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gymnasium:CartPole-v1", ("Push the cart", "pole angle ")),
        ("gymnasium:Blackjack-v1", ("nearer to 21", "your sum ")),
        ("openspiel:liars_dice", ("bid a quantity and a face", "your dice, then the bids")),
        ("openspiel:kuhn_poker", ("the higher card wins", "your card, then the moves")),
        ("pettingzoo:rps_v2", ("rock beats scissors", "last move")),
    ],
)
def test_a_known_game_can_be_played_from_its_prompt(name: str, says: tuple[str, ...]) -> None:
    """Audit B8: liar's dice showed `3` and CartPole four bare numbers, without a rule."""
    pytest.importorskip({"openspiel": "pyspiel"}.get(name.partition(":")[0], name.partition(":")[0]))
    for options, there in (({}, True), ({"rules": "Do well."}, False)):
        env = envs.make(envs.sample_task(name, options))
        text = "\n".join(m.content for m in next(iter(env.observe().values())).messages)
        assert says[0] in text if there else "Do well." in text
        assert not there or says[1] in text
