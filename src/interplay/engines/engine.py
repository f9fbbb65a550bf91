"""The engine protocol: each request gets one completion, and the engine does the batching.

A completion holds the sampled ids, their log-probs under the distribution they were drawn from, and the version of the
weights that sampled them. An engine without these cannot serve a trainable seat. A request is cancelled by its key, or
by cancelling the task that awaits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from interplay.types import Completion, MediaSpan, Message, identity

if TYPE_CHECKING:
    from interplay.models.adapter import Adapter
    from interplay.models.load import Loaded

# The local engine's defaults. The memory estimate reads them too.
CPU_CACHE_TOKENS = 131_072
GPU_CACHE_SHARE = 0.25  # share of the GPU memory that is free when the engine starts
MAX_RUNNING = 1024  # requests at a time


@dataclass(frozen=True, slots=True)
class Sampling:
    """`temperature` 0 takes the most likely token. `stop` ids and `stop_strings` end the turn and are part of the
    completion. `top_k` 0, `top_p` 1 and `min_p` 0 remove no tokens; the remaining probabilities are renormalised."""

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
    """Requests are admitted in the order of `key`, so that batches do not depend on timing. The random numbers of a
    request depend on its `seed` alone.

    `adapter` names the weights that are added to the base; None is the base alone. `legal` lists the only replies that
    can be produced, as ids, each with the stop token that ends it. `forced` is a reply to score instead of sampling.
    `messages` replace `ids` if the engine takes no ids (`capabilities.token_ids`). `media` gives the places of pictures
    and sounds in `ids`.
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
        """The ids of the prompt, with numbers made from the digests of its media; it identifies the prompt."""
        return identity(self.ids, self.media)

    @property
    def room(self) -> int:
        """The largest number of tokens that may follow the prompt."""
        return len(self.forced) or self.sampling.max_tokens


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. `media` names the kinds of media that it accepts, such as "image". If it is `shared`, its
    weights are the learner's tensors; otherwise `update` needs the model that has the new ones."""

    token_ids: bool
    logprobs: bool
    adapters: bool = False
    legal: bool = False
    shared: bool = False
    media: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the engine was made, and the numbers of running and waiting requests. `prompt_tokens` counts the
    tokens of all prompts, `cached_tokens` those of them that were found in the cache. `seconds` is the time in which it
    computed; 0 if the engine computes in another process. With speculative sampling, `drafted_tokens` were guessed, and
    `accepted_tokens` of them were right."""

    sampled_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    running: int = 0
    waiting: int = 0
    seconds: float = 0.0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The longest sequence (prompt plus reply), and the size of the key-value cache; None if unknown."""

    context_tokens: int | None = None
    cache_tokens: int | None = None


class Engine(Protocol):
    capabilities: Capabilities
    version: int

    async def generate(self, request: Request) -> Completion:
        """Sample one completion; raises `EngineError` for a request that can never be served."""
        ...

    async def score(
        self,
        ids: tuple[int, ...],
        replies: Sequence[tuple[int, ...]],
        adapter: str | None = None,
        media: tuple[MediaSpan, ...] = (),
    ) -> list[tuple[float, ...]]:
        """The log-prob of each token of each reply to one prompt. The prompt is computed once."""
        ...

    def flush(self) -> None:
        """Empty the prefix cache, so that nothing computed so far is reused."""
        ...

    def update(self, version: int, source: Loaded | None = None) -> None:
        """Switch to the base's weights of `version`; no cached prefix is reused. `source` is the model that has them;
        None if the engine shares its tensors with the learner."""
        ...

    def load(self, name: str, adapter: Adapter, version: int) -> None:
        """Load or replace an adapter; its completions carry `version`."""
        ...

    def unload(self, name: str) -> None: ...

    def cancel(self, key: tuple[object, ...]) -> bool:
        """Cancel the requests with this key and the tasks that await them; return whether there were any."""
        ...

    def stats(self) -> EngineStats: ...

    def limits(self) -> EngineLimits: ...

    def close(self) -> None: ...
