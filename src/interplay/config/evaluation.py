"""[eval]: what is measured before, during and after training."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from interplay.config.section import Section

TEAM = "team"  # in eval.opponents: no opponent, the recipe's own seats play together


class SingleSection(Section):
    """The one agent that a team is measured against at the same budget."""

    options: dict[str, Any] = Field(
        description="options over those of [env] that leave one role, such as team = single"
    )
    policy: str | None = Field(None, description="who plays it; default whoever [seats] has in that role")


class EvalSection(Section):
    """Measured before and after training, and in short form while it runs; without masking unless `legal` asks for it.

    Every policy plays the roles that [seats] gives it. An opponent is a bot or a policy in all other seats; "team"
    seats the recipe's own policies together, and `success` names the reward that says whether they made it. What
    stands under `samples` is for `interplay eval` alone."""

    opponents: list[str] = Field(["bot:random"], description="bots, policies or team; the first in short evaluations")
    success: str | None = Field(None, description='with "team" among opponents: the reward that says so')
    goal: float = Field(1.0, description="what that reward must add up to in an episode")
    games: int = Field(500, ge=1, description="tasks per seat before and after training")
    chunk: int = Field(512, ge=1, description="tasks that are played, and kept on disk, together")
    every: int = Field(0, ge=0, description="steps between short evaluations; 0 turns them off")
    beside: bool = Field(
        False,
        description="with stream.max_staleness above 0: short evaluations measure frozen copies while training goes on "
        "instead of pausing it",
    )
    short_games: int = Field(32, ge=1, description="games per seat of a short evaluation")
    exploitability: bool = Field(False, description="also what best responses would win: small games for two")
    temperature: float = Field(1.0, ge=0, description="0 plays the most likely reply")
    legal: bool = Field(False, description="policies can give only replies that are listed as legal: tables say so")
    best_of: int = Field(1, ge=1, description="interplay eval: policies say the best of so many replies")
    best_by: str | None = Field(None, description="the judge that says which is best: a reward model or verifier")
    before: bool = Field(True, description="measure before training")
    after: bool = Field(True, description="measure after training")
    samples: int = Field(1, ge=1, description="games of each task; pass@k for k up to this")
    seeds: list[int] = Field([], description="each with its own tasks and sampling; none: the recipe's seed")
    ablations: list[Literal["budget", "swap", "without"]] = Field(
        [], description="one agent at the team's budget; policies in each other's roles; each agent replaced in turn"
    )
    substitute: str = Field(
        "base", description="who replaces an agent: base (its weights before training), start, bot:NAME or a policy"
    )
    single: SingleSection | None = None
