"""A logits processor that masks every token that does not continue one of the listed replies. A reply is a list of ids;
its last id ends the turn. The learner computes the same mask, so the log-probs of engine and learner agree."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


class LegalReplies:
    """The legal replies of one request."""

    def __init__(self, replies: list[list[int]]) -> None:
        self.replies = [tuple(reply) for reply in replies]

    def __call__(self, said: list[int], logits: Tensor) -> Tensor:
        before, at = tuple(said), len(said)
        allowed = sorted({reply[at] for reply in self.replies if len(reply) > at and reply[:at] == before})
        if not allowed:
            return logits
        index = torch.tensor(allowed, device=logits.device)
        masked = torch.full_like(logits, float("-inf"))
        masked[index] = logits[index]
        return masked


class Legal(AdapterLogitsProcessor):
    """Reads the replies of a request from `sampling_params.extra_args["legal"]`."""

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> LegalReplies | None:
        legal = (params.extra_args or {}).get("legal")
        return LegalReplies(legal) if legal else None
