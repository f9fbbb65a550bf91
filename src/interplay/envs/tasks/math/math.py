"""Math: a reasoner and a tool role, one agent alone, or a debate; answers are checked by what they mean.

Teams         `pair`: in every round the reasoner answers, then the tool role, who has read that, writes an expression
              and sees to it that it is computed; it ends when the two agree, or after `rounds`. `relay`: the reasoner
              says in a few words what to compute, without signs; the tool role, who is shown nothing else, writes
              the expression, and its value is the answer. `single`: the reasoner alone. `debate`: `agents` answer
              at once over `rounds`, each seeing the others' last replies, and a majority vote decides (MAPoRL).
Roles         reasoner and tool; reasoner; or agent1, agent2, …
Observation   the question and what was said before, the whole prompt each time; with `examples`, solved ones first.
Actions       free text. Reasoner and agents put their answer into \\boxed{} or, with `form = "hashes"`, after ####;
              either is read, and "the answer is" too; several that differ are no answer. Tool: an expression of
              numbers, + - * / // % ** and brackets, with something to compute in it; with `tool = "python"` a program
              that prints the answer last, run in the sandbox. In a relay the reasoner may use words, digits and
              commas, at most `words` characters of them, and a reply that cannot be passed on ends the episode.
Tools         with `tools`, reasoner and agents may call a calculator or Python inside a turn.
Rewards       reasoner and agents: `format` (process) 0.2 for one answer in the form, `match` (agent) 0.8 for a right
              one; in a relay `match` is for the value computed, `format` for words with two numbers. Tool: `build`
              (process) 0.1 for an expression or program, `run` (process) 0.1 where it comes to something, `match`
              (agent) 0.8 for the right value. In a pair a reply earns what it changes, so that all rounds add up
              to the last reply's worth: prolonging pays nothing. `correct` (team, at the end): 1 for a right final
              answer, the pair's being its reasoner's.
Data          prepared rows of kind math (gsm8k, math, math500, aime, amc, olympiadbench, or your own questions), or
              word problems of `min_steps` to `max_steps` operations with numbers up to `largest`, made on the spot.
Checker       rewards/verify.py: numbers exactly, formulas by math-verify within limits; what the tool role wrote
              is computed by rewards/calculator.py or run by execution/sandbox.py.
Version       2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interplay.envs.env import Env, register
from interplay.envs.tasks.math.debate import MathDebate
from interplay.envs.tasks.math.pair import MathPair
from interplay.envs.tasks.math.question import MathQuestion
from interplay.envs.tasks.math.relay import MathRelay
from interplay.envs.tasks.math.single import MathSingle

TEAMS: Mapping[str, type[MathQuestion]] = {
    "pair": MathPair,
    "relay": MathRelay,
    "single": MathSingle,
    "debate": MathDebate,
}


@register("math")
class Math(MathQuestion):
    """What `env.name = "math"` names; the class of the team plays."""

    @classmethod
    def played_by(cls, options: Mapping[str, Any]) -> type[Env]:
        return TEAMS[options["team"]]
