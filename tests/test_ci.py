"""What CI runs can be run: every target of make that it calls exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
JOB: dict[str, Any] = yaml.safe_load(TEXT)["jobs"]["make"]
CALL = "make ${{ matrix.targets }} JOBS=4"


def called() -> dict[str, list[str]]:
    """By machine: what its jobs give to make."""
    found: dict[str, list[str]] = {}
    for one in JOB["strategy"]["matrix"]["include"]:
        found.setdefault(one["machine"], []).append(one["targets"])
    return found


def test_every_target_that_ci_calls_exists() -> None:
    known = re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    in_script = re.findall(r"^make (.+)$", script, re.MULTILINE)
    in_workflow = [targets for each in called().values() for targets in each]
    assert in_script and {target for line in (*in_script, *in_workflow) for target in line.split()} <= set(known)
    assert set(in_script) <= set(" ".join(in_workflow).split()), "the workflow leaves out what .ci/run does"


def test_the_workflow_tests_two_machines() -> None:
    assert called() == {"ubuntu-latest": ["lint test", "test-slow", "docs"], "ubuntu-24.04-arm": ["test"]}
    assert JOB["runs-on"] == "${{ matrix.machine }}" and JOB["steps"][-1]["run"] == CALL


def test_the_workflow_needs_no_secrets_and_has_a_known_python() -> None:
    assert "secrets" not in TEXT
    (python,) = [step["with"] for step in JOB["steps"] if step.get("uses", "").startswith("actions/setup-python@")]
    assert python["python-version"] == "3.12" and python["cache"] == "pip"
    assert all((ROOT / file).is_file() for file in python["cache-dependency-path"].split())
