"""`interplay train --dry-run`: what it prints, for people and for programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interplay.cli import dry_run, train
from interplay.cli.main import app
from interplay.errors import ConfigError

RECIPE = str(Path(__file__).parents[2] / "recipes" / "tictactoe" / "demo.toml")


def test_json_is_one_object_that_programs_can_read() -> None:
    done = CliRunner().invoke(app, ["train", RECIPE, "train.steps=7", "--dry-run", "--json"])
    found = json.loads(done.stdout)
    assert found["recipe"]["train"]["steps"] == 7 and found["seats"] == {"X": "player", "O": "player"}
    assert found["plan"].startswith("Tree(") and found["memory"] is None


def test_memory_is_listed_by_part() -> None:
    done = CliRunner().invoke(app, ["train", RECIPE, "device=cpu", "--dry-run", "--json", "--memory"])
    needs = json.loads(done.stdout)["memory"]
    assert needs["needed"] == sum(needs["parts"].values()) > needs["parts"]["weights"] > 0
    assert needs["device"] == "cpu" and needs["available"] > needs["needed"]
    done = CliRunner().invoke(app, ["train", RECIPE, "--dry-run", "--memory"])
    assert done.exit_code == 0 and "needs about" in done.stderr


@pytest.mark.parametrize("option", ["--memory", "--time", "--json"])
def test_an_option_of_the_dry_run_does_not_start_a_training(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "train_recipe", lambda *_: pytest.fail("a training was started"))
    done = CliRunner().invoke(app, ["train", RECIPE, option])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith(f"{option} has no effect without --dry-run; add --dry-run")


def test_standard_output_is_json_also_for_people() -> None:
    """What is not JSON goes to standard error, so that the output can be piped into a program."""
    done = CliRunner().invoke(app, ["train", RECIPE, "train.steps=7", "--dry-run"])
    assert json.loads(done.stdout)["train"]["steps"] == 7
    assert "seats: X = player, O = player; plan: a tree with " in done.stderr


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        ("policies.player.base=no-such.gguf", "the model file no-such.gguf"),
        ("policies.player.base=./no-such-folder", "the model folder ./no-such-folder"),
        ("records.wandb=online", "pip install 'interplay[wandb]'"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_loaded(
    change: str, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = dry_run.find_spec
    monkeypatch.setattr(dry_run, "find_spec", lambda name: None if name == "wandb" else known(name))
    done = CliRunner().invoke(app, ["train", RECIPE, change, "--dry-run", "--json"])
    assert isinstance(done.exception, ConfigError) and lacks in str(done.exception)
    assert lacks in " ".join(json.loads(done.stdout)["missing"])


def test_a_folder_that_is_called_tiny_is_not_taken_for_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["train", RECIPE, "--dry-run", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["missing"] == []


def test_a_model_of_the_hub_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["train", RECIPE, "policies.player.base=nobody/no-such-model", "--dry-run", "--json"]
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    found = json.loads(CliRunner().invoke(app, wanted).stdout)
    assert found["downloads"] == ["nobody/no-such-model"] and found["missing"] == []
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE" in json.loads(CliRunner().invoke(app, wanted).stdout)["missing"][0]


def test_the_time_of_a_run_is_scaled_up_from_a_few_steps() -> None:
    less = ["rollout.tasks=1", "warmstart.episodes=128", "eval.games=16", "train.steps=40"]
    done = CliRunner().invoke(app, ["train", RECIPE, *less, "device=cpu", "--dry-run", "--time", "--json"])
    takes = json.loads(done.stdout)["time"]
    assert takes["steps"] == 40 and takes["step"] > 0 and takes["imitation"] > 0 and takes["measuring"] > 0
    assert takes["seconds"] == pytest.approx(takes["imitation"] + 40 * takes["step"] + takes["measuring"])
    assert takes["peak"] > 2**26


def test_the_time_of_imitation_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps do not all take the same time. The difference must not be scaled up as if it were imitation."""
    from interplay.cli.session import Session

    measured: list[Session] = []
    run = Session.run

    def slow_end(self: Session) -> bool:
        done = run(self)
        self.trainer.seconds += 1000.0  # as if a step had been slow
        measured.append(self)
        return done

    monkeypatch.setattr(Session, "run", slow_end)
    less = ["rollout.tasks=1", "warmstart.episodes=128", "eval.opponents=[]", "policies.player.base=tiny-16x1"]
    done = CliRunner().invoke(app, ["train", RECIPE, *less, "device=cpu", "--dry-run", "--time", "--json"])
    (session,) = measured
    assert 0 < session.imitation < 1000
    assert json.loads(done.stdout)["time"]["imitation"] == session.imitation * 128 / 64


def test_memory_of_a_run_on_a_gpu_is_estimated_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    done = CliRunner().invoke(app, ["train", RECIPE, "device=cuda", "--dry-run", "--json", "--memory"])
    found = json.loads(done.stdout)
    assert found["memory"]["needed"] > 0 and found["memory"]["available"] is None
    assert found["missing"] == ["a CUDA device (device is 'cuda')"]
    assert isinstance(done.exception, ConfigError) and "a CUDA device" in str(done.exception)


def test_a_rehearsal_trains_also_what_is_frozen_at_first() -> None:
    less = ["rollout.tasks=1", "warmstart.episodes=20", "eval.games=1", "train.steps=10"]
    frozen = ["policies.player.base=tiny-16x1", "policies.player.frozen=[[0,5]]"]
    done = CliRunner().invoke(app, ["train", RECIPE, *less, *frozen, "device=cpu", "--dry-run", "--time", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["time"]["steps"] == 10


def test_a_run_that_does_not_fit_is_refused_with_a_value_that_fits() -> None:
    wanted = ["train", RECIPE, "device=cpu", "--dry-run", "--memory"]
    done = CliRunner().invoke(app, [*wanted, "train.micro_batch_tokens=9000000000"])
    assert isinstance(done.exception, ConfigError)
    (fits,) = re.findall(r"it would fit with (train\.micro_batch_tokens=\d+)", str(done.exception))
    assert CliRunner().invoke(app, [*wanted, fits]).exit_code == 0
