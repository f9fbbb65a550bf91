"""Every mistake in a recipe is one sentence that names the key, what was expected and the nearest known name."""

from __future__ import annotations

import copy
import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from interplay.config import Recipe, load, parse, parse_options
from interplay.errors import ConfigError, counted, did_you_mean
from interplay.rollout.resolve import resolve
from interplay.types import Policy

BASE: dict[str, Any] = {
    "name": "test",
    "env": {"name": "tictactoe"},
    "policies": {"player": {"base": "tiny"}},
    "seats": {"X": "player", "O": "player"},
    "algorithm": {"name": "grpo"},
}
RICH: dict[str, Any] = {
    **BASE,
    "seed": 7,
    "algorithm": {"name": "ppo", "gae_lambda": 0.5, "critic": {"lr": 1e-3}},
    "env": {"name": "tictactoe", "size": 4},
    "policies": {"player": {"base": "tiny"}, "rival": {"base": "tiny", "trainable": False, "lr": 0.5}},
    "matchups": [{"share": 0.25, "seats": {"O": "player@start"}}, {"share": 0.5, "seats": {"X": "rival"}}],
    "reward": {"weights": {"win": 2.0}, "gamma": 0.9},
    "warmstart": {"bot": "bot:random"},
}


def changed(**changes: Any) -> dict[str, Any]:
    """BASE with whole sections replaced; `...` leaves one out."""
    data = copy.deepcopy(BASE)
    for key, value in changes.items():
        if value is ...:
            del data[key]
        else:
            data[key] = value
    return data


def sentence(data: dict[str, Any], *overrides: str) -> str:
    """The sentence that the user gets, on the same path as in every command: parse, then resolve."""
    with pytest.raises(ConfigError) as caught:
        resolve(parse(data, overrides))
    return str(caught.value)


# (case, data, overrides, everything that the sentence must say)
MISTAKES: list[tuple[str, dict[str, Any], tuple[str, ...], tuple[str, ...]]] = [
    (
        "unknown section",
        changed(trian={}),
        (),
        ("unknown key 'trian' in the recipe", "known:", "Did you mean 'train'?"),
    ),
    ("unknown key", BASE, ("train.step=3",), ("unknown key 'step' in [train]", "Did you mean 'steps'?")),
    ("key of the recipe's top", BASE, ("train.seed=3",), ("'seed' in [train]", "Did you mean 'seed' at the top")),
    ("key of another table", BASE, ("train.temperature=1",), ("'temperature' in", "mean 'sampling.temperature'")),
    ("unknown key of a policy", BASE, ("policies.player.bse=x",), ("'bse' in [policies.player]", "mean 'base'?")),
    (
        "unknown key in a list of tables",
        changed(matchups=[{"share": 0.5, "seat": {"O": "bot:random"}}]),
        (),
        (
            "unknown key 'seat' in [matchups.0]",
            "known: change, draw, one, others, period, seats, share.",
            "Did you mean 'seats'?",
        ),
    ),
    ("unknown option of the environment", BASE, ("env.siz=4",), ("'siz' in [env]", "Did you mean 'size'?")),
    ("unknown option of the algorithm", BASE, ("algorithm.grup=4",), ("'grup' in [algorithm]", "mean 'group'?")),
    (
        "unknown option below the algorithm",
        changed(algorithm={"name": "ppo", "critic": {"lrr": 1.0}}),
        (),
        ("unknown key 'lrr' in [algorithm.critic]", "Did you mean 'lr'?"),
    ),
    ("unknown environment", BASE, ("env.name=tictacto",), ("env.name 'tictacto'", "Did you mean 'tictactoe'?")),
    ("environment that cannot be imported", BASE, ("env.name=nosuch:Env",), ("env.name 'nosuch:Env'", "module:Class")),
    ("class that is no environment", BASE, ("env.name=json:JSONDecoder",), ("'json:JSONDecoder'", "subclass of")),
    ("unknown algorithm", BASE, ("algorithm.name=grp",), ("algorithm.name 'grp'", "Did you mean 'grpo'?")),
    ("unknown bot", BASE, ("seats.O=bot:minmax",), ("seats.O is 'bot:minmax'", "Did you mean 'minimax'?")),
    (
        "unknown bot to be measured against",
        BASE,
        ('eval.opponents=["bot:minmax"]',),
        ("eval.opponents is 'bot:minmax'", "Did you mean 'minimax'?"),
    ),
    (
        "unknown bot to imitate",
        changed(warmstart={"bot": "bot:rando"}),
        (),
        ("warmstart.bot is 'bot:rando'", "Did you mean 'random'?"),
    ),
    (
        "bot that cannot play this game",
        changed(env={"name": "matrix"}, seats={"p0": "player", "p1": "bot:minimax"}),
        (),
        ("seats.p1 is 'bot:minimax'", "simultaneous moves", "bot 'random'"),
    ),
    ("unknown opponent", BASE, ('eval.opponents=["playr"]',), ("eval.opponents names 'playr'", "mean 'player'?")),
    ("seat without a policy", BASE, ("seats.O=playr",), ("seats.O names policy 'playr'", "Did you mean 'player'?")),
    ("all seats without a policy", BASE, ("seats=playr",), ("seats names policy 'playr'", "Did you mean 'player'?")),
    ("seat that is not filled", changed(seats={"X": "player"}), (), ("seats.O is missing", "each of X, O")),
    (
        "policy without a seat",
        changed(policies={"player": {"base": "tiny"}, "spare": {"base": "tiny"}}),
        (),
        ("policies.spare sits in no seat", "expected seats to name it", "player"),
    ),
    ("unknown role", BASE, ("seats.XX=player",), ("seats.XX is not a role", "known: O, X.", "Did you mean 'X'?")),
    (
        "unknown role in a matchup",
        changed(matchups=[{"share": 0.5, "seats": {"XX": "bot:random"}}]),
        (),
        ("matchups.0.seats.XX is not a role of this environment", "Did you mean 'X'?"),
    ),
    (
        "unknown policy in a matchup",
        changed(matchups=[{"share": 0.5, "seats": {"O": "playr@start"}}]),
        (),
        ("matchups.0.seats.O names policy 'playr@start'", "Did you mean 'player'?"),
    ),
    (
        "a league that is not there",
        changed(matchups=[{"share": 0.5, "seats": {"O": "player@league"}}]),
        (),
        ("matchups.0.seats.O is 'player@league'", "no [league]"),
    ),
    (
        "a snapshot by a name that means nothing",
        changed(matchups=[{"share": 0.5, "one": "player", "others": "player@leage"}]),
        (),
        ("matchups.0.others is 'player@leage'", "known: league, now, start.", "Did you mean 'league'?"),
    ),
    (
        "a league that nobody plays",
        changed(league={"every": 5}),
        (),
        ("no matchup plays against it", '"@league"'),
    ),
    (
        "an exploiter that is no policy",
        changed(matchups=[{"share": 0.5, "one": "player", "others": "@league"}], league={"exploiters": {"playr": {}}}),
        (),
        ("league.exploiters.playr is not a policy", "Did you mean 'player'?"),
    ),
    (
        "a panel of policies that change",
        changed(
            matchups=[{"share": 0.5, "one": "player", "others": "@league"}], league={"alarm": {"panel": ["player"]}}
        ),
        (),
        ("league.alarm.panel has 'player'", "bot:NAME or policy@start"),
    ),
    (
        "a matchup of half a pair",
        changed(matchups=[{"share": 0.5, "one": "player"}]),
        (),
        ("both of seats and one/others", "both one and others"),
    ),
    (
        "a schedule out of order",
        changed(matchups=[{"share": [[5, 0.1], [0, 0.9]], "one": "player", "others": "bot:random"}]),
        (),
        ("a matchup's share is [[5.0, 0.1], [0.0, 0.9]]", "expected [[0, share]"),
    ),
    (
        "shares that are too much only later",
        changed(
            matchups=[
                {"share": [[0, 0.1], [50, 0.8]], "change": "drift", "one": "player", "others": "bot:random"},
                {"share": 0.5, "one": "player", "others": "player@start"},
            ]
        ),
        (),
        ("[[matchups]]", "more than 1"),
    ),
    (
        "a draw that is none",
        changed(matchups=[{"share": 0.5, "one": "player", "others": "@league"}], league={"draw": "pfps"}),
        (),
        ("league.draw is 'pfps'", "'pfsp'"),
    ),
    (
        "a league bot that cannot play",
        changed(matchups=[{"share": 0.5, "one": "player", "others": "@league"}], league={"bots": ["bot:equilibrium"]}),
        (),
        ("league.bots.0 is 'bot:equilibrium'", "Kuhn"),
    ),
    (
        "exploitability of a bot",
        changed(seats={"X": "player", "O": "bot:random"}),
        ("eval.exploitability=true",),
        ("eval.exploitability is true", "seats.O is 'bot:random'", "expected a local policy"),
    ),
    (
        "exploitability of a remote model",
        changed(
            seats={"X": "player", "O": "far"},
            policies={
                "player": {"base": "tiny"},
                "far": {"base": "openai:m", "trainable": False, "remote": {"url": "http://localhost:1/v1"}},
            },
        ),
        ("eval.exploitability=true",),
        ("eval.exploitability is true", "seats.O is 'far'", "expected a local policy"),
    ),
    (
        "snapshot outside the matchups",
        BASE,
        ("seats.O=player@start",),
        ("seats.O names policy 'player@start'", "Did you mean 'player'?"),
    ),
    (
        "matchups that fill more than all episodes",
        changed(matchups=[{"share": 0.6, "seats": {"O": "bot:random"}}, {"share": 0.6, "seats": {"X": "bot:random"}}]),
        (),
        ("[[matchups]]", "more than 1"),
    ),
    ("whole number expected", BASE, ("train.steps=abc",), ("train.steps is 'abc'", "expected a whole number")),
    ("no silent rounding", BASE, ("train.steps=1.5",), ("train.steps is 1.5", "expected a whole number")),
    ("number expected", BASE, ("train.lr=fast",), ("train.lr is 'fast'", "expected a number")),
    ("bound", BASE, ("train.lr=-1",), ("train.lr is -1", "greater than 0")),
    ("truth expected", BASE, ("records.playouts=1",), ("records.playouts is 1", "expected true or false")),
    ("one of a few", BASE, ("train.schedule=cosin",), ("train.schedule is 'cosin'", "'constant', 'linear', 'cosine'")),
    ("option of the environment", BASE, ("env.size=big",), ("env.size is 'big'", "expected a whole number")),
    ("options that do not fit together", BASE, ("env.line=4",), ("env.line is 4", "at most env.size (3)")),
    ("bound of the algorithm", BASE, ("algorithm.group=1",), ("algorithm.group is 1", "greater than or equal to 2")),
    ("table expected", changed(policies={"player": "tiny"}), (), ("policies.player is 'tiny'", "expected a table")),
    ("seats of a wrong type", changed(seats=5), (), ("seats is 5", "expected a string or a table of strings")),
    (
        "seat of a wrong type",
        changed(seats={"X": 1, "O": "player"}),
        (),
        ("seats is {'X': 1, 'O': 'player'}", "expected a string or a table of strings"),
    ),
    ("list expected", BASE, ("eval.opponents=bot:random",), ("eval.opponents is 'bot:random'", "a list of strings")),
    ("list of a wrong type", BASE, ("eval.opponents=[1]",), ("eval.opponents.0 is 1", "expected a string")),
    ("weight of a wrong type", BASE, ("reward.weights.win=x",), ("reward.weights.win is 'x'", "expected a number")),
    (
        "share of a wrong type",
        changed(matchups=[{"share": "half", "seats": {}}]),
        (),
        ("matchups.0.share is 'half'", "expected a number"),
    ),
    ("missing section", changed(env=...), (), ("env is missing", "expected a table")),
    ("missing key", changed(policies={"player": {}}), (), ("policies.player.base is missing", "expected a string")),
    ("no policies", changed(policies={}), (), ("policies is empty", "expected at least one", 'base = "tiny"')),
    ("no seats", changed(seats={}), (), ("seats is empty", "expected a policy name")),
    ("a date", changed(name=datetime.date(2020, 1, 1)), (), ("date or time", "expected strings")),
    ("override without a value", BASE, ("train.steps",), ("override 'train.steps'", "expected a.b=c")),
    ("override without a key", BASE, ("=3",), ("override '=3'", "expected a.b=c")),
    ("override below a value", BASE, ("name.x=3",), ("override 'name.x=3'", "name", "not a table")),
    (
        "nothing to train",
        changed(policies={"player": {"base": "tiny", "trainable": False}}),
        (),
        ("no seat holds a trainable policy", "policies.NAME.trainable = true"),
    ),
    (
        "candidates that all tie",
        changed(algorithm={"name": "at_grpo", "continuation": "none"}),
        (),
        ("algorithm.continuation is 'none'", "tictactoe", "the same return", "expected 'playout' or 'critic'"),
    ),
]


@pytest.mark.parametrize(("case", "data", "overrides", "says"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_one_sentence(
    case: str, data: dict[str, Any], overrides: tuple[str, ...], says: tuple[str, ...]
) -> None:
    """It names the key, what was expected and, if there is one, the nearest name; it is never a traceback."""
    text = sentence(data, *overrides)
    assert [part for part in says if part not in text] == [], text
    assert "\n" not in text and "pydantic" not in text and "validation error" not in text
    assert text.endswith((".", "?"))


def test_the_recipe_without_mistakes_is_accepted() -> None:
    """The tests above fail for the reason that they name, because their starting point is valid."""
    assert resolve(parse(BASE)).seats == {"X": Policy("player"), "O": Policy("player")}
    assert resolve(parse(RICH)).recipe.policies["rival"].lr == 0.5


def test_continuation_none_is_allowed_where_steps_are_rewarded() -> None:
    """In a matrix game each move earns something, so candidates can differ."""
    data = changed(env={"name": "matrix"}, seats="player", algorithm={"name": "at_grpo", "continuation": "none"})
    assert resolve(parse(data)).roles == ("p0", "p1")


def test_a_missing_file_names_the_nearest_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes" / "game").mkdir(parents=True)
    (tmp_path / "recipes" / "game" / "demo.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"'recipes/game/dmo.toml' does not exist.*Did you mean 'recipes/game/demo.t"):
        load("recipes/game/dmo.toml")


@pytest.mark.parametrize("text", ["name = ", "name = 'a'\nname = 'b'", "[env\n", "\x00"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"broken\.toml' is not a valid recipe file: .*\.$"):
        load(file)


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    file = tmp_path / "latin.toml"
    file.write_bytes("name = 'café'".encode("latin-1"))
    with pytest.raises(ConfigError, match="not a valid recipe file"):
        load(file)


def test_a_run_folder_without_a_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"has no run.json; expected the folder of a run that interplay train started"
    ):
        load(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "run.json").write_text("{}")
    (tmp_path / "other.toml").write_text("")
    with pytest.raises(ConfigError, match=r"does not exist.*known: \S+/runs/first\. Did you mean '\S+/runs/first'"):
        load(tmp_path / "runs" / "frst")
    (tmp_path / "run.json").write_text('{"seed": 1}')
    with pytest.raises(ConfigError, match=r"run.json. is damaged .*restore it"):
        load(tmp_path)


def test_a_recipe_survives_json(tmp_path: Path) -> None:
    """run.json holds the resolved recipe; read back it is the same recipe, options of env and algorithm included."""
    recipe = parse(RICH)
    data = json.loads(json.dumps(recipe.model_dump()))
    assert parse(data) == recipe
    assert parse(data).algorithm.options == {"gae_lambda": 0.5, "critic": {"lr": 1e-3}}
    assert resolve(parse(data)).algorithm.settings == resolve(recipe).algorithm.settings
    (tmp_path / "run.json").write_text(json.dumps({"recipe": data}))
    assert load(tmp_path, ["train.steps=9"]) == parse(RICH, ["train.steps=9"]) != recipe


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=0.5", 0.5),
        ("a=true", True),
        ("a=word", "word"),
        ("a = two words ", "two words"),
        ('a="1"', "1"),
        ('a=["bot:random", "bot:first"]', ["bot:random", "bot:first"]),
        ("a={b = 1}", {"b": 1}),
        ("a=bot:random", "bot:random"),
        ("a=x=y", "x=y"),
        ("a=", ""),
    ],
)
def test_override_values_are_toml_and_bare_words_are_strings(text: str, value: object) -> None:
    assert parse_options([text]) == {"a": value}


def test_overrides_reach_nested_keys_and_the_last_wins() -> None:
    recipe = parse(BASE, ["train.steps=3", "policies.player.lr=0.1", "reward.weights.win=2.5", "train.steps=4"])
    assert (recipe.train.steps, recipe.policies["player"].lr, recipe.reward.weights) == (4, 0.1, {"win": 2.5})


def test_overrides_leave_the_given_table_alone() -> None:
    data = copy.deepcopy(BASE)
    parse(data, ["train.steps=3", "env.size=4"])
    assert data == BASE


def test_a_recipe_cannot_be_changed() -> None:
    """So run.json describes what really ran."""
    recipe: Recipe = parse(BASE)
    with pytest.raises(ValueError, match="frozen"):
        recipe.seed = 3


def test_no_error_shows_a_password_that_is_part_of_a_url() -> None:
    wrong = {**BASE, "env": "https://someone:pass@word@host/v1"}
    with pytest.raises(ConfigError) as caught:
        parse(wrong)
    assert "https://[hidden]@host/v1" in str(caught.value) and "pass" not in str(caught.value)


def test_a_number_agrees_with_its_noun() -> None:
    assert [counted(n, "step") for n in (0, 1, 2, 1000)] == ["0 steps", "1 step", "2 steps", "1000 steps"]


def test_did_you_mean_names_only_what_is_near() -> None:
    assert did_you_mean("stpes", ["steps", "lr"]) == "known: lr, steps. Did you mean 'steps'?"
    assert did_you_mean("zzz", ["steps", "lr"]) == "known: lr, steps."
    assert did_you_mean("zzz", []) == "known: none."
