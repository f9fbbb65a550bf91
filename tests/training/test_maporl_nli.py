"""MAPoRL for inference on prepared rows: the verifier never sees a question that is scored later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interplay.config import load
from interplay.envs.tasks.prepare import prepare
from interplay.errors import DataError
from interplay.rewards.comparisons import read_answers
from interplay.rollout.collect import collected
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Trainer

RECIPE = Path(__file__).parents[2] / "recipes" / "rlhf" / "maporl_nli.toml"


def rows(kind: str, count: int) -> str:
    """SNLI's rows have a premise and ANLI's a context; one format reads both."""
    named = "context" if kind == "anli" else "premise"
    labels = ("entailment", "neutral", "contradiction") if kind == "snli" else ("e", "n", "c")
    said = [
        {named: f"{kind} {n} has {n} cups.", "hypothesis": f"{n} cups.", "label": labels[n % 3]} for n in range(count)
    ]
    return "".join(json.dumps(row) + "\n" for row in said)


def test_the_verifier_learns_from_questions_of_the_training_split_alone(tmp_path: Path) -> None:
    source = tmp_path / "nli"
    source.mkdir()
    for name, kind, count in (("train-snli", "snli", 8), ("train-anli-r1", "anli", 8), ("test-anli-r3", "r3", 6)):
        (source / f"{name}.jsonl").write_text(rows(kind, count))
    made = prepare("anli", source, tmp_path / "data", drop_overlap=True, holdout=0.25)
    assert made.counts["test"] == 6 and made.counts["train"] + made.counts["validation"] == 16
    small = [f"policies.{name}.base=tiny-32x1" for name in ("opener", "reviser")]
    small += ["judges.verifier.who=base:tiny-32x1", "judges.verifier.train.every=1", "records.tensorboard=off"]
    small += ["train.steps=2", "rollout.tasks=8", "algorithm.group=4", "device=cpu", f"env.data={tmp_path / 'data'}"]
    trainer = Trainer(resolve(load(RECIPE, small)), tmp_path / "run")
    trainer.train()
    pupil = trainer.judges.pupils["verifier"]
    trainer.close()
    learned = [*pupil.seen, *pupil.tested]
    asked = "\n".join(m.content for row in learned for m in row.question)
    assert learned and all("-train-" in row.task for row in learned) and "r3" not in asked
    for split in ("validation", "test"):
        for line in (tmp_path / "data" / f"{split}.jsonl").read_text().splitlines():
            assert f"Premise: {json.loads(line)['premise']}" not in asked
    gathered = list(collected(tmp_path / "run", "match"))
    assert gathered and {row["right"] for row in gathered} == {True, False}
    assert not any("r3" in str(row["question"]) for row in gathered)
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in gathered))
    answers = read_answers(tmp_path / "answers.jsonl")
    premises = {a.group.split("Premise: ")[1].split("\n")[0] for a in answers}
    assert len(premises) == len({a.group for a in answers}) <= made.counts["train"]  # both rounds are one question
    with pytest.raises(DataError, match="no reply of a training task"):
        list(collected(tmp_path / "run", "nothing"))
