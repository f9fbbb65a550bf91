"""[eval]: what is measured before, during and after training."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from interplay.config.section import Section

TEAM = "team"  # in eval.opponents: no opponent, the recipe's own seats play together


class SingleSection(Section):
    """The one agent that a team is measured against at the same budget."""

    options: dict[str, Any] = Field(description="options of the environment that leave one role, such as team = single")
    policy: str | None = Field(None, description="who plays the only role; default: its player in [seats]")


class EvalSection(Section):
    """Evaluation before and after training, and short evaluations during it. Nothing is masked unless `legal` is set.

    Every policy plays the roles that [seats] gives it. An opponent is a bot or a policy in all other seats. With
    "team", the policies of [seats] play together, and `success` names the reward that decides whether they succeed.
    The options from `samples` on are only for `interplay eval`."""

    opponents: list[str] = Field(
        ["bot:random"],
        description="bots, policies, or team, which lets the policies of [seats] play together; short evaluations use "
        "the first one",
    )
    success: str | None = Field(
        None, description='with "team" among the opponents: the reward that decides whether an episode succeeds'
    )
    goal: float = Field(
        1.0, description="an episode succeeds if the reward that eval.success names adds up to at least this"
    )
    games: int = Field(500, ge=1, description="tasks per seat before and after training")
    chunk: int = Field(512, ge=1, description="how many tasks are played and written to disk together")
    every: int = Field(0, ge=0, description="steps between short evaluations; 0 turns them off")
    beside: bool = Field(
        False,
        description="with stream.max_staleness above 0: short evaluations measure frozen copies while training goes "
        "on instead of pausing it",
    )
    short_games: int = Field(32, ge=1, description="games per seat of a short evaluation")
    exploitability: bool = Field(
        False, description="also compute what best responses would win, in small games for two players"
    )
    temperature: float = Field(
        1.0, ge=0, description="sampling temperature in evaluation; 0 plays the most likely reply"
    )
    legal: bool = Field(
        False,
        description="let policies give only legal replies, if the environment lists them; tables say that it was done",
    )
    best_of: int = Field(1, ge=1, description="interplay eval: policies sample this many replies and give the best one")
    best_by: str | None = Field(
        None,
        description="with eval.best_of: the judge whose score chooses the best reply; its kind must be reward_model, "
        "verifier or function",
    )
    before: bool = Field(True, description="evaluate before training")
    after: bool = Field(True, description="evaluate after training")
    samples: int = Field(1, ge=1, description="interplay eval: games of each task, for pass@k up to this k")
    seeds: list[int] = Field(
        [],
        description="interplay eval: seeds, each with its own tasks and sampling; an empty list uses the recipe's seed",
    )
    ablations: list[Literal["budget", "swap", "without", "mute"]] = Field(
        [],
        description="interplay eval: also measure budget (one agent with the team's tokens), swap (policies in each "
        "other's roles), without (each agent replaced in turn) or mute (each channel muted in turn)",
    )
    substitute: str = Field(
        "base",
        description="ablation without: who replaces an agent: base (the model before any training), start (its weights "
        "when reinforcement learning began), bot:NAME or a policy",
    )
    single: SingleSection | None = Field(
        None, description="ablation budget: the one agent that the team is compared with"
    )
