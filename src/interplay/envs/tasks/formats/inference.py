"""Natural-language inference: rows of `premise`, `hypothesis` and `label` (entailment, neutral, contradiction)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import AliasChoices, Field

from interplay.envs.tasks.data import DataRow, Hub, Public, register_format
from interplay.rewards.label import LABELS

_NAMES = {"e": "entailment", "n": "neutral", "c": "contradiction"}


class _Inference(Public):
    kind: ClassVar[str] = "inference"

    @classmethod
    def compared(cls, row: DataRow) -> str:
        return f"{row['premise']}\n{row['hypothesis']}"


def _row(premise: str, hypothesis: str, label: str | int) -> DataRow | None:
    """Labels are words, letters, or numbers in the hub's order. Some rows have no label, or hide it."""
    if label in (-1, "-", "", "hidden"):
        return None
    name = LABELS[label] if isinstance(label, int) and 0 <= label < 3 else _NAMES.get(str(label), str(label))
    if name not in LABELS:
        raise ValueError(f"label is '{label}'; expected one of {', '.join(LABELS)}, e, n, c, 0, 1, 2")
    return {"premise": premise, "hypothesis": hypothesis, "label": name}


@register_format("anli")
class ANLI(_Inference):
    """Adversarial inference in three rounds (Nie et al., 2020)."""

    licence = "CC BY-NC 4.0 (non-commercial)"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": ("facebook/anli", "plain_text", "train_r1+train_r2+train_r3"),
        "validation": ("facebook/anli", "plain_text", "dev_r1+dev_r2+dev_r3"),
        "test": ("facebook/anli", "plain_text", "test_r1+test_r2+test_r3"),
    }
    context: str = Field(validation_alias=AliasChoices("context", "premise"))
    hypothesis: str
    label: str | int

    def row(self) -> DataRow | None:
        return _row(self.context, self.hypothesis, self.label)


@register_format("snli")
class SNLI(_Inference):
    """Inference about picture captions (Bowman et al., 2015)."""

    licence = "CC BY-SA 4.0"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": ("stanfordnlp/snli", None, "train"),
        "validation": ("stanfordnlp/snli", None, "validation"),
        "test": ("stanfordnlp/snli", None, "test"),
    }
    premise: str = Field(validation_alias=AliasChoices("premise", "sentence1"))
    hypothesis: str = Field(validation_alias=AliasChoices("hypothesis", "sentence2"))
    label: str | int = Field(validation_alias=AliasChoices("gold_label", "label"))

    def row(self) -> DataRow | None:
        return _row(self.premise, self.hypothesis, self.label)


@register_format("fever")
class FEVER(_Inference):
    """Claims and evidence, as FEVER-NLI (Nie et al., 2019).

    As published, the claim is `query` and the evidence `context`. On the hub, however, the claim is `premise` and the
    evidence is `hypothesis`. Its test rows have no labels."""

    licence = "CC BY-SA 3.0 (Wikipedia), GPL-3.0 (FEVER)"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": ("pietrolesci/nli_fever", None, "train"),
        "test": ("pietrolesci/nli_fever", None, "dev"),
    }
    dev_is_test: ClassVar[bool] = True
    claim: str = Field(validation_alias=AliasChoices("query", "claim", "premise"))
    evidence: str = Field(validation_alias=AliasChoices("context", "evidence", "hypothesis"))
    label: str | int = Field(validation_alias=AliasChoices("label", "fever_gold_label"))

    def row(self) -> DataRow | None:
        known = {"SUPPORTS": "entailment", "REFUTES": "contradiction", "NOT ENOUGH INFO": "neutral"}
        return _row(self.evidence, self.claim, known.get(str(self.label).upper(), self.label))
