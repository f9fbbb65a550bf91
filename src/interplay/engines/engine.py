"""The engine protocol: one request in, one completion out; batching is the engine's business.

A completion carries the ids that were sampled, their log-probs under the very distribution they were drawn
from, and the version of the weights that drew them. A trainable seat refuses an engine without those.
A request is cancelled by its key, or by cancelling the task that awaits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from interplay.types import Completion, MediaSpan, Message, identity

if TYPE_CHECKING:
    from interplay.models.adapter import Adapter

# The local engine's defaults. The memory estimate reads them too.
CPU_CACHE_TOKENS = 131_072
GPU_CACHE_SHARE = 0.25  # of the GPU memory that is free when the engine starts
MAX_RUNNING = 1024  # requests at a time


@dataclass(frozen=True, slots=True)
class Sampling:
    """`temperature` 0 takes the most likely token. `stop` ids and `stop_strings` end the turn and are part of the
    completion. `top_k` 0, `top_p` 1 and `min_p` 0 cut nothing off; what they leave is renormalised."""

    temperature: float = 1.0
    max_tokens: int = 64
    stop: tuple[int, ...] = ()
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop_strings: tuple[str, ...] = ()

    @property
    def cuts(self) -> bool:
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """`key` orders admission, so that batches do not depend on timing; `seed` drives this request alone.

    `adapter` names the weights added to the base; None is the bare base. `legal` lists the only replies that can be
    produced, as ids, each with the stop token that ends it. `forced` is a reply to be scored instead of sampled.
    `messages` stand for `ids` where the engine takes no ids (`capabilities.token_ids`). `media` says where pictures and
    sounds stand among `ids`.
    """

    key: tuple[object, ...]
    ids: tuple[int, ...]
    seed: int
    sampling: Sampling
    adapter: str | None = None
    legal: tuple[tuple[int, ...], ...] = ()
    forced: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()
    media: tuple[MediaSpan, ...] = ()

    @property
    def identity(self) -> tuple[int, ...]:
        """What tells this prompt from another one: its ids, and its media by their digests."""
        return identity(self.ids, self.media)

    @property
    def room(self) -> int:
        """Tokens that may follow the prompt."""
        return len(self.forced) or self.sampling.max_tokens


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. `media` names the kinds of media it can carry, such as "image"."""

    token_ids: bool
    logprobs: bool
    adapters: bool = False
    legal: bool = False
    media: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the engine was made, and what is in flight now. `prompt_tokens` are those of all prompts,
    `cached_tokens` the part of them that was found in the cache."""

    sampled_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The longest sequence of prompt and reply together, and the size of the key-value cache; None is unknown."""

    context_tokens: int | None = None
    cache_tokens: int | None = None


class Engine(Protocol):
    capabilities: Capabilities
    version: int

    async def generate(self, request: Request) -> Completion:
        """Sample one completion; raises `EngineError` for a request that can never be served."""
        ...

    async def score(
        self, ids: tuple[int, ...], replies: Sequence[tuple[int, ...]], adapter: str | None = None
    ) -> list[tuple[float, ...]]:
        """The log-probs of each token of each reply to one prompt; the prompt is computed once."""
        ...

    def flush(self) -> None:
        """Empty the prefix cache: nothing that was computed so far is reused."""
        ...

    def update(self, version: int, source: Path | None = None) -> None:
        """The base's weights are now those of `version`, and nothing cached is reused. `source` is the folder to read
        them from; None where the engine shares its tensors with the learner."""
        ...

    def load(self, name: str, adapter: Adapter, version: int) -> None:
        """Put an adapter in place, or replace it; its completions carry `version`."""
        ...

    def unload(self, name: str) -> None: ...

    def cancel(self, key: tuple[object, ...]) -> bool:
        """Cancel the requests with this key, whose awaiting tasks are cancelled too; whether there were any."""
        ...

    def stats(self) -> EngineStats: ...

    def limits(self) -> EngineLimits: ...

    def close(self) -> None: ...
