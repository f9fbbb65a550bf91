"""`benchmarks/gpu.py`: the jobs for a GPU that is available only for minutes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gpu(
    load_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Runs the script with other jobs, and returns what it wrote down as done."""
    module = load_script("benchmarks/gpu.py")
    (tmp_path / "job.py").write_text("import sys, time\nprint('job', *sys.argv[1:])\ntime.sleep(float(sys.argv[1]))")
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "commit", lambda: "abc")

    def call(jobs: list[tuple[str, float, str]], *given: str) -> dict[str, Any]:
        monkeypatch.setattr(module, "JOBS", tuple(module.Job(*job) for job in jobs))
        monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(tmp_path / "out"), *given])
        module.main()
        record = tmp_path / "out" / "done.json"
        return json.loads(record.read_text()) if record.is_file() else {}

    return call


def test_every_job_calls_a_script_with_options_that_it_has(load_script: Callable[[str], ModuleType]) -> None:
    for job in load_script("benchmarks/gpu.py").JOBS:
        script, *words = job.command.split()
        known = set(re.findall(r'"(--[a-z-]+)"', (BENCHMARKS / script).read_text()))
        used = {word for word in words if word.startswith("--")}
        assert used and used <= known, (job.name, used - known)


def test_finished_jobs_are_not_run_again_and_the_others_say_why_they_are_left_out(
    gpu: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [("quick", 0.5, "job.py 0 {model}"), ("lacking", 0.5, "job.py 0 {data}"), ("long", 9.0, "job.py 0")]
    assert list(gpu(jobs, "--given", "model=m", "--minutes", "1")) == ["quick"]
    out = capsys.readouterr().out
    assert "    job 0 m" in out and "needs data" in out and "takes 9 minutes, and 1.0 are left" in out
    assert "job 0 m" in (tmp_path / "out" / "quick.log").read_text()
    assert list(gpu(jobs, "--given", "model=m", "data=d", "--minutes", "20")) == ["quick", "lacking", "long"]
    assert "quick       0.5 min  done" in capsys.readouterr().out


def test_a_job_that_takes_too_long_or_fails_is_not_done(
    gpu: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu([("slow", 0.005, "job.py 60"), ("wrong", 0.1, "job.py nonsense")]) == {}
    out = capsys.readouterr().out
    assert "exit code -15" in out and "exit code 1" in out and "ValueError" in out


def test_unknown_names_are_refused(gpu: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    for given, told in (
        (("--only", "fast"), "expected names of quick"),
        (("--given", "modle=m"), "expected NAME=VALUE with a name of model"),
        (("--only", "quick"), "give model=VALUE after --given"),
    ):
        with pytest.raises(SystemExit):
            gpu([("quick", 0.5, "job.py 0 {model}")], *given)
        assert told in capsys.readouterr().err
