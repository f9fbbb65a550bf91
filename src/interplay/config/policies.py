"""[policies]: the policies of a run, and the settings of each."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from interplay.config.section import Section
from interplay.config.training import Optimizer, Schedule
from interplay.errors import ConfigError

REMOTE = "openai:"  # prefix of a policy's base: the name of a model on an OpenAI-compatible server follows


class AdapterSection(Section):
    """A LoRA adapter: the base does not change, and policies with the same base share it."""

    rank: int = Field(16, ge=1, description="rank of the adapter; adapters of the same base may have different ranks")
    alpha: float | None = Field(
        None, gt=0, description="the adapter's output is scaled by alpha / rank; default: twice the rank"
    )
    targets: list[str] = Field(
        [], description="layers to adapt, by the end of their names, such as q_proj; an empty list adapts all of them"
    )


class RemoteSection(Section):
    """The server of a remote model: any server that speaks OpenAI's chat completions."""

    url: str = Field("https://api.openai.com/v1", description="address of the server, including /v1")
    key_variable: str = Field(
        "OPENAI_API_KEY", description="environment variable that holds the server's key, if the server needs one"
    )
    timeout: float = Field(
        120.0, gt=0, description="how many seconds one request may take until its whole answer has arrived"
    )
    retries: int = Field(4, ge=0, description="how often a failed request is tried again, with growing pauses")
    concurrency: int = Field(16, ge=1, description="how many requests may be sent to the server at the same time")
    limit: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="the field of a request that limits the tokens of a reply; servers differ in its name"
    )
    images: bool = Field(
        True, description="send the images that an environment shows; false sends only the text of its messages"
    )
    options: dict[str, Any] = Field({}, description="further fields of every request, such as top_p")

    @model_validator(mode="after")
    def _has_an_address(self) -> RemoteSection:
        expected = "expected http:// or https://, the host, and the path up to /v1"
        if any(mark in self.url for mark in "@?#"):  # the message does not show the URL: it may hold a password
            raise ConfigError(
                f"remote.url has a user name, a password or a query in it; {expected}, and the key in the environment "
                "variable that remote.key_variable names."
            )
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is not a number, or an incomplete IPv6 address
            known = False
        if not known or any(c.isspace() or not c.isprintable() for c in self.url):
            raise ConfigError(f"remote.url is '{self.url}'; {expected}.")
        return self

    @model_validator(mode="after")
    def _names_a_variable(self) -> RemoteSection:
        if not self.key_variable.isidentifier() or not self.key_variable.isascii():  # not shown: it may be the key
            raise ConfigError(
                "remote.key_variable is not the name of an environment variable (letters, digits and _); put the key "
                "into an environment variable and set remote.key_variable to the name of that variable."
            )
        return self

    @model_validator(mode="after")
    def _leaves_the_request_alone(self) -> RemoteSection:
        taken = sorted({"messages", "model", "stream"} & set(self.options))
        if taken:
            raise ConfigError(
                f"remote.options has '{taken[0]}', which Interplay sets itself; expected other fields of a request, "
                "such as top_p."
            )
        return self


class SensesSection(Section):
    """The vision or audio encoder (eye or ear) of a base model. It is not trained unless `train` is set."""

    train: bool = Field(
        False,
        description="also train the vision or audio encoder; with an adapter this works only in imitation with "
        "warmstart.base",
    )
    max_pixels: int = Field(
        0, ge=0, description="larger pictures are scaled down to this many pixels; 0 never scales them"
    )
    limit: int = Field(
        0,
        ge=0,
        description="the largest number of pictures and sounds in a prompt; older ones are left out; 0 means no limit",
    )


class PolicySection(Section):
    """A model that plays. Its base is `tiny`, `smollm2`, a folder, a name on the hub or a .gguf file. All of its
    weights are trained or, with `adapter`, only a LoRA adapter. `openai:NAME` is a model behind a server, which can
    play but not be trained."""

    base: str = Field(description="the model: tiny, smollm2, a folder, a hub name, a .gguf file or openai:NAME")
    adapter: AdapterSection | None = Field(None, description="train a LoRA adapter; default: all weights are trained")
    remote: RemoteSection | None = Field(None, description="the server of a base openai:NAME")
    senses: SensesSection | None = Field(None, description="how a base that sees or hears takes pictures and sounds")
    trainable: bool = Field(True, description="whether the policy is trained; one that is not trained still plays")
    per: Literal["team", "role"] = Field(
        "team", description="team: one set of weights for all its seats; role: separate weights for each role"
    )
    # These override [train]:
    lr: float | None = Field(None, gt=0, description="learning rate of this policy; default: train.lr")
    optimizer: Optimizer | None = Field(None, description="optimiser of this policy; default: train.optimizer")
    schedule: Schedule | None = Field(
        None, description="learning-rate schedule of this policy; default: train.schedule"
    )
    warmup_steps: int | None = Field(
        None, ge=0, description="warm-up steps of this policy; default: train.warmup_steps"
    )
    final_lr: float | None = Field(
        None,
        ge=0,
        le=1,
        description="where a linear or cosine schedule of this policy ends, as a share of its learning rate; default: "
        "train.final_lr",
    )
    weight_decay: float | None = Field(
        None, ge=0, description="weight decay of this policy; default: train.weight_decay"
    )
    beta1: float | None = Field(None, ge=0, lt=1, description="first-moment decay of this policy; default: train.beta1")
    beta2: float | None = Field(
        None, ge=0, lt=1, description="second-moment decay of this policy; default: train.beta2"
    )
    grad_clip: float | None = Field(
        None, gt=0, description="largest gradient norm of this policy; default: train.grad_clip"
    )
    frozen: list[list[int]] = Field(
        [],
        description="ranges of steps in which the policy plays but is not trained. Steps are counted from 0: "
        "[first, end] lasts until just before step end, and [first] until the end of the run",
    )

    @field_validator("senses")
    @classmethod
    def _empty_is_absent(cls, senses: SensesSection | None) -> SensesSection | None:
        return None if senses == SensesSection() else senses

    @model_validator(mode="after")
    def _windows_have_two_ends(self) -> PolicySection:
        for window in self.frozen:
            if not (len(window) in (1, 2) and window[0] >= 0 and (len(window) == 1 or window[1] > window[0])):
                raise ConfigError(
                    f"a policy's frozen has the window {window}; expected [first, end] with first < end, or [first]."
                )
        return self

    def learns(self, step: int) -> bool:
        """Whether the policy may learn in training step `step`."""
        return self.trainable and not any(w[0] <= step and (len(w) == 1 or step < w[1]) for w in self.frozen)

    @property
    def is_remote(self) -> bool:
        return self.base.startswith(REMOTE)

    def refuse_half_remote(self, name: str) -> None:
        """Refuse a remote model that is to learn, and a server for a model that is not remote."""
        if self.base == REMOTE:
            raise ConfigError(f"policies.{name}.base is '{REMOTE}'; expected the model's name after the colon.")
        if self.is_remote and self.trainable:
            raise ConfigError(
                f"policies.{name} is the remote model '{self.base}', which gives neither token ids nor log-probs, so "
                f"it cannot be trained; set policies.{name}.trainable = false."
            )
        if self.is_remote and self.adapter is not None:
            raise ConfigError(f"policies.{name}.adapter cannot be added to the remote model '{self.base}'; remove it.")
        if self.is_remote and self.senses is not None:
            raise ConfigError(
                f"policies.{name}.senses is for local models, but '{self.base}' is remote; set "
                f"policies.{name}.remote.images instead."
            )
        if self.remote is not None and not self.is_remote:
            raise ConfigError(
                f"policies.{name}.remote is set, but base is '{self.base}'; expected a base such as '{REMOTE}NAME'."
            )
