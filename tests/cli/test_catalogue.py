"""`interplay recipes` and `interplay runs`."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from interplay.cli.catalogue import _first_sentence, recipe_table, recipe_text, run_table
from interplay.cli.listing import algorithm_recipes
from interplay.config import load, packaged
from interplay.errors import ConfigError
from interplay.training import folder_lock
from interplay.training.folder_lock import alone, is_training


def now(path: Path) -> None:
    """The file counts as written just now, however slow this machine is."""
    os.utime(path, times=(time.time() + 3600,) * 2)


def test_every_recipe_is_listed_with_a_sentence_and_can_be_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # as somebody who installed the wheel and has no clone
    names, sentences = (list(column.cells) for column in recipe_table().columns)
    assert len(names) == len(packaged()) > 80 and all(sentences)
    assert "vision/qwen2_5_vl" in names and "rlhf/smollm2/story" in names
    assert not any("experiment" in str(name) for name in names), "studies are no recipes"
    (tmp_path / "my.toml").write_text(recipe_text("tictactoe/demo"), encoding="utf-8")
    assert load("my.toml") == load("recipes/tictactoe/demo.toml")
    assert tomllib.loads(recipe_text("demo"))["name"] == "tictactoe-demo"
    assert recipe_text("recipes/tictactoe/demo.toml") == recipe_text("demo")
    assert algorithm_recipes()["grpo"] == "recipes/matrix/grpo.toml"


@pytest.mark.parametrize(
    ("comment", "sentence"),
    [
        ("# One sentence.\n# Another one.", "One sentence"),
        ("# With Dr. Watson (cf. J. Nash) in\n# two rounds. It ends.", "With Dr. Watson (cf. J. Nash) in two rounds"),
        ("# Stag hunt, e.g. for L1. See math/pair.toml.", "Stag hunt, e.g. for L1"),
        ("# As in math/pair.toml. More.", "As in math/pair.toml"),
        ("# No end", "No end"),
        ("name = 1", ""),
    ],
)  # fmt: skip
def test_an_abbreviation_does_not_end_the_sentence_about_a_recipe(comment: str, sentence: str) -> None:
    assert _first_sentence(f"{comment}\nname = 'x'\n# not this") == sentence


def test_a_recipe_that_is_not_there_or_not_unique_is_refused_with_names() -> None:
    with pytest.raises(ConfigError, match=r"'tictactoe/dmo' is not a recipe of.* Did you mean 'tictactoe/demo'\?"):
        recipe_text("tictactoe/dmo")
    with pytest.raises(ConfigError, match=r"'grpo' is the name of several recipes; expected one of .*matrix/grpo"):
        recipe_text("grpo")


def test_runs_are_listed_with_progress_reward_and_wins(tmp_path: Path) -> None:
    run = tmp_path / "first"
    run.mkdir()
    recipe = {"name": "first", "env": {"name": "kuhn"}, "seed": 3, "train": {"steps": 9}, "policies": {}}
    (run / "run.json").write_text(json.dumps({"recipe": recipe}))
    rows = [{"step": n, "reward": n / 4, "eval/win_rate/bot:random": n / 100} for n in range(1, 10)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 10, "rew')
    now(run / "metrics.jsonl")
    (tmp_path / "empty").mkdir()
    console = Console(width=120)
    with console.capture() as capture:
        console.print(run_table([tmp_path]))
    line = capture.get().splitlines()[1]
    assert line.split()[:6] == ["first", "kuhn", "3", "9/9", "+2.25", "▁▂▃▄▅▆▇█"]
    assert "random 9.0%" in line and line.rstrip().endswith(" 0 s ago")
    with pytest.raises(ConfigError, match="is no folder"):
        run_table([tmp_path / "nowhere"])
    assert run_table([tmp_path / "empty"]).caption == "no runs here yet"


def begun(folder: Path, **train: object) -> None:
    """A run that has taken one step of five."""
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"recipe": {"train": {"steps": 5, **train}}}))
    (folder / "metrics.jsonl").write_text('{"step": 1, "time": 1.0, "x/tokens": 40, "xo/tokens": 60}\n')
    now(folder / "metrics.jsonl")


def shown(folder: Path) -> str:
    (_, _, _, steps, _, _, _) = (next(iter(column.cells)) for column in run_table([folder]).columns)
    return str(steps)


def test_a_run_is_training_as_long_as_its_process_lives(tmp_path: Path) -> None:
    """Another process locks the folder, as `interplay train` does. Then it is killed."""
    begun(tmp_path)
    code = (
        "import sys, time; from pathlib import Path; from interplay.training.folder_lock import alone\n"
        "with alone(Path(sys.argv[1])): print('locked', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        assert shown(tmp_path) == "1/5 training" and shown(tmp_path) == "1/5 training", "reading changes nothing"
        os.utime(tmp_path / "metrics.jsonl", times=(0, 0))
        os.utime(tmp_path / "run.json", times=(0, 0))
        assert shown(tmp_path) == "1/5 training", "a step may take very long"
    finally:
        process.kill()
        process.wait()
    now(tmp_path / "metrics.jsonl")
    assert shown(tmp_path) == "1/5 stopped", "although it was written just now"


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({}, "1/5 stopped"),
        ({"steps": 1}, "1/1"),
        ({"budget_tokens": 100}, "1/5"),
        ({"budget_tokens": 101}, "1/5 stopped"),
        ({"budget_tokens": 60, "budget_policy": "xo"}, "1/5"),
        ({"budget_tokens": 60, "budget_policy": "o"}, "1/5 stopped"),
    ],
)
def test_a_run_that_used_up_its_budget_is_not_stopped(tmp_path: Path, train: dict[str, object], expected: str) -> None:
    begun(tmp_path, **train)
    assert shown(tmp_path) == expected


def test_where_folders_cannot_be_locked_a_run_that_was_written_just_now_is_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*given: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr("fcntl.flock", unable)
    begun(tmp_path)
    assert shown(tmp_path) == "1/5 training"
    for file in tmp_path.iterdir():
        os.utime(file, times=(0, 0))
    assert shown(tmp_path) == "1/5 stopped"


def test_a_look_at_the_lock_does_not_refuse_a_trainer_that_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look ends while the trainer waits for the last time."""
    import fcntl

    begun(tmp_path)
    looking, pauses = os.open(tmp_path, os.O_RDONLY), list[float]()
    fcntl.flock(looking, fcntl.LOCK_SH)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if sum(pauses) > 0.95:
            os.close(looking)

    monkeypatch.setattr(folder_lock, "time", SimpleNamespace(sleep=pause))
    with alone(tmp_path):
        assert is_training(tmp_path)
    assert not is_training(tmp_path)
