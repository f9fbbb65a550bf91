"""The engine works while its GPU samples, here with a runner for a CPU that hands over its tokens when it is asked.
`test_cuda.py` makes the same checks with the GPU's runner."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence as Seq
from typing import Any

import overlapped
import pytest
from families import make
from overlapped import Steps, engine_of

from interplay.engines.engine import Request, Sampling
from interplay.engines.local.cpu import CpuRunner
from interplay.engines.local.runner import Drawn, Later
from interplay.engines.local.scheduler import Piece, Scheduler, Sequence


class Late(CpuRunner):
    """Computes at once, as a GPU does before all that is started later, and hands the tokens over when it is asked."""

    def __init__(self, model: Any, blocks: int) -> None:
        super().__init__(model, blocks, 16, 40)
        self.did: list[str] = []
        self._waiting = False

    def prefill(self, pieces: Seq[Piece], scored: Seq[Sequence] = ()) -> list[list[float]]:
        self.did.append("prompts")
        return super().prefill(pieces, scored)

    def advance(self, ongoing: Seq[Sequence], fresh: Seq[Sequence], *how: Any) -> list[Drawn] | Later:
        assert not (self._waiting and ongoing), "the tokens before were not read"
        self.did.append("start")
        drawn = super().advance(ongoing, fresh, *how)
        assert isinstance(drawn, list)
        if any(s.request.sampling.cuts for s in (*ongoing, *fresh)):
            return drawn
        self._waiting = True

        def read() -> list[Drawn]:
            self.did.append("read")
            self._waiting = False
            return drawn

        return read


@pytest.mark.parametrize("seed", range(4))
def test_replies_are_those_of_an_engine_that_waits(seed: int) -> None:
    overlapped.replies_are_the_same(Late, 60, seed)


def test_replies_are_scored_meanwhile() -> None:
    overlapped.replies_are_scored_meanwhile(Late)


@pytest.mark.parametrize("keep_cache", [False, True])
def test_tokens_have_the_version_they_were_started_with(keep_cache: bool) -> None:
    overlapped.tokens_have_the_version_they_were_started_with(Late, keep_cache)


def test_replies_that_end_during_an_update_are_delivered() -> None:
    overlapped.replies_that_end_during_an_update_are_delivered(Late)


def test_a_lone_request_waits_for_nothing_else() -> None:
    overlapped.a_lone_request_waits_for_nothing_else(Late, 1)


def test_failures_and_closing_end_every_request() -> None:
    overlapped.failures_and_closing_end_every_request(Late)


def test_prompts_are_started_while_others_sample() -> None:
    steps = Steps(engine_of(make("qwen2", layers=1), Late))
    runner = steps.engine.runner
    assert isinstance(runner, Late)
    for i in range(2):
        steps.send(Request((i,), (5, 6, 7 + i), 1, Sampling(1.0, 3)))
        steps.step()
    assert runner.did == ["prompts", "start", "prompts", "read", "start"]
    steps.to_the_end()
    steps.close()


def test_a_chunk_that_nobody_waits_for_is_discarded() -> None:
    """The engine has no more work then. The next request comes much later."""
    steps = Steps(engine_of(make("qwen2", layers=1), Late))
    request = Request((0,), (5, 6, 7), 1, Sampling(1.0, 3))
    steps.send(request).cancel()
    steps.step()
    assert not steps.sampling
    given_up = steps.send(request)
    steps.step()
    given_up.cancel()
    steps.step()
    assert not steps.engine.busy
    found = steps.send(request)
    steps.to_the_end()
    assert len(found.result().tokens) == 3
    overlapped.nothing_is_left(steps)


def sampling(tokens: int) -> Steps:
    """An engine whose GPU samples tokens of one request."""
    steps = Steps(engine_of(make("qwen2", layers=1), Late))
    steps.send(Request((0,), (5, 6, 7), 1, Sampling(1.0, tokens)))
    steps.step()
    assert steps.sampling
    return steps


def test_an_engine_that_fails_waits_for_its_gpu() -> None:
    """Otherwise its memory could be freed while the GPU still writes to it."""
    steps = sampling(30)
    runner = steps.engine.runner
    assert isinstance(runner, Late)
    steps.engine.fail(RuntimeError("broken"))
    steps.close()
    assert runner.did == ["prompts", "start", "read"]


def test_a_failure_while_another_thread_sets_a_version_ends_each_request_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other thread waits for the GPU when the failure is noticed."""
    steps = sampling(1)
    engine = steps.engine
    assert engine._computing is not None
    (wait, versions), asked, go = engine._computing, threading.Event(), threading.Event()

    def slow() -> list[Drawn]:
        asked.set()
        assert go.wait(10)
        return wait()

    engine._computing = slow, versions
    finish, finished = Scheduler.finish, list[Sequence]()

    def counted(self: Scheduler, sequence: Sequence) -> None:
        finished.append(sequence)
        finish(self, sequence)

    monkeypatch.setattr(Scheduler, "finish", counted)
    learner = threading.Thread(target=engine.update, args=(1,))
    learner.start()
    assert asked.wait(10)
    threading.Timer(0.2, go.set).start()
    engine.fail(RuntimeError("broken"))
    learner.join()
    assert len(finished) == 1
    assert min(engine.scheduler.cache._refs) >= 0
    steps.close()


def test_an_engine_is_busy_while_another_thread_puts_its_requests_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it were not, nobody would take its next step, and its requests would wait for ever."""
    steps = sampling(30)
    engine = steps.engine
    threads = [threading.Thread(target=engine.update, args=(1,))]
    real = Scheduler.queued.fget  # type: ignore[attr-defined]

    def interrupted(self: Scheduler) -> int:
        found: int = real(self)
        while threads:  # the first time: the version is set just after the queue was seen to be empty
            thread = threads.pop()
            thread.start()
            thread.join()
        return found

    monkeypatch.setattr(Scheduler, "queued", property(interrupted))
    assert engine.busy
    monkeypatch.undo()
    steps.to_the_end()
    steps.close()


def test_time_without_work_is_not_counted() -> None:
    """The GPU has sampled its tokens long before the next step reads them."""
    steps = sampling(30)
    before = steps.engine.stats().seconds
    time.sleep(0.5)
    steps.step()
    assert steps.engine.stats().seconds - before < 0.3
    steps.close()
