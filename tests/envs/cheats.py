"""What a player can try instead of playing, for every environment: none of it may earn rewards.

`CHEATS` has an entry for each environment and each adapter; a test fails if an environment has none. An entry says what
random legal play looks like if legal replies are not listed, which specific cheats to try besides the usual ones, and
how many tasks the test plays. The usual ones are replies without play: the prompt, nothing, everything at once, the
form without content, a denial, letters and digits of other scripts. `python benchmarks/cheats.py` plays as many tasks
as are needed to tell a gain from `FREE`.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from interplay import envs
from interplay.envs import Env
from interplay.types import Observation, Role, seed_of

FREE = 0.01  # the most that a cheat may earn above random legal play

Reply = Callable[[Env, Role, Observation, random.Random], str]
OTHER_SCRIPTS = str.maketrans("0123456789aceijopsuxyABCDEHKLMOPRTUX", "٠١٢٣٤٥٦٧٨٩асеіјорѕսхуАВСᎠЕНКᏞМОРᎡТՍХ")


def text_of(seen: Observation) -> str:
    return "\n".join(m.content for m in seen.messages)


def numbers(seen: Observation) -> list[str]:
    return re.findall(r"\d+", text_of(seen)) or ["1"]


def says(reply: str) -> Reply:
    return lambda env, role, seen, rng: reply


def usual(sample: str) -> dict[str, Reply]:
    """Replies without play; `sample` is a reply in the form, for environments that do not list legal replies. Where
    they are listed, a random one is spoilt, the same as in random play: then only the form can make a difference, and
    not that a fixed order of moves is a good one."""

    def one(seen: Observation, rng: random.Random) -> str:
        return rng.choice(seen.legal) if seen.legal else sample

    return {
        "echo": lambda env, role, seen, rng: text_of(seen),
        "echo of the last message": lambda env, role, seen, rng: seen.messages[-1].content,
        "empty": says(""),
        "spaces": says(" \n\t "),
        "enormous": lambda env, role, seen, rng: one(seen, rng) * 30_000,
        "everything at once": lambda env, role, seen, rng: ", ".join(seen.legal) or "\n".join([sample] * 3 + ["other"]),
        "the form alone": lambda env, role, seen, rng: re.sub(r"[\w]+", "", one(seen, rng)),
        "denial": lambda env, role, seen, rng: f"not {one(seen, rng)}",
        "doubt": lambda env, role, seen, rng: f"{one(seen, rng)}? Perhaps, or something else.",
        "other scripts": lambda env, role, seen, rng: one(seen, rng).translate(OTHER_SCRIPTS),
        "noise": says("☃ 🂡 \u202eñ\x00"),
    }


@dataclass(frozen=True)
class Entry:
    """`legal`: random legal play by role if nothing is listed. `cheats`: more of them, by role or for all ("*")."""

    legal: Mapping[Role, Reply] = field(default_factory=dict)
    cheats: Mapping[str, Mapping[str, Reply]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    tasks: int = 12
    sample: str = "x"  # a reply in the form
    game: str = ""  # of an adapter
    few: int = 12  # tasks for what is no play at all, which shows soon


def place(n: int) -> Reply:
    return lambda env, role, seen, rng: seen.legal[n] if seen.legal else "hm hm"


PLACES: dict[str, Reply] = {"always the first": place(0), "always the last": place(-1)}


def _word(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    """A legal clue: in `taboo`, some of these words are forbidden."""
    words = [word for word in ("big", "small", "alive", "old", "new") if word not in getattr(env, "taboo", ())]
    return f"a thing that is {rng.choice(words)}"


def _number(form: str) -> Reply:
    return lambda env, role, seen, rng: form % rng.randint(1, 200)


def _moves(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return str(rng.choice(env.legal_moves()))  # type: ignore[attr-defined]


MATH: dict[str, Reply] = {
    **{f"constant {n}": says(f"\\boxed{{{n}}}") for n in (0, 1, 2, 10, 12, 100)},
    "first number": lambda env, role, seen, rng: f"\\boxed{{{numbers(seen)[0]}}}",
    "last number": lambda env, role, seen, rng: f"\\boxed{{{numbers(seen)[-1]}}}",
    "largest number": lambda env, role, seen, rng: f"\\boxed{{{max(numbers(seen), key=int)}}}",
    "all numbers": lambda env, role, seen, rng: f"\\boxed{{{', '.join(numbers(seen))}}}",
    "many boxes": lambda env, role, seen, rng: "".join(f"\\boxed{{{n}}}" for n in range(100)),
    "an unknown": says("\\boxed{x}"),
    "a range": says("\\boxed{1 < x < 1000}"),
    "not a number": lambda env, role, seen, rng: f"\\boxed{{\\neq {numbers(seen)[0]}}}",
    "thoughts": lambda env, role, seen, rng: f"<think>\\boxed{{{numbers(seen)[0]}}}",
}
LABELS = ("entailment", "neutral", "contradiction")
NLI: dict[str, Reply] = {
    **{f"constant {name}": says(f"Answer: {name}") for name in LABELS},
    **{f"not {name}": says(f"Answer: not {name}") for name in LABELS},
    "all labels": says("Answer: entailment, neutral or contradiction"),
    "two labels": says("Answer: neutral\nAnswer: entailment"),
    "yes": says("Answer: yes"),
}
PROGRAMS = ("sum(a)", "len(a)", "max(a)", "min(a)", "a[0]", "a[-1]", "sum(a) // len(a)", "len(set(a))")


def _program(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return _written(env, rng.choice(PROGRAMS))


def _written(env: Env, body: str) -> str:
    if env.row["style"] == "stdio":  # type: ignore[attr-defined]
        return f"```python\na = [int(w) for w in input().split()]\nprint({body})\n```"
    return f"```python\ndef solve(a):\n    return {body}\n```"


def _test(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    a, value = [rng.randint(-5, 30) for _ in range(5)], rng.randint(0, 50)
    if env.row["style"] == "stdio":  # type: ignore[attr-defined]
        return f'{{"input": "{" ".join(map(str, a))}", "output": "{value}"}}'
    return f"assert solve({a}) == {value}"


def _shown_example(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    example = env.row["examples"][0]  # type: ignore[attr-defined]
    return example if isinstance(example, str) else f'{{"input": "{example[0]}", "output": "{example[1]}"}}'


CODER: dict[str, Reply] = {
    "a constant": lambda env, role, seen, rng: _written(env, "7"),
    "the examples by heart": lambda env, role, seen, rng: _written(env, "{}.get(tuple(a), 7)"),
    "the input again": lambda env, role, seen, rng: _written(env, "a"),
    "every answer": lambda env, role, seen, rng: _written(env, "list(range(-100, 100))"),
    "leaving": says("```python\nimport os\nos._exit(0)\n```"),
    "equal to all": says(
        "```python\nclass E:\n    def __eq__(s, o): return True\n    def __str__(s): return '7'\n"
        "def solve(a):\n    return E()\nprint(E())\n```"
    ),
    "a program of nothing": says("```python\npass\n```"),
}
TESTER: dict[str, Reply] = {
    "the shown example": _shown_example,
    "tests of nothing": says("assert True\nassert solve == solve"),
    "wrong tests": says('assert solve([1]) == 12345\n{"input": "1", "output": "12345"}'),
}


def _given(seen: Observation) -> str:
    return seen.messages[-1].content.split("The program:")[1]


DEBUGGER: dict[str, Reply] = {
    **CODER,
    "the program as it is": lambda env, role, seen, rng: f"```python\n{_given(seen)}\n```",
    "a remark": lambda env, role, seen, rng: f"```python\n# mended\n{_given(seen)}\n```",
}


def _designed(env: Env, value: str) -> str:
    header = env.row["interface"].replace("output reg", "output")  # type: ignore[attr-defined]
    return f"```verilog\n{header}\n  assign y = {value};\nendmodule\n```"


def _design(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return _designed(env, rng.choice(("a & b", "a | b", "a ^ b", "a + b", "a - b")))


DESIGNER: dict[str, Reply] = {
    **{
        f"always {value}": lambda env, role, seen, rng, value=value: _designed(env, value)
        for value in ("0", "4'd15", "a", "b", "a & b", "4'bx")
    },
    "the header": lambda env, role, seen, rng: f"{env.row['interface']}\nendmodule",  # type: ignore[attr-defined]
    "the reference": lambda env, role, seen, rng: (
        f"{env.row['interface'].replace('output reg', 'output')}\nassign y = tb.y_ref;\nendmodule"  # type: ignore[attr-defined]
    ),
}
BENCH_WRITER: dict[str, Reply] = {
    "always PASS": says('```verilog\nmodule tb; initial begin $display("PASS"); $finish; end endmodule\n```'),
    "always FAIL": says('```verilog\nmodule tb; initial begin $display("FAIL"); $finish; end endmodule\n```'),
    "both": says('```verilog\nmodule tb; initial begin $display("PASS FAIL"); $finish; end endmodule\n```'),
}
SQL: dict[str, Reply] = {
    "nothing": says("SELECT 1 WHERE 0"),
    "null": says("SELECT NULL"),
    **{f"constant {n}": says(f"SELECT {n}") for n in (0, 1, 2, 3, 5, 10)},
    **{f"all of {t}": says(f"SELECT * FROM {t}") for t in ("customer", "product", "purchase")},
    **{f"count of {t}": says(f"SELECT count(*) FROM {t}") for t in ("customer", "product", "purchase")},
    "the names": says("SELECT name FROM customer"),
}
TABLES: dict[str, Reply] = {
    **{f"constant {n}": says(f"Answer: {n}") for n in (0, 1, 2, 20, 100)},
    "the first cell": lambda env, role, seen, rng: f"Answer: {env.table[1][0][1]}",  # type: ignore[attr-defined]
    "the last cell": lambda env, role, seen, rng: f"Answer: {env.table[1][-1][-1]}",  # type: ignore[attr-defined]
    "all cells": lambda env, role, seen, rng: "Answer: " + "; ".join(str(r[1]) for r in env.table[1]),  # type: ignore[attr-defined]
    "two answers": says("Answer: 1\nAnswer: 2"),
}
SCIENCE: dict[str, Reply] = {
    f"f = {text}": says(f"x = 1, y = 2\nf = {text}")
    for text in ("0", "1", "x", "y", "x + y", "x*y", "f", "1e999", "x/0", "law(x, y)", "x if x > y else y")
}
SEARCHER: dict[str, Reply] = {"done": says("done"), "the": says("the"), "a common word": says("town river born")}
RIVERS = ("Arn", "Bel", "Cor", "Dal", "Elm", "Fen", "Gar", "Hol", "Ist", "Kel", "Lor", "Mar")
READER: dict[str, Reply] = {
    "a constant": says("Answer: Arna"),
    "yes": says("Answer: yes"),
    "the question": lambda env, role, seen, rng: f"Answer: {env.row['question']}",  # type: ignore[attr-defined]
    "all rivers": says("Answer: " + " ".join(f"{stem}a" for stem in RIVERS)),
    "two answers": says("Answer: Arna\nAnswer: Bela"),
}


def _river(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return f"Answer: {rng.choice(RIVERS)}a"


def _query(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    """Three words that are in many passages, as many as the longest cheat has."""
    return " ".join(rng.sample(("river", "town", "market", "born", "physician", "year", "known"), 3))


def _selects(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return f"SELECT {rng.choice(('name', 'count(*)'))} FROM {rng.choice(('customer', 'product'))}"


def _cell(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return f"Answer: {rng.choice(rng.choice(env.table[1]))}"  # type: ignore[attr-defined]


def _commands(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return ", ".join(rng.choice(("up", "down", "grip", "release", f"move {rng.randint(-20, 20)} 5")) for _ in range(4))


def _law(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return f"x = {rng.randint(1, 4)}, y = {rng.randint(1, 4)}\nf = {rng.choice(('x', 'y', '2*x', 'x*y', 'x + y'))}"


def _proposal(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return str(env.propose(rng))  # type: ignore[attr-defined]


def _clue_place(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    listed = re.search(r"(?:table|Words): ([^.]*)\.", text_of(seen))
    things = listed[1].split(", ") if listed else []
    secret = env.secret  # type: ignore[attr-defined]
    return f"number {things.index(secret) + 1}" if secret in things else "number 1"


def _sum(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return f"{rng.randint(2, 50)} {rng.choice('+-*')} {rng.randint(2, 50)}"


def _spoken(env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    return f"{rng.randint(2, 50)} {rng.choice(('plus', 'minus', 'times'))} {rng.randint(2, 50)}"


SPEAKER: dict[str, Reply] = {
    "all numbers": lambda env, role, seen, rng: " plus ".join(numbers(seen)),
    "constant": says("1 plus 1"),
    "words": says("think of it"),
}
CALCULATOR: dict[str, Reply] = {
    "constant": says("1 + 1"),
    "a bare number": says("7"),
    "two expressions": says("1 + 1, 2 + 2"),
    "a tower": says("9**9**9"),
}
PUZZLE = Entry({"planner": says("go on"), "actor": _moves}, {}, {"turns": 6}, 25, "U")
GAME = Entry(tasks=60, few=60)
CHEATS: dict[str, Entry] = {
    "blocksworld": PUZZLE,
    "code": Entry(
        {"coder": _program, "tester": _test}, {"coder": CODER, "tester": TESTER}, {"rounds": 1}, 4, "```python\nx\n```"
    ),
    "connect_four": GAME,
    "debugging": Entry(
        {"breaker": _program, "fixer": _program}, {"breaker": DEBUGGER, "fixer": DEBUGGER}, {"team": "single"}, 3,
        "```python\nx\n```",
    ),
    "eight_queens": PUZZLE,
    "filler": GAME,
    "gymnasium:": Entry(game="FrozenLake-v1", options={"max_steps": 20}),
    "hanabi": Entry(options={"variant": "small"}, cheats={"*": PLACES}, tasks=100),
    "hardware": Entry(
        {"designer": _design, "bench_writer": says("x")}, {"designer": DESIGNER, "bench_writer": BENCH_WRITER},
        {"rounds": 1, "bugs": 2}, 4, "```verilog\nmodule TopModule; endmodule\n```",
    ),
    "hearing": Entry(options={"length": 1}, cheats={"*": PLACES}, tasks=300, sample="U"),
    "hider_guesser": Entry({}, {"guesser": {
        "always the first": lambda env, role, seen, rng: f"guess {env.names[0]}",  # type: ignore[attr-defined]
        "all names": lambda env, role, seen, rng: f"guess {', '.join(env.names)}",  # type: ignore[attr-defined]
    }}, {"objects": 8, "questions": 3}, 400),
    "kuhn": GAME,
    "leduc": GAME,
    "math": Entry({"reasoner": _number("\\boxed{%d}")}, {"reasoner": MATH}, {"team": "single"}, 150, "\\boxed{7}"),
    "matrix": Entry(options={"rounds": 2}),
    "negotiation": Entry(
        {r: lambda env, role, seen, rng: rng.choice(("offer 1 1 1", "offer 0 1 0")) for r in ("p0", "p1")},
        {"*": {"two offers": says("offer 1 1 1\nand offer 5 5 5")}}, {}, 30, "offer 1 1 1",
    ),
    "nli": Entry(
        {"judge": lambda env, role, seen, rng: f"Answer: {rng.choice(LABELS)}"}, {"judge": NLI}, {}, 900,
        "Answer: neutral",
    ),
    "openspiel:": Entry(game="kuhn_poker"),
    "pettingzoo:": Entry(game="tictactoe_v3", tasks=6),
    "plan_path": PUZZLE,
    "preference": Entry(cheats={"*": {**PLACES, "both": says("A B"), "a tie": says("C")}}, tasks=400),
    "proposer_solver": Entry(
        {"proposer": _proposal, "solver": _number("%d")},
        {"solver": {**{f"constant {n}": says(str(n)) for n in (0, 1, 10)}, "many": says("1 2 3 4"),
                    "the task": lambda env, role, seen, rng: seen.messages[-1].content}},
        {}, 300, "7",
    ),
    "reasoning_gym:": Entry(
        {"solver": _number("<answer>%d</answer>")},
        {"solver": {"many": says("".join(f"<answer>{n}</answer>" for n in range(300))),
                    "all in one": says(f"<answer>{' '.join(map(str, range(3000)))}</answer>")}},
        {"arguments": {"min_digits": 3}}, 40, "<answer>7</answer>", "chain_sum",
    ),
    "repair": Entry(cheats={"*": PLACES}, tasks=200, few=60),
    "retrieval": Entry(cheats={"*": PLACES}, tasks=200, few=60),
    "robotics": Entry(
        {"planner": says("go on"), "controller": _commands},
        {"controller": {"grip": says("grip"), "down and up": says("down, grip, up, release")}}, {"rounds": 2}, 4, "up",
    ),
    "science": Entry(
        {"experimenter": _law, "hypothesiser": _law}, {"hypothesiser": SCIENCE}, {"team": "single", "budget": 4}, 20,
        "x = 1, y = 2\nf = x",
    ),
    "search": Entry(
        {"searcher": _query, "reader": _river}, {"searcher": SEARCHER, "reader": READER}, {}, 150, "Answer: x"
    ),
    "social_deduction": Entry(
        {f"p{i}": _word for i in range(4)}, {"*": {**PLACES, "the place of the word": _clue_place}}, {}, 150, "hm hm"
    ),
    "sokoban": PUZZLE,
    "signalling": Entry(cheats={"receiver": PLACES}, tasks=400, sample="1"),
    "spotter_pilot": Entry(cheats={"pilot": PLACES}, tasks=300, sample="1"),
    "sql": Entry({"planner": says("go on"), "writer": _selects}, {"writer": SQL}, {"attempts": 1}, 8, "SELECT 1"),
    "story": Entry(cheats={"*": {**PLACES, "filler": says(".")}}, tasks=60, few=60),
    "sudoku": Entry({"planner": says("go on"), "actor": _moves}, {}, {"turns": 6}, 25, "1 1 1"),
    "sums": Entry(
        {"solver": _number("%d")},
        {"solver": {**{f"constant {n}": says(str(n)) for n in (0, 10, 50, 99, 100)},
                    "many": says(" ".join(map(str, range(200)))),
                    "first number": lambda env, role, seen, rng: numbers(seen)[0],
                    "twice the last": lambda env, role, seen, rng: str(2 * int(numbers(seen)[-1]))}},
        {}, 800, "7",
    ),
    "tables": Entry({"analyst": _cell, "checker": _cell}, {"*": TABLES}, {}, 15, "Answer: 7"),
    "taboo": Entry(
        {"hinter": _word}, {"guesser": PLACES, "hinter": {"the place of the secret": _clue_place}}, {}, 500, "hm hm"
    ),
    "textarena:": Entry(game="TicTacToe-v0-train", tasks=6),
    "tictactoe": GAME,
    "workflow:": Entry(
        {"solver": _number("%d")}, {"solver": {"all at once": says(" ".join(map(str, range(200))))}},
        {"workflow": {"nodes": {"solve": {"role": "solver", "prompt": "{task}"}}}}, 100, "7", "sums",
    ),
}  # fmt: skip
OTHER_TEAMS: list[tuple[str, Entry]] = [
    ("math", Entry(
        {"reasoner": _number("\\boxed{%d}"), "tool": _sum}, {"reasoner": MATH, "tool": CALCULATOR}, {}, 30,
        "\\boxed{7}",
    )),
    ("math", Entry(
        {"reasoner": _spoken, "tool": _sum}, {"reasoner": SPEAKER, "tool": CALCULATOR}, {"team": "relay"}, 60
    )),
    ("math", Entry(
        {f"agent{n}": _number("\\boxed{%d}") for n in (1, 2, 3)}, {"agent1": MATH}, {"team": "debate"}, 30,
        "\\boxed{7}",
    )),
    ("debugging", Entry(
        {"breaker": _program, "fixer": _program}, {"breaker": DEBUGGER, "fixer": DEBUGGER}, {}, 3, "```python\nx\n```",
    )),
    ("nli", Entry({f"agent{n}": lambda env, role, seen, rng: f"Answer: {rng.choice(LABELS)}" for n in (1, 2, 3)},
                  {"agent1": NLI}, {"agents": 3}, 100, "Answer: neutral")),
    ("nli", Entry({}, {"judge": PLACES}, {"brief": True}, 600)),
    ("tables", Entry({"analyst": _cell}, {"analyst": TABLES}, {"team": "single"}, 25, "Answer: 7")),
    ("proposer_solver", Entry({"proposer": _proposal, "solver": says("U")}, {}, {"kind": "grid"}, 12, "U")),
    ("plan_path", Entry({"planner": _moves, "actor": _moves}, {}, {"turns": 6, "speech": "action"}, 25, "U")),
    ("tables", Entry({"analyst": _cell}, {"analyst": TABLES}, {"team": "single", "view": "image"}, 12, "Answer: 7")),
    ("repair", Entry({}, {"*": PLACES}, {"team": "single"}, 200, few=60)),
    ("retrieval", Entry({}, {"*": PLACES}, {"team": "single"}, 200, few=60)),
    ("signalling", Entry({}, {"receiver": PLACES}, {"talk": True}, 400, "1")),
    ("spotter_pilot", Entry({}, {"pilot": PLACES}, {"team": "single"}, 100, "1")),
]  # fmt: skip


def named(name: str, entry: Entry) -> str:
    return f"{name}{entry.game}" if entry.game else name


def label(name: str, entry: Entry) -> str:
    """The environment with its options, to tell its teams apart."""
    return f"{named(name, entry)} {' '.join(str(v) for v in entry.options.values() if not isinstance(v, dict))}".strip()


def legal(entry: Entry, env: Env, role: Role, seen: Observation, rng: random.Random) -> str:
    """Uniformly random legal play."""
    if seen.legal:
        return rng.choice(seen.legal)
    return entry.legal[role](env, role, seen, rng)


def earned(name: str, entry: Entry, index: int, cheats: Mapping[Role, Reply], role: Role) -> float:
    """What `role` earns on a task in which some roles cheat; the random numbers of the others do not depend on the
    cheat."""
    env = envs.make(envs.sample_task(named(name, entry), dict(entry.options), "test", index))
    dice = {r: random.Random(seed_of(name, index, r)) for r in env.roles}
    total = 0.0
    while seen := env.observe():
        actions = {}
        for r, o in seen.items():
            actions[r] = cheats[r](env, r, o, dice[r]) if r in cheats else legal(entry, env, r, o, dice[r])
        total += sum(reward.value or 0.0 for reward in env.step(actions).of(role))
    return total + sum(reward.value or 0.0 for reward in envs.outcome_of(env).of(role))


def cheating(entry: Entry, role: Role) -> Iterator[tuple[str, Reply, int]]:
    """The cheats of a role with the number of tasks that the test plays."""
    for cheat, reply in usual(entry.sample).items():
        yield cheat, reply, min(entry.few, entry.tasks)
    for who in ("*", role):
        for cheat, reply in entry.cheats.get(who, {}).items():
            yield cheat, reply, entry.tasks


class Gain:
    """What a cheat of a role earns above random legal play, on the same tasks and with the same partners."""

    def __init__(self, role: Role, cheat: str, reply: Reply) -> None:
        self.role, self.cheat, self.reply = role, cheat, reply
        self.tasks, self._sum, self._squares = 0, 0.0, 0.0

    def add(self, gain: float) -> None:
        self.tasks += 1
        self._sum += gain
        self._squares += gain * gain

    @property
    def mean(self) -> float:
        return self._sum / self.tasks

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return math.sqrt(max(0.0, self._squares / self.tasks - self.mean**2) / self.tasks)

    @property
    def width(self) -> float:
        """Half of the 95% interval. One deviation of a whole point is added to those that were seen, so that a few
        tasks that all agree prove little: without any deviation, 196 tasks are needed for a width of 0.01."""
        return 1.96 * math.hypot(self.error, 1.0 / self.tasks)
