"""The ranks of a sharded learner as Ray actors, which Ray places on the machines of the cluster.

`training/rank_group.py` calls them like ranks that are child processes. Each base model that is trained has a group of
its own. A group is placed as a whole, on as few machines as possible. A lost rank is not restarted by Ray: without its
part of the weights and moments the others cannot go on, so the run continues from its newest checkpoint.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from interplay.distributed.connection import connect, first_line, package
from interplay.distributed.layout import trained_models
from interplay.errors import ConfigError
from interplay.seats import RunPlan
from interplay.training.rank_group import RankEnded, StartRanks
from interplay.training.rank_process import RankAnswer, RankCalls, RankSetup


class RankActor(RankCalls):
    """One rank. `scratch` is the folder through which ranks and driver exchange weights."""

    def __init__(self, scratch: str) -> None:
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        if not Path(scratch).is_dir():
            raise ConfigError(
                f"a rank of the learner on {socket.gethostname()} does not see '{scratch}', through which weights are "
                "exchanged; expected TMPDIR to be a folder on a file system that all machines share."
            )
        super().__init__()

    def pid(self) -> int:
        return os.getpid()

    def meeting(self) -> str:
        """A URL on this machine at which ranks can find each other."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        return f"tcp://{package().util.get_node_ip_address()}:{port}"


class RankActors:
    """The ranks of one model, as `RankGroup` calls them."""

    def __init__(self, ray: Any, setup: RankSetup, scratch: Path) -> None:
        self.ray = ray
        each = {"CPU": 1.0, **({"GPU": 1.0} if setup.device == "cuda" else {})}
        self._room = ray.util.placement_group([each] * setup.size, strategy="PACK")
        self._actors: list[Any] = []
        try:
            ray.get(self._room.ready(), timeout=setup.timeout)
        except ray.exceptions.GetTimeoutError:
            ray.util.remove_placement_group(self._room)
            raise ConfigError(
                f"the cluster has no room for {setup.size} learner ranks with {each} each; expected fewer "
                "cluster.learners, or more machines."
            ) from None
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        for rank in range(setup.size):
            actor = ray.remote(RankActor).options(
                num_cpus=each["CPU"], num_gpus=each.get("GPU", 0), max_restarts=0, max_task_retries=0,
                scheduling_strategy=strategy(self._room, placement_group_bundle_index=rank),
            )  # fmt: skip
            self._actors.append(actor.remote(str(scratch)))
        try:
            meeting = ray.get(self._actors[0].meeting.remote(), timeout=setup.timeout)
            self.pids = ray.get([actor.pid.remote() for actor in self._actors], timeout=setup.timeout)
        except ray.exceptions.RayActorError as error:
            self.close()
            raise getattr(error, "cause", None) or error from None
        self._answers: dict[int, Any] = {}
        self._sent: tuple[Any, Any] = (None, None)
        for rank in range(setup.size):
            self.send(rank, "begin", (replace(setup, rank=rank, meeting=meeting),))

    def send(self, rank: int, method: str, arguments: tuple[Any, ...]) -> None:
        if self._sent[0] is not arguments:  # all ranks are sent the same, which is stored once
            self._sent = (arguments, self.ray.put(arguments))
        self._answers[rank] = self._actors[rank].answer.remote(method, self._sent[1])

    def receive(self, ranks: Collection[int], seconds: float) -> dict[int, RankAnswer]:
        waiting = {self._answers[rank]: rank for rank in ranks}
        ready, _ = self.ray.wait(list(waiting), timeout=seconds)
        out: dict[int, RankAnswer] = {}
        for answer in ready:
            try:
                out[waiting[answer]] = self.ray.get(answer)
            except self.ray.exceptions.RayError as error:
                raise RankEnded(waiting[answer], f" ({first_line(error)})") from None
        return out

    def close(self) -> None:
        for actor in self._actors:
            self.ray.kill(actor)
        self.ray.util.remove_placement_group(self._room)


def ranks_on(plan: RunPlan) -> StartRanks:
    """Start the ranks of each trained model on the cluster of the recipe."""
    return lambda setup, scratch: RankActors(connect(plan.recipe.cluster, trained_models(plan)), setup, scratch)
