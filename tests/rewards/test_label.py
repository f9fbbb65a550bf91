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


def test_a_label_may_be_affirmed_and_not_doubted() -> None:
    """Labels follow the same rule as numbers: some words affirm an answer, others doubt it (certainty.py)."""
    for sure in (
        "definitely neutral",
        "neutral, for sure",
        "It is clearly neutral.",
        "certainly neutral because of that",
    ):
        assert label(f"Answer: {sure}") == "neutral"
    for unsure in ("probably neutral", "neutral I guess", "neutral maybe", "neutral?", "not exactly neutral"):
        assert label(f"Answer: {unsure}") is None
