"""A random walk of failures: processes of a run on a real cluster are killed at random times, and nothing is lost."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fleets import GOES_ON, RECIPE, allowed, has_learned
from rich.console import Console
from runs import make

from interplay.cli.session import Session
from interplay.config import parse
from interplay.rollout import records
from interplay.rollout.resolve import resolve

SEED = int(os.environ.get("INTERPLAY_WALK", "14"))  # another seed is another walk
STEPS = 6
CLUSTER = {"rollout_workers": 2, "worker_cpus": 0.0, "engines": 1, "learners": 1}
WALKED = {**RECIPE, "cluster": CLUSTER, "stream": {"max_staleness": 1, "stale": "drop"}}
KINDS = ("RolloutWorker", "EngineActor", "RankActor")  # the names of the actors, which are those of their processes


@dataclass(frozen=True)
class Kill:
    """After step `step`, wait for `delay` seconds, then kill a process of this kind, the one with number `which`."""

    step: int
    delay: float
    kind: str
    which: int


def plan(seed: int) -> list[Kill]:
    """Every kind is killed, in a random order and after random steps. One is killed again while it is being replaced,
    and one right after a step, when new weights are sent."""
    rng = random.Random(seed)
    steps = rng.sample(range(1, STEPS), 3)
    kills = [Kill(step, rng.uniform(0.0, 2.0), kind, rng.randrange(2)) for step, kind in zip(steps, KINDS, strict=True)]
    first = rng.choice(kills)
    kills.append(Kill(first.step, first.delay + rng.uniform(0.1, 3.0), first.kind, rng.randrange(2)))
    kills.append(Kill(rng.randrange(1, STEPS), 0.0, rng.choice(KINDS), rng.randrange(2)))
    return sorted(kills, key=lambda kill: (kill.step, kill.delay))


def below(parent: int) -> Iterator[int]:
    """The processes that this one has started, and those that they have started."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
    found = [parent]
    while found:
        one = found.pop()
        children = [child for child, of in parents.items() if of == one]
        yield from children
        found += children


def actors(kind: str) -> list[int]:
    """The processes of the actors of one kind, in this run alone: others may run on this machine."""
    out = []
    for process in below(os.getpid()):
        try:
            title = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::" + kind.encode()):
            out.append(process)
    return sorted(out)


class Walk(Session):
    """Kills processes after the steps of the plan, on threads of its own, while the run goes on."""

    def prepare(self, kills: Sequence[Kill]) -> None:
        self.kills, self.steps = list(kills), list[float]()
        self.killed: list[tuple[float, Kill]] = []
        self.threads: list[threading.Thread] = []

    def _stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        super()._stepped(step, metrics)
        self.steps.append(time.monotonic())
        due, self.kills = [k for k in self.kills if k.step == step], [k for k in self.kills if k.step != step]
        for kill in due:
            self.threads.append(threading.Thread(target=self._kill, args=(kill,), daemon=True))
            self.threads[-1].start()
        if step == STEPS - 1:  # the last kills must come before the last step
            for thread in self.threads:
                thread.join(5.0)

    def _kill(self, kill: Kill) -> None:
        time.sleep(kill.delay)
        while self.trainer.step_index < STEPS:  # if it was killed before, wait until the next one has started
            if found := actors(kill.kind):
                with suppress(ProcessLookupError):  # it has ended since
                    os.kill(found[kill.which % len(found)], signal.SIGKILL)
                    self.killed.append((time.monotonic(), kill))
                    return
            time.sleep(0.05)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed (interplay[cluster])")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="it finds processes in /proc")
def test_a_run_survives_a_random_walk_of_kills(tmp_path: Path) -> None:
    kills = plan(SEED)
    print(f"seed {SEED} (INTERPLAY_WALK)")
    began = time.monotonic()
    session = Walk(
        Console(file=io.StringIO()), resolve(parse(WALKED, ["train.shard=fsdp", f"train.steps={STEPS}"])), tmp_path
    )
    session.prepare(kills)
    try:
        assert session.run()
    finally:
        for at, kill in session.killed:
            print(f"{at - began:6.1f} s: killed {kill.kind}, {kill.delay:.1f} s after step {kill.step}")
        print("steps after", ", ".join(f"{at - began:.1f}" for at in session.steps), "s")
    for thread in session.threads:
        thread.join()
    assert {kill.kind for _, kill in session.killed} == set(KINDS)
    longest = longest_wait(session.steps, [at for at, _ in session.killed])
    print(f"longest time until a step: {longest:.1f} s")
    assert longest < GOES_ON or longest < allowed()
    until = time.monotonic() + 60
    while (left := [pid for kind in KINDS for pid in actors(kind)]) and time.monotonic() < until:
        time.sleep(0.05)  # they end with the cluster, but not at once
    assert not left
    assert_whole(tmp_path)


def longest_wait(steps: Sequence[float], killed: Sequence[float]) -> float:
    """The longest time from one step to the next. A kill between them begins the time anew."""
    return max(after - max([before, *(at for at in killed if at < after)]) for before, after in pairwise(steps))


def assert_whole(folder: Path) -> None:
    """Every episode that was issued was trained on once, or was discarded and counted, or is left for later steps. The
    run folder can be read and resumed, and has every step once."""
    metrics = lines(folder / "metrics.jsonl")
    assert [row["step"] for row in metrics] == list(range(1, STEPS + 1))
    assert all(row["episodes_failed"] == 0 for row in metrics)
    learned = [row for row in metrics if has_learned(row, "player")]
    assert len(learned) >= STEPS // 2 and all(row["player/gap"] < 1e-4 for row in learned)
    stream = lines(folder / "stream.jsonl")
    per_step = Counter[int]()
    for row in stream:
        per_step[row["step"]] += len(row["episodes"])
    assert [per_step[row["step"]] for row in metrics] == [row["episodes"] for row in metrics]
    ids = [episode for row in stream for episode in row["episodes"]]
    assert len(set(ids)) == len(ids)
    assert Counter(record.step for record in records.read(folder / "episodes.jsonl")) == per_step
    resumed = make(folder, {**WALKED, "cluster": {}}, f"train.steps={STEPS}")
    try:
        assert resumed.step_index == STEPS and resumed.stream is not None
        left = resumed.stream["again"]
        groups = [row["group"] for row in stream]
        discarded = metrics[-1]["stream/dropped"]
        assert len(set(groups)) == len(groups) and not set(groups) & set(left)
        assert 2 * resumed.stream["issued"] == len(ids) + discarded + 2 * len(left)
    finally:
        resumed.close()
