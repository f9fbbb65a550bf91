"""The tokens of a turn: text, log-prob, version, advantage, entropy, and the gaps to learner and reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interplay.errors import InterplayError
from interplay.rollout.token_texts import TokenTexts

_PROMPT = 4000  # tokens of a prompt that are sent at most, from its end


def tokens_page(turn: Mapping[str, Any], texts: TokenTexts) -> dict[str, Any]:
    return {
        "id": turn["id"],
        "policy": turn["policy"],
        "role": turn["keys"]["role"],
        "samples": [_sample(turn["policy"], s, texts) for s in turn["samples"]],
    }


def _sample(policy: str, sample: Mapping[str, Any], texts: TokenTexts) -> dict[str, Any]:
    given, action = sample["credit"], sample["action"]
    count = len(action)
    versions = [version for version, length in sample["versions"] for _ in range(length)]
    said, why = _texts(policy, action, texts)
    prompt, _ = _texts(policy, sample["prompt"][-_PROMPT:], texts)
    return {
        "id": sample["id"],
        "tool": sample["tool"],
        "text": sample["text"],
        "temperature": sample["temperature"],
        "restricted": len(sample["mask"]),
        "prompt": prompt,
        "prompt_length": len(sample["prompt"]),
        "missing": why,
        "ids": action,
        "texts": said,
        "logprobs": _each(sample["logprobs"], count),
        "versions": _each(versions, count),
        "advantages": _each(given.get("advantage"), count),
        "references": _each(given.get("reference"), count),
        "gaps": _each(given.get("gap"), count),
        "entropies": _each(given.get("entropy"), count),
        "values": _each(given.get("value"), count),
        "targets": _each(given.get("target"), count),
    }


def _texts(policy: str, ids: Sequence[int], texts: TokenTexts) -> tuple[list[str], str | None]:
    """The texts of token ids, or their numbers and a reason if the tokenizer is not there."""
    try:
        return texts.of(policy, ids), None
    except InterplayError:
        why = f"tokenizers/{policy.partition('@')[0]}.json is not in the run folder, so tokens are shown by their ids."
        return [f"⟨{i}⟩" for i in ids], why


def _each(values: Any, count: int) -> list[Any]:
    """One value for each token: a number for all of them is repeated, missing values are None."""
    if not isinstance(values, list):
        return [values] * count
    return values if len(values) == count else [*values, *[None] * count][:count]
