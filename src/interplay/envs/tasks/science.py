"""Scientific discovery: an experimenter measures and a hypothesiser finds the law, with a budget of experiments.

Roles         hypothesiser, experimenter; `team = "single"`: the hypothesiser also chooses the experiments.
Turns         in each round the experimenter names a point, and its value is measured. Then the hypothesiser, who sees
              all measurements, proposes a formula. The episode ends when a formula is final, or when the budget is
              used up.
Actions       experimenter: `x = 1.5, y = 2`, every variable between 0.5 and 5. hypothesiser: a line `f = 2*x + y**2`
              (the last one counts), with `final` before it to stop; `team = "single"`: one line of each kind.
Tools         with `tools`, the hypothesiser may call `calculator` inside its turn.
Rewards       `law` (team, at the end): 1 if the last formula is the law, else 0. `explains` (agent, hypothesiser, at
              the end): 1 if it agrees with all measurements, if there are at least three. `illegal` (process): −0.1 for
              a point or a formula that cannot be parsed; the experiment is lost.
Data          laws drawn from a grammar, with `variables` variables and `depth` nested operations; a law is in one split
              only. Or prepared rows of kind law.
Checker       rewards/formula.py: numeric equivalence on 40 held-out points, within `tolerance`.
Version       2
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from interplay.envs import tools
from interplay.envs.env import PENALTY, register
from interplay.envs.speech import heard
from interplay.envs.splits import TRIES, split_of
from interplay.envs.tasks.data import DataEnv, DataOptions, DataRow
from interplay.errors import ConfigError
from interplay.rewards.formula import FUNCTIONS, Formula, FormulaError, agrees
from interplay.rewards.reply import spoken
from interplay.types import Message, Observation, Rewards, Role, Task, seed_of

LOW, HIGH = 0.5, 5.0
HELD_OUT = 40
ENOUGH = 3  # the smallest number of measurements for which `explains` is given
LONGEST = 4000  # the largest number of characters in a reply
NAMES = ("x", "y", "z")
_FORMULA = re.compile(r"^\W*(final\b\W*)?f\s*(?:\([\w\s,]*\))?\s*=\s*(.+?)[\s`.;]*$", re.I | re.M)
_VALUE = re.compile(r"\b([xyz])\s*=\s*([-+]?\d+(?:\.\d+)?)(?![\w*/^(]|\.\d)")


class Options(DataOptions):
    team: Literal["pair", "single"] = Field("pair", description="hypothesiser and experimenter, or one for both")
    budget: int = Field(6, ge=1, le=50, description="number of experiments")
    variables: int = Field(2, ge=1, le=3, description="number of variables of the law")
    depth: int = Field(2, ge=1, le=4, description="how deep the operations of the law are nested")
    noise: float = Field(0.0, ge=0, le=0.2, description="noise of a measurement, relative to its size")
    tolerance: float = Field(0.01, gt=0, le=0.2, description="allowed difference, relative to the size of the law")
    tools: bool = Field(False, description="let the hypothesiser call calculator")


@register("science")
class Science(DataEnv):
    Options = Options
    kind: ClassVar[str] = "law"
    success: ClassVar[str] = "law"
    reward_names: ClassVar[tuple[str, ...]] = ("law", "explains", "illegal")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("hypothesiser",) if task.data["team"] == "single" else ("experimenter", "hypothesiser")
        self.variables: tuple[str, ...] = tuple(self.row["variables"])
        self.law = _law(self.row["law"], self.variables)
        self.measured: tuple[tuple[tuple[float, ...], float | None], ...] = ()
        self.hypothesis: str | None = None  # the last formula that could be parsed
        self.said = ""  # what was wrong with the last reply
        self.used = 0  # number of experiments so far
        self.to_act: Role = self.roles[0]
        self.over = False

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        names = NAMES[: options["variables"]]
        for _ in range(TRIES):
            law = _draw(rng, names, options["depth"])
            if split_of(law) == split and _worth_finding(law, names):
                return {"law": law, "variables": list(names)}
        raise ConfigError(f"no law for the {split} split was found in {TRIES:,} draws; expected a larger env.depth.")

    # -- the contract ---------------------------------------------------------------------------------------------

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        named, role, data = ", ".join(self.variables), self.to_act, self.task.data
        now = [f"An unknown law f({named}), every variable from {LOW:g} to {HIGH:g}. Measured so far:"]
        now += [f"{self._point(at)}: f {_shown(value)}" for at, value in self.measured] or ["nothing"]
        now.append(f"Experiments left: {data['budget'] - self.used}.")
        if self.said:
            now.append(f"The last reply was refused: {self.said}.")
        point, law = (
            ", ".join(f"{v} = …" for v in self.variables),
            "one line that begins with f = and gives the formula",
        )
        if role == "experimenter":
            duty = f"You choose the next experiment: reply with {point} and nothing else."
            if self.hypothesis is not None:
                now.append(f"The present hypothesis: {heard(self.hypothesis)}")
        elif data["team"] == "single":
            duty = f"Find the law. Reply with {law}, and one line {point} for the next experiment; write final before "
            duty += "the formula when you are sure."
        else:
            duty = f"Find the law. Reply with {law}; write final before it when you are sure."
        duty += "" if role == "experimenter" else f" Allowed: + - * / **, {', '.join(FUNCTIONS)}."
        allowed = (tools.calculator(),) if data["tools"] and role == "hypothesiser" else ()
        messages = (Message("system", duty), Message("user", "\n".join(now)))
        return {role: Observation(messages, fresh=True, phase=role, tools=allowed)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        text = spoken(text) if len(text) <= LONGEST else ""
        self.said, final = "", False
        if role == "hypothesiser":
            final = self._hear(text)
        if not final and (role == "experimenter" or len(self.roles) == 1):
            self._measure(text)
        self.to_act = next((r for r in self.roles if r != role), role)
        self.over = final or (role == "hypothesiser" and self.used >= self.task.data["budget"])
        return Rewards.process("illegal", {role: PENALTY}) if self.said else Rewards()

    def outcome(self) -> Rewards:
        explains = {"hypothesiser": float(self._explains())}
        return Rewards.team("law", float(self._right())) + Rewards.agent("explains", explains)

    def state(self) -> str:
        seen = "; ".join(f"{self._point(at)}: f {_shown(value)}" for at, value in self.measured)
        return f"law {self.row['law']}; {self.used} experiments: {seen}; hypothesis: {heard(self.hypothesis or 'none')}"

    def script(self, role: Role) -> str:
        if role == "experimenter":
            return self._next()
        law = f"{'final ' if self.used >= ENOUGH else ''}f = {self.row['law']}"
        return law if len(self.roles) == 2 else f"{self._next()}\n{law}"

    # -- the turn -------------------------------------------------------------------------------------------------

    def _hear(self, text: str) -> bool:
        """Store a formula; return whether it is final."""
        found = _FORMULA.findall(text)
        if not found:
            self.said = "it has no line that begins with f ="
            return False
        marked, formula = found[-1]
        try:
            Formula(formula, self.variables)
        except FormulaError as error:
            self.said = str(error)
            return False
        self.hypothesis = formula
        return bool(marked)

    def _measure(self, text: str) -> None:
        self.used += 1
        given = {name: float(value) for name, value in _VALUE.findall(text) if name in self.variables}
        if set(given) != set(self.variables):
            self.said = self.said or f"it does not say where: {', '.join(self.variables)}"
        elif not all(LOW <= v <= HIGH for v in given.values()):
            self.said = self.said or f"every variable lies between {LOW:g} and {HIGH:g}"
        else:
            at = tuple(given[v] for v in self.variables)
            self.measured += ((at, self._value(at)),)

    def _value(self, at: tuple[float, ...]) -> float | None:
        """The measurement at a point. It is the same every time, even with noise."""
        value = self.law(dict(zip(self.variables, at, strict=True)))
        noise: float = self.task.data["noise"]
        if value is None or not noise:
            return value
        return value * (1 + noise * random.Random(seed_of("noise", self.task.seed, at)).gauss(0, 1))

    def _right(self) -> bool:
        if self.hypothesis is None:
            return False
        points = _held_out(self.task.seed, self.variables)
        return agrees(Formula(self.hypothesis, self.variables), self.law, points, self.task.data["tolerance"])

    def _explains(self) -> bool:
        if self.hypothesis is None or len({at for at, _ in self.measured}) < ENOUGH:
            return False
        within = self.task.data["tolerance"] + 3 * self.task.data["noise"]
        points = [dict(zip(self.variables, at, strict=True)) for at, _ in self.measured]
        return agrees(Formula(self.hypothesis, self.variables), self.law, points, within)

    def _point(self, at: tuple[float, ...]) -> str:
        return ", ".join(f"{name} = {value:g}" for name, value in zip(self.variables, at, strict=True))

    def _next(self) -> str:
        """A point that was not measured yet. 7 has no common factor with the 45 places of a variable."""
        places = [(7 * self.used + 11 * k + 5) % 45 for k in range(len(self.variables))]
        return self._point(tuple(round(LOW + 0.1 * place, 1) for place in places))


def _shown(value: float | None) -> str:
    return "has no value" if value is None else f"= {value:.6g}"


# -- laws -------------------------------------------------------------------------------------------------------------


def _draw(rng: random.Random, names: tuple[str, ...], depth: int) -> str:
    """A law: constants from 2 to 9, variables, powers, roots, sine and cosine, and the four operations over them."""
    if depth == 0:
        return rng.choice(names) if rng.random() < 0.7 else str(rng.randint(2, 9))
    left, right = _draw(rng, names, depth - 1), _draw(rng, names, rng.randrange(depth))
    kind = rng.choice(("sum", "sum", "product", "product", "quotient", "power", "function"))
    if kind == "sum":
        return f"({left} {rng.choice('+-')} {right})"
    if kind == "product":
        return f"{rng.choice((left, str(rng.randint(2, 9))))}*{right}"
    if kind == "quotient":
        return f"{left}/({right} + {rng.randint(1, 5)})"
    if kind == "power":
        return f"({left})**{rng.choice((2, 3))}"
    return f"{rng.choice(('sqrt', 'sin', 'log'))}({left})*{rng.randint(2, 9)}"


@lru_cache(maxsize=4096)
def _law(text: str, variables: tuple[str, ...]) -> Formula:
    try:
        return Formula(text, variables)
    except FormulaError as error:
        raise ConfigError(f"'{text[:80]}' is not a law: {error}; expected a formula.") from None


@lru_cache(maxsize=4096)
def _held_out(seed: int, variables: tuple[str, ...]) -> tuple[Mapping[str, float], ...]:
    rng = random.Random(seed_of("held out", seed))
    return tuple({v: round(rng.uniform(LOW, HIGH), 3) for v in variables} for _ in range(HELD_OUT))


def _worth_finding(law: str, names: tuple[str, ...]) -> bool:
    """Whether every variable matters, there is a value everywhere, and the law is neither constant nor only a variable
    or a sum of variables."""
    formula = _law(law, names)
    points = _held_out(0, names)
    values = [formula(p) for p in points]
    known = [v for v in values if v is not None and abs(v) < 1e5]
    if len(known) < len(values) or max(known) - min(known) < 1 or law.count("(") + law.count("*") < 2:
        return False
    for name in names:
        moved = [formula({**p, name: LOW + HIGH - p[name]}) for p in points]
        if all(m is not None and abs(m - v) < 0.05 * max(1.0, abs(v)) for m, v in zip(moved, known, strict=True)):
            return False
    plain = (*names, *(f"{n}**2" for n in names), " + ".join(names), "*".join(names), "0", "1")
    return not any(agrees(_law(p, names), formula, points, 0.2) for p in plain)
