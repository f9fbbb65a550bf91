"""Code that the adapters of Gymnasium and PettingZoo share: arrays as text, actions as a list, forks by deep copy.

A stack of 0/1 planes becomes a grid of letters (a for the first plane, . for none), a 0/1 vector becomes the places of
its ones, and any other array its numbers. Colours of a terminal rendering have a meaning, so they are told in words.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from interplay.envs.adapters.adapter import AdaptedEnv, written
from interplay.errors import ConfigError, EnvError

LONGEST = 4_096  # an observation with more numbers is an image and cannot be shown as text
SHARED = ("P", "spec", "action_space", "observation_space", "action_spaces", "observation_spaces")  # never change
MOST = 5_000  # the largest number of actions that can be listed
C = TypeVar("C", bound="Copied")
_COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
_NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class Copied(AdaptedEnv):
    """An adapter around one object of its package, `env`. All its other values are replaced, never changed in place."""

    env: Any

    def fork(self: C, seed: int | None = None) -> C:
        if (env := duplicate(self.env)) is not None:
            twin = self.twin()
            twin.env, twin.history = env, self.history.copy()
            twin.rng = self.dice(0)
            twin.rng.setstate(self.rng.getstate())
        elif (again := self.replayed(self.task.seed)) is not None:
            twin = again
        else:
            raise EnvError(
                f"'{self.task.env}' can neither be copied nor replayed, so it cannot be forked; expected another game."
            )
        if seed is not None:
            reseed(twin.env, seed)
        return twin


def told(value: Any) -> str:
    """An observation as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {told(part)}" for key, part in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(told(part) for part in value)
    array = np.asarray(value)
    if array.size > LONGEST:
        raise ConfigError(
            f"an observation has {array.size} numbers, which cannot be shown as text; expected at most {LONGEST}, or a "
            "game with a text rendering."
        )
    if array.ndim == 0:
        return f"{array.item():g}" if array.dtype.kind == "f" else str(array.item())
    binary = bool(np.isin(array, (0, 1)).all())
    if array.ndim == 1:
        if binary and array.size > 8:
            return f"ones at {' '.join(str(i) for i in np.flatnonzero(array)) or 'no place'}"
        return " ".join(f"{x:g}" for x in array.tolist())
    if array.ndim == 2:
        return "\n" + "\n".join(" ".join(f"{x:g}" for x in row) for row in array.tolist())
    if array.ndim == 3 and binary and array.shape[2] <= 26:
        cells = [["".join(chr(97 + k) for k in np.flatnonzero(cell)) or "." for cell in row] for row in array]
        return "\n" + "\n".join(" ".join(row) for row in cells)
    return " | ".join(told(part) for part in array)


def labelled(value: Any, names: Sequence[str]) -> str:
    """An observation of a few numbers, each with its name; without names if their number does not fit."""
    parts = list(value) if isinstance(value, tuple | list) else list(np.ravel(value)) if np.ndim(value) == 1 else []
    if not names or len(parts) != len(names):
        return told(value)
    return ", ".join(f"{name} {told(part)}" for name, part in zip(names, parts, strict=True))


def uncoloured(text: str) -> str:
    """A terminal's colours in words: the plain text, and below it which characters have which colour."""
    marks, plain, row, column, colour = [], [], 1, 1, ""
    for piece in re.split(r"(\x1b\[[0-9;]*m)", text.strip("\n")):
        if code := _COLOUR.fullmatch(piece):
            numbers = [int(n) for n in code[1].split(";") if n]
            hues = [_NAMES[n % 10] for n in numbers if n // 10 in (3, 4, 9, 10) and n % 10 < 8]
            colour = hues[0] if hues else ""
            continue
        for c in piece:
            if colour and c != "\n":
                marks.append(f"{colour} {c!r} in row {row}, column {column}")
            row, column = (row + 1, 1) if c == "\n" else (row, column + 1)
        plain.append(piece)
    return "".join(plain) + (f"\nColoured: {'; '.join(marks)}." if marks else "")


def choices(space: Any, names: Sequence[str]) -> dict[str, Any] | None:
    """Every action of a space by its text; None if any text is an action. `names` replace the numbers of a Discrete."""
    kind = type(space).__name__
    if kind == "Text":
        return None
    if kind == "Discrete":
        if names and len(names) != space.n:
            raise ConfigError(f"env.actions has {len(names)} names; expected {space.n}, one for each action.")
        first = int(space.start)
        return dict(written(range(first, first + int(space.n)), lambda a: names[a - first] if names else str(a)))
    if kind in ("MultiDiscrete", "MultiBinary"):
        sizes = [int(n) for n in np.ravel(space.nvec)] if kind == "MultiDiscrete" else [2] * int(np.prod(space.shape))
        if np.prod(sizes) <= MOST:
            return {
                " ".join(map(str, each)): np.array(each, dtype=space.dtype).reshape(space.shape)
                for each in itertools.product(*(range(n) for n in sizes))
            }
    raise ConfigError(
        f"the actions of this game are {space}, which cannot be listed; expected Discrete, Text, or a MultiDiscrete "
        f"with at most {MOST} combinations."
    )


def allowed(listed: dict[str, Any], mask: Any) -> dict[str, Any]:
    """The actions that a 0/1 mask allows."""
    if mask is None:
        return listed
    return {name: action for (name, action), open_ in zip(listed.items(), np.ravel(mask), strict=True) if open_}


def duplicate(env: Any) -> Any:
    """A copy that shares nothing that can change; None if the package's objects cannot be copied."""
    memo: dict[int, Any] = {}
    pickled = []
    for part in _parts(env):
        held = part.__dict__
        memo.update({id(held[name]): held[name] for name in SHARED if held.get(name) is not None})
        memo.update({id(value): value for value in _drawing(held.values())})
        if "_ezpickle_args" in held:  # deepcopy would make it again, as it was before the first step
            memo[id(part)] = object.__new__(type(part))
            pickled.append(part)
    try:
        for part in pickled:
            memo[id(part)].__dict__.update({name: copy.deepcopy(v, memo) for name, v in part.__dict__.items()})
        return copy.deepcopy(env, memo)
    except (TypeError, AttributeError, RuntimeError):
        return None


def _drawing(values: Iterable[Any]) -> Iterator[Any]:
    """What pygame draws with, such as surfaces and clocks. It cannot be copied, and is drawn over for every frame."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _drawing(value)
        elif isinstance(value, dict):
            yield from _drawing(value.values())
        elif type(value).__module__.partition(".")[0] == "pygame":
            yield value


def reseed(env: Any, seed: int) -> None:
    """Seed every NumPy generator in an environment again, including those in its wrappers and their objects."""
    for part in _parts(env):
        for value in part.__dict__.values():
            if isinstance(value, np.random.Generator):
                value.bit_generator.state = type(value.bit_generator)(seed % 2**63).state
            elif isinstance(value, np.random.RandomState):
                value.seed(seed % 2**32)


def _parts(env: Any) -> list[Any]:
    """An environment and its parts: wrappers, what they wrap, and the objects in these."""
    found, names = {id(env): env}, [env]
    for part in names:
        for name, value in part.__dict__.items():
            if name not in SHARED and hasattr(value, "__dict__") and not callable(value) and id(value) not in found:
                found[id(value)] = value
                names.append(value)
        if len(names) > 1_000:
            break
    return names
