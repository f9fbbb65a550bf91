"""[channels]: vectors that one agent passes to another."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from interplay.config.section import Section
from interplay.errors import ConfigError


class ChannelSection(Section):
    """A soft channel: what the sender read and wrote reaches the receiver as vectors, besides any words. A channel has
    weights and an optimiser of its own, and is trained with the receiver's loss. The base models of both do not change.
    A channel from a role to itself is a fusion adapter: it adds what the role sees and hears to its words."""

    sender: str = Field(
        description="the role whose latest prompt and reply are passed on. If it is the receiver itself, its pictures "
        "and sounds are added to its words, instead of being tokens of the prompt"
    )
    receiver: str = Field(description="the role that gets the vectors, in its next prompt")
    fuse: Literal["tokens", "gated"] = Field(
        "tokens",
        description="tokens: the vectors are additional tokens of the prompt; gated: they are added to the words of "
        "the message that carries them, times a gate that starts at 0",
    )
    tokens: int = Field(4, ge=1, le=256, description="fuse = tokens: how many vectors are passed on")
    size: int = Field(64, ge=1, description="size of the channel's attention over the sender's tokens")
    heads: int = Field(4, ge=1, description="number of attention heads; size must be divisible by it")
    trainable: bool = Field(True, description="whether the channel is trained")
    mute: bool = Field(
        False, description="pass on nothing: the vectors are 0, or the gate is closed; interplay eval can set it"
    )
    lr: float | None = Field(None, gt=0, description="learning rate of this channel; default: train.lr")
    weight_decay: float | None = Field(
        None, ge=0, description="weight decay of this channel; default: train.weight_decay"
    )
    grad_clip: float | None = Field(
        None, gt=0, description="largest gradient norm of this channel; default: train.grad_clip"
    )

    @model_validator(mode="after")
    def _heads_divide_the_size(self) -> ChannelSection:
        if self.size % self.heads:
            raise ConfigError(
                f"a channel has size = {self.size} and heads = {self.heads}; expected a size divisible by heads."
            )
        if self.sender == self.receiver and self.fuse == "tokens":
            raise ConfigError(
                f"a channel goes from {self.sender} to itself, which fuses what it sees into its own words; expected "
                "fuse = 'gated', or two different roles."
            )
        return self
