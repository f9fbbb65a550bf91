"""Engines in processes of their own: `EngineActor` has the weights and samples, `ActorEngine` is a worker's side of it.

An `EngineActor` has a local engine for each model, or starts a vLLM server for each (`engine.kind`).

The requests of one task go to the same actor, which computes their prompt once. If that actor is lost, they go to the
next one. A reply depends on its seed and on the weights, so it is the same there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interplay.config import parse
from interplay.distributed.connection import first_line, losses, package
from interplay.distributed.holder import NewWeights, PolicyHolder
from interplay.engines.census import census
from interplay.engines.engine import Capabilities, EngineLimits, EngineStats, Request
from interplay.errors import EngineLost
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.types import Completion, MediaSpan, Sample, seed_of

if TYPE_CHECKING:
    from interplay.models.adapter import Adapter
    from interplay.models.load import Loaded

log = logging.getLogger("interplay")


class EngineActor(PolicyHolder):
    """Samples for rollout workers. `recipe` is the recipe of the run; its bases are folders that the run has made."""

    def __init__(self, recipe: Mapping[str, Any]) -> None:
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        super().__init__(Team(resolve(parse(recipe)).recipe))

    async def generate(self, policy: str, request: Request) -> Completion:
        with _ends_without_engine():
            return await self.team.members[policy].engine.generate(request)

    async def score_replies(
        self,
        policy: str,
        ids: tuple[int, ...],
        replies: Sequence[tuple[int, ...]],
        adapter: str | None,
        media: tuple[MediaSpan, ...],
    ) -> list[tuple[float, ...]]:
        with _ends_without_engine():
            return await self.team.members[policy].engine.score(ids, replies, adapter, media)

    async def update(self, weights: Mapping[str, NewWeights]) -> tuple[float, float]:
        with _ends_without_engine():
            return await super().update(weights)

    async def score(self, policy: str, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        with _ends_without_engine():
            return await super().score(policy, samples)


@contextmanager
def _ends_without_engine() -> Iterator[None]:
    """End this process if its engine is lost, so that another process takes its place."""
    try:
        yield
    except EngineLost as error:
        log.error("%s", error)
        os._exit(1)


@dataclass
class EngineActors:
    """The actors that sample for this process. The run replaces the list when an actor was lost."""

    actors: Sequence[Any]


class ActorEngine:
    """The engine of one policy, in other processes. `loaded` is its model, without weights."""

    def __init__(self, policy: str, others: EngineActors, loaded: Loaded) -> None:
        self.policy, self._others = policy, others
        self._limits = EngineLimits(int(loaded.model.config.get_text_config().max_position_embeddings))
        # It counts as shared because the run itself sends new weights to the actors: there is nothing to copy here.
        media = frozenset[str]() if loaded.senses is None else loaded.senses.kinds
        self.capabilities = Capabilities(
            token_ids=True, logprobs=True, adapters=True, legal=True, shared=True, media=media
        )
        self.version = 0
        self._sampled = self._running = 0

    async def generate(self, request: Request) -> Completion:
        self._running += 1
        try:
            found: Completion = await self._asked(request.key[1:2], lambda a: a.generate.remote(self.policy, request))
        finally:
            self._running -= 1
        self._sampled += len(found.tokens)
        return found

    async def _asked(self, key: tuple[object, ...], ask: Callable[[Any], Awaitable[Any]]) -> Any:
        """Ask one of the actors. Equal keys ask the same one, unless it is lost."""
        return await census().elsewhere(self._answer(key, ask))

    async def _answer(self, key: tuple[object, ...], ask: Callable[[Any], Awaitable[Any]]) -> Any:
        ray, actors = package(), self._others.actors
        first = seed_of("engine", key)
        last = ""
        for at in range(len(actors)):
            try:
                return await ask(actors[(first + at) % len(actors)])
            except losses(ray) as error:
                last = first_line(error)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
        raise EngineLost(f"none of the {len(actors)} engines (cluster.engines) answers: {last}")

    async def score(
        self,
        ids: tuple[int, ...],
        replies: Sequence[tuple[int, ...]],
        adapter: str | None = None,
        media: tuple[MediaSpan, ...] = (),
    ) -> list[tuple[float, ...]]:
        found: list[tuple[float, ...]] = await self._asked(
            ids, lambda a: a.score_replies.remote(self.policy, ids, replies, adapter, media)
        )
        return found

    def flush(self) -> None:
        """Does nothing: the actors empty their caches when they get new weights."""

    def update(self, version: int, source: Loaded | None = None) -> None:
        self.version = version

    def load(self, name: str, adapter: Adapter, version: int) -> None:
        """Does nothing: the run sends adapters to the actors."""

    def unload(self, name: str) -> None:
        """Does nothing: the run tells the actors which snapshots play."""

    def cancel(self, key: tuple[object, ...]) -> bool:
        return False

    def stats(self) -> EngineStats:
        return EngineStats(self._sampled, running=self._running)

    def limits(self) -> EngineLimits:
        return self._limits

    def close(self) -> None:
        """Does nothing: the actors belong to the run."""
