"""Judges in a run: their rewards, their records, reward models that learn, and failures."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Killed, killed_at, make, rows, train
from test_trainer import assert_same_run
from torch import Tensor

from interplay.config import JudgeSection, TrainSection, parse
from interplay.errors import ConfigError, GuardError
from interplay.rewards.audit import Watch
from interplay.rollout import records
from interplay.rollout.judging import Judging
from interplay.rollout.resolve import resolve
from interplay.training.judges import content_of
from interplay.training.preference import Better, Fitting, RewardModel, load_reward_model
from interplay.training.probe import scores
from interplay.types import Level, Message, Task

SMALL: dict[str, Any] = {
    "name": "judged",
    "device": "cpu",
    "env": {"name": "filler", "length": 4},
    "policies": {"learner": {"base": "tiny-32x1"}},
    "seats": {"writer": "learner"},
    "algorithm": {"name": "rloo", "group": 4},
    "reward": {"weights": {"gold": 0.0, "filler": 0.0, "proxy": 0.0}},
    "sampling": {"max_tokens": 6, "legal": True},
    "rollout": {"tasks": 4},
    "train": {"steps": 3, "lr": 1e-3},
    "records": {"tensorboard": "off"},
    "eval": {"opponents": []},
}
LEARNS = {
    "kind": "reward_model",
    "who": "base:tiny-32x1",
    "train": {"labels": "gold:proxy", "every": 1, "pairs": 16, "epochs": 2, "lr": 3e-3, "holdout": 0.3, "least": 0.0},
    "audit": {"gold": "gold:gold"},
}


def judged(judge: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**SMALL, **more, "judges": {"taste": judge}}


def played(folder: Path) -> Iterator[records.Record]:
    return records.read(folder / "episodes.jsonl")


def test_a_gold_judge_in_a_group_pays_wins_less_losses(tmp_path: Path) -> None:
    train(tmp_path, judged({"kind": "pairwise", "who": "gold:proxy", "against": "group"}))
    groups: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for record in played(tmp_path):
        values = {r.name: r.value for r in record.episode.rewards}
        assert values["taste"] is not None and values["proxy"] is not None
        groups.setdefault((record.step, record.episode.task.id), []).append((values["proxy"], values["taste"]))
    assert len(groups) == 12
    for members in groups.values():
        for proxy, taste in members:
            others = [p for p, _ in members]
            won = sum(proxy > p for p in others) - sum(proxy < p for p in others)
            assert taste == pytest.approx(won / 3)
    assert all(row["judge/taste/coverage"] == 1.0 and "reward/taste/writer" in row for row in rows(tmp_path))


def test_a_function_of_the_user_scores_what_each_role_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_taste.py").write_text("def length(question, reply):\n    return len(reply) / 10\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    train(tmp_path / "run", judged({"kind": "function", "who": "own_taste:length"}), "train.steps=1")
    found = list(played(tmp_path / "run"))
    assert len(found) == 16
    for record in found:
        (value,) = [r.value for r in record.episode.rewards if r.name == "taste"]
        assert value == pytest.approx(sum(len(turn.text) for turn in record.episode.line()) / 10)
    assert rows(tmp_path / "run")[0]["reward/taste/writer"] > 0


def test_a_gold_judge_reads_replies_of_a_tree_that_were_not_scored_because_all_are_the_same(tmp_path: Path) -> None:
    """It found no reward for them, and all such episodes failed."""
    game = {
        "env": {"name": "matrix", "game": "stag_hunt", "rounds": 3}, "seats": "learner", "reward": {},
        "algorithm": {"name": "at_grpo", "candidates": 2}, "sampling": {**SMALL["sampling"], "temperature": 1e-3},
    }  # fmt: skip
    trainer = make(tmp_path, judged({"kind": "pointwise", "who": "gold:payoff", "scope": "reply"}, **game))
    trainer.train()
    trainer.close()
    assert trainer.step_index == 3 and [row["episodes_failed"] for row in rows(tmp_path)] == [0, 0, 0]
    turns = [turn for record in played(tmp_path) for turn in record.episode.turns]
    empty = [turn for turn in turns if turn.outlook is not None and {r.name for r in turn.outlook.rewards} == {"taste"}]
    assert len(empty) > len(turns) / 2
    for turn in (turn for turn in empty if turn.kept):
        given = {r.name: r.value for r in turn.rewards}
        assert given["taste"] == given["payoff"] is not None


def test_a_local_judge_is_asked_in_both_orders_and_recorded_as_turns_of_role_judge(tmp_path: Path) -> None:
    """Its verdict is a probability; it is not trained, and its turns get no credit."""
    data = judged(
        {"kind": "pairwise", "who": "critic", "against": "learner@start", "scope": "reply"},
        policies={**SMALL["policies"], "critic": {"base": "tiny-32x1", "trainable": False}},
    )
    trainer = make(tmp_path, data)
    before = {k: v.clone() for k, v in trainer.team.members["critic"].loaded.model.state_dict().items()}
    trainer.train()
    after = trainer.team.members["critic"].loaded.model.state_dict()
    trainer.close()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert {"baseline_tokens", "judge_tokens"} <= set(rows(tmp_path)[0])
    assert trainer.tokens["learner@start"] == sum(row["baseline_tokens"] for row in rows(tmp_path)) > 0
    assert trainer.tokens["learner"] == sum(row["tokens_sampled"] for row in rows(tmp_path)), "its own alone"
    for record in played(tmp_path):
        asked = record.episode.judged
        assert [t.role for t in asked] == ["judge", "judge"] and {t.policy for t in asked} == {"critic"}
        assert {t.text for t in asked} <= {"A", "B"} and asked[0].observation != asked[1].observation
        assert not any(s.id in record.credit.advantages for t in asked for s in t.samples)
        (taste,) = [r.value for r in record.episode.rewards if r.name == "taste"]
        assert taste is not None and -1 < taste < 1


def test_a_judge_that_always_prefers_the_first_place_pays_nobody(
    tmp_path: Path, served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Sampled verdicts that depend on the place disagree after the swap: they abstain, which is not a zero."""
    train(tmp_path, remote(served(lambda body: "A")), "train.steps=1", "algorithm.entropy=0.01")
    for record in played(tmp_path):
        assert [r.value for r in record.episode.rewards if r.name == "taste"] == [None]
    (row,) = rows(tmp_path)
    assert row["judge/taste/coverage"] == 0.0 and row["judge/taste/flips"] == 1.0
    assert "on 100% it preferred the same place in both orders" in caplog.text


def test_a_judge_that_cannot_be_reached_is_a_failure_of_the_machinery(tmp_path: Path) -> None:
    with pytest.raises(GuardError, match="all 16 episodes of step 1 failed; the error of the first one: RemoteError"):
        train(tmp_path, remote("http://127.0.0.1:9/v1"), "train.steps=1")


def remote(url: str) -> dict[str, Any]:
    section = {"base": "openai:judge", "trainable": False, "remote": {"url": url, "retries": 0}}
    return judged(
        {"kind": "pairwise", "who": "far", "against": "group"}, policies={**SMALL["policies"], "far": section}
    )


@pytest.mark.parametrize("place", ["data", "row"])
def test_replies_are_compared_with_the_reference_of_their_task(
    tmp_path: Path, served: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The reference is in the task's data, or in its row of a data set. The judge counts ones, of which it has two."""
    from interplay.envs.dialogue import filler

    make_task, scores_of = filler.Filler.make_task, filler.scores

    def with_reference(*given: Any) -> Task:
        task = make_task(*given)
        more = {"reference": "0110"} if place == "data" else {"row": {"reference": "0110"}}
        return replace(task, data={**task.data, **more})

    def more_ones(body: dict[str, Any]) -> str:
        first, second = body["messages"][-1]["content"].split("<A>")[1].split("<B>")
        gap = first.count("1") - second.count("1")
        return "tie" if gap == 0 else "A" if gap > 0 else "B"

    data = remote(served(more_ones))
    data["judges"]["taste"]["against"] = "reference"
    with pytest.raises(ConfigError, match="filler gives no reference; expected a text under 'reference'"):
        train(tmp_path / "without", data, "train.steps=1")
    monkeypatch.setattr(filler.Filler, "make_task", with_reference)
    monkeypatch.setattr(filler, "scores", lambda said, reference="", row=None, **rest: scores_of(said, **rest))
    train(tmp_path / "with", data, "train.steps=1")
    found = [(x.episode.line()[-1].text.count("1"), x.episode) for x in played(tmp_path / "with")]
    assert len(found) == 16 and len({ones for ones, _ in found}) > 2
    for ones, episode in found:
        assert [r.value for r in episode.rewards if r.name == "taste"] == [(ones > 2) - (ones < 2)]
        assert len(episode.judged) == 2, "both orders"


@pytest.mark.parametrize("kind", ["pointwise", "pairwise"])
def test_a_judge_with_several_votes_is_asked_as_often_and_leaves_out_those_that_abstain(
    tmp_path: Path, served: Any, kind: str
) -> None:
    """Every third answer cannot be parsed. It takes no part in the mean, where a zero would change it."""
    asked: list[int] = []

    def answer(body: dict[str, Any]) -> str:
        asked.append(1)
        if len(asked) % 3 == 0:
            return "lovely"
        return "10" if kind == "pointwise" else "tie"

    data = remote(served(answer))
    against = {"against": "group", "ties": "half"} if kind == "pairwise" else {}
    data["judges"] = {"taste": {"kind": kind, "who": "far", "votes": 5, **against}}
    train(tmp_path, data, "train.steps=1", "algorithm.entropy=0.01")
    episodes = [x.episode for x in played(tmp_path)]
    questions = 16 * 5 if kind == "pointwise" else 4 * 6 * 2 * 5  # episodes; pairs of four groups, in both orders
    assert len(asked) == questions == len({t.id for e in episodes for t in e.judged})
    paid = {r.value for e in episodes for r in e.rewards if r.name == "taste"}
    assert paid == ({1.0} if kind == "pointwise" else {0.0})
    assert sum(t.text == "lovely" for e in episodes for t in e.judged) == questions // 3


def test_a_rubric_judge_pays_the_mean_of_its_marks(tmp_path: Path, served: Any) -> None:
    data = remote(served(lambda body: "fairness: 10\ncoherence: 1"))
    data["judges"] = {"taste": {"kind": "rubric", "who": "far", "rubric": ["fairness", "coherence"]}}
    train(tmp_path, data, "train.steps=1", "algorithm.entropy=0.01")
    assert {r.value for x in played(tmp_path) for r in x.episode.rewards if r.name == "taste"} == {0.0}
    assert rows(tmp_path)[0]["judge/taste/fairness"] == 1.0


@pytest.mark.parametrize("kind", ["pointwise", "rubric"])
def test_a_small_local_judge_always_gives_its_expected_mark(tmp_path: Path, kind: str) -> None:
    """A model with random weights never answers in the asked form. Its expected mark is between the ends of the scale,
    and differs from reply to reply."""
    judge = {"kind": kind, "who": "critic", "marks": "expected", "scale": [1, 5]}
    if kind == "rubric":
        judge["rubric"] = ["fairness", "coherence"]
    policies = {**SMALL["policies"], "critic": {"base": "tiny-32x1", "trainable": False}}
    train(tmp_path, judged(judge, policies=policies), "train.steps=1")
    values = [r.value for x in played(tmp_path) for r in x.episode.rewards if r.name == "taste"]
    assert all(v is not None and -1 < v < 1 for v in values) and len({*values}) > 4
    row = rows(tmp_path)[0]
    assert row["judge/taste/coverage"] == 1.0
    assert kind == "pointwise" or -1 < row["judge/taste/fairness"] < 1
    asked = [t for x in played(tmp_path) for t in x.episode.judged]
    assert {t.text for t in asked} <= {"1", "2", "3", "4", "5"}
    assert len({t.id for t in asked}) == len(asked)


def test_expected_marks_of_a_remote_judge_are_refused(tmp_path: Path, served: Any) -> None:
    data = remote(served(lambda body: "5"))
    data["judges"] = {"taste": {"kind": "pointwise", "who": "far", "marks": "expected"}}
    with pytest.raises(ConfigError, match="'far' is a remote policy, which does not tell the probabilities"):
        train(tmp_path, data, "train.steps=1")


def test_a_judge_whose_answers_cannot_be_parsed_is_reported_once(
    tmp_path: Path, served: Any, caplog: pytest.LogCaptureFixture
) -> None:
    data = remote(served(lambda body: "lovely"))
    data["judges"] = {"taste": {"kind": "pointwise", "who": "far"}}
    train(tmp_path, data, "train.steps=2", "algorithm.entropy=0.01")
    assert caplog.text.count("judge 'taste' gave a verdict on only 0% of its questions") == 1
    assert "its answers could not be parsed" in caplog.text and "both orders" not in caplog.text  # it gives marks


def test_replies_of_a_tree_are_judged_candidate_by_candidate(tmp_path: Path) -> None:
    data = judged(
        {"kind": "pointwise", "who": "gold:proxy", "scope": "reply"},
        algorithm={"name": "online_dpo", "candidates": 4, "continuation": "none"},
    )
    train(tmp_path, data, "train.steps=1")
    for record in played(tmp_path):
        for turn in record.episode.turns:
            assert turn.outlook is not None
            if turn.outlook.rewards:  # empty where all said the same
                values = {r.name: r.value for r in turn.outlook.rewards}
                assert values["taste"] == values["proxy"]


def test_a_reward_model_learns_in_the_run_and_a_resumed_run_is_bit_identical(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(whole, judged(LEARNS))
    with pytest.raises(Killed):
        train(cut, judged(LEARNS), observer=killed_at(2))
    train(cut, judged(LEARNS))
    assert_same_run(whole, cut, 3)  # the reward model and its optimiser too
    last = rows(whole)[-1]
    assert last["judge/taste/labels"] == 48.0 and 0 <= last["judge/taste/accuracy"] <= 1
    assert last["judge/taste/gold"] != 0.0
    states = [json.loads(next(f.glob("checkpoints/step-000003/trainer.json")).read_text()) for f in (whole, cut)]
    assert states[0]["judges"] == states[1]["judges"]


def test_balanced_by_length_a_reward_model_of_a_run_learns_from_fewer_comparisons(tmp_path: Path) -> None:
    """The simulated rater prefers the longer reply; what is left of its comparisons no longer does."""
    fitted: dict[str, list[Any]] = {}
    for balance in ("none", "length"):
        with pytest.MonkeyPatch.context() as patch:
            kept = fitted.setdefault(balance, [])
            fit = RewardModel.fit

            def noted(model: RewardModel, rows: Any, how: Any, kept: list[Any] = kept, fit: Any = fit) -> float:
                kept[:] = rows
                return float(fit(model, rows, how))

            patch.setattr(RewardModel, "fit", noted)
            learns = {**LEARNS, "train": {**LEARNS["train"], "balance": balance, "bias": {"length": 100.0}}}
            train(tmp_path / balance, judged(learns, sampling={"max_tokens": 6}))
    longer = {k: [len(r.better[1]) > len(r.worse[1]) for r in rows if r.worse] for k, rows in fitted.items()}
    assert sum(longer["none"]) > 0.7 * len(longer["none"])
    assert 0 < len(fitted["length"]) < len(fitted["none"])
    differ = [r for r in fitted["length"] if r.worse and len(r.better[1]) != len(r.worse[1])]
    assert sum(len(r.better[1]) > len(r.worse[1]) for r in differ) * 2 == len(differ)


def test_a_judge_that_falls_below_its_limit_goes_back_to_the_version_that_passed(tmp_path: Path) -> None:
    trainer = make(tmp_path, judged({**LEARNS, "train": {**LEARNS["train"], "least": 0.5}}))
    pupil = trainer.judges.pupils["taste"]
    question = (Message("user", "Write 4 signs."),)
    from interplay.training.judges import Labelled

    pupil.seen = [Labelled(question, "1111", "0000", 1.0, f"t{i}", f"t{i}") for i in range(32)]
    pupil.tested = [Labelled(question, "1111", "0000", 1.0, f"h{i}", f"h{i}") for i in range(32)]
    assert pupil.learn()["judge/taste/accuracy"] == 1.0
    good = pupil.model.raw([(question, "1111")])
    pupil.seen = [Labelled(question, "1111", "0000", 0.0, f"t{i}", f"t{i}") for i in range(64)]  # somebody lies
    lied = {}
    for _ in range(8):
        lied = pupil.learn()
        if "judge/taste/rolled_back" in lied:
            break
        good = pupil.model.raw([(question, "1111")])  # not yet fooled: this version passed too
    assert lied["judge/taste/rolled_back"] == 1.0 and lied["judge/taste/accuracy"] < 0.5
    assert pupil.model.raw([(question, "1111")]) == good
    pupil.good = None
    pupil.seen = pupil.seen * 8
    with pytest.raises(
        GuardError, match=r"no earlier version was above this limit; give it more or cleaner comparisons"
    ):
        for _ in range(8):
            pupil.learn()
    trainer.close()


def model(make_tiny: Any, kind: Any, adapter: bool = False) -> RewardModel:
    from interplay.config import AdapterSection
    from interplay.rollout.members import fresh_adapter

    loaded = make_tiny(0, "tiny-32x1")
    return RewardModel(
        kind, loaded, TrainSection(), fresh_adapter(loaded, AdapterSection(rank=4), 0) if adapter else None
    )


def says(text: str) -> tuple[tuple[Message, ...], str]:
    return (Message("user", "Say it."),), text


@pytest.mark.parametrize("adapter", [False, True])
def test_bradley_terry_learns_what_is_preferred_and_is_saved_for_sequence_classification(
    tmp_path: Path, make_tiny: Any, adapter: bool
) -> None:
    """Plain transformers loads the folder, and gives the same scores."""
    from transformers import AutoModelForSequenceClassification

    made = model(make_tiny, "reward_model", adapter)
    base = {k: v.clone() for k, v in made.model.state_dict().items()}
    rows = [Better(says("yes " * (i % 3 + 1)), says("no " * (i % 2 + 1))) for i in range(24)]
    made.fit(rows, Fitting(epochs=8, batch=8, lr=3e-3))
    assert min(made.probabilities(rows)) > 0.9
    if adapter:
        assert all(torch.equal(base[k], v) for k, v in made.model.state_dict().items())
    made.save(tmp_path / "rm")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm")
    for text in ("yes yes", "no"):
        ids = torch.tensor(made.read([says(text)]))
        with torch.no_grad():
            assert float(theirs(input_ids=ids).logits) == pytest.approx(made.raw([says(text)])[0], abs=1e-4)
    again = load_reward_model(tmp_path / "rm", TrainSection(), "cpu", torch.float32)
    assert again.scores([says("yes")]) == pytest.approx(made.scores([says("yes")]), abs=1e-4)


def test_short_comparisons_share_a_backward_pass_and_the_step_does_not_depend_on_how_many(
    make_tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Better(says("yes " * (i % 5 + 1)), says("no " * (i % 3 + 1))) for i in range(12)]
    found: dict[int, tuple[int, Tensor]] = {}
    for tokens in (1, 100, 100_000):
        made = model(make_tiny, "reward_model")
        made.config = TrainSection(micro_batch_tokens=tokens)
        passes: list[int] = []
        scores = made._scores

        def counted(asked: Any, scores: Any = scores, passes: list[int] = passes, made: Any = made) -> Tensor:
            passes.append(sum(map(len, made.read(asked))))
            return scores(asked)

        monkeypatch.setattr(made, "_scores", counted)
        made.fit(rows, Fitting(epochs=2, batch=12, lr=1e-2))
        fitted = passes[:-1]  # the last pass centres the scores
        assert tokens == 1 or max(fitted) <= tokens
        found[tokens] = len(fitted), made.head.weight.detach().clone()
    assert found[100_000][0] == 2 and found[1][0] == 24 and 2 < found[100][0] < 24
    for _, head in found.values():
        assert torch.allclose(head, found[1][1], atol=1e-5)
    assert float(found[1][1].abs().max()) > 1e-3


def test_a_verifier_gives_the_probability_that_an_answer_is_right(make_tiny: Any) -> None:
    made = model(make_tiny, "verifier")
    assert made.scores([says("4")]) == [0.5]
    rows = [Better(says(str(i % 10)), None, float(i % 10 == 4)) for i in range(40)]
    made.fit(rows, Fitting(epochs=30, batch=10, lr=5e-3))
    right, wrong = made.scores([says("4"), says("7")])
    assert right > 0.7 > 0.3 > wrong


def test_a_fitted_temperature_makes_probabilities_true_and_is_saved_with_the_model(
    tmp_path: Path, make_tiny: Any
) -> None:
    """Labels that are right in three of four cases: a verifier that is too certain is corrected to 3/4."""
    from interplay.rewards.comparisons import LabelledAnswer
    from interplay.training.rater import calibrate

    made = model(make_tiny, "verifier")
    rows = [Better(says(str(i % 2)), None, float(i % 2)) for i in range(40)]
    made.fit(rows, Fitting(epochs=30, batch=10, lr=5e-3))
    sure = made.scores([says("1")])[0]
    asked = [
        LabelledAnswer(says("")[0], str(i % 2), bool(i % 2) == (i // 2 % 4 != 0), f"question {i // 8}")
        for i in range(160)
    ]
    found = calibrate(made, asked, 0)
    assert found is not None and found.temperature > 1 and found.after < found.before
    assert made.scores([says("1")])[0] == pytest.approx(0.75, abs=0.1) and sure > 0.85
    made.save(tmp_path / "v")
    again = load_reward_model(tmp_path / "v", TrainSection(), "cpu", torch.float32)
    assert again.scores([says("1")]) == pytest.approx(made.scores([says("1")]), abs=1e-4)
    state = made.state_dict()
    made.temperature = 9.0
    made.load_state_dict(state, 1e-3)
    assert made.temperature == found.temperature


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ({"kind": "pairwise", "who": "gold:proxy"}, "expected 'group', 'reference' or POLICY@start"),
        ({"kind": "pairwise", "who": "gold:proxy", "against": "reference"}, "a reference earns no reward"),
        ({"kind": "pointwise", "who": "gold:prxy"}, "Did you mean 'proxy'"),
        ({"kind": "pointwise", "who": "critc"}, "judges.taste.who names policy 'critc'"),
        ({"kind": "reward_model", "who": "base:tiny"}, r"expected \[judges.NAME.train\]"),
        ({"kind": "rubric", "who": "gold:proxy", "rubric": ["x"]}, "a gold program gives only one number"),
        ({"kind": "pointwise", "who": "gold:proxy", "roles": ["riter"]}, "Did you mean 'writer'"),
        ({"kind": "pointwise", "who": "http://127.0.0.1:9"}, "expected kind 'reward_model' or 'verifier'"),
        (
            {"kind": "verifier", "who": "base:tiny", "train": {"labels": "gold:proxy", "balance": "length"}},
            "a verifier's train.balance is 'length'",
        ),
    ],
)
def test_a_judge_that_makes_no_sense_is_refused_with_the_remedy(judge: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(parse(judged(judge)))


def test_a_judge_may_not_have_the_name_of_another_reward() -> None:
    data = {**SMALL, "judges": {"gold": {"kind": "pointwise", "who": "gold:proxy"}}}
    with pytest.raises(ConfigError, match="the same name as another reward"):
        resolve(parse(data))
    assert JudgeSection(kind="pointwise", who="gold:proxy").components == ["proxy"]


def test_maporl_is_paid_by_a_verifier_that_learns_from_the_debates_own_answers(tmp_path: Path) -> None:
    """Its rows are balanced within each task and come only from the training split: test questions are never seen."""
    from interplay.config import load

    path = Path(__file__).parents[2] / "recipes" / "rlhf" / "maporl.toml"
    small = [f"policies.{name}.base=tiny-32x1" for name in ("opener", "reviser")]
    small += ["judges.verifier.who=base:tiny-32x1", "judges.verifier.train.every=1", "records.tensorboard=off"]
    small += ["train.steps=2", "algorithm.group=4", "device=cpu", "judges.verifier.train.least=0.0"]
    from interplay.training.trainer import Trainer

    trainer = Trainer(resolve(load(path, small)), tmp_path)
    trainer.train()
    pupil = trainer.judges.pupils["verifier"]
    trainer.close()
    rows_ = [*pupil.seen, *pupil.tested]
    assert rows_ and all("-train-" in row.task for row in rows_)
    for task in {row.task for row in rows_}:
        labels = [row.label for row in rows_ if row.task == task]
        assert 0 < sum(labels) < len(labels) or len(labels) == 1  # cut off at `pairs`
    for record in played(tmp_path):
        for turn in record.episode.line():
            paid = {r.name: r.value for r in turn.rewards}
            assert paid["verifier"] is not None and 0 < paid["verifier"] < 1
    assert {"credit/rescued", "credit/majority_right", "judge/verifier/gold"} <= set(rows(tmp_path)[-1])


def test_the_recipe_with_a_remote_judge_and_partner_trains_against_a_server_that_speaks_that_api(
    tmp_path: Path, served: Any
) -> None:
    """Phi-3-mini and GPT-4o-mini are replaced by a tiny model and a local server; the loop is the recipe's."""
    from interplay.config import load
    from interplay.training.trainer import Trainer

    asked: list[str] = []

    def answer(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"]
        asked.append(text)
        if "Which reply is better?" not in text:
            return "Bob goes to the lake."
        first, second = text.split("<A>")[1].split("<B>")
        return "A" if len(first) > len(second) else "B"

    url = served(answer)
    path = Path(__file__).parents[2] / "recipes" / "rlhf" / "gpt_judge.toml"
    small = ["policies.learner.base=tiny-32x1", "train.steps=2", "rollout.tasks=2", "sampling.max_tokens=24"]
    small += ["records.tensorboard=off", "device=cpu", "policies.learner.adapter.rank=2", "env.sentences=2"]
    small += [f"policies.{name}.remote={{ url = '{url}', retries = 0 }}" for name in ("judge", "partner")]
    trainer = Trainer(resolve(load(path, small)), tmp_path)
    trainer.train()
    trainer.close()
    assert any("Which reply is better?" in text for text in asked)
    for record in played(tmp_path):
        assert {t.policy for t in record.episode.line("partner")} == {"partner"}
        assert [t.role for t in record.episode.judged] == ["judge", "judge"]
    assert len(rows(tmp_path)) == 2


def test_a_negotiation_is_judged_by_a_rubric_for_fairness_and_coherence(tmp_path: Path, served: Any) -> None:
    """The recipe with a tiny model and a local server in the places of SmolLM2 and GPT-4o-mini. The judge reads the
    whole conversation, and GRPO's advantages are those of the mean of its two marks."""
    from interplay.config import load
    from interplay.training.trainer import Trainer

    asked: list[str] = []

    def answer(body: dict[str, Any]) -> str:
        text = "\n".join(m["content"] for m in body["messages"])
        if "coherence" not in text:
            return "You get the rest.\noffer 1 0 0"
        asked.append(text)
        return f"fairness: {1 + len(asked) % 10}\ncoherence: 10"

    url = served(answer)
    path = Path(__file__).parents[2] / "recipes" / "rlhf" / "negotiation_talk.toml"
    small = ["policies.learner.base=tiny-32x1", "train.steps=1", "rollout.tasks=3", "algorithm.group=4", "device=cpu"]
    small += ["records.tensorboard=off", "policies.learner.adapter.rank=2", "sampling.max_tokens=40"]
    small += ["seats.p1=learner", "seats.p0=partner"]  # the partner speaks first: a tiny model makes no legal offer
    small += [f"policies.{name}.remote={{ url = '{url}', retries = 0 }}" for name in ("judge", "partner")]
    trainer = Trainer(resolve(load(path, small)), tmp_path)
    trainer.train()
    trainer.close()
    assert len(asked) == 12 and all("(You get the rest." in text for text in asked), "what the other said, too"
    groups: dict[str, list[tuple[float, float]]] = {}
    for record in played(tmp_path):
        (turn,) = record.episode.line("p1")
        (taste,) = [r.value for r in record.episode.rewards if r.name == "taste"]
        assert taste is not None and taste >= 0, "the mean of both marks, of which coherence is the best"
        total = taste + sum(r.value or 0.0 for r in turn.rewards if r.name == "illegal")
        groups.setdefault(record.episode.task.id, []).append((total, record.credit.advantages[turn.last.id]))
    for members in groups.values():
        values = torch.tensor([value for value, _ in members])
        assert values.std() > 0
        wanted = (values - values.mean()) / (values.std(correction=0) + 1e-6)
        assert [a for _, a in members] == pytest.approx(wanted.tolist(), abs=1e-3)
    (row,) = rows(tmp_path)
    assert row["judge/taste/coherence"] == 1.0 and -1 <= row["judge/taste/fairness"] < 1


def test_a_judge_of_the_team_reads_everybody_and_pays_everybody(tmp_path: Path, served: Any) -> None:
    """`scope = "team"`: one mark for an episode, as a reward of the team on the last turn of each role."""
    asked: list[str] = []

    def answer(body: dict[str, Any]) -> str:
        asked.append(body["messages"][-1]["content"])
        return str(1 + len(asked) % 10)

    data = remote(served(answer))
    data |= {
        "env": {"name": "matrix", "game": "stag_hunt", "rounds": 2}, "seats": "learner", "reward": {},
        "judges": {"taste": {"kind": "pointwise", "who": "far", "scope": "team"}},
    }  # fmt: skip
    train(tmp_path, data, "train.steps=1")
    episodes = [record.episode for record in played(tmp_path)]
    assert len(asked) == len(episodes) == 16
    for episode in episodes:
        said = "\n".join(f"[{t.role}] {t.text}" for t in episode.line())
        assert said.count("[p0]") == said.count("[p1]") == 2 and any(said in text for text in asked)
        (taste,) = [r for r in episode.rewards if r.name == "taste"]
        assert taste.level is Level.TEAM and taste.role is None and taste.value is not None
        for role in ("p0", "p1"):
            *earlier, last = episode.line(role)
            assert [r.value for r in last.rewards if r.name == "taste"] == [taste.value]
            assert not any(r.name == "taste" for t in earlier for r in t.rewards)


@pytest.mark.parametrize("adapter", [None, {"rank": 4}])
def test_the_learner_can_be_its_own_judge_and_does_not_learn_from_judging(
    tmp_path: Path, adapter: dict[str, int] | None
) -> None:
    """It judges with its newest weights, with its own adapter where it has one; these turns get no credit."""
    learner = {"base": "tiny-32x1"} | ({} if adapter is None else {"adapter": adapter})
    judge = {"kind": "pairwise", "who": "learner", "against": "group"}
    trainer = make(tmp_path, judged(judge, policies={"learner": learner}), "train.lr=0.05", "train.steps=2")
    gaps: dict[bool, list[float]] = {True: [], False: []}  # to the learner as it is, and to its base alone
    judge_group = Judging.judge

    async def checked(self: Judging, episodes: Any) -> None:
        await judge_group(self, episodes)
        engine = trainer.team.members["learner"].engine
        for turn in (t for e in episodes for t in e.judged):
            sample, allowed = turn.last, list(turn.last.mask)
            for own in (True, False):
                found = await engine.score(sample.prompt, allowed, "learner" if own and adapter else None)
                odds = torch.tensor([each[0] for each in found]).log_softmax(0)  # the rest of an answer is forced
                gaps[own].append(abs(float(odds[allowed.index(sample.action)]) - sum(sample.logprobs)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judging, "judge", checked)
        trainer.train()
    trainer.close()
    asked = [(record, t) for record in played(tmp_path) for t in record.episode.judged]
    assert {record.step for record, _ in asked} == {1, 2} and len(gaps[True]) == len(asked)
    assert max(gaps[True]) < 1e-4 and (max(gaps[False]) > 1e-3) == (adapter is not None)
    for record, turn in asked:
        assert (turn.role, turn.policy) == ("judge", "learner@now")
        assert not any(s.id in record.credit.advantages for s in turn.samples)
        assert turn.last.versions == (record.step - 1,) * len(turn.last.action), "the newest weights"


class Ones:
    """Scores a reply by its number of ones."""

    async def scores(self, asked: Any) -> list[float]:
        return [float(reply.count("1")) for _, reply in asked]


def test_the_best_of_several_replies_is_said_and_its_score_is_the_expected_maximum(tmp_path: Path) -> None:
    """Compared with an exact enumeration: E max of n draws, computed from the distribution's own probabilities."""
    import asyncio
    import math

    from interplay.agents.best_of import Choosing
    from interplay.evaluation.field import Field
    from interplay.rollout.team import Team

    plan = resolve(parse({**SMALL, "eval": {"opponents": [], "legal": True}}))
    team = Team(plan.recipe)
    means = {}
    for count in (1, 4):
        team.choosing = Choosing(count, Ones(), everybody=True)
        episodes = asyncio.run(Field(plan, team, 400).play(plan.seats))
        ones = [e.turns[0].text.count("1") for e in episodes]
        means[count] = sum(ones) / len(ones)
        if count == 1:
            share = [sum(n == k for n in ones) / len(ones) for k in range(5)]
    team.close()
    below = [sum(share[: k + 1]) for k in range(5)]
    expected = sum(1 - below[k] ** 4 for k in range(4))
    assert means[4] == pytest.approx(expected, abs=5 * 2 * math.sqrt(2 / 400))  # both are means of 400 draws
    assert means[4] > means[1] + 0.3


def test_a_policy_that_learns_never_says_the_best_of_several() -> None:
    data = judged(LEARNS, sampling={**SMALL["sampling"], "best_of": 4, "best_by": "taste"})
    with pytest.raises(ConfigError, match="every policy is trained"):
        resolve(parse(data))
    with pytest.raises(ConfigError, match=r"eval.best_by is 'tast'.*Did you mean 'taste'"):
        resolve(parse(judged(LEARNS, eval={"opponents": [], "best_of": 4, "best_by": "tast"})))
    with pytest.raises(ConfigError, match=r"eval.best_of is 4, but eval.best_by is not set; expected a judge of kind"):
        resolve(parse(judged(LEARNS, eval={"opponents": [], "best_of": 4})))
    with pytest.raises(ConfigError, match=r"eval.best_by is 'tast'.*Did you mean 'taste'"):
        resolve(parse(judged(LEARNS, eval={"opponents": [], "best_by": "tast"})))
    resolve(parse(judged(LEARNS, eval={"opponents": [], "best_of": 1, "best_by": "taste"})))


class Elsewhere:
    """Rollout workers without another process: episodes are copied as if they came from one."""

    def __init__(self, state: Any) -> None:
        self.runner, self.members = state.runner, state.team.members

    async def episode(self, task: Task, replica: int, seated: Any) -> Any:
        return pickle.loads(pickle.dumps(await self.runner.episode(task, replica, seated)))

    async def judge(self, name: str, episodes: Any) -> Any:
        raise AssertionError("a reward model is asked by the process of the run")

    async def sync(self) -> None:
        pass

    async def score(self, policy: str, samples: Any) -> dict[str, Any]:
        return {"the run": (await scores([(self.members[policy], samples)]))[0]}

    def metrics(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


def test_episodes_of_rollout_workers_are_judged_like_those_of_the_run(tmp_path: Path) -> None:
    """The judge's rewards and what it learns are the same, bit for bit."""
    found = []
    for name in ("here", "elsewhere"):
        trainer = make(tmp_path / name, judged(LEARNS))
        trainer.make_fleet = Elsewhere if name == "elsewhere" else None
        trainer.train()
        trainer.close()
        found.append(
            [
                {k: v for k, v in row.items() if k != "prompt_tokens_saved" and not k.startswith("cluster/")}
                for row in rows(tmp_path / name)
            ]
        )
    assert found[0] == found[1] and "judge/taste/accuracy" in found[0][-1]


def test_a_row_of_a_data_set_is_on_one_side_in_every_epoch() -> None:
    """Tasks of two epochs with the same row have the same name for the split; generated tasks have their own."""
    first, again = (Task(f"math-train-0-{n}", "math", n, {"row": {"question": "2 + 2", "answer": "4"}}) for n in (1, 9))
    assert content_of(first) == content_of(again)
    assert content_of(Task("story-train-0-1", "story", 1, {"mode": "signs"})) == "story-train-0-1"


def test_a_policy_that_learned_to_please_the_judge_is_reported_once_or_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Watch, "see", lambda self, gold, proxy: True)  # when it rings: tests/rewards/test_audit.py
    judge = {"kind": "pointwise", "who": "gold:proxy"}
    train(tmp_path / "told", judged({**judge, "audit": {"gold": "gold:gold"}}))
    said = [r.getMessage() for r in caplog.records if "learned to please the judge" in r.getMessage()]
    assert len(said) == 1 and "step 1: gold" in said[0]
    assert [row["judge/taste/rang"] for row in rows(tmp_path / "told")] == [1.0] * 3
    with pytest.raises(GuardError, match=r"judges\.taste: the gold reward has fallen more than"):
        train(tmp_path / "stops", judged({**judge, "audit": {"gold": "gold:gold", "stop": True}}))
