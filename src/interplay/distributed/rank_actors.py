"""The ranks of a sharded learner as Ray actors, which Ray places on the machines of the cluster.

`training/rank_group.py` calls them like ranks that are child processes. Each base model that is trained has a group of
its own. A group is placed as a whole, on as few machines as possible. A lost rank is not restarted by Ray: without its
part of the weights and moments the others cannot go on, so the run continues from its newest checkpoint.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from interplay.distributed.connection import check_room, connect, first_line, package, stored
from interplay.distributed.layout import trained_models
from interplay.errors import ConfigError, LearnerLost
from interplay.seats import RunPlan
from interplay.training.rank_group import RankEnded, StartRanks
from interplay.training.rank_process import RankAnswer, RankCalls, RankSetup

_FETCH = 60.0  # seconds in which an answer that is ready must arrive


class RankActor(RankCalls):
    """One rank."""

    def __init__(self) -> None:
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        super().__init__()

    def pid(self, scratch: str) -> int:
        """The process id. Refuses a machine without `scratch`, the folder through which ranks and driver exchange
        weights."""
        if not Path(scratch).is_dir():
            raise ConfigError(
                f"a rank of the learner on {socket.gethostname()} does not see '{scratch}', through which weights are "
                "exchanged; expected TMPDIR to be a folder on a file system that all machines share."
            )
        return os.getpid()

    def meeting(self) -> str:
        """A URL on this machine at which ranks can find each other."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        return f"tcp://{package().util.get_node_ip_address()}:{port}"


class RankActors:
    """The ranks of one model, as `RankGroup` calls them. Every wait has the limit of the setup."""

    def __init__(self, ray: Any, setup: RankSetup, scratch: Path) -> None:
        self.ray, self._setup, self._scratch, self._timeout = ray, setup, scratch, setup.timeout
        self.pids: list[int] = []
        self._answers: dict[int, Any] = {}
        self._sent: tuple[Any, Any] = (None, None)
        self._each: dict[str, float] = {"CPU": 1.0, **({"GPU": 1.0} if setup.device == "cuda" else {})}
        what = f"{setup.size} ranks of a learner (cluster.learners)"
        check_room(ray, what, **{kind: setup.size * count for kind, count in self._each.items()})
        self._room = ray.util.placement_group([self._each] * setup.size, strategy="PACK")
        self._actors = [self._start(rank, self._each) for rank in range(setup.size)]  # each starts when it has a place

    def begin(self) -> None:
        if not self._room.wait(self._timeout):
            raise ConfigError(
                f"the cluster had no room for {self._setup.size} learner ranks with {self._each} each within "
                f"{self._timeout:g} s (cluster.learner_timeout); expected fewer cluster.learners, or more machines."
            )
        self.pids = self._get([actor.pid.remote(str(self._scratch)) for actor in self._actors])
        meeting = self._get(self._actors[0].meeting.remote())
        for rank in range(self._setup.size):
            self.send(rank, "begin", (replace(self._setup, rank=rank, meeting=meeting),))

    def _start(self, rank: int, each: Mapping[str, float]) -> Any:
        placed = self.ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        made = self.ray.remote(RankActor).options(
            num_cpus=each["CPU"], num_gpus=each.get("GPU", 0), max_restarts=0, max_task_retries=0,
            scheduling_strategy=placed(self._room, placement_group_bundle_index=rank),
        )  # fmt: skip
        return made.remote()

    def _get(self, asked: Any) -> Any:
        """The answers of ranks that start."""
        try:
            return self.ray.get(asked, timeout=self._timeout)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self.ray.exceptions.GetTimeoutError:
            raise LearnerLost(
                f"a rank of the learner did not start within {self._timeout:g} s (cluster.learner_timeout)."
            ) from None
        except self.ray.exceptions.RayError as error:
            raise LearnerLost(f"a rank of the learner has ended while it started ({first_line(error)}).") from None

    def send(self, rank: int, method: str, arguments: tuple[Any, ...]) -> None:
        if self._sent[0] is not arguments:  # all ranks are sent the same, which is stored once
            self._sent = (arguments, stored(self.ray, "the examples of a training step", arguments))
        self._answers[rank] = self._actors[rank].answer.remote(method, self._sent[1])

    def receive(self, ranks: Collection[int], seconds: float) -> dict[int, RankAnswer]:
        waiting = {self._answers[rank]: rank for rank in ranks}
        ready, _ = self.ray.wait(list(waiting), timeout=seconds)
        out: dict[int, RankAnswer] = {}
        for answer in ready:
            try:
                out[waiting[answer]] = self.ray.get(answer, timeout=_FETCH)
            except self.ray.exceptions.RayError as error:
                raise RankEnded(waiting[answer], f" ({first_line(error)})") from None
        return out

    def close(self) -> None:
        for actor in self._actors:
            self.ray.kill(actor)
        self.ray.util.remove_placement_group(self._room)


def ranks_on(plan: RunPlan) -> StartRanks:
    """Connect to the cluster of the recipe. What is returned starts the ranks of a trained model there."""
    ray = connect(plan.recipe.cluster, trained_models(plan))
    return lambda setup, scratch: RankActors(ray, setup, scratch)
