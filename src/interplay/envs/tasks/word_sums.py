"""Generated word problems: a short story about things, and the question how many there are in the end.

Each has `steps` operations. A row has the `question`, the `answer`, an `expression` that computes it and the same in
words (`spoken`); the players see neither of the last two. Small answers are drawn less often, so that no single answer
is a good guess. The hash of a problem's numbers and operations decides its split, so that no test problem is a training
problem with other names.
"""

from __future__ import annotations

import random
from typing import Any

from interplay.envs.splits import TRIES, split_of
from interplay.errors import ConfigError

PLENTY = 20  # below this, there are too few numbers for every answer to be rare
_NAMES = (
    "Ana",
    "Ben",
    "Carla",
    "Dan",
    "Eva",
    "Finn",
    "Gina",
    "Hugo",
    "Ida",
    "Jack",
    "Kim",
    "Leo",
    "Maya",
    "Nils",
    "Olga",
    "Paul",
)
_THINGS = ("apples", "books", "cards", "coins", "cookies", "eggs", "flowers", "marbles", "pencils", "shells", "stamps")
_MORE = (
    "{name} gets {b} more.",
    "{name} finds {b} more {things}.",
    "A friend brings {b} more {things}.",
    "Then {name} buys {b} {things}.",
)
_LESS = (
    "{name} gives away {b} of them.",
    "{name} loses {b} {things}.",
    "{b} of them are sold.",
    "Then {name} uses up {b} {things}.",
)
_PACKS = (
    "{name} has {k} boxes with {b} {things} in each.",
    "There are {k} bags, and each bag holds {b} {things}. {name} takes them all.",
    "{name} buys {k} packs of {b} {things}.",
)
_TIMES = (
    "In the next week {name} makes it {k} times as many.",
    "The number of {things} then grows to {k} times what it was.",
)
_SHARE = (
    "They are shared equally among {k} children. How many {things} does each child get?",
    "{name} puts the same number into each of {k} jars. How many {things} are in each jar?",
)
_END = ("How many {things} does {name} have now?", "How many {things} are there in the end?")
_SPOKEN = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}


def draw(rng: random.Random, split: str, steps: int, largest: int) -> dict[str, Any]:
    """A problem of `steps` operations for a split, with numbers up to `largest` (results up to ten times that)."""
    for _ in range(TRIES):
        start, steps_taken, value = _sum(rng, steps, largest)
        if largest >= PLENTY and rng.random() * 2 * largest > value:
            continue  # small results are the most frequent; without this, a constant answer would earn rewards
        key = f"{start} {' '.join(f'{op}{n}' for op, n in steps_taken)}"
        if split_of(key) == split:
            return _told(rng, start, steps_taken, value)
    raise ConfigError(
        f"no word problem of {steps} steps with numbers up to {largest} is left for the {split} split; expected larger "
        "numbers or more steps."
    )


def _sum(rng: random.Random, steps: int, largest: int) -> tuple[int, list[tuple[str, int]], int]:
    value = start = rng.randint(2, largest)
    taken: list[tuple[str, int]] = []
    for step in range(steps):
        last, first = step == steps - 1, step == 0
        kinds = ["+"]
        if value > 2:
            kinds.append("-")
        if first or value * 2 <= 10 * largest:
            kinds.append("*")
        shares = [k for k in range(2, 10) if value % k == 0 and value // k > 1] if last else []
        kinds += ["/"] if shares else []
        kind = rng.choice(kinds)
        if kind == "+":
            n = rng.randint(2, largest)
        elif kind == "-":
            n = rng.randint(1, min(value - 1, largest))
        elif kind == "*":
            n = rng.randint(2, max(2, min(9, 10 * largest // value)))
        else:
            n = rng.choice(shares)
        value = {"+": value + n, "-": value - n, "*": value * n, "/": value // n}[kind]
        taken.append((kind, n))
    return start, taken, value


def _told(rng: random.Random, start: int, taken: list[tuple[str, int]], value: int) -> dict[str, Any]:
    said = {"name": rng.choice(_NAMES), "things": rng.choice(_THINGS)}
    story: list[str] = []
    rest = list(taken)
    if rest and rest[0][0] == "*":
        k = rest.pop(0)[1]
        story.append(rng.choice(_PACKS).format(b=start, k=k, **said))
    else:
        story.append("{name} has {a} {things}.".format(a=start, **said))
    asked = rng.choice(_END)
    for kind, n in rest:
        if kind == "/":
            asked = rng.choice(_SHARE)
        else:
            story.append(rng.choice({"+": _MORE, "-": _LESS, "*": _TIMES}[kind]).format(b=n, k=n, **said))
    story.append(asked.format(k=taken[-1][1], **said))
    expression, spoken = str(start), str(start)
    for i, (kind, n) in enumerate(taken):
        loose = kind in "*/" and any(op in "+-" for op, _ in taken[:i])
        expression = f"({expression}) {kind} {n}" if loose else f"{expression} {kind} {n}"
        spoken += f" {_SPOKEN[kind]} {n}"
    return {
        "question": " ".join(story), "answer": str(value), "level": str(len(taken)),
        "expression": expression, "spoken": spoken,
    }  # fmt: skip
