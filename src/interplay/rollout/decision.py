"""The inputs and the result of one decision under a tree plan.

All functions that draw, score and keep candidates take a `Decision` (`tree.py`, `joint.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from interplay.agents.player import Agent, Stamp, View
from interplay.algorithms import Tree
from interplay.envs import Env
from interplay.rollout.line import Foresight, Ledger
from interplay.types import Rewards, Role, Turn


@dataclass(frozen=True)
class Decision:
    """`views` has what each role that must act sees. `foresight` plays out or values forks. `ledger` counts what the
    episode has used. `earned` holds the rewards before this decision. `opening` marks the first decision at which a
    candidate is selected by its return. The playouts of its candidates show what the policies earn without such
    selection."""

    env: Env
    agents: Mapping[Role, Agent]
    views: Mapping[Role, View]
    stamp: Stamp
    plan: Tree
    ledger: Ledger
    foresight: Foresight
    earned: Rewards
    opening: bool = False


@dataclass
class Choice:
    """The result of a decision: the fork on which play continues, the kept turn of each role, all sampled turns
    (without a score where scoring failed), and the rewards of the kept joint action's step."""

    env: Env
    kept: dict[Role, Turn]
    drawn: list[Turn]
    rewards: Rewards
