"""Measures how often the checkers accept answers that are known to be right and refuse answers that are wrong.

    python benchmarks/checkers.py [--data FOLDER] [--rows 300] [--failures] [CHECKER ...]

The answers are in `benchmarks/adversarial/`. The "blind" ones were written without looking at the checker's code, the
"seen" ones by somebody who had read it and tried to deceive it. `--data` adds answers from public data sets, one folder
for each data set. There the gold answer of a row is right; wrong answers are the answer to another row, the other
labels, the published bug or an empty design. Every answer is given to its environment as a reply. The exit code is 1 if
a wrong answer is accepted, or if more than 2% of the right ones are refused.
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
from interplay.envs.tasks.data import Prepared
from interplay.envs.tasks.prepare import prepare
from interplay.rewards.label import LABELS

HERE = Path(__file__).parent / "adversarial"
MISSED = 0.02  # the share of right answers that may be refused


@dataclass(frozen=True)
class Answer:
    """One reply in one environment. `group` names the line of the table in which it is counted."""

    group: str
    right: bool
    env: str
    options: Mapping[str, Any]
    row: Mapping[str, Any]
    replies: tuple[str, ...]  # the last one is the answer; the others come before it
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
    """Options with which the environment can make some task; its row is replaced afterwards."""
    return {name: value for name, value in json.loads(options).items() if name not in ("database", "data")}


def _scratch() -> Path:
    return Path(_folder().name)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed when the program ends."""
    return tempfile.TemporaryDirectory(prefix="interplay-checkers-")


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
    file = _scratch() / f"{len(list(_scratch().iterdir()))}.sqlite"
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


# -- public data ------------------------------------------------------------------------------------------------------


def public(checker: str, data: Path, most: int) -> Iterator[Answer]:
    """Right and wrong answers to `most` rows of each data set of a checker, spread evenly over it."""
    for name, folder in PUBLIC.get(checker, {}).items():
        if not (data / folder).exists():
            print(f"({name} is left out: there is no folder {folder} in {data})")
            continue
        made = _scratch() / checker / name
        counts = prepare(name, data / folder, made, drop_overlap=True, holdout=0, check=False).counts
        found = Prepared.open(made)
        rows = [row for split in counts for row in found.rows(split)]
        rows = rows[:: max(1, len(rows) // most)][:most]
        for n, row in enumerate(rows):
            for right, answer in READERS[checker](row, rows[n + 1 :] + rows[:n], str(made)):
                yield replace(answer, group=name, right=right)
    if checker == "math" and (file := data / "gsm8k_solutions" / "example_model_solutions.jsonl").exists():
        yield from _solutions(file, most)


Judged = Iterator[tuple[bool, Answer]]
Rows = list[dict[str, Any]]


def _solutions(file: Path, most: int) -> Iterator[Answer]:
    """Replies of four language models, which the data set's authors have judged."""
    lines = file.read_text(encoding="utf-8").splitlines()
    for line in lines[:: max(1, len(lines) // most)][:most]:
        row = json.loads(line)
        gold = {"question": row["question"], "answer": row["ground_truth"].rsplit("A: ", 1)[1]}
        for said in row.values():
            if isinstance(said, dict) and "\nA: " in said["solution"]:
                reply = said["solution"].replace("\nA: ", "\n#### ")
                yield Answer("gsm8k_solutions", said["is_correct"], "math", {"team": "single"}, gold, (reply,))


def _public_math(row: dict[str, Any], others: Rows, folder: str) -> Judged:
    options = {"team": "single"}
    yield True, Answer("", True, "math", options, row, (f"So it is $\\boxed{{{row['answer']}}}$.",))
    numbers = [r["answer"] for r in others if r["answer"].isdecimal() and row["answer"].isdecimal()]
    if other := next((answer for answer in numbers if int(answer) != int(row["answer"])), None):
        yield False, Answer("", True, "math", options, row, (f"So it is $\\boxed{{{other}}}$.",))


def _public_code(row: dict[str, Any], others: Rows, folder: str) -> Judged:
    other = f"{others[0]['golden']}\n{row['entry']} = {others[0]['entry']}"  # another function, given this name
    for right, program in ((True, row["golden"]), (False, other)):
        yield right, Answer("", True, "code", {"team": "single"}, row, (f"```python\n{program}\n```",), "solved")


def _public_debugging(row: dict[str, Any], others: Rows, folder: str) -> Judged:
    for right, program in ((True, row["golden"]), (False, row["buggy"])):
        yield right, Answer("", True, "debugging", {"team": "single"}, row, (f"```python\n{program}\n```",), "solved")


def _public_sql(row: dict[str, Any], others: Rows, folder: str) -> Judged:
    options = {"team": "single", "attempts": 1, "data": folder}
    yield True, Answer("", True, "sql", options, row, (row["sql"][0],), "match")
    if other := next((r for r in others if r["db"] == row["db"] and not {*r["sql"]} & {*row["sql"]}), None):
        yield False, Answer("", True, "sql", options, row, (other["sql"][0],), "match")


def _public_nli(row: dict[str, Any], others: Rows, folder: str) -> Judged:
    for label in LABELS:
        yield label == row["label"], Answer("", True, "nli", {}, row, (f"Answer: {label}",))


def _public_search(row: dict[str, Any], others: Rows, folder: str) -> Judged:
    bare = {**row, "passages": [], "gold": []}
    given = {answer.lower() for answer in row["answers"]}
    other = next(answer for r in others for answer in r["answers"] if answer.lower() not in given)
    for right, answer in ((True, row["answers"][0]), (False, other)):
        yield right, Answer("", True, "search", {"team": "single"}, bare, ("done", f"Answer: {answer}"))


def _public_verilog(row: dict[str, Any], others: Rows, folder: str) -> Judged:
    for right, design in ((True, row["golden"]), (False, f"{row['interface']}\nendmodule")):
        yield right, Answer("", True, "hardware", {"team": "single"}, row, (f"```verilog\n{design}\n```",), "solved")


READERS: dict[str, Callable[[dict[str, Any], Rows, str], Judged]] = {
    "math": _public_math,
    "code": _public_code,
    "debugging": _public_debugging,
    "sql": _public_sql,
    "nli": _public_nli,
    "search": _public_search,
    "verilog": _public_verilog,
}
PUBLIC: dict[str, dict[str, str]] = {  # the folder of each data set
    "math": {"gsm8k": "gsm8k", "math": "math_train", "olympiadbench": "olympiadbench"},
    "code": {"mbpp": "mbpp", "humaneval": "humaneval"},
    "debugging": {"humanevalfix": "humanevalfix"},
    "sql": {"defog": "sql_defog"},
    "nli": {"snli": "snli", "anli": "anli_NC"},
    "search": {"hotpotqa": "hotpotqa"},
    "verilog": {"verilog_eval": "verilog_eval"},
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
    parser.add_argument("--rows", type=int, default=300, help="rows of each public data set (default 300)")
    parser.add_argument("--failures", action="store_true", help="also print the answers that were judged wrongly")
    given = parser.parse_args()
    fine = True
    print("| checker | answers | right, accepted | wrong, refused |\n|---|---|---|---|")
    for checker in given.checkers or CHECKERS:
        answers = list(adversarial(checker)) + (list(public(checker, given.data, given.rows)) if given.data else [])
        counts, failed = measured(answers)
        for group, count in counts.items():
            fine &= count.fine
            print(f"| {checker} | {group} | {count} |", flush=True)
        for answer in failed if given.failures else []:
            kind = "refused, but right" if answer.right else "accepted, but wrong"
            print(f"{kind} ({answer.group}): {str(dict(answer.row))[:300]} {answer.replies[-1][:300]!r}")
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
