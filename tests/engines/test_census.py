"""Batches contain every request that is ready, and do not depend on timing."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from interplay.engines.census import Census, census, deliver
from interplay.engines.desk import Desk


class Echo(Desk[int, int]):
    """Answers each number with itself when `ready` returns, and records which were asked together."""

    def __init__(self, ready: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.batches: list[list[int]] = []
        self.ready = ready

    def rank(self, question: int) -> int:
        return question

    def answers(self, questions: Sequence[int]) -> list[int | Exception]:
        self.ready()
        self.batches.append(list(questions))
        return [ValueError("seven") if q == 7 else q for q in questions]

    def broken(self, error: Exception) -> Exception:
        return error


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_everybody_who_can_ask_is_in_the_batch() -> None:
    """Also actors that ask after other actors have ended, after nested actors, and after many ticks."""
    desk = Echo()

    async def leaf(n: int, ticks: int) -> int:
        for _ in range(ticks):
            await asyncio.sleep(0)
        return await desk.ask(n)

    async def inner(n: int) -> int:
        found = await census().gather([leaf(10 * n + 1, 3 * n), leaf(10 * n + 2, 50 - 5 * n)])
        return sum(x for x in found if isinstance(x, int))

    async def main() -> list[Any]:
        return await census().gather([inner(n) for n in range(1, 6)])

    assert run(main()) == [20 * n + 3 for n in range(1, 6)]
    assert desk.batches == [[11, 12, 21, 22, 31, 32, 41, 42, 51, 52]]


def test_batches_do_not_depend_on_how_the_event_loop_is_scheduled() -> None:
    """Actors wait a random number of ticks before each of several questions: the batches are always the same."""

    async def main(seed: int, desk: Echo) -> None:
        rng = random.Random(seed)

        async def actor(n: int) -> None:
            for turn in range(n % 4 + 1):
                for _ in range(rng.randrange(20)):
                    await asyncio.sleep(0)
                await desk.ask(100 * turn + n)

        await census().gather([actor(n) for n in range(8) if n != 7])

    found = []
    for seed in range(5):
        desk = Echo()
        run(main(seed, desk))
        found.append(desk.batches)
    assert all(batches == found[0] for batches in found)
    assert [len(batch) for batch in found[0]] == [7, 5, 3, 1]


def test_what_is_begun_beside_counts_until_it_ends() -> None:
    """The line continues while a playout runs beside it; joining it waits without delaying the others."""
    desk = Echo()

    async def behind() -> int:
        return await desk.ask(1) + await desk.ask(3)

    async def line() -> int:
        task = census().begin(behind())
        two = await desk.ask(2)
        return two + await census().join(task)

    async def main() -> list[Any]:
        return await census().gather([line()])

    assert run(main()) == [6]
    assert desk.batches == [[1, 2], [3]]


def test_a_failed_question_and_a_cancelled_actor_leave_nothing_behind() -> None:
    desk = Echo()

    async def asks(n: int) -> int:
        return await desk.ask(n)

    async def cancelled() -> None:
        task = census().begin(asks(5))
        never = census().begin(asks(6))
        never.cancel()  # before it ran
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, never, return_exceptions=True)

    async def main() -> tuple[list[Any], int]:
        found = await census().gather([asks(7), asks(8), cancelled()])
        await census().gather([asks(9)])
        return found, census().active

    found, active = run(main())
    assert isinstance(found[0], ValueError) and found[1:] == [8, None]
    assert active == 0


@pytest.mark.parametrize("deterministic", [True, False])
def test_only_a_deterministic_run_waits_for_what_is_outside(deterministic: bool) -> None:
    """One actor waits outside; the other asks. In a deterministic run its question waits for the other's; otherwise
    it is answered first, which is what the one outside waits for here."""
    desk = Echo()
    order: list[str] = []
    answered = asyncio.Event()

    async def slow() -> None:
        await census().outside(asyncio.sleep(0.2) if deterministic else answered.wait())
        order.append("slow")
        await desk.ask(1)

    async def quick() -> None:
        await desk.ask(2)
        order.append("quick")
        answered.set()

    async def main() -> None:
        census().deterministic = deterministic
        await census().gather([slow(), quick()])

    run(main())
    assert order == (["slow", "quick"] if deterministic else ["quick", "slow"])
    assert desk.batches == ([[1, 2]] if deterministic else [[2], [1]])


def test_a_remote_model_holds_nobody_up() -> None:
    """`elsewhere` never counts, not even in a deterministic run."""
    desk = Echo()
    order: list[str] = []
    answered = asyncio.Event()

    async def remote() -> None:
        await census().elsewhere(answered.wait())
        order.append("remote")

    async def local() -> None:
        await desk.ask(1)
        order.append("local")
        answered.set()

    async def main() -> None:
        await census().gather([remote(), local()])

    run(main())
    assert order == ["local", "remote"]


def test_services_without_an_order_run_beside_each_other() -> None:
    """Without `deterministic`, a fast service answers twice while a slow one works on its first batch."""
    twice = threading.Event()
    slow, quick = Echo(lambda: twice.wait(60)), Echo()
    order: list[str] = []

    async def at(desk: Echo, name: str, times: int) -> None:
        for _ in range(times):
            await desk.ask(1)
            order.append(name)
        twice.set()

    async def main() -> None:
        census().deterministic = False
        await census().gather([at(slow, "slow", 1), at(quick, "quick", 2)])

    run(main())
    assert order == ["quick", "quick", "slow"]


def test_who_is_no_actor_can_ask_too() -> None:
    desk = Echo()

    async def main() -> list[int]:
        return await asyncio.gather(*(desk.ask(n) for n in range(4)))

    assert run(main()) == [0, 1, 2, 3]
    assert sorted(n for batch in desk.batches for n in batch) == [0, 1, 2, 3]


def test_each_event_loop_has_its_own_census() -> None:
    async def mine() -> Census:
        return census()

    assert asyncio.run(mine()) is not asyncio.run(mine())


class Slow:
    """A service that gives an answer in the third step after a question, on a thread of its own. `began` is set in
    every step, and `go` lets it end."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1)
        self.began, self.go = threading.Event(), threading.Event()
        self.waiting: list[asyncio.Future[str]] = []
        self.steps = self.queued = 0

    async def ask(self) -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        self.queued += 1
        return await census().answer(self, future)

    @property
    def busy(self) -> bool:
        return bool(self.waiting)

    def take(self) -> None:
        self.queued = 0

    def step(self) -> list[Callable[[], None]]:
        self.began.set()
        self.go.wait(60)
        self.waiting = [future for future in self.waiting if not future.done()]
        self.steps += bool(self.waiting)
        if not self.waiting or self.steps % 3:
            return []
        answered, self.waiting = self.waiting, []
        return [partial(deliver, future, "answer") for future in answered]

    def fail(self, error: Exception) -> None:
        raise error


def test_a_step_that_an_ended_event_loop_began_takes_no_request_of_the_next_one() -> None:
    """The loop ends when the step has ended. Otherwise the step, which goes on until it has an answer, would find the
    next loop's request and give its answer to the loop that has ended."""
    service = Slow()

    async def given_up() -> None:
        asked = asyncio.ensure_future(service.ask())
        while not service.began.is_set():
            await asyncio.sleep(0.001)
        asked.cancel()
        threading.Timer(0.3, service.go.set).start()

    run(given_up())
    assert run(service.ask()) == "answer"
    service.thread.shutdown()


def test_what_served_an_event_loop_that_has_ended_does_not_stay_in_memory() -> None:
    """An engine has weights and a cache: one for each run of a program would fill the memory."""
    desk = Echo()
    served = weakref.ref(desk)

    async def ask(desk: Echo) -> int:
        return await desk.ask(1)

    async def other() -> None:
        census()

    assert run(ask(desk)) == 1
    del desk
    run(other())
    gc.collect()
    assert served() is None
