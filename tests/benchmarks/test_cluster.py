"""`benchmarks/cluster.py`: the simulation agrees with what can be computed by hand, and its parts run."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def simulation(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("benchmarks/simulation.py")


def shape(simulation: ModuleType, **changes: Any) -> Any:
    """Two groups of two episodes on one worker whose engine needs 10 ms for a token."""
    given = {"workers": 1, "slots": 1, "step": 0.01, "each": 0.0, "batch": 2, "replicas": 2, "staleness": 0}
    return simulation.Shape(**{**given, "learn": lambda tokens: 1.0, "update": 0.5, **changes})


def turns(number: int, replica: int) -> tuple[tuple[int, float], ...]:
    return ((100, 2.0),)


def test_a_synchronous_step_takes_as_long_as_its_parts_together(simulation: ModuleType) -> None:
    """All replies are sampled at once (1 s), four tools run one after another (8 s), then learner and update."""
    found = simulation.Simulation(shape(simulation), turns).run(steps=4)
    assert found.seconds == pytest.approx(1.0 + 8.0 + 1.0 + 0.5)
    assert found.age == 0 and found.learner_idle == pytest.approx(9.0 / 10.5)
    assert found.engine_idle == pytest.approx(1 - 1.0 / 10.5)
    assert found.tokens_per_second == pytest.approx(400 / 10.5)


def test_workers_share_the_groups_and_a_reply_is_slower_beside_others(simulation: ModuleType) -> None:
    two = simulation.Simulation(shape(simulation, workers=2), turns).run(steps=4)
    assert two.seconds == pytest.approx(1.0 + 4.0 + 1.5)
    beside = simulation.Simulation(shape(simulation, each=0.01), turns).run(steps=4)
    assert beside.seconds == pytest.approx(5.0 + 8.0 + 1.5)


def test_with_staleness_the_tools_never_wait_for_the_learner(simulation: ModuleType) -> None:
    found = simulation.Simulation(shape(simulation, staleness=1), turns).run(steps=20, skip=5)
    assert found.seconds == pytest.approx(8.0, rel=0.02) and 0 < found.age <= 1


def test_lost_workers_play_their_episodes_again_and_lost_learners_repeat_steps(simulation: ModuleType) -> None:
    steady = simulation.Simulation(shape(simulation), turns).run(steps=40)
    shaky = simulation.Simulation(shape(simulation, mtbf=60.0, restart=5.0), turns, seed=1).run(steps=40)
    assert steady.lost_workers == steady.lost_learners == 0
    assert shaky.lost_workers > 0 and shaky.lost_learners > 0 and shaky.seconds > steady.seconds
    assert shaky.tokens_per_second == pytest.approx(400 / shaky.seconds)  # every step has all of its episodes


def test_the_sweep_prints_a_table_that_is_called_a_simulation(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    load_script("benchmarks/cluster.py").main(["sweep", "--gpus", "4,8", "--steps", "1", "--tokens", "64"])
    out = capsys.readouterr().out
    assert out.startswith("A SIMULATION: nothing of this was run.")
    assert len([line for line in out.splitlines() if line.startswith(("| 4 ", "| 8 "))]) == 2 + 5 + 4 + 6 + 4
    assert not math.isnan(float(out.splitlines()[-1].split("|")[6]))


def test_a_validation_that_was_interrupted_goes_on_with_what_it_had_measured(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script, kept = load_script("benchmarks/cluster.py"), tmp_path / "kept.json"
    ran: list[tuple[int, str]] = []

    def train(folder: Path, workers: int, overrides: list[str]) -> list[dict[str, float]]:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append((workers, overrides[-1]))
        return [{"wall": 3.0, "seconds/rollout": 2.0, "cluster/update_seconds": 0.5}]

    monkeypatch.setattr(script, "train", train)
    monkeypatch.setattr(script, "engine_times", lambda: (0.01, 0.0))
    monkeypatch.setattr(script, "recorded", lambda folder: {(0, 0): ((2, 0.25),), (0, 1): ((1, 0.5), (3, 0.5))})
    args = argparse.Namespace(mean=0.2, steps=2, json=str(kept))
    validate = script.validate.__wrapped__  # without a cluster
    with pytest.raises(KeyboardInterrupt):
        validate(args)
    first = json.loads(kept.read_text())
    assert [(row["workers"], row["staleness"]) for row in first["runs"]] == [(1, 0), (2, 0)]
    ran.clear()
    monkeypatch.setattr(script, "engine_times", lambda: pytest.fail("it was measured already"))
    with pytest.raises(KeyboardInterrupt):
        validate(args)
    assert ran == [(4, "stream.max_staleness=0"), (1, "stream.max_staleness=1")]
    second = json.loads(kept.read_text())
    assert len(second["runs"]) == 4 and second["measured"] == first["measured"]
    assert second["measured"]["learn"] == 0.5 and second["runs"][2]["simulated"] > 0
    with pytest.raises(SystemExit, match="another --mean or --steps"):
        validate(argparse.Namespace(mean=0.1, steps=2, json=str(kept)))


@pytest.mark.parametrize(("simulated", "told"), [(1.1, "+10.0%"), (0.8, "-20.0%")])
def test_a_simulation_that_differs_too_much_from_real_runs_is_not_valid(
    load_script: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    simulated: float,
    told: str,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = load_script("benchmarks/cluster.py")
    rows = [
        {"workers": 1, "staleness": 0, "real": 2.0, "simulated": 2.02, "load": 0.1},
        {"workers": 2, "staleness": 0, "real": 1.0, "simulated": simulated, "load": 0.1},
    ]
    measured = script.Measured({}, 0.01, 0.0, 0.5, 0.1)
    with pytest.raises(SystemExit) if abs(simulated - 1) > 0.15 else nullcontext():
        script.show_validation(measured, rows, 2)
    assert f"The largest difference is {told}; at most 15% is allowed." in capsys.readouterr().out
