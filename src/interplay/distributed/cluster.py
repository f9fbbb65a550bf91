"""Starts rollout workers as Ray actors and sends them episodes and weights.

The driver is the main process of a run. It draws the tasks, trains, and is the only process that writes the run folder.
The workers play episodes. A lost worker is replaced by a new one with the newest weights, and its episodes are played
again with the same seeds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from interplay.config import ClusterSection
from interplay.distributed.busy import BusyTime
from interplay.distributed.worker import EpisodeJob, NewWeights, RolloutWorker
from interplay.engines.census import census
from interplay.errors import ConfigError, EngineError
from interplay.rollout.runner import Seated
from interplay.training.state import RunState
from interplay.training.tally import update_cost
from interplay.types import Episode, Snapshot, Task

log = logging.getLogger("interplay")
T = TypeVar("T")


def connect(section: ClusterSection) -> tuple[Any, bool]:
    """Connect to the recipe's Ray cluster. Return the ray package and whether a cluster was started for this run."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError("cluster.rollout_workers needs Ray: pip install 'interplay[cluster]'.") from None
    if ray.is_initialized():
        return ray, False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if section.address == "local":
        # Workers wait for engines and tools most of the time, so there may be more of them than cores.
        cpus = max(os.cpu_count() or 1, int(section.rollout_workers * section.worker_cpus) + 1)
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
    else:
        try:
            ray.init(address=section.address, **quiet)
        except ConnectionError as error:
            raise ConfigError(
                f"cluster.address is '{section.address}', where no Ray cluster answers ({error}); expected 'local', "
                "'auto' on a node of a cluster, or ray://HOST:10001."
            ) from None
    return ray, section.address == "local"


class RolloutFleet:
    """The rollout workers of a run. `episode` has the signature of `Runner.episode`."""

    def __init__(self, state: RunState) -> None:
        self.state, self.section = state, state.plan.recipe.cluster
        self.ray, self._started = connect(self.section)
        self.staleness = state.plan.recipe.stream.max_staleness
        self.lost = 0  # number of workers that were replaced
        self._weights: Any = None  # the newest weights, in Ray's object store
        self._seated: dict[int, Mapping[Snapshot, str]] = {}
        self._jobs: list[tuple[EpisodeJob, asyncio.Future[Episode]]] = []
        self._sent = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._repairing: dict[int, asyncio.Lock] = {}
        self._busy = BusyTime(self.section.rollout_workers)
        self._cost: dict[str, float] = {}  # what the last update cost
        self._computed: dict[int, tuple[float, float]] = {}  # by worker: the time and its engines' seconds at an update
        self._engine_idle: dict[int, float] = {}  # by worker: between its last two updates
        self.workers = [self._start() for _ in range(self.section.rollout_workers)]

    def _start(self) -> Any:
        """Start a worker. It loads the base models itself; the trained weights are sent to it."""
        recipe = self.state.plan.on(self.state.bases).recipe
        options = {"num_cpus": self.section.worker_cpus, "num_gpus": self.section.worker_gpus}
        actor = self.ray.remote(RolloutWorker).options(
            **options, max_restarts=0, max_task_retries=0, max_concurrency=1000, scheduling_strategy="SPREAD"
        )
        return actor.remote(recipe.model_dump())

    # -- weights --------------------------------------------------------------------------------------------------

    async def sync(self) -> None:
        """Send the newest weights to every worker. With staleness 0, wait until every worker has loaded them."""
        began, newest = time.perf_counter(), self._newest()
        self._weights = self.ray.put(newest)
        await asyncio.gather(*(self._repaired(i, self._load) for i in range(len(self.workers))))
        size = sum(weights.nbytes for weights in newest.values())
        self._cost = update_cost("cluster/", time.perf_counter() - began, size)

    def _newest(self) -> dict[str, NewWeights]:
        out = {}
        for name in self.state.learners:
            member = self.state.team.members[name]
            adapter = None if member.adapter is None else member.adapter.detached()
            tensors = {} if adapter else {n: p.detach().cpu() for n, p in member.loaded.model.named_parameters()}
            out[name] = NewWeights(member.version, adapter, tensors)
        return out

    async def _load(self, index: int) -> None:
        computed: float = await self._limited(self.workers[index].update.remote(self._weights))
        now = time.monotonic()
        if index in self._computed:
            then, before = self._computed[index]
            self._engine_idle[index] = 1.0 - (computed - before) / max(now - then, 1e-9)
        self._computed[index] = (now, computed)

    async def _seat(self, index: int) -> None:
        """If the snapshots that play have changed, make a worker load the present ones."""
        snapshots = self.state.snapshots
        wanted = {who: str((snapshots.folder / str(who)).resolve()) for who in snapshots.seated}
        if self._seated.get(index, {}) != wanted:
            await self._limited(self.workers[index].seat.remote(wanted))
            self._seated[index] = wanted

    def metrics(self) -> dict[str, float]:
        """Workers that were lost so far; what the last update cost; and for each worker, the share of the time in which
        it played no episode (since the last call) and its engines computed nothing (between the last two updates)."""
        out = {"cluster/workers_lost": float(self.lost), **self._cost}
        out |= {f"cluster/idle/worker_{i}": share for i, share in enumerate(self._busy.idle())}
        return out | {f"cluster/engine_idle/worker_{i}": share for i, share in sorted(self._engine_idle.items())}

    # -- episodes -------------------------------------------------------------------------------------------------

    async def episode(self, task: Task, replica: int, seated: Seated) -> Episode:
        """Play an episode on a worker. Episodes that begin in one iteration of the event loop are sent together."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Episode] = loop.create_future()
        if not self._jobs:
            loop.call_soon(self._send)
        self._jobs.append((EpisodeJob(task, replica, dict(seated.seats)), done))
        return await census().elsewhere(done)

    def _send(self) -> None:
        """Send the episodes to the workers. All episodes of one task go to the same worker, which then computes their
        prompt only once. With staleness 0, a worker gets its episodes in one batch, so that results are
        deterministic."""
        jobs, self._jobs = self._jobs, []
        order: dict[str, int] = {}
        for job, _ in jobs:
            order.setdefault(job.task.id, (self._sent + len(order)) % len(self.workers))
        if self.staleness:
            self._sent += len(order)
        shares: dict[int, list[tuple[EpisodeJob, asyncio.Future[Episode]]]] = {}
        for job, done in jobs:
            shares.setdefault(order[job.task.id], []).append((job, done))
        for index, share in shares.items():
            for part in [[one] for one in share] if self.staleness else [share]:
                task = asyncio.get_running_loop().create_task(self._play(index, part))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _play(self, index: int, share: Sequence[tuple[EpisodeJob, asyncio.Future[Episode]]]) -> None:
        async def once(index: int) -> list[Episode]:
            with self._busy.at_work(index):
                await self._seat(index)
                return await self.workers[index].play.remote([job for job, _ in share])

        try:
            found = await self._repaired(index, once)
        except Exception as error:  # whoever awaits the episodes receives the error
            for _, done in share:
                if not done.done():
                    done.set_exception(error)
            return
        for (_, done), episode in zip(share, found, strict=True):
            if not done.done():
                done.set_result(episode)

    # -- failures -------------------------------------------------------------------------------------------------

    async def _repaired(self, index: int, work: Any) -> Any:
        """Do `work` on a worker. If the worker is lost, start a new worker and do the work again."""
        gone = (self.ray.exceptions.RayActorError, TimeoutError)
        for left in reversed(range(self.section.restarts + 1)):
            worker = self.workers[index]
            try:
                return await work(index)
            except gone as error:
                if not left:
                    raise EngineError(
                        f"rollout worker {index} was lost {self.section.restarts + 1} times (cluster.restarts): "
                        f"{_first_line(error)}"
                    ) from None
                await self._replace(index, worker, error)
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from None

    async def _replace(self, index: int, worker: Any, error: Exception) -> None:
        """Start a new worker in place of `worker`, unless it was already replaced."""
        async with self._repairing.setdefault(index, asyncio.Lock()):
            if self.workers[index] is not worker:
                return
            log.warning("rollout worker %d was lost (%s); another one takes its place", index, _first_line(error))
            self.lost += 1
            self.ray.kill(worker)
            self._seated.pop(index, None)
            self._computed.pop(index, None)
            self.workers[index] = self._start()
            if self._weights is not None:
                await self._load(index)

    async def _limited(self, call: Awaitable[T]) -> T:
        return await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(call)), self.section.worker_timeout)

    def close(self) -> None:
        """Stop the workers. Also stop the cluster if this run started it."""
        for worker in self.workers:
            self.ray.kill(worker)
        if self._started:
            self.ray.shutdown()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
