"""A learner that is sharded over processes computes what a learner in one process computes (promise 6)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import CASES, examples_of, learners_of, restore, trained

from interplay.training.ranks import Ranks
from interplay.training.tries import lay

SCRIPT = Path(__file__).parent / "ranks.py"
# fp32 sums over ranks, micro-batches and minibatches are added in another order.
CLOSE = 1e-5
MOST = ["full", "tied", "recompute", "adapters", "uneven", "empty"]


def run_ranks(size: int, store: Path, *cases: str) -> list[dict[str, Any]]:
    """What the first of `size` processes prints, one record for each case."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), str(size), str(store), *cases],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(size)
    ]  # fmt: skip
    said = [rank.communicate(timeout=1200) for rank in ranks]
    for rank, (_, complaint) in zip(ranks, said, strict=True):
        assert rank.returncode == 0, complaint[-3000:]
    return [json.loads(line) for line in said[0][0].splitlines() if line.startswith("{")]


def check(found: list[dict[str, Any]], cases: list[str]) -> None:
    assert [line["case"] for line in found] == cases
    for line in found:
        rounded = line["case"] == "bfloat16"  # 8 bits: 0.4% of a number, and of each of the sums on the way
        for what in ("metrics", "gradients") if rounded else ("metrics", "gradients", "logprobs"):
            assert line[what] <= (0.02 if rounded else CLOSE), line


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("size", "cases"),
    [
        (1, ["full", "kept", "kept_recompute", "kept_adapters"]),
        (2, list(CASES)),
        (3, [*MOST, "kept"]),
        (4, MOST),
    ],
)
def test_any_number_of_ranks_gives_what_one_gives(tmp_path: Path, size: int, cases: list[str]) -> None:
    check(run_ranks(size, tmp_path / "store", *cases), cases)


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("case", ["full", "adapters"])
def test_training_resumes_at_another_number_of_ranks_and_without_shards(tmp_path: Path, case: str) -> None:
    """Steps with 2, 1 and 3 ranks, each from the state that the one before saved, equal three steps of plain
    learners."""
    for i, size in enumerate((2, 1, 3)):
        (line,) = run_ranks(size, tmp_path / f"store{i}", f"{case}:{tmp_path / 'saved'}")
        assert set(line["steps"]) == {i + 1}
    plain, resumed = (learners_of(CASES[case], False) for _ in range(2))
    for _ in range(3):
        trained(CASES[case], plain)
    if case == "full":
        assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 1  # in several buckets
    restore(resumed, tmp_path / "saved")
    examples = examples_of(CASES[case], [learner.name for learner in plain])
    for ours, theirs in zip(resumed, plain, strict=True):
        found, expected = (
            [x for each in learner.logprobs(examples[learner.name]) for x in each] for learner in (ours, theirs)
        )
        assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) <= CLOSE
        assert ours.steps == 3
        moments, wanted = (
            [s["exp_avg"] for s in learner.optimizer.state_dict()["state"].values()] for learner in (ours, theirs)
        )
        assert max(float((a - b).abs().max()) for a, b in zip(moments, wanted, strict=True)) <= CLOSE


def test_every_row_is_trained_on_by_one_rank_and_all_ranks_run_equally_many_passes() -> None:
    examples = examples_of(CASES["uneven"], ["p0"])["p0"]
    trie = lay(examples, row_limit=40)
    for size in (1, 2, 3, 7):
        shares = [Ranks(rank, size).cuts(trie, 40, pack=False) for rank in range(size)]
        assert len({len(share) for share in shares}) == 1
        trained_on = [r for share in shares for part in share if not part.repeated for r in part.rows]
        assert sorted(trained_on) == list(range(len(trie.rows)))
