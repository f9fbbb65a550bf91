"""run.json says what a run was made with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from interplay.config import parse
from interplay.training import provenance
from interplay.training.run_folder import RunFolder

RECIPE = parse({
    "name": "x", "env": {"name": "sums"}, "policies": {"p": {"base": "tiny"}}, "seats": "p",
    "algorithm": {"name": "grpo"}, "records": {"tensorboard": "off"},
})  # fmt: skip


def test_every_start_of_a_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (["interplay", "train", "x.toml"], ["interplay", "train", "runs/x", "--resume"]):
        monkeypatch.setattr(sys, "argv", command)
        folder = RunFolder(tmp_path, RECIPE)
        folder.recipe(RECIPE)  # as the trainer does once the recipe has passed all checks
        folder.recipe(RECIPE)
        folder.close()
    about = json.loads((tmp_path / "run.json").read_text())
    assert [s["command"][-1] for s in about["sessions"]] == ["x.toml", "--resume"]
    last = about["sessions"][-1]
    assert last["versions"] == about["versions"] and last["versions"]["torch"]
    assert last["hardware"]["cores"] >= 1 and last["hardware"]["processor"]
    assert last["began"].endswith("Z")


def test_a_password_in_a_url_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["interplay", "policies.p.remote.url=https://me:'sec@ret@host/v1", "a@b"])
    assert provenance.command() == ["interplay", "policies.p.remote.url=https://[hidden]@host/v1", "a@b"]


def test_the_commit_says_whether_files_differ_from_it(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e@x", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    assert provenance.commit(tmp_path) is None
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-q", "-m", "one")
    head = git("rev-parse", "HEAD")
    assert provenance.commit(tmp_path) == head
    (tmp_path / "a").write_text("2")
    assert provenance.commit(tmp_path) == head + "+changes"
