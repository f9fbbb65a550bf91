"""The producer of groups: how far it runs ahead, what it delivers, and how it pauses and ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from interplay.engines.pause import pausable
from interplay.errors import ConfigError
from interplay.rollout.runner import Seated
from interplay.rollout.stream import DrawnTask, Group, Pace, Stream
from interplay.types import Episode, Task

Hook = Callable[[int, int], Awaitable[None]]


async def _at_once(number: int, replica: int) -> None:
    return None


class Fake:
    """Plays no game: an episode ends when `hook` returns."""

    def __init__(self, pace: Pace, hook: Hook = _at_once, **more: Any) -> None:
        self.hook, self.drawn, self.playing, self.most = hook, list[tuple[int, int]](), 0, 0
        self.stream = Stream(pace, self._draw, self._play, **more)

    def _draw(self, number: int) -> DrawnTask:
        self.drawn.append((number, self.stream.version))
        return DrawnTask(Task(str(number), "fake", number), lambda: Seated({}, {}), self.stream.version)

    async def _play(self, task: Task, replica: int, seated: Seated) -> Episode:
        self.playing += 1
        self.most = max(self.most, self.playing)
        try:
            await self.hook(task.seed, replica)
            return Episode(f"{task.id}#{replica}", task, replica, {})
        finally:
            self.playing -= 1


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


async def soon(happened: Callable[[], bool]) -> None:
    """Wait until it has happened, however slow the machine is, and a little longer, so that more could happen."""
    while not happened():
        await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)


def numbers(groups: list[Group]) -> list[int]:
    return [g.number for g in groups]


def test_without_staleness_a_batch_is_played_between_two_steps() -> None:
    """The next batch is not even drawn before the step is taken."""

    async def main() -> None:
        fake = Fake(Pace(batch=3, replicas=2, staleness=0, concurrency=100))
        async with fake.stream.running() as stream:
            stream.begin(0, 0)
            for step in range(4):
                groups = await stream.pull(3)
                assert numbers(groups) == [3 * step, 3 * step + 1, 3 * step + 2]
                assert all(len(g.played) == 2 and g.drawn.at == step for g in groups)
                await soon(lambda: True)
                assert len(fake.drawn) == 3 * (step + 1)
                stream.advance(step + 1)

    run(main())


@pytest.mark.parametrize("staleness", [1, 2, 3])
def test_sampling_runs_ahead_as_far_as_the_bound_allows(staleness: int) -> None:
    """At most (staleness + version + 1) · batch groups are issued, and with fast episodes exactly this many."""

    async def main() -> None:
        fake = Fake(Pace(batch=4, replicas=1, staleness=staleness, concurrency=100))
        async with fake.stream.running() as stream:
            stream.begin(0, 0)
            for step in range(5):
                await soon(lambda step=step: len(fake.drawn) >= (staleness + step + 1) * 4)
                assert len(fake.drawn) == (staleness + step + 1) * 4
                groups = await stream.pull(4)
                assert all(step - g.drawn.at <= staleness for g in groups)
                stream.advance(step + 1)

    run(main())


def test_at_most_so_many_episodes_run_at_once() -> None:
    async def main() -> None:
        async def together(number: int, replica: int) -> None:
            await soon(lambda: fake.most >= 5)  # the first ones end when five of them play

        fake = Fake(Pace(batch=6, replicas=3, staleness=0, concurrency=5), together)
        async with fake.stream.running() as stream:
            stream.begin(0, 0)
            assert numbers(await stream.pull(6)) == list(range(6))
            assert fake.most == 5

    run(main())


def test_a_group_comes_when_its_last_episode_has_ended() -> None:
    """Of the groups that are ready, the lowest number is taken first, and a slow group does not delay the others."""
    gate = asyncio.Event

    async def main() -> None:
        late = gate()

        async def hook(number: int, replica: int) -> None:
            if (number, replica) == (0, 1):
                await late.wait()

        fake = Fake(Pace(batch=2, replicas=2, staleness=1, concurrency=100), hook)
        async with fake.stream.running() as stream:
            stream.begin(0, 0)
            assert numbers(await stream.pull(2)) == [1, 2]
            stream.advance(1)
            assert stream.unconsumed == [0, 3, 4, 5]
            late.set()
            await soon(lambda: not fake.stream._running)
            assert numbers(await stream.pull(2)) == [0, 3]

    run(main())


def test_dropped_groups_are_replaced() -> None:
    async def main() -> None:
        fake = Fake(Pace(batch=2, replicas=1, staleness=0, concurrency=100))
        async with fake.stream.running() as stream:
            stream.begin(0, 0)
            assert numbers(await stream.pull(2)) == [0, 1]
            stream.drop(1)
            assert numbers(await stream.pull(1)) == [2]
            assert stream.issued == 3

    run(main())


def test_what_was_not_trained_on_is_issued_again() -> None:
    """After a resume, these numbers come first and then new ones, within the same bound."""

    async def main() -> None:
        fake = Fake(Pace(batch=2, replicas=1, staleness=1, concurrency=100))
        async with fake.stream.running() as stream:
            stream.begin(3, issued=10, again=[5, 8])
            await soon(lambda: len(fake.drawn) >= 4)
            assert [n for n, _ in fake.drawn] == [5, 8, 10, 11]

    run(main())


def test_late_rewards_come_before_a_group_is_delivered() -> None:
    """The stage sees all episodes of a group once, and may take long."""
    seen: list[list[str]] = []

    async def stage(episodes: Any) -> None:
        await asyncio.sleep(0.005)
        seen.append([e.id for e in episodes])
        for e in episodes:
            e.final_state = "judged"

    async def main() -> None:
        fake = Fake(Pace(batch=2, replicas=2, staleness=0, concurrency=100), stage=stage)
        async with fake.stream.running() as stream:
            stream.begin(0, 0)
            groups = await stream.pull(2)
            assert all(e.final_state == "judged" for g in groups for e in g.played)

    run(main())
    assert sorted(seen) == [["0#0", "0#1"], ["1#0", "1#1"]]


def test_an_error_that_affects_every_episode_ends_the_stream() -> None:
    async def hook(number: int, replica: int) -> None:
        await asyncio.sleep(0.001 * number)
        if number == 1:
            raise ConfigError("no player is named for it")

    async def main() -> None:
        fake = Fake(Pace(batch=3, replicas=1, staleness=0, concurrency=100), hook)
        async with fake.stream.running() as stream:
            stream.begin(0, 0)
            with pytest.raises(ConfigError, match="no player is named for it"):
                await stream.pull(3)
            assert fake.playing == 0

    run(main())


def test_the_end_gives_up_what_is_played() -> None:
    async def forever(number: int, replica: int) -> None:
        await asyncio.Event().wait()

    async def main() -> Fake:
        fake = Fake(Pace(batch=3, replicas=2, staleness=0, concurrency=100), forever)
        async with fake.stream.running() as stream:
            stream.begin(0, 0)
            await soon(lambda: fake.playing >= 6)
            assert fake.playing == 6
        return fake

    assert run(main()).playing == 0


def test_a_pause_waits_for_open_requests_of_episodes() -> None:
    """And an episode that asks again meanwhile, as after a tool's answer, waits until the pause is over."""

    async def main() -> list[str]:
        order: list[str] = []

        async def answered(what: str) -> None:
            await asyncio.sleep(0.02)
            order.append(what)

        async def hook(number: int, replica: int) -> None:
            await pausable(lambda: answered("first"))
            await pausable(lambda: answered("second"))

        fake = Fake(Pace(1, 1, 0, 1), hook)
        async with fake.stream.running() as stream:
            stream.begin(0, 0)
            await soon(lambda: fake.playing == 1)
            async with stream.paused():
                order.append("paused")
                await asyncio.sleep(0.06)
                order.append("goes on")
            await stream.pull(1)
        return order

    assert run(main()) == ["first", "paused", "goes on", "second"]


def test_nothing_is_lost_whatever_the_order_of_endings() -> None:
    """With random durations, drops and resumes, every issued number is either pulled exactly once or listed."""

    async def main(seed: int) -> None:
        rng = random.Random(seed)

        async def hook(number: int, replica: int) -> None:
            own = random.Random(f"{seed} {number} {replica}")  # the order of endings decides nothing that is drawn
            await asyncio.sleep(own.random() * 0.004)

        fake = Fake(Pace(batch=3, replicas=2, staleness=rng.randrange(3), concurrency=rng.randrange(1, 9)), hook)
        taken: list[int] = []
        async with fake.stream.running() as stream:
            stream.begin(0, 0)
            for step in range(6):
                taken += numbers(await stream.pull(3))
                if rng.random() < 0.3:
                    stream.drop(1)
                stream.advance(step + 1)
            assert sorted(taken + stream.unconsumed) == list(range(stream.issued))
            assert len(set(taken)) == len(taken)

    for seed in range(5):
        run(main(seed))
