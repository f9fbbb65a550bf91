"""The engine protocol: one request in, one completion out; batching is the engine's business.

A completion carries the ids that were sampled, their log-probs under the very distribution they were drawn
from, and the version of the weights that drew them. A trainable seat refuses an engine without those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from interplay.types import Completion


@dataclass(frozen=True, slots=True)
class Sampling:
    """`temperature` 0 takes the most likely token. `stop` ids end the turn and are part of the completion."""

    temperature: float = 1.0
    max_tokens: int = 64
    stop: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """`key` orders admission, so that batches do not depend on timing; `seed` drives this request alone."""

    key: tuple[object, ...]
    ids: tuple[int, ...]
    seed: int
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Capabilities:
    token_ids: bool
    logprobs: bool


class Engine(Protocol):
    capabilities: Capabilities
    version: int

    async def generate(self, request: Request) -> Completion:
        """Sample one completion; raises `EngineError` for a request that can never be served."""
        ...

    def publish(self, version: int) -> None:
        """The weights changed: from now on completions carry `version`, and nothing cached is reused."""
        ...

    def close(self) -> None: ...
