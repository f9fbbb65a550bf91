"""Everything that one decision under a tree plan is made from.

`Decision` is handed to all functions that draw, score and keep candidates (`tree.py`, `joint.py`).
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
    """`views` are what the roles that must act are about to answer. `foresight` says what a fork leads to; `ledger`
    counts what the episode has used. `earned` is what the line earned before this decision, and `opening` says that it
    is the first one that is chosen by worth: what follows its candidates is what the policies themselves earn."""

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
    """How a decision came out: the fork that is played on, one kept turn for each role, all turns that were drawn
    (some of them never scored, if that failed), and what the kept joint action earned at once."""

    env: Env
    kept: dict[Role, Turn]
    drawn: list[Turn]
    rewards: Rewards
