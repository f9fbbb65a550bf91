"""Math: a reasoner and a tool role, one agent alone, or a debate. Answers are checked by their meaning.

Teams         `pair`: in every round the reasoner answers; then the tool role, who has read the answer, writes an
              expression, which is computed. The episode ends when the two agree, or after `rounds`. `relay`: the
              reasoner says in a few words, without operators, what to compute. The tool role, who sees nothing else,
              writes the expression, and its value is the answer. `single`: the reasoner alone. `debate`: `agents`
              answer at once over `rounds`, each seeing the others' last replies, and a majority vote decides (MAPoRL).
Roles         reasoner and tool; reasoner; or agent1, agent2, …
Observation   the question and what was said before, the whole prompt each time; with `examples`, solved ones first.
Actions       free text. Reasoner and agents put their answer into \\boxed{} or, with `form = "hashes"`, after ####.
              Both forms are accepted, and "the answer is" too; several different answers are not an answer. Tool: an
              expression of numbers, + - * / // % ** and brackets, with something to compute in it. With
              `tool = "python"`: a program that prints the answer last, which runs in the sandbox. In a relay the
              reasoner may use words, digits and commas, at most `words` characters. A reply that cannot be passed on
              ends the episode.
Tools         with `tools`, reasoner and agents may call a calculator or Python inside a turn.
Rewards       reasoner and agents: `format` (process) 0.2 for one answer in the form, `match` (agent) 0.8 for a right
              answer. In a relay `match` is for the computed value, and `format` for words with two numbers. Tool:
              `build` (process) 0.1 for an expression or program, `run` (process) 0.1 if it gives a result, `match`
              (agent) 0.8 for the right value. In a pair a reply earns the change in these, so that all rounds add up
              to what the last reply is worth, and more rounds earn nothing. `correct` (team, at the end): 1 for a right
              final answer; that of a pair is the reasoner's.
Data          prepared rows of kind math (gsm8k, math, math500, aime, amc, olympiadbench, or your own questions), or
              generated word problems of `min_steps` to `max_steps` operations with numbers up to `largest`.
Checker       rewards/verify.py: numbers exactly, formulas by math-verify within limits. What the tool role wrote is
              computed by rewards/calculator.py or run by execution/sandbox.py.
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
    """The class behind `env.name = "math"`. The class of the team plays."""

    @classmethod
    def played_by(cls, options: Mapping[str, Any]) -> type[Env]:
        return TEAMS[options["team"]]
