"""[reward], [sampling], [tools], [rollout], [stream] and [curriculum]: how episodes are played and rewarded."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from interplay.config.section import Section
from interplay.errors import ConfigError


class RewardSection(Section):
    """How the rewards of the three levels are added up, and the weight of each reward by its name."""

    process: float = Field(1.0, description="weight of rewards for single actions")
    agent: float = Field(1.0, description="weight of rewards for one role")
    team: float = Field(1.0, description="weight of rewards for the whole team")
    gamma: float = Field(1.0, ge=0, le=1, description="discount factor from one turn of a role to its next turn")
    weights: dict[str, float] = Field({}, description="weight of each reward, by its name; default: 1")


class SamplingSection(Section):
    """How trainable seats sample during training."""

    temperature: float = Field(
        1.0, gt=0, description="sampling temperature in training; evaluation uses eval.temperature"
    )
    max_tokens: int = Field(64, ge=1, description="the largest number of tokens in one reply")
    stop: list[str] = Field([], description="strings that end a reply; they are part of the reply")
    best_of: int = Field(
        1,
        ge=1,
        description="policies that are not trained sample this many replies and give the one that sampling.best_by "
        "prefers",
    )
    best_by: str | None = Field(
        None,
        description="with sampling.best_of: the judge whose score chooses the best reply; its kind must be "
        "reward_model, verifier or function",
    )
    legal: bool = Field(
        False,
        description="if the environment lists the legal actions, sample only from them; evaluation uses eval.legal",
    )


class ToolSection(Section):
    """Limits on the tools that an environment gives to its roles."""

    calls: int = Field(4, ge=0, description="the largest number of tool calls in one turn; 0 takes the tools away")
    characters: int = Field(2000, ge=1, description="the longest output of a tool, in characters; the rest is cut off")
    workers: int = Field(8, ge=1, description="how many tool calls may run at the same time")


class RolloutSection(Section):
    """How many episodes are played, and their limits."""

    tasks: int = Field(16, ge=1, description="tasks per training step")
    concurrency: int = Field(1024, ge=1, description="how many episodes may be played at the same time")
    max_episode_tokens: int = Field(100_000, ge=1, description="an episode is truncated after this many sampled tokens")
    max_episode_seconds: float = Field(
        600.0, gt=0, description="an episode that takes more seconds than this fails and is dropped"
    )


class StreamSection(Section):
    """How rollout and training overlap. With `max_staleness = 0` a training step waits for its own episodes, and they
    are all sampled with the newest weights. Above 0, episodes go on while the learner works."""

    max_staleness: int = Field(
        0,
        ge=0,
        description="by how many training steps sampling may run ahead of training; 0: each training step waits for "
        "its own episodes; above 0: episodes go on while the learner works, with weights that are as many steps old",
    )
    stale: Literal["mask", "drop"] = Field(
        "mask",
        description="what happens to tokens that weights older than max_staleness have sampled: mask leaves them out "
        "of the loss, drop leaves out their whole episode",
    )
    min_group: int = Field(
        1,
        ge=1,
        description="replace a group if fewer than this many of its episodes are left, because the others failed or "
        "were dropped",
    )
    cache: Literal["recompute", "keep"] = Field(
        "recompute",
        description="what happens to the key-value cache of a reply that is being sampled when the weights change: "
        "recompute computes it again with the new weights, keep goes on with it",
    )
    deterministic: bool | None = Field(
        None,
        description="make batches independent of timing; all episodes then wait for the slowest tool; default: true on "
        "a CPU with max_staleness = 0",
    )
    probe: int = Field(
        256,
        ge=0,
        description="after every update, the engine computes the log-probs of this many recent tokens of each policy "
        "(of 16 replies at most), and the run stops if the learner's differ; 0: no comparison",
    )


class CurriculumSection(Section):
    """Which levels (options of the environment) are trained on. Without this section, every task has the options of
    [env]."""

    kind: Literal["staged", "self_paced", "replay"] = Field(
        description="how levels are chosen: staged goes to the next stage after enough successes; self_paced changes "
        "one difficulty until a target share succeeds; replay repeats known levels with high scores"
    )
    success: str = Field("solved", description="an episode is a success if this reward adds up to more than 0")
    stages: list[dict[str, Any]] = Field(
        [], description="staged: the environment's options in each stage, the easiest first"
    )
    threshold: float = Field(
        0.8, gt=0, le=1, description="staged: a stage ends when this share of its episodes succeeds"
    )
    window: int = Field(64, ge=1, description="staged: how many of the latest episodes count for the threshold")
    review: float = Field(0.0, ge=0, lt=1, description="staged: share of the tasks that are drawn from earlier stages")
    easy: dict[str, int | float] = Field({}, description="self_paced, replay: options at difficulty 0")
    hard: dict[str, int | float] = Field({}, description="self_paced, replay: the same options at difficulty 1")
    start: float = Field(0.0, ge=0, le=1, description="self_paced: the first difficulty")
    target: float = Field(
        0.5, gt=0, lt=1, description="self_paced: the difficulty is changed until this share of the episodes succeeds"
    )
    rate: float = Field(
        0.1, gt=0, le=1, description="self_paced: one step changes the difficulty by rate × (share of success − target)"
    )
    score: Literal["learnability", "regret"] = Field(
        "learnability",
        description="replay: the score of a level: learnability is p(1 − p) for the share of success p, regret is the "
        "critic's positive value loss",
    )
    replay: float = Field(
        0.5, ge=0, le=1, description="replay: share of the tasks that repeat a known level; the others are new"
    )
    staleness: float = Field(
        0.1, ge=0, le=1, description="replay: how much the time since a level was last played counts, beside its score"
    )
    temperature: float = Field(
        0.1, gt=0, description="replay: a lower value draws the levels with the highest scores more often"
    )
    capacity: int = Field(512, ge=1, description="replay: how many levels are remembered")

    @model_validator(mode="after")
    def _has_its_levels(self) -> CurriculumSection:
        if self.kind == "staged" and not self.stages:
            raise ConfigError("curriculum.stages is empty; expected a list of option tables, easiest first.")
        if self.kind == "self_paced" and not self.easy:
            raise ConfigError("curriculum.easy is empty; expected options with their values at difficulty 0.")
        if self.easy.keys() != self.hard.keys():
            raise ConfigError(
                f"curriculum.easy has {', '.join(self.easy) or 'nothing'} and curriculum.hard has "
                f"{', '.join(self.hard) or 'nothing'}; expected the same options in both."
            )
        return self
