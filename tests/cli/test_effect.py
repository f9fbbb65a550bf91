"""An option that would have no effect is refused, in one sentence with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import interplay as ip
from interplay.cli import main as cli
from interplay.config import load
from interplay.errors import ConfigError, DataError

ROOT = Path(__file__).parents[2]
DEMO = str(ROOT / "recipes/tictactoe/demo.toml")


def call(*arguments: str) -> str:
    """Call a command. An error that `main` would print as a sentence is raised."""
    result = CliRunner().invoke(cli.app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train DEMO --memory", "--memory has no effect without --dry-run; add --dry-run, or leave --memory out."),
        ("train DEMO --resume", "--resume has no effect without a run folder; add --run FOLDER, or name the folder in"),
        ("train DEMO --resume --dry-run", "--resume has no effect without a run folder"),
        ("export run --to x --public", "--public has no effect without --push; add --push OWNER/NAME, or leave"),
        ("view --episodes 3", "--episodes has no effect without --export; add --export FILE, or leave --episodes out."),
        ("view --export x --port 80", "--port has no effect with --export, which starts no server; leave --port out."),
        ("view --export x --no-browser", "--no-browser has no effect with --export, which starts no server; leave"),
        ("envs kuhn --markdown", "'kuhn' has no effect with --markdown, which prints all pages; leave 'kuhn' out."),
        ("keys train --markdown", "'train' has no effect with --markdown, which prints all keys; leave 'train' out."),
        ("models --to x", "--to has no effect without --save; add --save MODEL, or leave --to out."),
        ("models --seed 1", "--seed has no effect without --save; add --save MODEL, or leave --seed out."),
        ("models --save smollm2 --to x --seed 1", "--seed has no effect on 'smollm2', whose weights are not random"),
        ("prepare --to x", "--to has no effect without a data set; name one, or leave --to out."),
        ("prepare --no-check", "--no-check has no effect without a data set; name one, or leave --no-check out."),
        ("prepare gsm8k --compare text", "--compare has no effect on 'gsm8k', a format with a checker of its own"),
        ("prepare hub:a/b --question q --answer a --from x", "--from is 'x', but 'hub:a/b' already names a data set"),
        ("judge serve x --key-variable NOT_SET_HERE", "--key-variable is 'NOT_SET_HERE', but this environment"),
        ("arena kuhn bot:random bot:first eval.games=3", "eval.games has no effect in an arena; say --games N, or"),
        ("eval BOTS --checkpoint x", "--checkpoint has no effect if only bots play; leave --checkpoint out."),
        ("play sums --against bot:random", "--against has no effect if 'solver' is the only role; leave"),
        ("experiment STORY --seeds 9", "--seeds has no effect above 8, the most seeds of a study here; leave --seeds"),
    ],
)
def test_an_option_without_effect_is_refused(
    arguments: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bots.toml").write_text(
        'name = "bots"\n[env]\nname = "tictactoe"\n[policies.player]\nbase = "tiny"\n'
        '[seats]\nX = "bot:first"\nO = "bot:random"\n[algorithm]\nname = "grpo"\n'
    )
    study = str(ROOT / "recipes/rlhf/experiment/story.toml")
    places = {"DEMO": DEMO, "BOTS": "bots.toml", "STORY": study}
    with pytest.raises(ConfigError) as done:
        call(*(places.get(word, word) for word in arguments.split()))
    assert str(done.value).startswith(says)
    assert [path.name for path in tmp_path.iterdir()] == ["bots.toml"], "nothing was begun"


def test_a_dry_run_checks_the_folder_that_the_run_would_have(tmp_path: Path) -> None:
    """It ignored --run, so the same command without --dry-run was refused later."""
    (tmp_path / "used" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"'.*used' already contains a run; add --resume to continue it"):
        call("train", DEMO, "--dry-run", "--run", str(tmp_path / "used"))
    assert '"name": "tictactoe-demo"' in call("train", DEMO, "--dry-run", "--run", str(tmp_path / "new"))


def test_resuming_in_python_needs_a_run_folder_too() -> None:
    with pytest.raises(ConfigError, match="resume has no effect without a run folder; give run, or the folder in"):
        ip.train(DEMO, resume=True)


def test_merged_needs_an_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from interplay.cli import export

    monkeypatch.setattr(export, "load", lambda *_: load(DEMO, []))
    monkeypatch.setattr(export, "newest", lambda *_: {"player": str(tmp_path)})
    with pytest.raises(ConfigError, match="--merged has no effect on 'player', which has no adapter; leave --merged"):
        call("export", "run", "--to", str(tmp_path / "out"), "--merged")
    assert not (tmp_path / "out").exists()


def test_collected_answers_go_into_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from interplay.rollout import collect

    monkeypatch.setattr(collect, "collected", lambda *_: [{"right": True, "group": "a"}])
    call("judge", "collect", "run", "--label", "match", "--to", str(tmp_path / "new" / "x.jsonl"))
    assert (tmp_path / "new" / "x.jsonl").read_text() == '{"right": true, "group": "a"}\n'


def test_a_role_that_no_episode_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from interplay.rollout import collect

    (tmp_path / "episodes.jsonl").write_text("")
    monkeypatch.setattr(collect.records, "read", lambda _: [])
    with pytest.raises(DataError, match="--role is 'solvr', which no episode of"):
        call("judge", "collect", str(tmp_path), "--label", "match", "--to", str(tmp_path / "x"), "--role", "solvr")
