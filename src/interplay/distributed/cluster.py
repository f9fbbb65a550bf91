"""Starts rollout workers and engines as Ray actors and sends them episodes and weights.

The driver is the main process of a run. It draws the tasks, trains, and is the only process that writes the run folder.
The workers play episodes, and ask the judges that are policies. A lost worker is replaced by a new one with the newest
weights, and its episodes are played again with the same seeds. A lost engine is replaced too; until then, the other
engines serve its requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from interplay.distributed.busy import BusyTime
from interplay.distributed.connection import check_room, connect, stored
from interplay.distributed.crew import Crew
from interplay.distributed.engine_actor import EngineActor
from interplay.distributed.holder import NewWeights
from interplay.distributed.worker import EpisodeJob, JudgeJob, RolloutWorker, WorkerJob, WorkerResult
from interplay.engines.census import census
from interplay.errors import EngineLost
from interplay.rollout.judging import JudgedGroup
from interplay.rollout.runner import Seated
from interplay.training.feed import snapshots_in
from interplay.training.state import RunState
from interplay.training.tally import update_cost
from interplay.types import Episode, Sample, Snapshot, Task

T = TypeVar("T")
_LOOK_EVERY = 30.0  # seconds between two checks that a worker that plays still answers
_Sent = tuple[WorkerJob, asyncio.Future[Any]]  # a job, and where its result goes


class RolloutFleet:
    """The rollout workers of a run, and their engines. `episode` has the signature of `Runner.episode`."""

    def __init__(self, state: RunState) -> None:
        self.state, self.section = state, state.plan.recipe.cluster
        self.ray = connect(self.section)
        count, engines = self.section.rollout_workers, self.section.engines
        check_room(
            self.ray,
            f"{count} rollout workers and {engines} engines (cluster.rollout_workers, cluster.engines)",
            CPU=count * self.section.worker_cpus + engines,
            GPU=count * self.section.worker_gpus + engines * self.section.engine_gpus,
        )
        self.staleness = state.plan.recipe.stream.max_staleness
        self._weights: Any = None  # the newest weights, in Ray's object store
        self._seated: dict[tuple[str, int], frozenset[Snapshot]] = {}  # the snapshots that each actor has loaded
        self._seating: dict[tuple[str, int], asyncio.Lock] = {}
        self._jobs: list[_Sent] = []
        self._sent = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = BusyTime(self.section.rollout_workers)
        self._cost: dict[str, float] = {}  # what the last update cost
        self._computed: dict[int, tuple[float, float]] = {}  # by sampler: the time and its engines' seconds
        self._engine_idle: dict[int, float] = {}  # by sampler: between its last two updates
        self.engines = Crew(self.ray, "engine", self.section.engines, self._start_engine, self._welcome_engine)
        self.crew = Crew(
            self.ray, "rollout worker", self.section.rollout_workers, self._start_worker, self._welcome_worker
        )
        self.samplers = self.engines if self.section.engines else self.crew  # those that are sent new weights

    @property
    def workers(self) -> list[Any]:
        return self.crew.actors

    @property
    def lost(self) -> int:
        """Workers that were replaced."""
        return self.crew.lost

    # -- starting -------------------------------------------------------------------------------------------------

    def _start_worker(self) -> Any:
        """Start a worker. If it samples itself, it loads the base models, and the trained weights are sent to it."""
        recipe = self._recipe()
        if self.section.engines:  # the actors have the recipe's device and kind of engine, and the worker needs neither
            recipe = {**recipe, "device": "cpu", "engine": {"kind": "local"}}
        return self._start(RolloutWorker, recipe, self.section.worker_cpus, self.section.worker_gpus)

    def _start_engine(self) -> Any:
        return self._start(EngineActor, self._recipe(), 1.0, self.section.engine_gpus)

    def _recipe(self) -> dict[str, Any]:
        return self.state.plan.on(self.state.bases).recipe.model_dump()

    def _start(self, kind: type[Any], recipe: Mapping[str, Any], cpus: float, gpus: float) -> Any:
        actor = self.ray.remote(kind).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0, max_concurrency=1000,
            scheduling_strategy="SPREAD",
        )  # fmt: skip
        return actor.remote(recipe, self.engines.actors) if kind is RolloutWorker else actor.remote(recipe)

    async def _welcome_worker(self, index: int) -> None:
        self._seated.pop((self.crew.what, index), None)
        await self._has_started(self.workers[index])
        if self.samplers is self.crew:
            await self._welcome_sampler(index)

    async def _welcome_engine(self, index: int) -> None:
        """Give a new engine the newest weights and the snapshots that play; then tell the workers about it."""
        playing = self._seated.pop((self.engines.what, index), frozenset())
        await self._has_started(self.engines.actors[index])
        await self._welcome_sampler(index)
        await self._seat(self.engines, index, playing & self.state.snapshots.seated, self.engines.actors[index])
        for worker in range(len(self.workers)):
            await self._done(self.crew, worker, self._tell_engines)

    async def _tell_engines(self, worker: Any) -> None:
        await self._limited(worker.use_engines.remote(self.engines.actors))

    async def _welcome_sampler(self, index: int) -> None:
        self._computed.pop(index, None)
        if self._weights is not None:
            await self._load(index, self.samplers.actors[index])

    # -- weights --------------------------------------------------------------------------------------------------

    async def sync(self) -> None:
        """Send the newest weights to everyone who samples, and wait until all have loaded them."""
        everyone = range(len(self.samplers.actors))
        if self._weights is None:  # the time in which they start is not that of an update
            await asyncio.gather(*(self._done(self.samplers, i, self._has_started) for i in everyone))
        began, newest = time.perf_counter(), self._newest()
        self._weights = stored(self.ray, "the new weights", newest)
        await asyncio.gather(*(self._done(self.samplers, i, partial(self._load, i)) for i in everyone))
        size = sum(weights.nbytes for weights in newest.values())
        self._cost = update_cost("cluster/", time.perf_counter() - began, size)

    async def score(self, policy: str, samples: Sequence[Sample]) -> dict[str, list[tuple[float, ...]]]:
        """The log-probs of the replies of these samples in the engine of each process that samples."""

        async def asked(actor: Any) -> list[tuple[float, ...]]:
            return await self._limited(actor.score.remote(policy, samples))

        everyone = range(len(self.samplers.actors))
        found = await asyncio.gather(*(self._done(self.samplers, i, asked) for i in everyone))
        return {f"{self.samplers.what} {i}": scores for i, scores in zip(everyone, found, strict=True)}

    def _newest(self) -> dict[str, NewWeights]:
        out = {}
        for name in self.state.learners:
            member = self.state.team.members[name]
            adapter = None if member.adapter is None else member.adapter.detached()
            tensors = {} if adapter else {n: p.detach().cpu() for n, p in member.loaded.model.named_parameters()}
            out[name] = NewWeights(member.version, adapter, tensors)
        return out

    async def _load(self, index: int, sampler: Any) -> None:
        now, computed = await self._limited(sampler.update.remote(self._weights))
        if index in self._computed:
            then, before = self._computed[index]
            # A step of the engine is counted when it ends, so a step that was under way at the last update counts here.
            self._engine_idle[index] = max(0.0, 1.0 - (computed - before) / max(now - then, 1e-9))
        self._computed[index] = (now, computed)

    async def _seat(self, crew: Crew, index: int, needed: Collection[Snapshot], actor: Any) -> None:
        """Make a worker or an engine load the snapshots that it needs, and release those that no longer play. The
        references of an algorithm are not loaded, because only the learner needs them."""
        snapshots, key = self.state.snapshots, (crew.what, index)
        async with self._seating.setdefault(key, asyncio.Lock()):
            there = self._seated.get(key, frozenset())
            wanted = (there & snapshots.seated).union(needed)
            if wanted != there:
                await self._limited(actor.seat.remote({w: str((snapshots.folder / str(w)).resolve()) for w in wanted}))
                self._seated[key] = wanted

    def _needed(self, jobs: Sequence[WorkerJob]) -> set[Snapshot]:
        """The snapshots that play or judge in these jobs."""
        judged = [job.episodes for job in jobs if isinstance(job, JudgeJob)]
        seats = [job.seats for job in jobs if isinstance(job, EpisodeJob)] + [
            e.seats for group in judged for e in group
        ]
        return {who for each in seats for who in snapshots_in(each)} | (self.state.plan.starts if judged else set())

    def metrics(self) -> dict[str, float]:
        """Workers and engines that were lost so far; what the last update cost; and for each worker, the share of the
        time in which it played no episode (since the last call). For each engine, or the engines of each worker, the
        share in which they computed nothing (between the last two updates)."""
        out = {"cluster/workers_lost": float(self.crew.lost), **self._cost}
        if self.section.engines:
            out["cluster/engines_lost"] = float(self.engines.lost)
        out |= {f"cluster/idle/worker_{i}": share for i, share in enumerate(self._busy.idle())}
        whose = "engine" if self.section.engines else "worker"
        return out | {f"cluster/engine_idle/{whose}_{i}": share for i, share in sorted(self._engine_idle.items())}

    # -- episodes -------------------------------------------------------------------------------------------------

    async def episode(self, task: Task, replica: int, seated: Seated) -> Episode:
        """Play an episode on a worker."""
        played: Episode = await self._result(EpisodeJob(task, replica, dict(seated.seats)))
        return played

    async def judge(self, name: str, episodes: Sequence[Episode]) -> JudgedGroup:
        """Ask a judge on a worker about the episodes of one task."""
        judged: JudgedGroup = await self._result(JudgeJob(name, episodes))
        return judged

    async def _result(self, job: WorkerJob) -> Any:
        """What a worker makes of a job. Jobs that begin in one iteration of the event loop are sent together."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        if not self._jobs:
            loop.call_soon(self._send)
        self._jobs.append((job, done))
        return await census().elsewhere(done)

    def _send(self) -> None:
        """Send the jobs to the workers. All episodes of one task go to the same worker, which then computes their
        prompt only once. With staleness 0, a worker gets its jobs in one batch, so that results are deterministic."""
        jobs, self._jobs = self._jobs, []
        order: dict[str, int] = {}
        for job, _ in jobs:
            order.setdefault(job.task.id, (self._sent + len(order)) % len(self.workers))
        if self.staleness:
            self._sent += len(order)
        shares: dict[int, list[_Sent]] = {}
        for job, done in jobs:
            shares.setdefault(order[job.task.id], []).append((job, done))
        for index, share in shares.items():
            for part in [[one] for one in share] if self.staleness else [share]:
                task = asyncio.get_running_loop().create_task(self._work(index, part))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _work(self, index: int, share: Sequence[_Sent]) -> None:
        try:
            found = await self._worked(index, [job for job, _ in share], self.section.restarts)
        except Exception as error:  # whoever awaits the results receives the error
            for _, done in share:
                if not done.done():
                    done.set_exception(error)
            return
        for (_, done), result in zip(share, found, strict=True):
            if not done.done():
                done.set_result(result)

    async def _worked(self, index: int, jobs: Sequence[WorkerJob], left: int) -> list[WorkerResult]:
        """Do jobs on a worker. Those that lost their engines are done again with new engines, at most `left` times;
        after that their episodes have an error."""

        needed = self._needed(jobs)

        async def once(worker: Any) -> list[WorkerResult]:
            with self._busy.at_work(index):
                for engine in range(len(self.engines.actors)):
                    await self._done(self.engines, engine, partial(self._seat, self.engines, engine, needed))
                await self._seat(self.crew, index, needed, worker)
                return await self._watched(worker, asyncio.ensure_future(worker.work.remote(list(jobs))))

        found = await self._done(self.crew, index, once)
        lost = [i for i, result in enumerate(found) if _lost_engines(result)]
        if lost and left and self.section.engines:
            for engine in range(len(self.engines.actors)):
                await self._done(self.engines, engine, self._is_alive)
            again = await self._worked(index, [jobs[i] for i in lost], left - 1)
            for i, result in zip(lost, again, strict=True):
                found[i] = result
        return found

    # -- failures -------------------------------------------------------------------------------------------------

    async def _done(self, crew: Crew, index: int, work: Callable[[Any], Awaitable[T]]) -> T:
        return await crew.do(index, work, self.section.restarts)

    async def _watched(self, worker: Any, call: asyncio.Future[T]) -> T:
        """Wait for a worker that plays. Episodes may take as long as the recipe lets them, but meanwhile the worker
        must answer. So must the engines; one that does not is replaced."""
        try:
            while not (await asyncio.wait({call}, timeout=_LOOK_EVERY))[0]:
                await self._is_alive(worker)
                for engine in range(len(self.engines.actors)):
                    await self._done(self.engines, engine, self._is_alive)
            return call.result()
        finally:
            call.cancel()  # nobody waits for it any more

    async def _is_alive(self, actor: Any) -> None:
        await self._limited(actor.pid.remote())

    async def _has_started(self, actor: Any) -> None:
        """Wait until a new actor answers. An engine that starts a vLLM server has the time that such a server has."""
        engine, limit, option = self.state.plan.recipe.engine, self.section.worker_timeout, "cluster.worker_timeout"
        if engine.kind == "vllm" and engine.start_timeout > limit:
            limit, option = engine.start_timeout, "engine.start_timeout"
        await self._within(limit, option, actor.pid.remote())

    async def _limited(self, call: Awaitable[T]) -> T:
        return await self._within(self.section.worker_timeout, "cluster.worker_timeout", call)

    async def _within(self, limit: float, option: str, call: Awaitable[T]) -> T:
        asked = asyncio.ensure_future(call)
        if not (await asyncio.wait({asked}, timeout=limit))[0]:
            asked.cancel()
            raise TimeoutError(f"no answer within {limit:g} s ({option})")
        return asked.result()

    def close(self) -> None:
        """Stop the workers and the engines."""
        self.crew.close()
        self.engines.close()


def _lost_engines(result: WorkerResult) -> bool:
    """Whether an episode, or one of those that were judged, failed because no engine answered."""
    episodes = [result] if isinstance(result, Episode) else result.episodes
    return any((e.error or "").startswith(f"{EngineLost.__name__}: ") for e in episodes)
