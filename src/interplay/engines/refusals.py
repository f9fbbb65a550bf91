"""Checks of requests, for every engine that takes token ids."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from math import inf

from interplay.engines.engine import Request
from interplay.errors import RequestError, did_you_mean


def refuse_impossible(request: Request, vocabulary: int, context: int, adapters: Collection[str]) -> None:
    """Raise if a model of this size with these adapters cannot serve the request."""
    sampling = request.sampling
    everything = request.ids + request.forced + tuple([t for reply in request.legal for t in reply])
    if not request.ids:
        raise RequestError("the prompt has no tokens; expected at least one.")
    if request.room < 1:
        raise RequestError(f"max_tokens is {sampling.max_tokens}; expected at least 1.")
    if min(everything) < 0 or max(everything) >= vocabulary:
        raise RequestError(f"the request has a token id outside the model's vocabulary of {vocabulary} ids.")
    if request.adapter is not None and request.adapter not in adapters:
        raise RequestError(f"no adapter '{request.adapter}' is loaded; {did_you_mean(request.adapter, adapters)}")
    if request.legal:
        _refuse_legal(request)
    if not 0 <= sampling.temperature < inf or not 0 <= request.seed < 1 << 63:
        raise RequestError(
            f"the temperature is {sampling.temperature} and the seed {request.seed}; expected a temperature of at "
            "least 0 and a seed from 0 to 2^63 - 1."
        )
    if sampling.top_k < 0 or not 0 < sampling.top_p <= 1 or not 0 <= sampling.min_p <= 1:
        raise RequestError(
            f"top_k is {sampling.top_k}, top_p {sampling.top_p} and min_p {sampling.min_p}; expected top_k ≥ 0, 0 < "
            "top_p ≤ 1 and 0 ≤ min_p ≤ 1."
        )
    total = len(request.ids) + request.room
    if total > context:
        raise RequestError(
            f"prompt ({len(request.ids)}) plus max_tokens ({request.room}) is {total} tokens, but the model takes at "
            f"most {context}; shorten the prompt, or lower max_tokens (sampling.max_tokens, or judges.NAME.max_tokens "
            "for a judge)."
        )


def _refuse_legal(request: Request) -> None:
    if not all(request.legal):
        raise RequestError("a legal reply has no tokens; expected at least its end token.")
    ordered = sorted(request.legal)  # if a reply is a prefix of others, one of those follows it directly
    if any(len(a) < len(b) and b[: len(a)] == a for a, b in pairwise(ordered)):
        raise RequestError("a legal reply is the beginning of another one; expected each to end with an end token.")
    longest, limit = max(map(len, request.legal), default=0), request.sampling.max_tokens
    if longest > limit:
        raise RequestError(
            f"a legal reply has {longest:,} tokens, but at most {limit:,} may be sampled; raise sampling.max_tokens, "
            "and the limit that an outside program sends with its call, if that is smaller."
        )
