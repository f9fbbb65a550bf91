"""The engine protocol: one request in, one completion out; batching is the engine's business.

A completion carries the ids that were sampled, their log-probs under the very distribution they were drawn
from, and the version of the weights that drew them. A trainable seat refuses an engine without those.
A request is cancelled as any awaited thing is: cancel the task that awaits it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from interplay.types import Completion, Message

if TYPE_CHECKING:
    from torch import Tensor


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
    `messages` stand for `ids` where the engine takes no ids (`capabilities.token_ids`).
    """

    key: tuple[object, ...]
    ids: tuple[int, ...]
    seed: int
    sampling: Sampling
    adapter: str | None = None
    legal: tuple[tuple[int, ...], ...] = ()
    forced: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()

    @property
    def room(self) -> int:
        """Tokens that may follow the prompt."""
        return len(self.forced) or self.sampling.max_tokens


@dataclass(frozen=True)
class Adapter:
    """LoRA weights by the name of their layer: down [rank, in], up [out, rank]; y += scale · up · down · x."""

    rank: int
    scale: float
    weights: Mapping[str, tuple[Tensor, Tensor]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Capabilities:
    token_ids: bool
    logprobs: bool
    adapters: bool = False
    legal: bool = False


class Engine(Protocol):
    capabilities: Capabilities
    version: int
    generated_tokens: int  # since it was made

    async def generate(self, request: Request) -> Completion:
        """Sample one completion; raises `EngineError` for a request that can never be served."""
        ...

    async def score(
        self, ids: tuple[int, ...], replies: Sequence[tuple[int, ...]], adapter: str | None = None
    ) -> list[tuple[float, ...]]:
        """The log-probs of each token of each reply to one prompt; the prompt is computed once."""
        ...

    def publish(self, version: int) -> None:
        """The weights changed: from now on completions carry `version`, and nothing cached is reused."""
        ...

    def load(self, name: str, adapter: Adapter, version: int) -> None:
        """Put an adapter in place, or replace it; its completions carry `version`."""
        ...

    def unload(self, name: str) -> None: ...

    def close(self) -> None: ...
