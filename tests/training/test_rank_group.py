"""How calls to the ranks of a learner end, with a stand-in for the ranks: always with a result or with a sentence."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from interplay.errors import GuardError, LearnerLost
from interplay.training import rank_group
from interplay.training.rank_group import RankEnded, RankGroup
from interplay.training.rank_process import RankAnswer, RankSetup

Answers = dict[int, RankAnswer]


class FakeRanks:
    """Two ranks. All are fine until `broken` is set: the answers of those ranks that give any, or an exception."""

    def __init__(self) -> None:
        self.pids = [1, 2]
        self.broken: Answers | Exception | None = None
        self.closed = False

    def begin(self) -> None:
        pass

    def send(self, rank: int, method: str, arguments: tuple[Any, ...]) -> None:
        pass

    def receive(self, ranks: Collection[int], seconds: float) -> Answers:
        if isinstance(self.broken, Exception):
            raise self.broken
        given = dict.fromkeys((0, 1), (True, "fine")) if self.broken is None else self.broken
        return {rank: given[rank] for rank in ranks if rank in given}

    def close(self) -> None:
        self.closed = True


def group_of(ranks: FakeRanks) -> RankGroup:
    setup = RankSetup(0, 2, "", "", "cpu", "float32", 0, timeout=5.0, keep=False, policies={})
    start: Callable[[RankSetup, Path], FakeRanks] = lambda setup, scratch: ranks  # noqa: E731
    group = RankGroup(setup, start)
    group.begin()
    group.wait()
    return group


SILENT = r"rank 1 of the learner gave no answer within 5 s .cluster.learner_timeout.*newest checkpoint"
LOST = LearnerLost("a rank of the learner lost contact with the others (RuntimeError: gloo)")


@pytest.mark.parametrize(
    ("broken", "error", "sentence"),
    [
        ({0: (True, "fine")}, LearnerLost, SILENT),
        (RankEnded(1, " (killed by signal 9)"), LearnerLost, r"rank 1 .* has ended .killed by signal 9.*checkpoint"),
        ({0: (False, LOST)}, LearnerLost, r"lost contact with the others .*newest checkpoint"),
        ({0: (False, LOST), 1: (False, LOST)}, LearnerLost, r"lost contact with the others .*newest checkpoint"),
    ],
)
def test_a_group_that_cannot_go_on_is_ended_and_the_run_may_continue_from_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch, broken: Answers | Exception, error: type[Exception], sentence: str
) -> None:
    monkeypatch.setattr(rank_group, "_AFTER_FAILURE", 0.0)
    ranks = FakeRanks()
    group = group_of(ranks)
    assert group.ask("step") == "fine"
    ranks.broken = broken
    with pytest.raises(error, match=sentence):
        group.ask("step")
    assert ranks.closed
    with pytest.raises(LearnerLost, match="the learner's processes have ended"):
        group.ask("step")


def test_the_cause_is_told_and_not_that_other_ranks_lost_contact() -> None:
    ranks = FakeRanks()
    group = group_of(ranks)
    ranks.broken = {0: (False, LOST), 1: (False, GuardError("the loss is NaN"))}
    with pytest.raises(GuardError, match="the loss is NaN"):
        group.ask("step")


def test_ranks_that_do_not_start_are_ended() -> None:
    ranks = FakeRanks()
    ranks.broken = RankEnded(0, " (exit code 1)")
    with pytest.raises(LearnerLost, match=r"rank 0 of the learner has ended .exit code 1"):
        group_of(ranks)
    assert ranks.closed
