"""[reward], [sampling], [tools], [rollout], [stream] and [curriculum]: how episodes are played and rewarded."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from interplay.config.section import Section
from interplay.errors import ConfigError


class RewardSection(Section):
    """How credit mixes the three levels; `weights` are per component name."""

    process: float = Field(1.0, description="weight of what single actions earn")
    agent: float = Field(1.0, description="weight of what a role earns")
    team: float = Field(1.0, description="weight of what everybody earns")
    gamma: float = Field(1.0, ge=0, le=1, description="discount from one turn of a role to its next")
    weights: dict[str, float] = Field({}, description="of a component, by its name; default 1")


class SamplingSection(Section):
    """How trainable seats sample during training."""

    temperature: float = Field(1.0, gt=0, description="of training; eval has its own")
    max_tokens: int = Field(64, ge=1, description="limit of one reply")
    stop: list[str] = Field([], description="strings that end a reply, and are part of it")
    best_of: int = Field(1, ge=1, description="policies that do not learn say the best of so many replies")
    best_by: str | None = Field(None, description="the judge that says which is best: a reward model or verifier")
    legal: bool = Field(
        False, description="where legal actions are listed, only they can be sampled (evaluation: eval.legal)"
    )


class ToolSection(Section):
    """What roles may do with the tools their environment gives them."""

    calls: int = Field(4, ge=0, description="tool calls inside one turn; 0 takes the tools away")
    characters: int = Field(2000, ge=1, description="of one tool's output; the rest is cut off")
    workers: int = Field(8, ge=1, description="tool calls that run at once")


class RolloutSection(Section):
    """Episodes in bulk."""

    tasks: int = Field(16, ge=1, description="tasks per training step")
    concurrency: int = Field(1024, ge=1, description="episodes in flight at once")
    max_episode_tokens: int = Field(100_000, ge=1, description="sampled tokens after which an episode is truncated")
    max_episode_seconds: float = Field(600.0, gt=0, description="wall-clock limit; past it the episode is an error")


class StreamSection(Section):
    """How rollout and training overlap. With `max_staleness = 0` a training step waits for its own episodes, and they
    are all sampled with the newest weights. Above 0, episodes go on while the learner works."""

    max_staleness: int = Field(0, ge=0, description="training steps that sampling may run ahead of training")
    stale: Literal["mask", "drop"] = Field(
        "mask", description="tokens older than max_staleness: leave them out of the loss, or drop their whole episode"
    )
    cache: Literal["recompute", "keep"] = Field(
        "recompute",
        description="what a reply goes on with when the weights change under it: a cache computed anew, or the old one",
    )
    deterministic: bool | None = Field(
        None,
        description="batches do not depend on timing, and everybody waits for slow tools; default: on a CPU with "
        "max_staleness = 0",
    )
    probe: int = Field(
        256,
        ge=0,
        description="how many recent tokens the engine scores after every update, to compare with the learner; 0: none",
    )


class CurriculumSection(Section):
    """Which levels are trained on. Without it every task is drawn with the options of [env]."""

    kind: Literal["staged", "self_paced", "replay"] = Field(description="how the next levels are chosen")
    success: str = Field("solved", description="the reward whose positive sum is a success")
    stages: list[dict[str, Any]] = Field([], description="staged: options over those of [env], easiest first")
    threshold: float = Field(0.8, gt=0, le=1, description="staged: share of success that ends a stage")
    window: int = Field(64, ge=1, description="staged: the episodes that count for it")
    review: float = Field(0.0, ge=0, lt=1, description="staged: share of the tasks from earlier stages")
    easy: dict[str, int | float] = Field({}, description="self_paced, replay: options at difficulty 0")
    hard: dict[str, int | float] = Field({}, description="self_paced, replay: the same options at difficulty 1")
    start: float = Field(0.0, ge=0, le=1, description="self_paced: the first difficulty")
    target: float = Field(0.5, gt=0, lt=1, description="self_paced: the share of success to hold")
    rate: float = Field(0.1, gt=0, le=1, description="self_paced: how far one step moves the difficulty")
    score: Literal["learnability", "regret"] = Field("learnability", description="replay: p(1-p), or value loss")
    replay: float = Field(0.5, ge=0, le=1, description="replay: share of the tasks that were played before")
    staleness: float = Field(0.1, ge=0, le=1, description="replay: weight of levels long not played")
    temperature: float = Field(0.1, gt=0, description="replay: lower prefers the highest scores more")
    capacity: int = Field(512, ge=1, description="replay: levels remembered")

    @model_validator(mode="after")
    def _has_its_levels(self) -> CurriculumSection:
        if self.kind == "staged" and not self.stages:
            raise ConfigError("curriculum.stages is empty; expected a list of option tables, easiest first.")
        if self.kind == "self_paced" and not self.easy:
            raise ConfigError("curriculum.easy is empty; expected options with their values at difficulty 0.")
        if self.easy.keys() != self.hard.keys():
            raise ConfigError(
                f"curriculum.easy has {', '.join(self.easy) or 'nothing'} and curriculum.hard "
                f"{', '.join(self.hard) or 'nothing'}; expected the same options in both."
            )
        return self
