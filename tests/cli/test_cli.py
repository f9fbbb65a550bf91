"""The command line: its help, its errors of one sentence, and a whole run from end to end."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_server import Chat, serving
from rich.console import Console
from typer.testing import CliRunner, Result

from interplay import envs
from interplay.agents.bots import known_bots
from interplay.algorithms import algorithm
from interplay.cli import main as cli
from interplay.config import load
from interplay.envs import env
from interplay.errors import ConfigError, DataError, EngineError, GuardError
from interplay.rollout import records

RECIPE = """
name = "small"
device = "cpu"
seats = "player"
[env]
name = "tictactoe"
size = 2
line = 2
[policies.player]
base = "tiny-16x1"
[algorithm]
name = "grpo"
group = 4
[warmstart]
bot = "bot:random"
episodes = 60
lr = 3e-2
batch = 32
[sampling]
max_tokens = 2
[rollout]
tasks = 2
[train]
steps = 2
lr = 1e-2
[eval]
opponents = ["bot:random", "bot:first"]
games = 3
every = 1
short_games = 2
[records]
tensorboard = "off"
[checkpoint]
share = 1
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    return str(file)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal wide enough that tables do not wrap."""
    monkeypatch.setattr(cli, "console", Console(width=240))
    monkeypatch.setenv("COLUMNS", "160")


def call(*arguments: str, stdin: str = "") -> Result:
    """Calls a command in this process. Errors that main() would turn into a sentence are raised."""
    result = CliRunner().invoke(cli.app, list(arguments), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def shell(*arguments: str, path: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """Calls a command as a user's shell would, through main()."""
    source = Path(cli.__file__).parents[2]
    where = os.pathsep.join(map(str, [source, *path]))
    code = "from interplay.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": where},
    )  # fmt: skip


# -- help and errors --------------------------------------------------------------------------------------------------


def test_help_teaches() -> None:
    """Every command is named, and the help says what to type first."""
    text = call("--help").output
    for command in ("train", "eval", "play", "check", "envs", "bots", "algorithms", "models"):
        assert command in text
    assert "interplay train recipes/" in text
    assert "train" in CliRunner().invoke(cli.app, []).output, "without arguments: help, not silence"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("train", ["--resume", "--run", "--dry-run", "train.steps=10", "interplay train runs/NAME --resume"]),
        ("eval", ["--checkpoint", "--out", "interplay eval runs/demo eval.games=1000"]),
        ("play", ["--seat", "--against", "interplay play runs/demo --seat O"]),
        ("check", ["--episodes", "package.module:Class", "size=4"]),
        ("envs", ["rules, actions, rewards and options"]),
        ("algorithms", ["what each needs", "a recipe that runs"]),
        ("models", ["--save", "--to", "Hugging Face folder"]),
    ],
)
def test_every_command_explains_itself(command: str, says: list[str]) -> None:
    text = call(command, "--help").output
    assert [s for s in says if s not in text] == []


def test_version() -> None:
    from interplay import __version__

    assert call("--version").output.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "nosuch.toml"], "recipe 'nosuch.toml' does not exist"),
        (["train", "RECIPE", "train.stps=3"], "unknown key 'stps' in [train]"),
        (["train", "RECIPE", "--steps", "3"], "--steps is not an option of this command; a key of the recipe is writ"),
        (["eval", "RECIPE", "--games=3"], "eval.games=VALUE. interplay keys lists all keys."),
        (["eval", "RECIPE", "eval.games=many"], "eval.games is 'many'; expected a whole number."),
        (["train", "RECIPE", "--dry-run", "seats=playr"], "Did you mean 'player'?"),
        (["check", "tictacto"], "Did you mean 'tictactoe'?"),
        (["check", "tictactoe", "siz=4"], "unknown key 'siz' in [env]"),
        (["envs", "matrx"], "Did you mean 'matrix'?"),
        (["algorithms", "grop"], "Did you mean 'grpo'?"),
        (["models", "--save", "tiny"], "--save is given without --to; expected --to FOLDER."),
        (["train", "RECIPE", "algorithm.name=ppo"], "to replace the whole table give 'algorithm={name = \"ppo\"}'."),
        (["train", "RECIPE", "env.name=kuhn"], "to replace the whole table give 'env={name = \"kuhn\"}'."),
        (["arena", "RECIPE", "bot:random", "playr"], "'playr' is not a player; expected bot:NAME, a run or checkpoint"),
        (["arena", "RECIPE", "bot:random", "src/none"], "'src/none' is not a player"),
        (
            ["arena", "RECIPE", "bot:random", "far=openai:"],
            "does not name a model; expected openai:MODEL@http://HOST/v1.",
        ),
        (["arena", "RECIPE", "bot:random", "far=openai:m@host"], "remote.url is 'host'; expected http:// or"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    arguments: list[str], says: str,
) -> None:  # fmt: skip
    """On standard error, without line breaks and with brackets; nothing on standard output, and no traceback."""
    swap = {"RECIPE": recipe, "FOLDER": str(tmp_path / "run")}
    monkeypatch.setattr(sys, "argv", ["interplay", *(swap.get(a, a) for a in arguments)])
    monkeypatch.setattr(sys, "path", sys.path[:])  # main() adds to it
    with pytest.raises(SystemExit) as caught:
        cli.main()
    told = capfd.readouterr()
    assert one_sentence(caught.value.code, told.out, told.err, says)


def one_sentence(code: object, out: str, err: str, says: str) -> bool:
    (line,) = err.splitlines()
    return code == 2 and out == "" and line.startswith("error: ") and says in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "RECIPE", "train.stps=3"], "unknown key 'stps' in [train]"),
        (["arena", "RECIPE", "bot:random", "playr"], "'playr' is not a player; expected bot:NAME, a run or checkpoint"),
    ],
)
def test_a_user_s_shell_sees_a_mistake_as_one_line_and_exit_code_2(
    recipe: str, arguments: list[str], says: str
) -> None:
    """A command without PyTorch, and one that loads it: the process writes nothing else."""
    done = shell(*(recipe if a == "RECIPE" else a for a in arguments))
    assert one_sentence(done.returncode, done.stdout, done.stderr, says)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ConfigError("train.lr is -1."), 2, "error: train.lr is -1."),
        (EngineError("the server [gpu-0] is gone."), 1, "error: the server [gpu-0] is gone."),
        (GuardError("word " * 100 + "end."), 1, "end."),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "the disk is full"),
        (shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'")]), 1, "the disk is full"),
        (OSError(errno.EROFS, "Read-only file system", "x/y"), 1, "'x/y' cannot be used (Read-only file system); expe"),
        (FileExistsError(errno.EEXIST, "File exists", "x"), 1, "'x' cannot be used (File exists); expected a folder"),
        (KeyboardInterrupt(), 130, "--resume"),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, says: str
) -> None:
    """2 for a recipe or argument, 1 for what went wrong on purpose, 130 for a second Ctrl-C; always one sentence."""

    def app() -> None:
        raise error

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == code
    captured = capsys.readouterr()
    assert says in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_ctrl_c_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Through the real command line, which handles Ctrl-C itself."""

    def arena(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("interplay.cli.arena.run_arena", arena)
    monkeypatch.setattr(sys, "argv", ["interplay", "arena", "kuhn", "bot:random", "bot:first"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 130 and "the same command continues from there" in capsys.readouterr().err


def test_a_warning_is_one_line_where_the_output_is_a_file() -> None:
    output = io.StringIO()
    sentence = "step 1: judge 'taste' gave no verdict, " + "and this is a long sentence " * 9 + "[with] brackets."
    warning = logging.LogRecord("interplay", logging.WARNING, __file__, 1, sentence, None, None)
    cli.warnings_to(Console(file=output, width=40)).handle(warning)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d WARNING " + re.escape(sentence) + "\n", output.getvalue())


@pytest.fixture
def readme(tmp_path: Path) -> None:
    """The README's own environment and algorithm, as modules in this folder."""
    page = (Path(cli.__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    for name, example in zip(("guessing", "bestof"), re.findall(r"```python\n(.*?)```", page, re.DOTALL), strict=True):
        (tmp_path / f"{name}.py").write_text(example)


def test_the_readme_s_own_algorithm_trains(
    readme: None, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(algorithm.ALGORITHMS, "classes", dict(algorithm.ALGORITHMS.classes))
    short = ("train.steps=1", "eval.every=0", "eval.before=false", "eval.after=false")
    call("train", recipe, 'algorithm={name="bestof:BestOf"}', *short, "--run", str(tmp_path / "run"))
    found = [r.credit.advantages for r in records.read(tmp_path / "run" / "episodes.jsonl")]
    assert {a for given in found for a in given.values()} == {0.0, 1.0} and all(found), (
        "every turn, the best ones alone"
    )


def test_the_readme_s_own_environment_and_algorithm_are_found(readme: None, recipe: str, tmp_path: Path) -> None:
    """They are found in the folder where the command is called, by module:Class. An import error is reported."""
    source = str(Path(cli.__file__).parents[2])
    code = f"import sys; sys.path.append({source!r}); from interplay.cli.main import main; main()"

    def here(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-c", code, *arguments]  # -P: as an installed script, without this folder
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert here("check", "guessing:Guess", "--episodes", "3").returncode == 0
    change = 'algorithm={name="bestof:BestOf"}'
    assert here("train", recipe, change, "--dry-run").returncode == 0
    for wrong, says in (("Best", "cannot be imported: "), ("credit", "is not an algorithm; expected a subclass")):
        assert says in here("train", recipe, change.replace("BestOf", wrong), "--dry-run").stderr


def test_a_folder_that_is_being_trained_is_refused(recipe: str, tmp_path: Path) -> None:
    from interplay.training.folder_lock import alone

    with alone(tmp_path / "run"):
        (tmp_path / "run" / "run.json").write_text("{}")
        with pytest.raises(ConfigError, match=r"another process is training in run folder '.*run'; wait for it"):
            call("train", recipe, "--run", str(tmp_path / "run"))
    with alone(tmp_path / "run"), alone(tmp_path / "other"):
        pass
    assert (tmp_path / "run").is_dir() and not (tmp_path / "other").exists(), "what was written stays"


def test_a_check_of_nothing_is_refused() -> None:
    """Twelve rules that were tested with no episode at all would look like a success."""
    assert call("check", "kuhn", "--episodes", "0").exit_code == 2


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that Interplay did not raise on purpose is not shown as a user's mistake."""
    for bug in (ZeroDivisionError("x"), PermissionError(errno.EACCES, "no")):

        def app(bug: Exception = bug) -> None:
            raise bug

        monkeypatch.setattr(cli, "app", app)
        with pytest.raises(type(bug)):
            cli.main()


def test_a_dry_run_prints_the_recipe_and_loads_nothing(recipe: str) -> None:
    """With every default filled in and overrides applied; torch is not imported."""
    code = (
        "import sys; from interplay.cli.main import app; "
        f"app(['train', {recipe!r}, 'train.steps=7', '--dry-run'], standalone_mode=False); "
        "sys.exit(3 if 'torch' in sys.modules else 0)"
    )
    source = str(Path(cli.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["train"]["steps"] == 7 and data["train"]["grad_clip"] == 1.0
    assert "X = player, O = player" in done.stderr


# -- environments and models ------------------------------------------------------------------------------------------


def test_check_passes_a_sound_environment() -> None:
    result = call("check", "tictactoe", "size=4", "--episodes", "3")
    assert result.exit_code == 0
    assert "0 failed" in result.output and "FAIL" not in result.output
    assert "determinism" in result.output and "hidden information" in result.output


BROKEN = '''
import random
from interplay.envs.games.tictactoe import TicTacToe

class Cheating(TicTacToe):
    """Who wins is decided by a coin that no seed controls."""

    def step(self, actions):
        rewards = super().step(actions)
        if self.over:
            self.winner = random.SystemRandom().choice(self.roles)
        return rewards
'''


def test_check_fails_a_broken_environment_from_outside(tmp_path: Path) -> None:
    """A user's own environment by module path: exit code 1, and the rule that it breaks."""
    (tmp_path / "mygames.py").write_text(BROKEN)
    done = shell("check", "mygames:Cheating", path=[tmp_path])
    assert done.returncode == 1, done.stderr
    (line,) = [row for row in done.stdout.splitlines() if "determinism" in row]
    assert "FAIL" in line
    assert shell("check", "mygames:Nothing", path=[tmp_path]).returncode == 2


def test_adapters_are_listed_with_their_games() -> None:
    listing = call("envs").output
    assert all(f"{prefix}GAME" in listing for prefix in envs.prefixes())
    page = call("envs", "openspiel").output
    assert "games:" in page and "leduc_poker" in page and "forfeit" in page


def test_an_environment_that_needs_a_package_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who installed only the core can list the environments, and sees what each of them needs."""

    def missing() -> None:
        raise ConfigError("comparing formulas needs math-verify: pip install 'interplay[math]'.")

    monkeypatch.setattr("interplay.rewards.algebra.require", missing)
    monkeypatch.setattr(env.ENVIRONMENTS, "_points", {"broken": "no_such_module:Game"})
    monkeypatch.setattr(algorithm.ALGORITHMS, "_points", {"broken": "no_such_module:Rule"})
    monkeypatch.setattr("interplay.cli.lists.console", Console(width=300))
    listing = call("envs").output
    assert "pip install 'interplay[math]'" in listing and "no_such_module" in listing
    assert all(f" {name} " in listing for name in ("math", "tictactoe", "sudoku", "openspiel:GAME"))
    listing = call("algorithms").output
    assert "no_such_module" in listing and "shapley" in listing


def test_the_page_of_keys_is_current_and_every_key_says_what_it_does() -> None:
    """docs/recipe.md: made again by `interplay keys --markdown > docs/recipe.md`."""
    page = call("keys", "--markdown").output
    assert page == (Path(__file__).parents[2] / "docs" / "recipe.md").read_text(encoding="utf-8")
    keys = [line for block in page.split("```")[1::2] for line in block.strip().splitlines()]
    assert [k for k in keys if "  " not in k] == []
    assert "train.lr = 1e-06  learning rate" in keys and 'train.schedule = "constant"' in page
    assert call("keys", "tools").output.splitlines()[0].startswith("tools.calls = 4")
    with pytest.raises(ConfigError, match=r"'trian' is not a key of a recipe; .*Did you mean 'train'"):
        call("keys", "trian")


def test_the_page_of_environments_is_what_the_command_prints() -> None:
    """docs/environments.md: made again by `interplay envs --markdown > docs/environments.md`."""
    assert call("envs", "--markdown").output == (Path(__file__).parents[2] / "docs" / "environments.md").read_text(
        encoding="utf-8"
    )


def test_envs_lists_and_explains() -> None:
    listing = call("envs").output
    for name, roles in (("tictactoe", "X, O"), ("matrix", "p0, p1")):
        (line,) = [row for row in listing.splitlines() if f" {name} " in row]
        assert roles in line
    page = call("envs", "tictactoe").output
    for word in ("Roles", "Observation", "Actions", "Rewards", "size = 3", "line = 3", "memory = false"):
        assert word in page


def test_algorithms_lists_needs_and_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every algorithm is in the table with a recipe that names it; its page has the explanation and the settings."""
    from interplay.algorithms import known
    from interplay.cli.listing import algorithm_needs, algorithm_table
    from interplay.config import load

    monkeypatch.chdir(Path(__file__).parents[2])
    columns = [list(column.cells) for column in algorithm_table().columns]
    names, recipes = columns[0], columns[3]
    assert names == known()
    assert [load(str(recipe)).algorithm.name for recipe in recipes] == names
    assert {str(recipe).split("/")[1] for recipe in recipes} <= {"matrix", "tictactoe", "kuhn"}, "these need no extra"
    needs = {name: algorithm_needs(name) for name in names}
    assert needs["mappo"] == ["central critic"] and needs["coma"] == ["tree", "central critic"]
    assert needs["grpo"] == ["groups"] and needs["online_dpo"] == ["tree", "reference"]
    assert "legal actions" in needs["qmix"][-1] and needs["rae"] == ["nothing"]
    page = call("algorithms", "dapo").output
    assert "Clip-higher" in page and "clip_high = 0.28" in page
    assert "Needs: groups." in page and "Recipe: recipes/matrix/dapo.toml" in page
    assert "overlong.margin = (required)" in page
    custom = call("algorithms", "custom").output
    assert "plan = (required)" in custom and 'plan.keep = "greedy"' in custom and "critic.lr = 1e-05" in custom


def test_bots_are_listed_as_a_seat_names_them() -> None:
    text = call("bots").output
    assert "bot:minimax" in text and "Always the first legal action." in text
    assert all(f"bot:{name}" in text for name in known_bots())


def test_models_lists_what_a_base_can_be() -> None:
    text = call("models").output
    for base in ("tiny", "smollm2", ".gguf", "owner/name", "path/to/folder"):
        assert base in text


def test_a_saved_model_is_an_ordinary_hugging_face_folder(tmp_path: Path) -> None:
    """Plain transformers can load and run it; an existing folder is not overwritten."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path / "tiny"
    assert f"saved tiny to {folder}" in call("models", "--save", "tiny", "--to", str(folder)).output
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    chat = [{"role": "user", "content": "Your move?"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    out = model.generate(ids, max_new_tokens=3, do_sample=False)
    assert out.shape[1] > ids.shape[1] and torch.equal(out[:, : ids.shape[1]], ids)
    with pytest.raises(ConfigError, match="already exists"):
        call("models", "--save", "tiny", "--to", str(folder))


# -- play -------------------------------------------------------------------------------------------------------------


def test_play_samples_as_the_evaluation_does(recipe: str) -> None:
    """An untrained model gives only legal moves if eval.legal is set, so that the person gets a turn."""
    illegal, legal = (
        call("play", recipe, f"eval.legal={on}", "--seat", "O", stdin="q\n").output for on in ("false", "true")
    )
    assert "illegal" in illegal and "illegal" not in legal and re.search(r"X \(player\): [1-4]\n", legal)


def test_playing_a_whole_game(recipe: str) -> None:
    """After illegal input the person is asked again; the bot takes the first free cell; 1, 5, 9 wins."""
    overrides = ["env.size=3", "env.line=3"]
    result = call("play", recipe, *overrides, "--against", "bot:first", stdin="99\n\n1\n1\n5\n9\n")
    assert result.exit_code == 0
    assert "You are X; O is bot:first." in result.output
    assert result.output.count("not a legal move; choose from: 1, 2, 3, 4, 5, 6, 7, 8, 9") == 2
    assert "not a legal move; choose from: 3, 4, 5, 6, 7, 8, 9" in result.output
    assert "O (bot:first): 2" in result.output and "O (bot:first): 3" in result.output
    assert "X won" in result.output and "X: win +1" in result.output and "O: win -1" in result.output


def test_the_name_of_an_environment_is_recipe_enough() -> None:
    """The strongest scripted player that knows the game takes the other seats; free text may have several lines."""
    typed = "I like hats. \\\noffer 1 0 0\n"
    result = call("play", "negotiation", "env.turns=2", stdin=typed + "accept\n")
    assert result.exit_code == 0 and "You are p0; p1 is bot:solver." in result.output
    assert "end a line with \\ to go on" in result.output
    assert "I like hats." in result.output.split("p1 (bot:solver)")[1]
    result = call("play", "kuhn", "--seat", "p1", "--seed", "3", stdin="BET\nbet\n")
    assert result.exit_code == 0 and "p0 is bot:equilibrium" in result.output
    for command in (["play", "kuhnn"], ["arena", "kuhnn", "bot:random", "bot:first"]):
        with pytest.raises(ConfigError, match=r"not a recipe, run folder or environment; .*Did you mean 'kuhn'"):
            call(*command)


def test_an_arena_takes_changes_of_the_recipe(tmp_path: Path) -> None:
    options = ["env.size=2", "env.line=2", "seed=3", "--games", "2", "--out", str(tmp_path)]
    result = call("arena", "tictactoe", "bot:random", "b=bot:first", *options)
    assert result.exit_code == 0 and "2 players against each other, 2 tasks per seating, seed 3" in result.output
    assert {r["name"] for r in json.loads((tmp_path / "arena.json").read_text())["ratings"]} == {"bot:random", "b"}


@pytest.mark.parametrize("stdin", ["q\n", "QUIT\n", "1\nexit\n", ""])
def test_leaving_a_game(recipe: str, stdin: str) -> None:
    """With q, quit, exit or the end of input, no outcome is announced, and this is not an error."""
    overrides = ["env.size=3", "env.line=3"]
    result = call("play", recipe, *overrides, "--against", "bot:first", stdin=stdin)
    assert result.exit_code == 0 and "won" not in result.output and "win" not in result.output


def test_a_person_may_call_tools(tmp_path: Path) -> None:
    """A line @NAME runs the tool and asks again; a call that cannot be parsed gets an error message."""
    file = tmp_path / "sql.toml"
    changes = ('name = "tictactoe"\nsize = 2\nline = 2', 'name = "sql"\nteam = "single"\ntools = true')
    text = RECIPE.replace(*changes).split("[warmstart]")[0] + '[eval]\nopponents = ["team"]\nsuccess = "match"\n'
    file.write_text(text)
    typed = "@sql SELECT count(*) AS n FROM purchase\n@spl x\nSELECT 1\n"
    done = call("play", str(file), stdin=typed)
    assert done.exit_code == 0, done.output
    assert "@sql QUERY: Runs one SELECT" in done.output
    assert "n\n24\n(3 calls left)" in done.output and "there is no tool 'spl'" in done.output
    assert "team: match +0" in done.output


def test_playing_the_second_seat_against_the_policy(recipe: str) -> None:
    """The policy moves first. It is untrained, so it forfeits at some point, and the game says so."""
    result = call("play", recipe, "--seat", "O", stdin="1\n2\n3\n4\n" * 3)
    assert result.exit_code == 0
    assert "You are O; X is player." in result.output and "X (player): " in result.output
    assert "O: win" in result.output


def test_moves_at_once_are_shown_after_the_person_has_moved(recipe: str) -> None:
    """In a simultaneous game, the opponent's move must not be known before the person has moved."""
    arguments = ["env={name = 'matrix', game = 'rock_paper_scissors'}", "--against", "bot:first"]
    result = call("play", recipe, *arguments, stdin="paper\n")
    assert result.exit_code == 0
    assert result.output.index("> ") < result.output.index("p1 (bot:first): rock")
    assert "p0: payoff +1" in result.output


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--seat", "Y"], r"--seat is 'Y'; known: O, X\."),
        (["--against", "bot:minmax"], "Did you mean 'minimax'"),
        (["--against", "playr"], "Did you mean 'player'"),
    ],
)
def test_play_refuses_an_unknown_seat_or_opponent(recipe: str, arguments: list[str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        call("play", recipe, *arguments)


# -- eval -------------------------------------------------------------------------------------------------------------


def test_eval_measures_an_untrained_recipe(recipe: str, tmp_path: Path) -> None:
    """A table on the terminal and JSON with intervals: every opponent, every seat."""
    out = tmp_path / "measured"
    result = call("eval", recipe, "eval.games=4", "--out", str(out))
    assert result.exit_code == 0 and "bot:first" in result.output and "illegal" in result.output
    data = json.loads((out / "eval.json").read_text())
    assert (data["name"], data["seeds"]) == ("small", [0])
    found = data["results"]
    assert [(r["opponent"], r["role"]) for r in found] == [(o, s) for o in ("bot:random", "bot:first") for s in "XO"]
    for row in found:
        assert row["games"] == 4 == row["wins"] + row["draws"] + row["losses"]
        assert 0 <= row["win_low"] <= row["win_rate"] <= row["win_high"] <= 1
        assert row["reward_low"] <= row["reward"] <= row["reward_high"]


# -- train ------------------------------------------------------------------------------------------------------------


def read(file: Path) -> Any:
    return json.loads(file.read_text())


def test_a_run_from_end_to_end(recipe: str, tmp_path: Path) -> None:
    """Train, check the files, be refused, continue training, evaluate, play."""
    run = tmp_path / "run"
    result = call("train", recipe, "--run", str(run))
    assert result.exit_code == 0
    for stage in ("untrained", "before", "after"):
        assert stage in result.output
    assert "train 1/2 " in result.output and "train 2/2 " in result.output, "this output is no terminal"
    for hint in (f"interplay play {run} --seat O", f"interplay eval {run}", f"interplay train {run} train.steps=4"):
        assert hint in result.output

    assert load(run) == load(recipe), "run.json holds the recipe"
    assert read(run / "run.json")["versions"]["python"]
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == [1, 2]
    assert all("eval/win_rate/bot:random" in row and "reward" in row for row in metrics)
    episodes = [r.episode for r in records.read(run / "episodes.jsonl")]
    assert len(episodes) == 2 * 2 * 4 and all(e.error is None for e in episodes)
    for pattern in ("game_results_*.log", "llm_conversation_*.log", "game_summary_*.txt"):
        (log,) = (run / "logs").glob(pattern)
        assert log.stat().st_size > 0
    report = read(run / "report.json")
    assert report["steps"] == 2 and report["training_seconds"] <= report["total_seconds"]
    assert {stage: len(rows) for stage, rows in report["results"].items()} == {"untrained": 4, "before": 4, "after": 4}
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["step-000001", "step-000002"]

    with pytest.raises(ConfigError, match="already contains a run; add --resume"):
        call("train", recipe, "--run", str(run))
    with pytest.raises(ConfigError, match="already contains a run; add --resume"):
        call("train", str(run))

    result = call("train", str(run), "train.steps=3", "--resume")
    assert result.exit_code == 0 and "untrained" in result.output
    assert load(run).train.steps == 3
    again = read(run / "report.json")
    assert again["steps"] == 3
    assert again["training_seconds"] > report["training_seconds"], "the time of both parts"
    assert again["measuring_seconds"]["before"] == report["measuring_seconds"]["before"]
    assert again["results"]["before"] == report["results"]["before"], "measured once, and kept"
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3

    call("eval", str(run))
    measured = [
        {k: r[k] for k in after}
        for r, after in zip(read(run / "eval" / "eval.json")["results"], again["results"]["after"], strict=True)
    ]
    assert measured == again["results"]["after"], "eval finds the newest checkpoint and the same seeds"
    older = run / "checkpoints" / "step-000002"
    assert call("eval", str(run), "eval.games=2", "--checkpoint", str(older)).exit_code == 0
    assert "You are X" in call("play", str(run), stdin="q\n").output


def test_training_against_a_remote_model(recipe: str, tmp_path: Path) -> None:
    """A remote server plays one seat: it is asked for moves, it is not trained, and it needs no memory here."""
    run = tmp_path / "run"
    with serving(Chat(answer=lambda body: "4")) as chat:
        far = f'policies.far={{base = "openai:m", remote = {{url = "{chat.url}"}}, trainable = false}}'
        seats = 'seats={X = "player", O = "far"}'
        result = call("train", recipe, far, seats, "eval.every=0", "eval.games=1", "--run", str(run))
    assert result.exit_code == 0 and "needs about" in result.output
    assert chat.bodies and {body["model"] for body in chat.bodies} == {"m"}
    turns = [t for r in records.read(run / "episodes.jsonl") for t in r.episode.turns]
    assert {(t.role, t.policy, t.is_model) for t in turns} == {("X", "player", True), ("O", "far", False)}
    assert [p.name for p in (run / "checkpoints" / "step-000002" / "policies").iterdir()] == ["player"]


def test_what_was_measured_before_a_kill_is_not_lost(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the run is killed in its first step, it continues and still shows the results from before."""
    from interplay.training.trainer import Trainer

    class Killed(BaseException):
        pass

    async def die(self: Trainer) -> None:
        raise Killed

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_one_step", die)
        with pytest.raises(Killed):
            call("train", recipe, "--run", str(run))
    before = read(run / "report.json")["results"]
    assert set(before) == {"untrained", "before"}
    call("train", recipe, "--run", str(run), "--resume")
    after = read(run / "report.json")["results"]
    assert list(after) == ["untrained", "before", "after"]
    assert after["untrained"] == before["untrained"], "not measured again with the weights of the warm start"


def test_a_damaged_file_of_a_run_is_one_sentence(recipe: str, tmp_path: Path) -> None:
    """Nothing is trained, because the next report would replace what was measured."""
    run = tmp_path / "a run"
    call("train", recipe, "train.steps=1", "eval.games=1", "eval.every=0", "--run", str(run))
    whole = (run / "report.json").read_bytes()
    (run / "report.json").write_bytes(whole[:100])
    with pytest.raises(DataError, match=r"report.json' is damaged .* restore it, or remove it to go on without"):
        call("train", str(run), "--resume", "train.steps=2")
    (run / "report.json").write_bytes(whole)
    result = call("train", str(run), "--resume", "train.steps=2", "eval.games=1", "eval.after=false")
    assert f"interplay view '{run}'" in result.output, "the command can be copied"
    for text in ('{"recipe": ', "[]", "{}"):
        (run / "run.json").write_text(text)
        with pytest.raises(ConfigError, match=r"run.json' is damaged \(.*expected the run.json that interplay"):
            call("eval", str(run))


def test_a_folder_that_is_no_checkpoint_is_refused(recipe: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--checkpoint is '.*', which holds no checkpoint; expected one of a run's"):
        call("eval", recipe, "--checkpoint", str(tmp_path))


def test_a_folder_in_place_of_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "run.json").write_text("{}")
    done = shell("view", str(tmp_path / "runs"), "--export", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"error: '{tmp_path}' is a folder; expected the name of a file.\n"
