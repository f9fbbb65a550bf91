"""The table of hostile programs says what was contained, and who enforced the limits."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def sandbox(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("benchmarks/sandbox.py")


def line(kind: str, name: str, outcome: str, wrong: str = "", **more: str) -> dict[str, str]:
    return {"kind": kind, "name": name, "outcome": outcome, "wrong": wrong, **more}


def test_the_table_counts_what_was_contained_and_names_what_was_not(
    sandbox: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = line("afterwards", "the pool", "works", counted="cgroup")
    good = [line("memory", "one", "memory"), line("memory", "two", "timeout"), pool]
    bad = [
        line("memory", "one", "memory"),
        line("memory", "two", "ok", "it ended with ok"),
        {**pool, "counted": "looks"},
    ]
    sandbox.table({"namespaces, root": good, "landlock, root": bad})
    printed = capsys.readouterr().out.splitlines()
    assert "namespaces, root: memory and processes are limited by the kernel, with control groups" in printed
    assert "landlock, root: memory and processes are limited by the supervisor's checks" in printed
    assert "| memory | 2 of 2 | 1 of 2 | memory, ok, timeout |" in printed
    assert "| **all** | 2 of 2 | 1 of 2 | |" in printed, "what happens afterwards is no program"
    assert printed[-1] == "not contained: landlock, root: memory, two: it ended with ok"


def test_an_unknown_kind_is_refused_with_the_known_ones(sandbox: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"no hostile programs of the kind 'memmory'; known kinds: .*\bmemory\b"):
        sandbox.hostile(["namespaces"], ["memmory"], [])


def test_only_the_programs_of_a_kind_are_run_with_longer_limits(
    sandbox: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    from interplay.execution.sandbox import offered

    level = "namespaces" if not offered("namespaces") else "landlock"
    if reason := offered(level):
        pytest.skip(reason)
    sandbox.hostile([level], ["devices"], ["--slow=2", "--quick"])
    printed = capsys.readouterr().out
    assert f"{level}, " in printed and "| devices | 3 of 3 |" in printed and "| memory" not in printed
