"""Inference labels: exactly one label is read, or none."""

from __future__ import annotations

from interplay.rewards.label import label


def test_labels() -> None:
    assert label("It cannot be.\nAnswer: contradiction") == "contradiction"
    assert label("Entailment.") == "entailment" and label("The evidence REFUTES the claim") == "contradiction"
    assert label("not enough info") == "neutral" and label("\\boxed{neutral}") == "neutral"
    assert label("It may seem neutral, or a contradiction. Answer: entailment") == "entailment"
    for cheat in (
        "",
        "Answer:",
        "entailment neutral contradiction",
        "Answer: entailment or neutral",
        "x" * 30_000 + "neutral",
    ):
        assert label(cheat) is None
