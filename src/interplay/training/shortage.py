"""Explains the errors that PyTorch and Python raise when memory runs out: which settings to lower, and how to go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from interplay.errors import ResourceError
from interplay.seats import RunPlan

REMEDY = (
    "lower train.micro_batch_tokens, rollout.concurrency or sampling.max_tokens, set train.recompute = true or "
    "train.optimizer = 'adamw_8bit', or train adapters (policies.NAME.adapter) instead of all weights"
)


@contextmanager
def explained(plan: RunPlan) -> Iterator[None]:
    """Turn an out-of-memory error inside this context into one that says which settings to lower."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise short_of_memory(plan, error) from None
    except RuntimeError as error:
        if not is_shortage(str(error)):
            raise
        raise short_of_memory(plan, error) from None


def is_shortage(message: str) -> bool:
    """Whether an error's text says that memory ran out. The CPU allocator raises a plain RuntimeError."""
    return any(sign in message for sign in ("OutOfMemoryError", "out of memory", "not enough memory", "MemoryError"))


def short_of_memory(plan: RunPlan, error: object) -> ResourceError:
    first = (str(error).strip().splitlines() or ["no further details"])[0]
    recipe = plan.recipe
    return ResourceError(
        f"the run is out of memory ({first}); {REMEDY}. Now train.micro_batch_tokens is "
        f"{recipe.train.micro_batch_tokens} and rollout.concurrency {recipe.rollout.concurrency}; try half of them: "
        f"interplay train RUN train.micro_batch_tokens={max(1, recipe.train.micro_batch_tokens // 2)} "
        f"rollout.concurrency={max(1, recipe.rollout.concurrency // 2)} --resume goes on from the newest checkpoint."
    )
