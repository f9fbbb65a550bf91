"""Short runs whose episodes are played by rollout workers, for the tests of this folder."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from runs import make, rows

from interplay.config import ClusterSection
from interplay.distributed.cluster import RolloutFleet

RECIPE: dict[str, Any] = {
    "name": "cluster",
    "env": {"name": "tictactoe", "brief": True},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "matchups": [{"share": 0.5, "seats": {"O": "player@start"}}],
    "algorithm": {"name": "grpo", "group": 2, "correction": "tis"},
    "sampling": {"max_tokens": 2, "legal": True},
    "rollout": {"tasks": 4},
    "train": {"steps": 3, "lr": 1e-2},
    "eval": {"opponents": ["bot:random"], "before": False, "after": False},
    "records": {"tensorboard": "off"},
    "checkpoint": {"every": 1, "share": 1, "keep": 100},  # none is left out because a busy machine wrote slowly
}
EPISODES = 8  # of a step
GOES_ON = 60.0  # seconds from one step to the next in which a run must go on after something was lost
BEGAN = [0.0]  # the time at which the present test began
SLOWER = [1.0]  # what `slowness` was then
# Workers that reserve no CPU, because the two nodes of the tests' cluster have one CPU each.
ONE_WORKER = {**RECIPE, "cluster": {"rollout_workers": 1, "worker_cpus": 0.0}}


AnyFleet = TypeVar("AnyFleet", bound=RolloutFleet)


class Watched(RolloutFleet):
    """Counts its updates."""

    updates = 0

    async def sync(self) -> None:
        await super().sync()
        self.updates += 1


class Hurried(Watched):
    """`hurry` shortens `cluster.worker_timeout`, until an actor that did not answer is replaced. The one that takes its
    place may need longer to start. `waited` is the time in seconds until it was replaced."""

    usual: ClusterSection | None = None
    waited = began = 0.0

    def hurry(self, seconds: float) -> None:
        self.usual, self.began = self.section, time.monotonic()
        self.section = self.section.model_copy(update={"worker_timeout": seconds})

    def calm(self) -> None:
        if self.usual is not None:
            self.section, self.usual = self.usual, None
            self.waited = time.monotonic() - self.began

    async def _welcome_worker(self, index: int) -> None:
        self.calm()
        await super()._welcome_worker(index)

    async def _welcome_engine(self, index: int) -> None:
        self.calm()
        await super()._welcome_engine(index)


def play(folder: Path, recipe: Mapping[str, Any], *overrides: str, fleet: type[AnyFleet] = RolloutFleet) -> AnyFleet:
    """Train with rollout workers, and return them."""
    trainer = make(folder, recipe, *overrides)
    trainer.make_fleet = fleet
    try:
        trainer.train()
    finally:
        trainer.close()
    if trainer.stopping:
        pytest.exit("a signal ended the run, and so the tests", returncode=143)
    assert isinstance(trainer.fleet, fleet)
    return trainer.fleet


def assert_nothing_lost(folder: Path, *policies: str, steps: int = 3) -> None:
    """Every step was trained on all of its episodes, with engines that had the learner's weights, and the run went on
    in time. The longest time from one step to the next is printed, with that from the start to step 1 (pytest -rP)."""
    found = rows(folder)
    counted = [(row["step"], row["episodes"], row["episodes_failed"]) for row in found]
    assert counted == [(n, EPISODES, 0) for n in range(1, steps + 1)]
    for name in policies or ("player",):
        learned = [row[f"{name}/gap"] for row in found if has_learned(row, name)]
        assert learned and max(learned) < 1e-4
    times = [json.loads(line)["time"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    longest = max(b - a for a, b in pairwise(times))
    start = times[0] - BEGAN[0]
    print(f"longest time between two steps: {longest:.1f} s; from the beginning of the test to step 1: {start:.1f} s")
    assert longest < GOES_ON or longest < allowed()


def has_learned(row: Mapping[str, Any], policy: str) -> bool:
    """Whether there was something to learn in a step. If all games of each group ended alike, there was nothing. Where
    a run may sample ahead, this depends on time: which games a step has, and with which weights they were played."""
    if f"{policy}/gap" in row:
        return True
    shares = [share for key, share in row.items() if key.startswith("credit/zero_share/")]
    assert shares and set(shares) == {1.0}
    return False


def add_node(cluster: Any, **node: Any) -> None:
    """Start a node. Ray gives it 30 seconds, which are too few on a machine that is busy with other tests."""
    for _ in range(3):
        try:
            cluster.add_node(**node)
            return
        except Exception as error:  # Ray raises this class itself
            if "timed out during startup" not in str(error):
                raise
    pytest.fail("no node of Ray started within 30 seconds, three times")


def allowed() -> float:
    """The seconds within which a run must go on: `GOES_ON`, or more if other programs use the processors."""
    slower = max(SLOWER[0], slowness())
    print(f"other programs make this machine {slower:.1f} times slower")
    return GOES_ON * slower


def slowness() -> float:
    """How many times longer a short computation takes now than it would take on a processor of its own."""
    needed, began, used = 0.2, time.perf_counter(), time.thread_time()
    while time.thread_time() - used < needed:
        pass
    return max(1.0, (time.perf_counter() - began) / needed)


def measured(folder: Path) -> list[dict[str, Any]]:
    """The metrics, less what only runs with workers have."""
    return [
        {k: v for k, v in row.items() if k != "prompt_tokens_saved" and not k.startswith("cluster/")}
        for row in rows(folder)
    ]
