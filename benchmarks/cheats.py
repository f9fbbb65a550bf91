"""What cheats earn above uniformly random legal play, in every environment.

    python benchmarks/cheats.py                      every environment, at most 60 s for each
    python benchmarks/cheats.py --only taboo nli     some of them
    python benchmarks/cheats.py --seconds 600 --processes 4
    python benchmarks/cheats.py --all                a line for every cheat, not only for the best of each environment

Each cheat of `tests/envs/cheats.py` is played on tasks of the test split, and so is random legal play, with the same
partners and the same random numbers. The number of tasks is doubled until the 95% interval of the difference does not
reach above 0.01, or until the time for this environment is over. A line shows the cheat whose interval reaches highest:
its gain with its 95% interval, and on how many tasks it was measured. The last column says "none" if no interval of a
cheat reaches above 0.01, "FREE" if one is more than four standard errors above it (there are about a thousand cheats,
so two would often be chance), and otherwise "open": the tasks were too few to tell. The exit status is 1 if any is
FREE.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "envs"))

from cheats import CHEATS, FREE, OTHER_TEAMS, Entry, Gain, cheating, earned, label, named

from interplay import envs
from interplay.errors import ConfigError
from interplay.types import Role

FIRST = 32  # tasks of the first look
ALL: list[tuple[str, Entry]] = [*CHEATS.items(), *OTHER_TEAMS]


@dataclass(frozen=True)
class CheatLine:
    role: Role
    cheat: str
    gain: float
    width: float  # half of the interval
    tasks: int

    @property
    def free(self) -> str:
        if self.gain + self.width <= FREE:
            return "none"
        return "FREE" if self.gain - 2 * self.width > FREE else "open"


def measured(name: str, entry: Entry, seconds: float, most: int) -> list[CheatLine]:
    """Every cheat of every role. One that earns nothing is not played any further; one that seems to earn something is,
    since chance is the most frequent reason."""
    began = time.monotonic()
    roles = envs.make(envs.sample_task(named(name, entry), dict(entry.options))).roles
    gains = [Gain(role, cheat, reply) for role in roles for cheat, reply, _ in cheating(entry, role)]
    fair: dict[tuple[Role, int], float] = {}
    undecided, looks = gains, FIRST
    while undecided:
        for gain in undecided:
            while gain.tasks < looks and (gain.tasks < FIRST or time.monotonic() - began < seconds):
                role, index = gain.role, gain.tasks
                if (role, index) not in fair:
                    fair[role, index] = earned(name, entry, index, {}, role)
                gain.add(earned(name, entry, index, {role: gain.reply}, role) - fair[role, index])
        if looks >= most or time.monotonic() - began >= seconds:
            break
        undecided, looks = [gain for gain in gains if line(gain).free != "none"], 2 * looks
    return [line(gain) for gain in gains]


def line(gain: Gain) -> CheatLine:
    return CheatLine(gain.role, gain.cheat, gain.mean, gain.width, gain.tasks)


def measure(which: int, seconds: float, most: int) -> tuple[str, list[CheatLine] | str]:
    name, entry = ALL[which]
    try:
        return label(name, entry), measured(name, entry, seconds, most)
    except ConfigError as error:  # an adapter's package is not installed
        return label(name, entry), str(error)


def show(what: str, lines: list[CheatLine] | str, every: bool) -> str:
    """Print the lines of an environment; the answer is its last column."""
    if isinstance(lines, str):
        print(f"| {what} | not measured: {lines} | | | |", flush=True)
        return "not measured"
    worst = max(lines, key=lambda one: (one.free == "FREE", one.gain + one.width))
    for one in lines if every else [worst]:
        interval = f"{one.gain:+.4f} ± {one.width:.4f}"
        print(f"| {what} | {one.role}: {one.cheat} | {interval} | {one.tasks:,} | {one.free} |", flush=True)
    return worst.free


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(CHEATS), help="names of environments")
    parser.add_argument("--seconds", type=float, default=60, help="for each environment")
    parser.add_argument("--tasks", type=int, default=1 << 18, help="most tasks for each cheat")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="a line for every cheat")
    given = parser.parse_args(None if arguments is None else list(arguments))
    which = [n for n, (name, _) in enumerate(ALL) if given.only is None or name in given.only]
    print("| environment | cheat | gain (95%) | tasks | free score |\n|---|---|---|---|---|", flush=True)
    with ProcessPoolExecutor(given.processes) as pool:
        count = len(which)
        found = [
            show(what, lines, given.all)
            for what, lines in pool.map(measure, which, [given.seconds] * count, [given.tasks] * count)
        ]
    print(", ".join(f"{found.count(free)} {free}" for free in dict.fromkeys(found)))
    if "FREE" in found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
