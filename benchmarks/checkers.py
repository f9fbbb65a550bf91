"""How often the checkers are right: answers known to be right that they accept, and wrong ones that they refuse.

    python benchmarks/checkers.py [--data FOLDER] [--failures] [CHECKER ...]

The answers are those of `benchmarks/adversarial/`, of which "blind" ones were written without looking at the checker's
code; the rest was written against it. With `--data` also those of public data sets: the gold answer of every row must
be accepted, and answers that are known to be wrong refused. Every answer goes through its environment, as a reply. The
exit code is 1 where a wrong answer is accepted, or more than 2% of the right ones are refused.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from interplay import envs

HERE = Path(__file__).parent / "adversarial"
MISSED = 0.02  # share of right answers that may be refused


@dataclass(frozen=True)
class Answer:
    """One reply in one environment. `group` is the line of the table it counts in."""

    group: str
    right: bool
    env: str
    options: Mapping[str, Any]
    row: Mapping[str, Any]
    replies: tuple[str, ...]  # the last is the answer; those before bring the environment there
    reward: str = "correct"

    def accepted(self) -> bool:
        env = envs.make(self.task())
        rewards = []
        for reply in self.replies:
            (role,) = env.observe()
            rewards += env.step({role: reply})
        rewards += envs.outcome_of(env)
        return any(r.name == self.reward and (r.value or 0.0) > 0.5 for r in rewards)

    def task(self) -> Any:
        full = envs.sample_task(self.env, _made(self.env, json.dumps(self.options)))
        return replace(full, data={**full.data, **self.options, "row": dict(self.row)})


@cache
def _made(env: str, options: str) -> dict[str, Any]:
    """The options with which a task can be made at all; its row is then replaced."""
    return {name: value for name, value in json.loads(options).items() if name != "database"}


# -- adversarial answers ----------------------------------------------------------------------------------------------


def adversarial(checker: str) -> Iterator[Answer]:
    stored = json.loads((HERE / f"{checker}.json").read_text(encoding="utf-8"))
    for case in stored["cases"]:
        task = stored.get("tasks", {}).get(case.get("task"), {})
        reply = case["reply"]
        text = reply if isinstance(reply, str) else "".join(p if isinstance(p, str) else p[0] * p[1] for p in reply)
        yield replace(CHECKERS[checker](case, task, text), group=case["written"], right=case["right"])


def _math(case: Mapping[str, Any], task: Mapping[str, Any], reply: str) -> Answer:
    row = {"question": "What is it?", "answer": case["gold"]}
    return Answer("", True, "math", {"team": "single"}, row, (reply,))


def _program(task: Mapping[str, Any]) -> dict[str, Any]:
    row = {"question": task["statement"], "golden": task["golden"], "buggy": task.get("broken", ""), "examples": []}
    if not task["function"]:
        return {**row, "style": "stdio", "entry": "", "tests": task["tests"]}
    name = task["function"]
    tests = [f"assert {name}({', '.join(map(repr, given))}) == {wanted!r}" for given, wanted in task["tests"]]
    return {**row, "style": "calls", "entry": name, "tests": tests}


def _code(case: Mapping[str, Any], task: Mapping[str, Any], reply: str) -> Answer:
    return Answer("", True, "code", {"team": "single"}, _program(task), (reply,), "solved")


def _debugging(case: Mapping[str, Any], task: Mapping[str, Any], reply: str) -> Answer:
    if case["role"] == "breaker":
        return Answer("", True, "debugging", {"team": "pair"}, _program(task), (reply,), "broken")
    return Answer("", True, "debugging", {"team": "single"}, _program(task), (reply,), "solved")


@cache
def _database(setup: str) -> str:
    folder = tempfile.mkdtemp(prefix="interplay-checkers-")
    file = Path(folder) / "made.sqlite"
    with closing(sqlite3.connect(file)) as db:
        db.executescript(setup)
        db.commit()
    return str(file)


def _sql(case: Mapping[str, Any], task: Mapping[str, Any], reply: str) -> Answer:
    row = {"question": task["question"], "sql": task["gold"], "ordered": task.get("ordered", False)}
    options = {"team": "single", "attempts": 1, "database": _database(task["setup"])}
    return Answer("", True, "sql", options, row, (reply,), "match")


def _nli(case: Mapping[str, Any], task: Mapping[str, Any], reply: str) -> Answer:
    row = {"premise": "p", "hypothesis": "h", "label": case["gold"]}
    return Answer("", True, "nli", {}, row, (reply,))


def _search(case: Mapping[str, Any], task: Mapping[str, Any], reply: str) -> Answer:
    row = {"question": "q", "answers": case["gold"], "passages": [], "gold": []}
    return Answer("", True, "search", {"team": "single"}, row, ("done", reply))


def _tables(case: Mapping[str, Any], task: Mapping[str, Any], reply: str) -> Answer:
    table = {"header": ["a"], "rows": [["b"]]}
    row = {"question": "q", "answer": case["gold"], "ordered": case["ordered"], "table": table}
    return Answer("", True, "tables", {"team": "single"}, row, (reply,))


def _science(case: Mapping[str, Any], task: Mapping[str, Any], reply: str) -> Answer:
    row = {"law": case["law"], "variables": case["variables"]}
    return Answer("", True, "science", {"team": "single", "budget": 1}, row, (reply,), "law")


_BENCH = """`timescale 1ns/1ns
module tb();
  reg clock = 0;
{signals}
  integer i, errors = 0, samples = 0;
  RefModule good ({ports}{good});
  TopModule top ({ports}{top});
  always #5 clock = ~clock;
  initial begin
    {inputs} = 0; {start}
    @(negedge clock); @(negedge clock);
    for (i = 0; i < 1024; i = i + 1) begin
      {inputs} = (i < 512) ? i * 167 + 5 : $random; {sparse}
      #1 samples = samples + 1;
      if ({compare}) errors = errors + 1;
      @(negedge clock);
    end
    $display("Mismatches: %0d in %0d samples", errors, samples);
    $finish;
  end
endmodule
"""


def _bench(task: Mapping[str, Any]) -> str:
    def wide(bits: int) -> str:
        return f"[{bits - 1}:0] " if bits > 1 else ""

    inputs, outputs, reset = task["inputs"], task["outputs"], "reset" in task["inputs"]
    signals = [f"  reg {wide(bits)}{name};" for name, bits in inputs.items()]
    signals += [f"  wire {wide(bits)}{name}_{of};" for name, bits in outputs.items() for of in ("good", "top")]
    ports = [f".{task['clock']}(clock)"] if task["clock"] else []
    ports += [f".{name}({name})" for name in inputs]
    of = {which: "".join(f", .{name}({name}_{which})" for name in outputs) for which in ("good", "top")}
    compare = " || ".join(f"{name}_top !== {name}_good" for name in outputs)
    return _BENCH.format(
        signals="\n".join(signals), ports=", ".join(ports), inputs="{" + ", ".join(inputs) + "}", compare=compare,
        start="reset = 1;" if reset else "", sparse="reset = (i % 37 == 0);" if reset else "", **of,
    )  # fmt: skip


def _verilog(case: Mapping[str, Any], task: Mapping[str, Any], reply: str) -> Answer:
    row = {"question": task["spec"], "interface": task["header"], "golden": task["golden"], "bench": _bench(task)}
    row["reference"] = task["golden"].replace("TopModule", "RefModule")
    return Answer("", True, "hardware", {"team": "single"}, row, (reply,), "solved")


CHECKERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any], str], Answer]] = {
    "math": _math,
    "code": _code,
    "debugging": _debugging,
    "sql": _sql,
    "nli": _nli,
    "search": _search,
    "verilog": _verilog,
    "tables": _tables,
    "science": _science,
}


# -- the table --------------------------------------------------------------------------------------------------------


@dataclass
class Count:
    accepted: int = 0
    right: int = 0
    refused: int = 0
    wrong: int = 0

    @property
    def fine(self) -> bool:
        return self.refused == self.wrong and self.right - self.accepted <= MISSED * self.right

    def __str__(self) -> str:
        return f"{self.accepted} of {self.right} | {self.refused} of {self.wrong}"


def measured(answers: list[Answer]) -> tuple[dict[str, Count], list[Answer]]:
    """Counts by group, and the answers that were judged wrongly."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(Answer.accepted, answers))
    counts: dict[str, Count] = {}
    for answer, accepted in zip(answers, said, strict=True):
        count = counts.setdefault(answer.group, Count())
        count.right += answer.right
        count.wrong += not answer.right
        count.accepted += answer.right and accepted
        count.refused += not answer.right and not accepted
    return counts, [a for a, accepted in zip(answers, said, strict=True) if a.right != accepted]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkers", nargs="*", help=f"only these: {', '.join(CHECKERS)}")
    parser.add_argument("--data", type=Path, help="a folder of public data sets")
    parser.add_argument("--failures", action="store_true", help="also print the answers that were judged wrongly")
    given = parser.parse_args()
    fine = True
    print("| checker | answers | right, accepted | wrong, refused |\n|---|---|---|---|")
    for checker in given.checkers or CHECKERS:
        counts, failed = measured(list(adversarial(checker)))
        for group, count in counts.items():
            fine &= count.fine
            print(f"| {checker} | {group} | {count} |", flush=True)
        for answer in failed if given.failures else []:
            kind = "refused, but right" if answer.right else "accepted, but wrong"
            print(f"{kind}: {dict(answer.row)} {answer.replies[-1][:300]!r}")
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
