"""[train], [warmstart], [checkpoint] and [records]: how policies are trained, and what a run stores."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from interplay.config.section import Section
from interplay.errors import ConfigError

Optimizer = Literal["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit"]
Schedule = Literal["constant", "linear", "cosine"]


class TrainSection(Section):
    """Gradients."""

    steps: int = Field(100, ge=0, description="rollouts that are learned from")
    budget_tokens: int = Field(
        0, ge=0, description="end with the step in which so many tokens have been sampled; 0: no limit"
    )
    budget_policy: str | None = Field(None, description="whose tokens budget_tokens counts; default all trained ones'")
    update: Literal["together", "alternating"] = Field(
        "together", description="every policy at every step, or one after another while the others stay as they are"
    )
    update_period: int = Field(1, ge=1, description="alternating: steps before it is the next one's turn")
    optimizer: Optimizer = Field("adamw", description="8-bit: its state in a quarter; paged: in the host's memory")
    lr: float = Field(1e-6, gt=0, description="learning rate")
    schedule: Schedule = Field("constant", description="of the learning rate, over all steps")
    warmup_steps: int = Field(0, ge=0, description="in which it rises to lr")
    final_lr: float = Field(0.1, ge=0, le=1, description="share of lr that the schedule ends at")
    weight_decay: float = Field(0.0, ge=0, description="decoupled, of every weight")
    beta1: float = Field(0.9, ge=0, lt=1, description="of the first moment")
    beta2: float = Field(0.95, ge=0, lt=1, description="of the second moment")
    grad_clip: float = Field(1.0, gt=0, description="largest gradient norm of a step")
    epochs: int = Field(1, ge=1, description="times that a rollout is learned from")
    minibatches: int = Field(1, ge=1, description="optimiser steps in one epoch")
    micro_batch_tokens: int = Field(16_384, ge=1, description="padded tokens in one forward pass")
    gap_warn: float = Field(1e-4, gt=0, description="largest engine-learner log-prob gap before a warning")
    gap_stop: float = Field(1e-2, gt=0, description="engine-learner log-prob gap that stops the run")
    gap_mean_warn: float = Field(0.02, gt=0, description="the same of the mean over tokens, for bf16: a warning")
    gap_mean_stop: float = Field(0.1, gt=0, description="the same of the mean over tokens, for bf16: stops the run")
    guard_grad_spike: float = Field(20.0, gt=1, description="times its running mean that a gradient norm may reach")
    guard_entropy: float = Field(1e-3, ge=0, description="nats a token under which the policy has collapsed; 0 is off")
    guard_zero_share: float = Field(
        1.0, ge=0, le=1, description="share of zero advantages of a role that is too much; 1: all of them, for long"
    )
    stop_on_guard: bool = Field(False, description="stop the run where a guard would only warn")
    recompute: bool = Field(False, description="compute activations again in the backward pass: less memory, slower")
    shard: Literal["none", "fsdp"] = Field(
        "none", description="fsdp: train each model in cluster.learners processes, each with a part of the weights"
    )


class WarmstartSection(Section):
    """A short imitation of a bot, or of recorded play, before reinforcement learning begins."""

    bot: str | None = Field(None, description="who is imitated, in every seat; or")
    records: str | None = Field(None, description="an episodes.jsonl, or a run folder that holds one")
    min_reward: float | None = Field(None, description="records: only roles whose reward was at least this")
    base: bool = Field(
        False, description="for adapters: the model under them learns it, once for all roles, and stays with the run"
    )
    read: int = Field(
        0, ge=0, description="bot: epochs in which it first learns to say what the pictures and sounds tell"
    )
    episodes: int = Field(500, ge=1, description="how many are imitated; of records, at most")
    epochs: int = Field(1, ge=1, description="times that they are gone through")
    lr: float = Field(1e-3, gt=0, description="learning rate of the imitation")
    batch: int = Field(256, ge=1, description="turns per gradient step")

    @model_validator(mode="after")
    def _one_source(self) -> WarmstartSection:
        if (self.bot is None) == (self.records is None):
            raise ConfigError("warmstart has neither or both of bot and records; expected one: who is imitated.")
        if self.read and self.bot is None:
            raise ConfigError("warmstart.read is set without warmstart.bot; expected a bot, whose play is read.")
        if self.min_reward is not None and self.bot is not None:
            raise ConfigError("warmstart.min_reward is set with warmstart.bot; expected it with warmstart.records.")
        return self


class CheckpointSection(Section):
    """What a run goes on from after a kill, and what is evaluated, exported and played afterwards."""

    every: int = Field(1, ge=1, description="steps between checkpoints; a kill loses at most that many")
    keep: int = Field(2, ge=1, description="how many of the latest are kept")
    best: str | None = Field(
        None, description="also keep the one with the best of this metric, such as eval/win_rate/bot:random"
    )
    best_is: Literal["highest", "lowest"] = Field("highest", description="of that metric")


class RecordSection(Section):
    """What is written for people to read."""

    playouts: bool = Field(False, description="also record the turns that only estimated a candidate's return")
    episodes_per_step: int = Field(16, ge=0, description="episodes per step written to episodes.jsonl and the logs")
    keep: Literal["first", "even"] = Field(
        "first", description="which episodes of a step are written: the first ones, or as many at even distances"
    )
    tensorboard: Literal["auto", "on", "off"] = Field("auto", description="auto: where it is installed")
