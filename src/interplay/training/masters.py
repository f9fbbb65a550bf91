"""The parameters that an optimiser updates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from interplay.training.ranks import own_part, placed


class Masters:
    """The fp32 tensors that the optimiser updates: fp32 parameters themselves, and fp32 copies of all others."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        self.own = [p if p.dtype is torch.float32 else p.detach().float() for p in self.parameters]
        self._copies = [(m, p) for m, p in zip(self.own, self.parameters, strict=True) if m is not p]

    @torch.no_grad()
    def collect(self) -> None:
        """Add the gradients of a micro-batch to those of the fp32 copies."""
        for master, parameter in self._copies:
            if parameter.grad is not None:
                if master.grad is None:
                    master.grad = parameter.grad.float()
                else:
                    master.grad += parameter.grad
                parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        if self._copies:
            torch._foreach_copy_([own_part(p) for _, p in self._copies], [own_part(m) for m, _ in self._copies])

    @torch.no_grad()
    def reread(self) -> None:
        for master, parameter in self._copies:
            master.copy_(parameter)

    def state(self) -> list[Tensor]:
        return [m for m, _ in self._copies]

    @torch.no_grad()
    def load(self, state: Sequence[Tensor]) -> None:
        for (master, _), saved in zip(self._copies, state, strict=True):
            master.copy_(placed(saved, master))
