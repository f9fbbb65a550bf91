"""Comparisons as tasks: a judge that speaks is paid for agreement, and questions stay in their split."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from interplay import envs
from interplay.agents.bots import make_bot
from interplay.envs.dialogue.preference import Preference
from interplay.envs.env import outcome_of
from interplay.envs.splits import SPLITS
from interplay.errors import ConfigError


def made(index: int, split: str = "train", **options: object) -> Preference:
    env = envs.make(envs.sample_task("preference", options, split, index))
    assert isinstance(env, Preference)
    return env


def earned(env: Preference, reply: str) -> dict[str, float | None]:
    return {r.name: r.value for r in (*env.step({"judge": reply}), *outcome_of(env))}


def test_agreement_is_paid_and_what_cannot_be_read_has_a_penalty() -> None:
    for index in range(8):
        right = made(index).right
        assert earned(made(index), f"I think so.\n{right}") == {"agree": 1.0}
        assert earned(made(index), "B" if right == "A" else "A") == {"agree": 0.0}
        for unread in ("", "A or B", "tie"):
            assert earned(made(index), unread) == {"illegal": -0.1, "agree": 0.0}
        assert earned(made(index), make_bot("rater", "preference").act(made(index), "judge", random.Random(0)))["agree"]


def test_both_places_are_right_equally_often() -> None:
    count = sum(made(index).right == "A" for index in range(400))
    assert 150 < count < 250  # five standard deviations


def test_a_question_of_a_file_is_in_one_split_and_in_both_orders(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [{"question": f"Say {i}.", "chosen": f"yes {i}", "rejected": f"no {i}"} for i in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen: dict[str, set[str]] = {}
    orders = set()
    for split in SPLITS:
        for index in range(60):
            env = made(index, split, data=str(path))
            seen.setdefault(env.pair.group, set()).add(split)
            orders.add(env.pair.first.startswith("yes"))
            assert env.right == ("A" if env.pair.first.startswith("yes") else "B")
    assert all(len(splits) == 1 for splits in seen.values()) and orders == {True, False}
    assert {split for splits in seen.values() for split in splits} == set(SPLITS)


def test_balanced_by_length_training_tasks_have_as_many_shorter_winners_and_tests_stay_as_they_are(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"question": f"Say {i}.", "chosen": f"{i}".zfill(9 if i % 4 else 3), "rejected": f"{i}".zfill(6)}
        for i in range(240)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def winners(split: str, **options: object) -> set[tuple[str, bool]]:
        """The questions of the tasks, and whether the longer reply wins them."""
        pairs = (made(index, split, data=str(path), **options).pair for index in range(1500))
        return {(p.group, (len(p.first) > len(p.second)) == (p.label == 1.0)) for p in pairs}

    longer = [won for _, won in winners("train", balance="length")]
    assert sum(longer) * 2 == len(longer) > 60
    assert sum(won for _, won in winners("train")) > 100
    assert winners("test", balance="length") == winners("test")


def test_comparisons_that_the_longer_reply_always_wins_cannot_be_balanced(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    row = {"chosen": "yes yes", "rejected": "no"}
    path.write_text("".join(json.dumps({"question": f"Say {i}.", **row}) + "\n" for i in range(60)))
    with pytest.raises(ConfigError, match=r"env\.balance is 'length', but the longer reply wins in all comparisons"):
        made(0, data=str(path), balance="length")


@pytest.mark.parametrize("name", ["filler", "story", "preference"])
def test_the_settings_pass_the_conformance_suite(name: str) -> None:
    from interplay.envs.check import check

    assert [f.rule for f in check(name, {}, episodes=4) if not f.passed] == []
