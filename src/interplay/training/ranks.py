"""The processes that train one model together (ranks), each with a part of its weights and of every batch.

`shards.py` makes them. A model that was not sharded has one rank, and then nothing here communicates. Every rank is
given the same examples and computes the same layout of them, so ranks agree on who computes what without a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from interplay.training.batch import RowCut, cuts
from interplay.training.tries import Trie

T = TypeVar("T")


class Ranks:
    """`release` frees the weights that are gathered at the moment. The next pass gathers them again."""

    def __init__(self, rank: int = 0, size: int = 1, release: Callable[[], None] = lambda: None) -> None:
        self.rank, self.size, self.release = rank, size, release

    def cuts(self, trie: Trie, max_tokens: int, pack: bool) -> list[RowCut]:
        """This rank's micro-batches. Rows go to the rank with the fewest tokens so far, longest first. Ranks with fewer
        micro-batches repeat the shortest row with weight 0, since every rank takes part in gathering the weights."""
        rows = range(len(trie.rows))
        length = {r: trie.rows[r].length for r in rows}
        shares: list[list[int]] = [[] for _ in range(self.size)]
        loads = [0] * self.size
        for r in sorted(rows, key=lambda r: (-length[r], r)):
            least = loads.index(min(loads))
            shares[least].append(r)
            loads[least] += length[r]
        parts = [cuts(trie, share, max_tokens, pack) for share in shares]
        mine = parts[self.rank]
        shortest = min(rows, key=lambda r: (length[r], r))
        return mine + [RowCut([shortest], repeated=True)] * (max(map(len, parts)) - len(mine))

    def everywhere(self, mine: T) -> list[T]:
        """What each rank has, in the order of ranks."""
        if self.size == 1:
            return [mine]
        out: list[Any] = [None] * self.size
        dist.all_gather_object(out, mine)
        return out

    @torch.no_grad()
    def add_gradients(self, tensors: Sequence[Tensor]) -> None:
        """Add up the gradients of tensors that are whole on every rank, such as adapters. FSDP adds up the others."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([(torch.zeros_like(t) if t.grad is None else t.grad).flatten() for t in tensors])
        dist.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.grad = part.view_as(tensor)

    def norm(self, mine: Tensor) -> Tensor:
        """The norm of numbers that are split over the ranks, from the norm of this rank's part."""
        if self.size == 1:
            return mine
        total = mine.square()
        dist.all_reduce(total)
        return total.sqrt()

    def whole(self, state: T) -> T:
        """The state with every sharded tensor gathered. The first rank gets the result, the others take part."""
        return _gathered(state, self.rank == 0)


ALONE = Ranks()


def ranks_of(module: nn.Module) -> Ranks:
    """The ranks that train a model."""
    found: Ranks = getattr(module, "_interplay_ranks", ALONE)
    return found


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")  # a DTensor


def whole_tensor(tensor: Any) -> Any:
    """A tensor with the parts of all ranks; a plain tensor is returned as it is."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def own_part(tensor: Any) -> Tensor:
    """This rank's part of a sharded tensor, in the same memory; a plain tensor is returned as it is."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def placed(tensor: Tensor, like: Any) -> Tensor:
    """This rank's part of a whole tensor, if `like` is sharded and has its shape."""
    if not is_sharded(like) or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    # Every rank has the whole tensor, so none has to send it (src_data_rank).
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def spread(part: Tensor, like: Any) -> Tensor:
    """The sharded tensor whose part on this rank is `part`, if `like` is sharded and its part has this shape."""
    if not is_sharded(like) or part.shape != own_part(like.detach()).shape:
        return part
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(part, like.device_mesh, like.placements, shape=like.shape, stride=like.stride())


def _gathered(state: Any, keep: bool) -> Any:
    if isinstance(state, dict):
        return {key: _gathered(value, keep) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_gathered(value, keep) for value in state)
    if isinstance(state, Tensor) and is_sharded(state):
        found = whole_tensor(state)
        return found.detach().cpu() if keep else None
    return state
