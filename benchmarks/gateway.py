"""Measures what the gateway costs (CPU per call, open sessions, a rollout over HTTP and without it), and trains a team.

    python benchmarks/gateway.py calls sessions rollout           # on a CPU, in about three minutes
    python benchmarks/gateway.py rollout --rounds 1,2,4           # conversations of 2, 4 and 8 calls
    python benchmarks/gateway.py rollout --ways native,bare,bare-kept  # and in processes that are kept
    python benchmarks/gateway.py rollout --base MODEL             # with another model, on the GPU if there is one
    python benchmarks/gateway.py team --python PYTHON             # LangGraph against the same team in this process
    python benchmarks/gateway.py team --task code --base smollm2 --lr 1e-5 --tasks 32 --keep 100 --python PYTHON

Every part stops after --seconds and says what it has measured by then. PYTHON is an interpreter with LangGraph (set A
of examples/frameworks). The programs are in benchmarks/programs/.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "programs"))

from programs import ANIMALS  # noqa: E402

from interplay.config import Recipe, parse  # noqa: E402
from interplay.envs.programs.gateway import HttpRun, gateway  # noqa: E402
from interplay.envs.programs.options import OutsideOptions  # noqa: E402
from interplay.envs.programs.run import Reply  # noqa: E402
from interplay.types import Spoken  # noqa: E402

OPTIONS = {"function": "programs:bare_talk", "reward": "programs:right", "roles": ["planner", "solver"]}


# -- CPU per call -----------------------------------------------------------------------------------------------------


def calls(count: int, seconds: float) -> dict[str, Any]:
    """CPU time of the gateway's thread for one call: reading, parsing and answering the request."""
    run = HttpRun(OutsideOptions.model_validate({**OPTIONS, "roles": ["planner"]}))
    body = json.dumps({"model": "planner", "messages": [{"role": "user", "content": "x" * 2000}] * 4}).encode()
    used: list[float] = []

    def thread_time() -> float:
        done = threading.Event()
        gateway().call(lambda: (used.append(time.thread_time()), done.set()))
        done.wait(10)
        return used[-1]

    connection = http.client.HTTPConnection("127.0.0.1", gateway().port)
    began, until, made = thread_time(), time.monotonic() + seconds, 0
    while made < count and time.monotonic() < until:
        connection.request("POST", f"/s/{run.key}/v1/chat/completions", body)
        run.settle_now()
        run.answer(run.waiting[0], Reply(Spoken("fine"), False, 100, 2))
        connection.getresponse().read()
        made += 1
    spent = thread_time() - began
    run.close()
    return {"calls": made, "cpu_ms_per_call": 1000 * spent / max(1, made)}


# -- sessions at once -------------------------------------------------------------------------------------------------


def sessions(count: int) -> dict[str, Any]:
    """Sessions that are open with a call that waits, and the time from the first answer to the last."""
    runs = [HttpRun(OutsideOptions.model_validate({**OPTIONS, "roles": ["planner"]})) for _ in range(count)]
    body = json.dumps({"model": "planner", "messages": [{"role": "user", "content": "hi"}]}).encode()
    lines = []
    for run in runs:
        connection = http.client.HTTPConnection("127.0.0.1", gateway().port)
        connection.request("POST", f"/s/{run.key}/v1/chat/completions", body)
        lines.append(connection)
    for run in runs:
        run.settle_now()
    began = time.monotonic()
    for run in runs:
        run.answer(run.waiting[0], Reply(Spoken("fine")))
    good = sum(connection.getresponse().status == 200 for connection in lines)
    took = time.monotonic() - began
    for run, connection in zip(runs, lines, strict=True):
        connection.close()
        run.close()
    return {"sessions": count, "answered": good, "seconds": took}


# -- a rollout --------------------------------------------------------------------------------------------------------


def _recipe(base: str, env: dict[str, Any], steps: int, tasks: int, **rest: Any) -> Recipe:
    changes = rest.pop("changes", ())
    data = {
        "name": "gateway", "env": env, "policies": {"team": {"base": base}},
        "seats": {"planner": "team", "solver": "team"}, "algorithm": {"name": "grpo", "group": 8},
        "sampling": {"max_tokens": 32}, "rollout": {"tasks": tasks},
        "eval": {"before": False, "after": False, "opponents": ["team"], "success": "score"},
        "train": {"steps": steps, "lr": rest.pop("lr", 1e-5)}, **rest,
    }  # fmt: skip
    return parse(data, changes)


# The same conversation: in this process, with a bare HTTP client, and with the openai package. In the ways with "kept"
# a process runs many episodes (env.program.keep); in "one-client-kept" all episodes of a process use the same client.
WAYS = {
    "native": {"coroutine": "programs:talk"},
    "bare": {"function": "programs:bare_talk"},
    "bare-kept": {"function": "programs:bare_talk"},
    "client": {"function": "programs_openai:client_talk"},
    "client-kept": {"function": "programs_openai:client_talk"},
    "one-client-kept": {"function": "programs_openai:one_client_talk"},
}
KEEP = 1000  # episodes of a process that is kept
WORKERS = max(1, min(8, (os.cpu_count() or 1) // 2))
WALLS = os.environ.get("WALLS", "sandbox")  # "none" where the machine offers no sandbox


def _program(way: Mapping[str, Any], **how: Any) -> dict[str, Any]:
    made = {"name": "program", "roles": ["planner", "solver"], "rewards": ["score", "told", "heard"]}
    run = {
        "readable": [str(ROOT / "benchmarks" / "programs")],
        "seconds": 300.0,
        "workers": WORKERS,
        "walls": WALLS,
        **how,
    }
    return {**made, "reward": "programs:right", **way, "program": run}


def cpu_times() -> tuple[float, float]:
    """CPU seconds of this process, and of the processes of programs: the workers and what they have forked."""
    ticks, programs, ahead = os.sysconf("SC_CLK_TCK"), 0.0, [str(os.getpid())]
    while ahead:
        for listed in Path(f"/proc/{ahead.pop()}/task").glob("*/children"):
            with suppress(OSError):  # processes end while they are counted
                for pid in listed.read_text().split():
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    programs += sum(map(int, fields[11:15])) / ticks  # with those of its children that have ended
                    ahead.append(pid)
    return time.process_time(), programs


def rollout(base: str, ways: Sequence[str], episodes: int, rounds: int, repeats: int, seconds: float) -> dict[str, Any]:
    """Wall time of the same episodes by every way, and its ratio to the native one. In each repeat all ways play the
    same tasks, one way after another, so the ratio is the median of the repeats' ratios."""
    from interplay.algorithms import Independent
    from interplay.rollout.resolve import resolve
    from interplay.rollout.runner import Runner
    from interplay.rollout.team import Team, speech_of

    took: dict[str, list[float]] = {way: [] for way in ways}
    used: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    os.environ["ROUNDS"] = str(rounds)
    environment, keep = {"ROUNDS": str(rounds)}, {way: KEEP if way.endswith("kept") else 1 for way in ways}
    programs = {way: _program(WAYS[way], environment=environment, keep=keep[way]) for way in ways}
    plans = {way: resolve(_recipe(base, programs[way], 1, 1)) for way in ways}
    team = Team(next(iter(plans.values())).recipe)
    until = time.monotonic() + seconds
    for repeat in range(repeats + 1):  # the first starts the workers and is not counted
        for way, plan in plans.items():
            if time.monotonic() > until and all(took.values()):
                break
            tasks = [plan.task(repeat * episodes + n) for n in range(episodes)]
            runner = Runner(0, plan.recipe.rollout, Independent(1), plan.recipe.reward)

            async def play(runner: Runner = runner, plan: Any = plan, tasks: Any = tasks) -> list[Any]:
                return await runner.run(tasks, team.seating(lambda _: plan.seats, speech_of(plan.recipe)))

            for engine in team.engines:
                engine.flush()
            began, (ours, theirs) = time.monotonic(), cpu_times()
            played = asyncio.run(play())
            failed = [e.error for e in played if e.error]
            if failed:
                raise SystemExit(f"{way}: {len(failed)} episodes failed; the first: {failed[0]}")
            if repeat:
                took[way].append(time.monotonic() - began)
                now = cpu_times()
                used[way].append((now[0] - ours, now[1] - theirs))
    team.close()
    repeats = min(map(len, took.values()))
    medians = {way: statistics.median(found) for way, found in took.items()}
    each = {
        way: {
            whose: 1000 * statistics.median(pair[i] for pair in found) / episodes
            for i, whose in enumerate(("trainer", "programs"))
        }
        for way, found in used.items()
    }
    out = {"episodes": episodes, "calls": 2 * rounds, "repeats": repeats, "seconds": medians, "cpu ms an episode": each}
    for way in took.keys() - {"native"}:
        ratios = sorted(a / b for a, b in zip(took[way], took["native"], strict=False))
        out |= {f"{way}/native": statistics.median(ratios), f"{way}/native least and most": [ratios[0], ratios[-1]]}
    return out


# -- a trained team ---------------------------------------------------------------------------------------------------


DIGITS = [str(n) for n in range(1, 9)]
TASKS: dict[str, dict[str, Any]] = {
    "number": {"reward": "programs:right", "route": {r: {"only": DIGITS[:4]} for r in ("planner", "solver")}},
    "code": {"reward": "programs:decoded", "route": {"planner": {"only": DIGITS}, "solver": {"only": list(ANIMALS)}}},
}


def team(task: str, python: str, size: Mapping[str, Any], seconds: float, keep: int = 1) -> dict[str, Any]:
    """The share of right answers before and after training as a LangGraph program, and after as many steps of the same
    team in this process."""
    out: dict[str, Any] = {"task": task}
    langgraph = {**TASKS[task], "function": f"programs_langgraph:{task}"}
    out["langgraph"] = found = _trained(_program(langgraph, python=python, keep=keep), size, seconds)
    native = {**TASKS[task], "coroutine": f"programs:{task}"}
    out["native"] = other = _trained(_program(native), {**size, "steps": found["steps"]}, seconds)
    return {**out, "gain": found["end"] - found["start"], "difference": found["end"] - other["end"]}


def _trained(env: dict[str, Any], size: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    from interplay.rollout.resolve import resolve
    from interplay.training.trainer import Observer, Trainer

    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(resolve(_recipe(env=env, **size)), Path(folder))
        until = time.monotonic() + seconds

        def stepped(step: int, metrics: Any) -> None:
            found.append(dict(metrics))
            if time.monotonic() > until:
                trainer.interrupt.asked = True

        trainer.observer = Observer(stepped=stepped)
        began = time.monotonic()
        try:
            trainer.train()
        finally:
            trainer.close()
    few = max(1, len(found) // 10)
    right = [m["reward/score/team"] for m in found]
    return {
        "steps": len(found), "start": right[0], "end": statistics.fmean(right[-few:]),
        "tokens": sum(m["tokens_sampled"] for m in found), "seconds": time.monotonic() - began,
        "failed": sum(m["episodes_failed"] for m in found), "curve": [round(r, 3) for r in right[:: max(1, few)]],
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="+", choices=["calls", "sessions", "rollout", "team"], help="what to measure, as described above"
    )
    parser.add_argument("--base", default="tiny", help="the model of the policy")
    parser.add_argument("--python", default="", help="an interpreter with LangGraph, for team; default: this one")
    parser.add_argument("--task", choices=["number", "code"], default="number", help="team: the task")
    parser.add_argument("--rounds", default="4", help="rollout: rounds of a conversation, two calls each; or 1,2,4")
    parser.add_argument("--episodes", type=int, default=256, help="rollout: number of episodes")
    parser.add_argument("--repeats", type=int, default=5, help="rollout: how often each way is measured")
    parser.add_argument("--count", type=int, default=2000, help="calls: how many are made")
    parser.add_argument("--sessions", type=int, default=1024, help="sessions: how many are open at once")
    parser.add_argument("--ways", default="native,bare,client", help="rollout: the ways that are compared")
    parser.add_argument("--switch", type=float, help="seconds after which Python lets another thread run")
    parser.add_argument("--steps", type=int, default=100, help="team: training steps")
    parser.add_argument("--tasks", type=int, default=16, help="team: tasks of a training step")
    parser.add_argument("--lr", type=float, default=1e-3, help="team: learning rate")
    parser.add_argument("--keep", type=int, default=1, help="team: episodes of a LangGraph process; more cost less")
    parser.add_argument("--changes", nargs="*", default=[], help="team: changes to its recipe: a.b=c")
    parser.add_argument(
        "--seconds",
        type=float,
        default=240.0,
        help="how many seconds each part may take (team: each of its two trainings)",
    )
    given = parser.parse_args(argv)
    if given.switch:
        sys.setswitchinterval(given.switch)
    found = []
    for part in given.parts:
        if part == "calls":
            result = calls(given.count, given.seconds)
        elif part == "sessions":
            result = sessions(given.sessions)
        elif part == "rollout":
            result = {}
            for rounds in map(int, given.rounds.split(",")):
                ways, size = given.ways.split(","), (given.episodes, rounds, given.repeats)
                result[f"{2 * rounds} calls"] = rollout(given.base, ways, *size, given.seconds)
        else:
            size = {"base": given.base, "steps": given.steps, "tasks": given.tasks, "lr": given.lr}
            size["changes"] = given.changes
            result = team(given.task, given.python, size, given.seconds, given.keep)
        found.append({"part": part, "base": given.base, **result})
        print(json.dumps(found[-1]), flush=True)
    return found


if __name__ == "__main__":
    main()
