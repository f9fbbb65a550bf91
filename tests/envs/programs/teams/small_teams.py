"""Small programs, each for one promise."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
ROLES = ("planner", "solver")


async def two(row: Row, ask: Any) -> str:
    plan = await ask("planner", f"Plan {row['index']}.", phase="plan")
    done = await ask("solver", [{"role": "system", "content": "Solve."}, {"role": "user", "content": str(plan)}])
    return f"{plan}/{done}"


async def asks_nobody(row: Row, ask: Any) -> str:
    return "done"


async def asks_too_much(row: Row, ask: Any) -> str:
    try:
        return str(await ask("planner", "ab cd " * 200_000))
    except Exception as error:
        return str(error)


PAID: list[str] = []


def pay(amount: str) -> str:
    PAID.append(amount)
    return f"receipt {len(PAID)}"


async def pays(row: Row, ask: Any) -> str:
    """`pay` is a tool that changes the world."""
    receipt = await ask.effect(pay, str(await ask("planner", "How much?")))
    tip = str(await ask("solver", f"{receipt}. And the tip?"))
    return str(await ask.effect(pay, tip))


async def pays_by_chance(row: Row, ask: Any) -> str:
    """Another amount each time: a replay of it would pay something that was not paid before."""
    await ask.effect(pay, f"amount {len(PAID)}")
    return str(await ask("planner", "Paid. Done?")) + str(await ask("solver", "Done?"))


async def many_of_one_role(row: Row, ask: Any) -> list[str]:
    return [str(r) for r in await asyncio.gather(*(ask("planner", f"Part {n}") for n in (3, 1, 2)))]


async def slow_branch(row: Row, ask: Any) -> list[str]:
    async def later(n: int) -> str:
        for _ in range(n):
            await asyncio.sleep(0)
        await asyncio.to_thread(int)
        return str(await ask("solver", f"late {n}"))

    return [str(r) for r in await asyncio.gather(ask("planner", "at once"), later(50))]


async def crashes_on_a(row: Row, ask: Any) -> str:
    said = str(await ask("planner", "Say something."))
    if said.startswith("a"):
        raise ValueError(f"cannot read {said}")
    return said


async def crashes_at_once(row: Row, ask: Any) -> str:
    raise KeyError("no such key")


async def leaves_as_told(row: Row, ask: Any) -> str:
    """Ends in a way that asyncio does not treat like other errors."""
    said = str(await ask("planner", "Say something."))
    if said == "exit":
        sys.exit(3)
    if said == "exit in a task":
        await asyncio.gather(asyncio.to_thread(sys.exit, 3), asyncio.sleep(60))
    if said == "cancel":
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
    await asyncio.sleep(0)
    return said


_runs = {"n": 0}


async def crashes_once(row: Row, ask: Any) -> str:
    await ask("planner", "Say something.")
    _runs["n"] += 1
    if _runs["n"] % 2:
        raise OSError("the disk was away for a moment")
    return "fine"


async def never_the_same(row: Row, ask: Any) -> str:
    _runs["n"] += 1
    await ask("planner", f"Run number {_runs['n']}.")
    await ask("planner", "And now?")
    return "done"


BEGUN: list[int] = []
CANCELLED: list[int] = []


async def waits_long(row: Row, ask: Any) -> None:
    """Waits for a timer, so its loop runs meanwhile."""
    BEGUN.append(row["index"])
    try:
        await asyncio.sleep(60)
    finally:
        CANCELLED.append(row["index"])


async def waits_for_nothing(row: Row, ask: Any) -> None:
    await asyncio.get_running_loop().create_future()


ADD = {"type": "function", "function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}}


async def tooled(row: Row, ask: Any) -> list[Any]:
    """Two roles are offered a tool, and then one of them a list."""
    called = [[[c.name, c.arguments] for c in (await ask(role, "Add.", tools=[ADD])).calls] for role in ROLES]
    return [*called, str(await ask("planner", "Which way?", only=["left", "right"]))]


async def limited(row: Row, ask: Any) -> list[str]:
    """Two tokens, then nothing that has a letter, a digit or a space, then one of two words."""
    stop = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "]
    hows: list[dict[str, Any]] = [{"max_tokens": 2}, {"stop": stop}, {"only": ["left", "right"]}]
    return [str(await ask("planner", "Speak.", **how)) for how in hows]


async def five(row: Row, ask: Any) -> str:
    said = [str(await ask(role, f"Speak, {role}.")) for role in ("a", "b", "past", "far")]
    return "/".join([*said, str(await ask("bot", "Choose.", only=["left", "right"]))])


async def dawdles_on_a(row: Row, ask: Any) -> str:
    said = str(await ask("planner", "Say something."))
    await asyncio.sleep(60.0 if said.startswith("a") else 0.0)
    return said


async def repeats(row: Row, ask: Any) -> list[str]:
    return [str(await ask("planner", "Again.")) for _ in range(4)]


async def forgets(row: Row, ask: Any) -> str:
    """Tells every kind of history that memory tells apart."""
    start = [{"role": "user", "content": "one"}]
    said = str(await ask("planner", start))
    kept = [*start, {"role": "assistant", "content": said}, {"role": "user", "content": "two"}]
    await ask("planner", kept, phase="kept")
    edited = [{"role": "user", "content": "other"}, *kept[1:]]
    await ask("planner", edited, phase="edited")
    foreign = [*start, {"role": "assistant", "content": "never said by anyone"}, {"role": "user", "content": "two"}]
    await ask("planner", foreign, phase="foreign")
    return said


async def named(row: Row, ask: Any) -> str:
    """Says who speaks, as group chats do."""
    return str(await ask("planner", [{"role": "user", "name": "bob", "content": "hello"}]))


def length(row: Row, result: str) -> float:
    return float(len(result))


def by_level(row: Row, result: str, calls: list[Any]) -> Any:
    from interplay.types import Rewards

    return Rewards.team("score", 1.0) + Rewards.agent("words", {c.role: float(len(c.reply.content)) for c in calls})


def fails(row: Row, result: str) -> float:
    return float(row["no such key"])


async def fails_later(row: Row, result: str) -> float:
    await asyncio.sleep(0)
    return fails(row, result)


def gives_words(row: Row, result: str) -> dict[str, Any]:
    return {"score": "high"}


def gives_nan(row: Row, result: str) -> dict[str, float]:
    return {"score": float("nan")}


def gives_a_stranger(row: Row, result: str) -> Any:
    from interplay.types import Rewards

    return Rewards.agent("score", {"judge": 1.0})


def exits(row: Row, result: str) -> float:
    sys.exit("no reward")


def numpy_float(row: Row, result: str) -> Any:
    import numpy as np

    return np.float32(0.5)


async def later(row: Row, result: str) -> dict[str, float]:
    await asyncio.sleep(0)
    return {"score": 0.5, "words": 2.0}


async def crashes_on_anything(row: Row, ask: Any) -> str:
    said = str(await ask("planner", "Say something."))
    raise ValueError(f"cannot read {said}")
