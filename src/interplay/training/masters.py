"""The parameters that an optimiser updates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import ref

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from interplay.training.ranks import is_sharded, own_part, placed, spread

# A weak reference to the master of each parameter. Neither is kept in memory by this.
_MASTERS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def master_of(parameter: Tensor) -> Tensor | None:
    """The tensor that the optimiser updates for a parameter; None if there is none, or if it has only a part of the
    parameter."""
    found = _MASTERS.get(parameter)
    return None if found is None else found()


class Masters:
    """The fp32 tensors that the optimiser updates: fp32 parameters themselves, and fp32 copies of all others.

    The master of a sharded parameter is a plain tensor with this rank's part of it, because every operation on a
    sharded tensor costs the host much time. If the part is fp32, the master is in the same memory."""

    @torch.no_grad()
    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        parts = [own_part(p.detach()) if is_sharded(p) else p for p in self.parameters]
        self.own = [t if t.dtype is torch.float32 else t.detach().float() for t in parts]
        every = list(zip(self.own, parts, self.parameters, strict=True))
        self.whole = [m for m, _, p in every if not is_sharded(p)]
        for master, _, parameter in every:
            if not is_sharded(parameter):
                _MASTERS[parameter] = ref(master)
        self._fed = [(m, p) for m, _, p in every if m is not p]  # autograd does not write their gradients
        self._copies = [each for each in every if each[0] is not each[1]]

    @torch.no_grad()
    def collect(self) -> None:
        """Add the gradients of a micro-batch to those of the masters."""
        sums: list[Tensor] = []
        more: list[Tensor] = []
        for master, parameter in self._fed:
            if parameter.grad is None:
                continue
            grad, parameter.grad = own_part(parameter.grad), None
            if master.grad is None:
                master.grad = grad.float()
            else:
                sums.append(master.grad)
                more.append(grad)
        if sums:
            torch._foreach_add_(sums, more)

    @torch.no_grad()
    def publish(self) -> None:
        if self._copies:
            torch._foreach_copy_([part for _, part, _ in self._copies], [master for master, _, _ in self._copies])

    @torch.no_grad()
    def reread(self) -> None:
        for master, part, _ in self._copies:
            master.copy_(part)

    def state(self) -> list[Tensor]:
        return [spread(master, parameter) for master, _, parameter in self._copies]

    @torch.no_grad()
    def load(self, state: Sequence[Tensor]) -> None:
        for (master, _, parameter), saved in zip(self._copies, state, strict=True):
            master.copy_(own_part(placed(saved, parameter)))
