"""The options of `env.name = "program"`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Literal

from pydantic import Field, model_validator

from interplay.config import Section
from interplay.errors import ConfigError
from interplay.types import HistoryMatch


class RouteSection(Section):
    """Which calls belong to a role: those that fit all patterns that are given. `*` stands for anything."""

    model: str = Field("", description="pattern of the model's name")
    system: str = Field("", description="pattern of the system prompt, for programs whose agents share one model")
    only: list[str] = Field([], description="the only replies that this role can give; none: any")


class RunSection(Section):
    """How a program is run."""

    seconds: float = Field(120.0, gt=0, description="what it may take by itself between two calls")
    linger: float = Field(
        2.0, ge=0, description="milliseconds without another call after which those that wait are answered together"
    )
    history: HistoryMatch = Field(
        "noise", description="how closely a message must equal a recorded reply to be recognised as it"
    )
    names: Literal["prefix", "drop"] = Field("prefix", description="a user's name: before the words, or left out")
    blame: Literal["replay", "machinery"] = Field(
        "replay", description="a crash after a reply: replayed to see whether the policy caused it, or always dropped"
    )
    crashed: float = Field(-0.1, description="the team's reward `crashed` where what a policy said made it crash")
    effects: bool = Field(False, description="its tools change the world, so that it must not be replayed")
    workers: int = Field(1, ge=1, description="warm processes that runs are forked from")
    python: str = Field("", description="the interpreter that the program is installed in; default: this one")
    walls: Literal["sandbox", "none"] = Field(
        "sandbox", description="what a process may touch: see docs/programs.md; none is recorded in run.json"
    )
    network: bool = Field(False, description="sandbox: more network than the gateway")
    readable: list[str] = Field([], description="sandbox: files and folders that it may read besides the system's")
    environment: dict[str, str] = Field({}, description="variables of a process besides those that it needs")
    port: int = Field(0, ge=0, le=65535, description="of the gateway, for services that attach; 0: any free one")
    embeddings: str = Field("", description="URL of a server that /v1/embeddings is passed on to")


class OutsideOptions(Section):
    """A program that asks models: a command, a function or a coroutine."""

    command: list[str] = Field([], description="a command that asks the server in OPENAI_BASE_URL")
    function: str = Field("", description="module:function of such a program, called in a warm process")
    coroutine: str = Field("", description="module:function, async def team(task, ask), run in this process")
    attach: bool = Field(False, description="a service that runs already opens a session for each episode")
    roles: list[str] = Field(description="who can be asked; by default a model's name is its role")
    reward: str = Field("", description="module:function of (task, result): a number, {name: number} or Rewards")
    rewards: list[str] = Field(["score"], description="the names of the rewards it gives; a number is the first")
    data: str = Field("", description="a .jsonl file of tasks, or a folder with one for each split; none: numbers")
    route: dict[str, RouteSection] = Field({}, description="which calls belong to which role")
    program: RunSection = Field(default_factory=RunSection, description="how it is run")

    @model_validator(mode="after")
    def _is_one_program(self) -> OutsideOptions:
        ways = {"command": self.command, "function": self.function, "coroutine": self.coroutine, "attach": self.attach}
        named = [key for key, value in ways.items() if value]
        if len(named) != 1:
            raise ConfigError(
                f"[env] names {' and '.join(named) or 'no program'}; expected exactly one of {', '.join(ways)}."
            )
        if not self.roles or len(set(self.roles)) < len(self.roles):
            raise ConfigError(f"env.roles is {self.roles}; expected the names of the program's roles, each once.")
        for role in self.route:
            if role not in self.roles:
                raise ConfigError(f"env.route has '{role}'; expected one of env.roles: {', '.join(self.roles)}.")
        if not self.reward and not self.attach:
            raise ConfigError("env.reward is missing; expected module:function of (task, result).")
        return self


def imported(key: str, name: str) -> Callable[..., Any]:
    """What `module:function` names."""
    module, colon, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else None
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key} is '{name}', which cannot be imported: {error}; expected module:function.") from None
    if not callable(found):
        raise ConfigError(f"{key} is '{name}', which is no function; expected module:function.")
    return found
