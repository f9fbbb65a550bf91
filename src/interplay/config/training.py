"""[train], [warmstart], [checkpoint] and [records]: how policies are trained, and what a run stores."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from interplay.config.section import Section
from interplay.errors import ConfigError

Optimizer = Literal["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit"]
Schedule = Literal["constant", "linear", "cosine"]


class TrainSection(Section):
    """How policies are trained."""

    steps: int = Field(100, ge=0, description="number of training steps")
    budget_tokens: int = Field(
        0,
        ge=0,
        description="stop after the step in which this many tokens have been sampled, with rejected candidates and "
        "playouts; 0 means no limit",
    )
    budget_policy: str | None = Field(
        None, description="the policy whose tokens budget_tokens counts; default: all trained policies"
    )
    update: Literal["together", "alternating"] = Field(
        "together",
        description="together: every policy is trained in every step; alternating: one policy at a time, while the "
        "others stay unchanged",
    )
    update_period: int = Field(1, ge=1, description="alternating: the number of steps before the next policy's turn")
    optimizer: Optimizer = Field(
        "adamw",
        description="the optimiser; 8bit needs a quarter of the memory for its state; paged moves the state to the "
        "host's memory if the GPU's is short",
    )
    lr: float = Field(1e-6, gt=0, description="learning rate")
    schedule: Schedule = Field("constant", description="schedule of the learning rate over all steps")
    warmup_steps: int = Field(0, ge=0, description="steps in which the learning rate rises from 0 to lr")
    final_lr: float = Field(0.1, ge=0, le=1, description="where a linear or cosine schedule ends, as a share of lr")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay of all weights")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of Adam's first moment")
    beta2: float = Field(0.95, ge=0, lt=1, description="decay of Adam's second moment")
    grad_clip: float = Field(1.0, gt=0, description="gradients with a larger norm than this are scaled down to it")
    epochs: int = Field(1, ge=1, description="how many times the data of a step are trained on")
    minibatches: int = Field(1, ge=1, description="number of optimiser steps in one epoch")
    whole_decisions: bool = Field(
        False,
        description="keep the replies to one decision in one minibatch; their prompt is then computed once, which is "
        "faster, but the minibatches differ more from each other",
    )
    micro_batch_tokens: int = Field(
        16_384, ge=1, description="the largest number of tokens, padding included, in one forward pass"
    )
    gap_warn: float = Field(
        1e-4, gt=0, description="warn if a log-prob of the engine differs from the learner's by more than this"
    )
    gap_stop: float = Field(
        1e-2, gt=0, description="stop the run if a log-prob of the engine differs from the learner's by more than this"
    )
    gap_mean_warn: float = Field(
        0.02, gt=0, description="in bf16: warn if the mean difference over tokens is larger than this"
    )
    gap_mean_stop: float = Field(
        0.1, gt=0, description="in bf16: stop the run if the mean difference over tokens is larger than this"
    )
    guard_grad_spike: float = Field(
        20.0, gt=1, description="warn if a gradient norm exceeds its running mean by this factor"
    )
    guard_entropy: float = Field(
        1e-3, ge=0, description="warn if the entropy falls below this many nats per token; 0 turns it off"
    )
    guard_zero_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="warn if more than this share of a role's advantages is zero; 1 warns only if all of them are zero "
        "for five steps",
    )
    stop_on_guard: bool = Field(False, description="stop the run where one of the keys train.guard_… would only warn")
    recompute: bool = Field(
        False, description="compute activations again in the backward pass, which needs less memory and more time"
    )
    shard: Literal["none", "fsdp"] = Field(
        "none", description="fsdp: train each model in cluster.learners processes, each with a part of the weights"
    )
    gather: Literal["layer", "step"] = Field(
        "layer",
        description="with shard: layer gathers the weights of a layer each time it runs, and frees them after it; step "
        "keeps them until the optimiser changes them, so less is sent, but each process needs memory for all weights. "
        "A single process always keeps them",
    )


class WarmstartSection(Section):
    """A short imitation of a bot, or of recorded play, before reinforcement learning begins."""

    bot: str | None = Field(None, description="the bot that is imitated, in every seat; or use `records`")
    records: str | None = Field(
        None, description="recorded play to imitate: an episodes.jsonl file, or a run folder that contains one"
    )
    min_reward: float | None = Field(
        None, description="with records: imitate only roles whose reward was at least this"
    )
    base: bool = Field(
        False,
        description="with adapters: imitation trains the base model under them, once for all roles, and not the "
        "adapters; the run goes on with this base",
    )
    read: int = Field(
        0,
        ge=0,
        description="with bot: epochs in which a policy that sees or hears first learns to describe what is shown",
    )
    episodes: int = Field(500, ge=1, description="how many episodes are imitated; with records, at most this many")
    epochs: int = Field(1, ge=1, description="epochs over the imitated episodes")
    lr: float = Field(1e-3, gt=0, description="learning rate of the imitation")
    schedule: Schedule = Field(
        "constant", description="schedule of the imitation's learning rate; linear and cosine end at 0"
    )
    batch: int = Field(256, ge=1, description="turns in one gradient step of the imitation")

    @model_validator(mode="after")
    def _one_source(self) -> WarmstartSection:
        if (self.bot is None) == (self.records is None):
            raise ConfigError(
                "warmstart has neither or both of bot and records; expected exactly one of them, to be imitated."
            )
        if self.read and self.bot is None:
            raise ConfigError(
                "warmstart.read is set without warmstart.bot; expected a bot, whose pictures and sounds are described."
            )
        if self.min_reward is not None and self.bot is not None:
            raise ConfigError("warmstart.min_reward is set with warmstart.bot; it only works with warmstart.records.")
        return self


class CheckpointSection(Section):
    """The saved states of a run. A killed run continues from the newest one, and `eval`, `export` and `play` use it."""

    every: int = Field(
        1,
        ge=1,
        description="steps between checkpoints; a killed run loses the steps since its newest one, which are more if "
        "checkpoint.share leaves some out",
    )
    share: float = Field(
        0.1,
        gt=0,
        le=1,
        description="the largest share of the time that may go into writing checkpoints that take more than a second; "
        "the others are left out, except the last one and those of `best`; 1 leaves none out",
    )
    keep: int = Field(2, ge=1, description="how many of the latest checkpoints are kept")
    best: str | None = Field(
        None,
        description="also keep the checkpoint with the best value of this metric, such as eval/win_rate/bot:random",
    )
    best_is: Literal["highest", "lowest"] = Field(
        "highest", description="whether the highest or the lowest value of checkpoint.best is the best"
    )


class RecordSection(Section):
    """What a run writes for people to read."""

    playouts: bool = Field(
        False, description="also record the turns of playouts, which only estimate a candidate's return"
    )
    episodes_per_step: int = Field(16, ge=0, description="episodes per step written to episodes.jsonl and the logs")
    keep: Literal["first", "even"] = Field(
        "first", description="which episodes of a step are written: the first ones, or evenly spaced ones"
    )
    tokens: bool = Field(
        True,
        description="also write the entropy of each trained token, and the learner's log-prob of it minus the "
        "engine's. A sharded learner (train.shard) writes neither",
    )
    tensorboard: Literal["auto", "on", "off"] = Field(
        "auto", description="write TensorBoard logs; auto does so if TensorBoard is installed"
    )
    wandb: Literal["off", "online", "offline"] = Field(
        "off",
        description="also send the metrics to Weights & Biases, under the same names; offline keeps them in the run "
        "folder, from where the command wandb sync sends them",
    )
    wandb_project: str = Field("interplay", description="the name of the project on Weights & Biases")
