"""The experiment on a lent machine: what a call packs is enough for the next call and for the pages."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
CHANGES = [
    "policies.learner.base=tiny-32x1", "train.steps=2", "rollout.tasks=2", "algorithm.group=2",
    "records.tensorboard=off", "device=cpu", "env.sentences=2",
]  # fmt: skip


def test_a_packed_experiment_is_done_when_it_is_unpacked(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "small.toml"
    lines = [
        'name = "small"', f'recipe = "{ROOT / "recipes" / "rlhf" / "story.toml"}"', "seeds = [0]", "games = 2",
        f"common = {json.dumps(CHANGES)}", "[arms]", "fixed = []",
        "[tests]", 'seen = { seats = [["partner=bot:writer:plain"]] }',
    ]  # fmt: skip
    file.write_text("\n".join(lines))
    script, packed = load_script("benchmarks/rlhf_experiment.py"), str(tmp_path / "all.tar.gz")
    call = ["rlhf_experiment.py", str(file), "--jobs", "1", "--out"]
    monkeypatch.setattr("sys.argv", [*call, str(tmp_path / "here"), "--pack", packed])
    script.main()
    assert "small: 1 run, 1 left" in (said := capsys.readouterr().out) and "0 runs left" in said
    with tarfile.open(packed) as tar:
        names = set(tar.getnames())
    assert {"small/study.json", "small/fixed/seed-0/test.json", "small/fixed/seed-0/metrics.jsonl"} <= names
    assert not any("checkpoints" in name for name in names)  # without an arena nobody needs the weights
    monkeypatch.setattr("sys.argv", [*call, str(tmp_path / "there"), "--unpack", packed])
    script.main()
    assert "small: 1 run, 0 left" in capsys.readouterr().out
