"""Measures what the sandbox costs for programs, trials, queries and formulas, at each level this machine offers.

    python benchmarks/sandbox.py [--number 200] [--workers 2] [--old FOLDER]

Each line gives two numbers. The first is how many are done per second of wall-clock time with warm workers; it is lower
when the machine is busy with other work. The second is the CPU time of one, over all processes, ours included; other
work hardly changes it. `--old` is a checkout of another commit. It and this checkout are measured in turn, three times,
and the medians and their ratio are printed.

    python benchmarks/sandbox.py --hostile [--quick] [--level LEVEL] [--kind KIND]... [--slow TIMES]

This runs every hostile program and answer of `tests/execution` at each level, both as this user and as an ordinary
user. It prints who enforces the limits of memory and processes, and a line for each kind, which says how many were
contained. `--quick` leaves out those that only end at a time limit; `--level` and `--kind` select one level and some
kinds; `--slow` multiplies the time limits. On a machine without control groups, `tests/execution/in_vm.sh` runs this in
an emulated machine that has them and is much slower.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "execution"
PROGRAM = "n = int(input())\nprint(sum(i * i for i in range(n)))"
Cost = tuple[float, float]  # wall-clock seconds and CPU seconds of one


def cpu() -> float:
    """The CPU time of this process and of every child that has ended and been waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


# -- what is measured, with the package of this commit or of an older one ---------------------------------------------


def programs(level: str, number: int, workers: int) -> Cost:
    """The cost of one program. The time to start the workers is measured separately and subtracted."""
    from interplay.execution.sandbox import Job, Sandbox

    before = cpu()
    Sandbox(workers, level).warm().close()  # type: ignore[arg-type]
    starting, before = cpu() - before, cpu()
    with Sandbox(workers, level).warm() as box:  # type: ignore[arg-type]
        began = time.perf_counter()
        results = box.map(Job(PROGRAM, stdin=str(100 + i)) for i in range(number))
        seconds = time.perf_counter() - began
    assert [int(r.stdout) for r in results] == [sum(i * i for i in range(100 + n)) for n in range(number)]
    return seconds / number, (cpu() - before - starting) / number


def plain(number: int) -> Cost:
    """The same without a sandbox: a new interpreter for each program, one after the other."""
    before, began = cpu(), time.perf_counter()
    for i in range(number):
        command = [sys.executable, "-I", "-S", "-c", PROGRAM]
        subprocess.run(command, input=str(100 + i), capture_output=True, text=True, check=True)
    return (time.perf_counter() - began) / number, (cpu() - before) / number


def repeated(ask: Callable[[int], bool], number: int) -> Cost:
    """Measured in a separate process, whose workers end with it. The first answer starts them and is not counted."""

    def child(times: int) -> Cost:
        heard, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                assert ask(0)
                began = time.perf_counter()
                assert all(ask(1 + n) for n in range(times))
                os.write(told, str(time.perf_counter() - began).encode())
                code = 0
            import atexit

            atexit._run_exitfuncs()
            os._exit(code)
        os.close(told)
        _, status, usage = os.wait4(pid, 0)
        assert status == 0, "the measurement failed"
        return float(os.read(heard, 100)), usage.ru_utime + usage.ru_stime

    idle, busy = child(0), child(number)
    return busy[0] / number, (busy[1] - idle[1]) / number


def measured(number: int, workers: int) -> dict[str, Cost]:
    from interplay.execution import database
    from interplay.execution.programs import Bench
    from interplay.execution.sandbox import LEVELS, offered

    found = {"an interpreter for each program": plain(max(10, number // 20))}
    for level in LEVELS:
        if not offered(level):
            found[f"program, {level}"] = programs(level, number, workers)
    bench = Bench(seconds=5)
    tests = ["assert f(1) == 2", "assert f(2) == 3"]
    found["function with two tests"] = repeated(
        lambda n: bench.calls(f"def f(x): return x + 1 + 0 * {n}", tests, "f").solved, number // 4
    )
    rows = {"t": [(i, i * i) for i in range(100)]}
    data = database.build("CREATE TABLE t (a INTEGER, b INTEGER)", rows)
    found["query, SQLite"] = repeated(lambda n: database.run(data, f"SELECT sum(a) + {n} FROM t").rows != (), number)
    if find_spec("duckdb") is not None:
        duck = _duck()
        found["query, DuckDB"] = repeated(
            lambda n: database.run(duck, f"SELECT sum(a) + {n} FROM t").rows != (), number // 4
        )
    if find_spec("math_verify") is not None:
        from interplay.rewards import algebra

        found["formula"] = repeated(lambda n: algebra.same(f"{n}x^2-{n}", f"{n}(x-1)(x+1)"), number // 4)
    return found


def _duck() -> bytes:
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        with duckdb.connect(f"{folder}/db") as db:
            db.execute("CREATE TABLE t AS SELECT range AS a, range * range AS b FROM range(100)")
        return Path(f"{folder}/db").read_bytes()


# -- what is printed --------------------------------------------------------------------------------------------------


def measure(checkout: Path, number: int, workers: int) -> dict[str, Cost]:
    command = [sys.executable, __file__, "--number", str(number), "--workers", str(workers), "--json"]
    env = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{checkout} cannot be measured: {done.stderr[-2000:]}")
    costs: dict[str, Cost] = json.loads(done.stdout.splitlines()[-1])
    return costs


def compare(old: Path | None, number: int, workers: int) -> None:
    print(f"{number} each, {workers} workers, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    if old is None:
        print("| what | a second | CPU ms of one |\n|---|---|---|")
        for what, (wall, used) in measure(ROOT, number, workers).items():
            print(f"| {what} | {1 / wall:.0f} | {used * 1e3:.1f} |")
        return
    turns = [(measure(old, number, workers), measure(ROOT, number, workers)) for _ in range(3)]
    print("| what | CPU ms of one, old | new | new / old |\n|---|---|---|---|")
    for what in turns[0][1]:
        before, now = (statistics.median(turn[n][what][1] for turn in turns) * 1e3 for n in (0, 1))
        print(f"| {what} | {before:.2f} | {now:.2f} | {now / before:.2f} |")


COUNTED = {"cgroup": "the kernel, with control groups", "looks": "the supervisor's checks"}  # by Worker.accounting


def hostile(levels: Sequence[str], kinds: Sequence[str], options: Sequence[str]) -> None:
    sys.path.insert(0, str(TESTS))
    from hostile import ALL_PROGRAMS, Line, as_myself, as_ordinary, ordinary_reason
    from hostile_answers import ANSWERS

    from interplay.execution.sandbox import offered

    known = list(dict.fromkeys(one.kind for one in (*ALL_PROGRAMS, *ANSWERS)))
    if unknown := [kind for kind in kinds if kind not in known]:
        raise SystemExit(f"there are no hostile programs of the kind '{unknown[0]}'; known kinds: {', '.join(known)}.")
    options = [*options, *(word for kind in kinds for word in ("--kind", kind))]
    columns: dict[str, list[Line]] = {}
    for level in levels:
        if reason := offered(level):  # type: ignore[arg-type]
            print(f"{level} is not offered here: {reason}")
            continue
        columns[f"{level}, {'root' if os.geteuid() == 0 else 'ordinary user'}"] = as_myself(level, *options)
        if not ordinary_reason():
            columns[f"{level}, ordinary user"] = as_ordinary(level, *options)
    table(columns)


def table(columns: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
    """Print what was contained, with a column for each level and user."""
    print(f"{platform.machine()}, Linux {platform.release()}")
    for name, lines in columns.items():
        by = next(x["counted"] for x in lines if "counted" in x)
        print(f"{name}: memory and processes are limited by {COUNTED.get(by, by)}")
    kinds = list(dict.fromkeys(line["kind"] for lines in columns.values() for line in lines))
    print(f"\n| kind | {' | '.join(columns)} | how they ended |\n|{'---|' * (len(columns) + 2)}")
    for kind in kinds:
        found = [[line for line in lines if line["kind"] == kind] for lines in columns.values()]
        cells = [f"{sum(not x['wrong'] for x in lines)} of {len(lines)}" for lines in found]
        ends = sorted({x["outcome"] for lines in found for x in lines})
        print(f"| {kind} | {' | '.join(cells)} | {', '.join(ends)} |")
    totals = [[x for x in lines if x["kind"] != "afterwards"] for lines in columns.values()]
    cells = [f"{sum(not x['wrong'] for x in lines)} of {len(lines)}" for lines in totals]
    print(f"| **all** | {' | '.join(cells)} | |")
    for name, lines in columns.items():
        for x in (x for x in lines if x["wrong"]):
            print(f"not contained: {name}: {x['kind']}, {x['name']}: {x['wrong']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--number", type=int, default=200, help="how many programs, queries and formulas")
    parser.add_argument("--workers", type=int, default=2, help="workers of the sandbox")
    parser.add_argument("--old", type=Path, help="a checkout of another commit, to compare with")
    parser.add_argument("--hostile", action="store_true", help="run the hostile programs instead")
    parser.add_argument(
        "--quick", action="store_true", help="with --hostile: leave out those that end only at a time limit"
    )
    parser.add_argument(
        "--level",
        action="append",
        choices=["namespaces", "landlock"],
        help="with --hostile: only this level; can be repeated",
    )
    parser.add_argument("--kind", action="append", default=[], help="with --hostile: only this kind; can be repeated")
    parser.add_argument("--slow", type=float, default=1.0, help="with --hostile: multiply the time limits by this")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.hostile:
        options = [f"--slow={args.slow}", *(["--quick"] if args.quick else [])]
        hostile(args.level or ["namespaces", "landlock"], args.kind, options)
    elif args.json:
        print(json.dumps(measured(args.number, args.workers)))
    else:
        compare(args.old, args.number, args.workers)


if __name__ == "__main__":
    main()
