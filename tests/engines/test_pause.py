"""A pause of the stream: which requests it holds back, which it waits for, and that it takes no time from episodes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import fake_time
import pytest

from interplay.engines import pause as pauses
from interplay.engines.pause import Pause, pausable


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


class Server:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = asyncio.Event()

    async def ask(self, who: str) -> str:
        self.asked.append(who)
        await self.answer.wait()
        return who


def test_a_pause_begins_when_open_requests_are_answered_and_holds_back_new_ones() -> None:
    async def main() -> None:
        pause, server = Pause(), Server()

        async def actor(who: str) -> str:
            pause.applies()
            return await asyncio.create_task(pausable(lambda: server.ask(who)))  # also in tasks that it starts

        first = asyncio.create_task(actor("first"))
        while not server.asked:
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.02, server.answer.set)
        async with pause.holding():
            assert server.answer.is_set() and pause.on
            second = asyncio.create_task(actor("second"))
            await asyncio.sleep(0.02)
            assert server.asked == ["first"]
        assert (await first, await second) == ("first", "second") and not pause.on

    run(main())


def test_a_pause_neither_waits_for_the_requests_of_others_nor_delays_them() -> None:
    async def main() -> None:
        pause, server = Pause(), Server()
        asked = asyncio.create_task(pausable(lambda: server.ask("evaluation")))
        await asyncio.sleep(0)
        async with pause.holding():
            assert not asked.done()
            more = asyncio.create_task(pausable(lambda: server.ask("more")))
            await asyncio.sleep(0)
            assert server.asked == ["evaluation", "more"]
        server.answer.set()
        await asyncio.gather(asked, more)

    run(main())


def test_a_cancelled_request_does_not_hold_up_a_pause() -> None:
    async def main() -> None:
        pause, server = Pause(), Server()

        async def actor() -> None:
            pause.applies()
            await pausable(lambda: server.ask("actor"))

        task = asyncio.create_task(actor())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(task.cancel)
        async with pause.holding():
            assert task.cancelled() or task.cancelling()

    run(main())


@pytest.mark.parametrize("late", [False, True], ids=["began before", "began in the pause"])
def test_a_time_limit_does_not_count_pauses(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "time", SimpleNamespace(monotonic=fake_time.monotonic))

    async def main() -> None:
        pause = Pause()

        async def limited(seconds: float) -> str:
            try:
                async with pause.limit(0.1):
                    await asyncio.sleep(seconds)
            except TimeoutError:
                return "too late"
            return "done"

        begun = [] if late else [asyncio.create_task(limited(s)) for s in (0.35, 0.6)]
        await asyncio.sleep(0)
        async with pause.holding():
            if late:
                begun = [asyncio.create_task(limited(s)) for s in (0.35, 0.6)]
            await asyncio.sleep(0.3)
        assert await asyncio.gather(*begun) == ["done", "too late"]
        assert pause.seconds == pytest.approx(0.3)

    fake_time.run(main())
