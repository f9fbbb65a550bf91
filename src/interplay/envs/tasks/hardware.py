"""Hardware: a designer writes a circuit in Verilog, and a bench writer a test bench that should find its faults.

Roles         designer and bench_writer (`team = "pair"`), or the designer alone (`single`).
Turns         in every round both reply at once, and the design is simulated with the written bench. If the bench says
              PASS, the work is done. Otherwise both see the design, the bench and what it said, and reply again, for
              at most `rounds` rounds. The last reply of each role counts. Alone, the designer replies once.
Observation   the specification with the module's header; from the second round on also what happened.
Actions       designer: the module TopModule. Bench writer: a module tb that instantiates TopModule, tries it and prints
              PASS or FAIL. Both in a fenced block or alone.
Rewards       designer, as published for coders: `build` (process) 0.1 for a design that compiles, `run` (process) 0.1
              if it is right in more samples than outputs that never change, `pass` (agent) 0.8 if no sample differs. A
              design that runs but is no better than such outputs earns nothing, and neither does a design that names
              something outside itself. Bench writer, as published for testers: `valid` (process) 0.2 for a bench that
              says PASS or FAIL about the golden design, `golden` (agent) 0.8 × the share of the `bugs` planted in it
              for which the bench says FAIL, if it says PASS for the golden design. A bench that finds no bug earns
              nothing. `solved` (team, at the end): 1 if no sample differs.
Data          prepared rows of kind hardware (verilog_eval), or small generated circuits.
Checker       rewards/design.py refuses designs that reach outside themselves; execution/verilog.py simulates the others
              with Icarus Verilog (Debian package iverilog) in the sandbox.
Version       1
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from interplay.envs.env import register
from interplay.envs.tasks import circuits
from interplay.envs.tasks.code import BUILD, GOLDEN, PASS, RUN, SHOWN, VALID
from interplay.envs.tasks.data import DataEnv, DataOptions, DataRow
from interplay.envs.tasks.problems import code_in
from interplay.execution import verilog
from interplay.execution.sandbox import Isolation
from interplay.rewards.design import measure, refused
from interplay.rewards.mutants import verilog_bugs
from interplay.types import Message, Observation, Rewards, Role, Task

_DESIGNER = "Write the circuit in Verilog. Reply with the module TopModule alone, in a ```verilog block."
_WRITER = (
    "Write a Verilog test bench: a module tb without ports that instantiates TopModule, tries its inputs, compares its "
    "outputs with what they should be, prints PASS if all were right and FAIL if not, and calls $finish. Reply with "
    "the bench alone, in a ```verilog block."
)


class Options(DataOptions):
    team: Literal["pair", "single"] = Field("pair", description="designer and bench writer, or the designer alone")
    rounds: int = Field(2, ge=1, le=8, description="largest number of rounds")
    bugs: int = Field(4, ge=1, le=16, description="number of bugs planted in the golden design to judge the benches")
    isolation: Isolation = Field("strongest", description="sandbox level; refused if the machine does not offer it")


@register("hardware")
class Hardware(DataEnv):
    Options = Options
    kind: ClassVar[str] = "hardware"
    success: ClassVar[str] = "solved"
    slow: ClassVar[bool] = True
    reward_names: ClassVar[tuple[str, ...]] = ("build", "run", "pass", "valid", "golden", "solved")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("designer", "bench_writer") if task.data["team"] == "pair" else ("designer",)
        self.round = 0
        self.over = self.solved = False
        self.design = self.bench = ""
        self.verdict = ""  # what the written bench says about the design

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        return circuits.draw(rng, split)

    def observe(self) -> dict[Role, Observation]:
        return {} if self.over else {role: self._observed(role) for role in self.roles}

    def _observed(self, role: Role) -> Observation:
        lines = [self.row["question"], "", f"Its header:\n{self.row['interface']}"]
        if self.round:
            lines += ["", f"The design so far:\n{self.design[:SHOWN] or '(none)'}"]
            lines += ["", f"The bench so far, which said {self.verdict}:\n{self.bench[:SHOWN] or '(none)'}"]
            lines.append("Design or bench may be wrong. Reply with yours again, mended where it is needed.")
        rule = _DESIGNER if role == "designer" else _WRITER
        return Observation((Message("system", rule), Message("user", "\n".join(lines))), True, (), role)

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.round += 1
        self.design, self.bench = code_in(actions["designer"]), code_in(actions.get("bench_writer", ""))
        others = self.row["reference"] + self.row["bench"]
        said = None if refused(self.design, others) else verilog.judged(self.bench, self.design, self._walls)
        self.verdict = {True: "PASS", False: "FAIL", None: "neither PASS nor FAIL"}[said]
        self.over = said is True or len(self.roles) == 1 or self.round >= self.task.data["rounds"]
        if not self.over:
            return Rewards()
        rewards = self._designer_rewards()
        return rewards + self._writer_rewards() if "bench_writer" in self.roles else rewards

    @property
    def _walls(self) -> Isolation:
        walls: Isolation = self.task.data["isolation"]
        return walls

    def _measure(self, design: str) -> verilog.Simulation:
        return measure(design, self.row["reference"], self.row["bench"], self._walls)

    def _designer_rewards(self) -> Rewards:
        found = self._measure(self.design)
        self.solved = found.passed
        better = found.passed or (found.mismatches is not None and found.mismatches < self._idle())
        built = found.built and (found.mismatches is None or better)
        return (
            Rewards.process("build", {"designer": BUILD * built})
            + Rewards.process("run", {"designer": RUN * better})
            + Rewards.agent("pass", {"designer": PASS * found.passed})
        )

    def _idle(self) -> int:
        """The mismatches of the better of two designs, one with outputs that are always 0 and one with always 1."""
        header = re.sub(r"\b(output\s+)(?:reg|logic|wire)\b", r"\1", self.row["interface"])
        outputs = re.findall(r"\boutput\s+(?:signed\s+)?(?:\[[^\]]*\]\s*)?(\w+)", header)
        idle = (f"{header}\n{''.join(f'assign {o} = {v};' for o in outputs)}\nendmodule\n" for v in ("0", "~0"))
        counts = [found.mismatches for design in idle if (found := self._measure(design)).mismatches is not None]
        return min((c for c in counts if c is not None), default=0)

    def _writer_rewards(self) -> Rewards:
        said = verilog.judged(self.bench, self.row["golden"], self._walls)
        share = 0.0
        if said:
            row = self.row
            planted = verilog_bugs(row["golden"], row["reference"], row["bench"], self._walls, self.task.data["bugs"])
            caught = [bug for bug in planted if verilog.judged(self.bench, bug, self._walls) is False]
            share = len(caught) / len(planted) if planted else 1.0
        valid = Rewards.process("valid", {"bench_writer": VALID * (share > 0)})
        return valid + Rewards.agent("golden", {"bench_writer": GOLDEN * share})

    def outcome(self) -> Rewards:
        return Rewards.team("solved", float(self.solved))

    def state(self) -> str:
        lines = [self.row["question"], f"round {self.round} of {self.task.data['rounds']}", self.design, self.bench]
        if self.round:
            lines.append(f"the bench said {self.verdict}")
        if self.over:
            lines.append("solved" if self.solved else "not solved")
        return "\n".join(lines)

    def script(self, role: Role) -> str:
        if role == "designer":
            return f"```verilog\n{self.row['golden']}\n```"
        # The data set's own bench, with the reference inside, which prints a word instead of the count.
        counted = r'\$display\("Mismatches: [^"]*",\s*([\w.]+),\s*([\w.]+)\);'
        bench = re.sub(counted, r'if (\1 == 0 && \2 > 0) $display("PASS"); else $display("FAIL");', self.row["bench"])
        return f"```verilog\n{bench}\n{self.row['reference']}\n```"
