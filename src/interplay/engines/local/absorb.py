"""Adds sampled tokens to their sequences, and decides which sequences ended.

A GPU knows the stop ids and the largest number of tokens, but no text: the tokens that it samples after a stop string
are discarded here."""

from __future__ import annotations

from collections.abc import Iterable

from interplay.engines.codec import TokenCodec
from interplay.engines.local.runner import Drawn, allowed
from interplay.engines.local.scheduler import Sequence
from interplay.types import Stop

VersionOf = dict[str | None, int]  # that of each adapter's weights; None stands for the base model
Ended = list[tuple[Sequence, Stop]]  # sequences, and why they ended


def absorb(drawn: Iterable[Drawn], versions: VersionOf, codec: TokenCodec | None) -> Ended:
    """Add new tokens to their sequences; return those that ended. `versions` are those of the weights that
    sampled them. Stop strings need the codec."""
    ended = []
    for sequence, tokens, logprobs in drawn:
        stop = _absorb_one(sequence, tokens, logprobs, versions[sequence.request.adapter], codec)
        if stop is not None:
            ended.append((sequence, stop))
    return ended


def _absorb_one(
    sequence: Sequence, tokens: list[int], logprobs: list[float], version: int, codec: TokenCodec | None
) -> Stop | None:
    """Add new tokens to a sequence. Return why it ended, or None if it continues."""
    sampling = sequence.request.sampling
    if sampling.stop_strings and sequence.legal is None:
        tokens, logprobs = _up_to_stop(sequence, tokens, logprobs, codec)
    if version != sequence.version:
        sequence.turn_to(version)
    sequence.tokens += tokens
    sequence.logprobs += logprobs
    if sequence.legal is not None:  # it ends only at the end of a legal reply
        return None if allowed(sequence) else Stop.END
    if tokens[-1] in sampling.stop:
        return Stop.END
    if sampling.stop_strings and _ends(sequence.tokens, sampling.stop_strings, codec):
        return Stop.END
    return Stop.LENGTH if len(sequence.tokens) >= sampling.max_tokens else None


def _up_to_stop(
    sequence: Sequence, tokens: list[int], logprobs: list[float], codec: TokenCodec | None
) -> tuple[list[int], list[float]]:
    """Discard tokens that were sampled after a stop string."""
    said = list(sequence.tokens)
    for n, token in enumerate(tokens, 1):
        said.append(token)
        if _ends(said, sequence.request.sampling.stop_strings, codec):
            return tokens[:n], logprobs[:n]
    return tokens, logprobs


def _ends(tokens: list[int], strings: tuple[str, ...], codec: TokenCodec | None) -> bool:
    """Whether a stop string is complete. Each token gives at least a byte, so decoding the last few is enough."""
    assert codec is not None
    text = codec.decode(tokens[-(4 * max(map(len, strings)) + 4) :])
    return any(s in text for s in strings)
