"""The options of `env.name = "program"`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from interplay.config import Section
from interplay.errors import ConfigError
from interplay.types import HistoryMatch


class RouteSection(Section):
    """Which calls belong to a role: the calls that match all given patterns. `*` matches any text."""

    model: str = Field("", description="pattern for the model's name")
    system: str = Field("", description="pattern for the system prompt, for programs whose agents share one model")
    only: list[str] = Field([], description="all replies that this role can give; empty: any reply")


class RunSection(Section):
    """How a program is run."""

    seconds: float = Field(120.0, gt=0, description="the longest time that the program may run between two calls")
    linger: float = Field(
        2.0, ge=0, description="milliseconds without a new call after which the waiting calls are answered together"
    )
    history: HistoryMatch = Field(
        "noise", description="how closely a message must match a recorded reply to be recognised"
    )
    names: Literal["prefix", "drop"] = Field(
        "prefix", description="the name in a user message: write it before the text, or leave it out"
    )
    blame: Literal["replay", "machinery"] = Field(
        "replay",
        description="after a crash that follows a reply: replay to see whether the policy caused it, or always drop "
        "the episode",
    )
    crashed: float = Field(-0.1, description="the team's reward `crashed` if a policy's reply made the program crash")
    effects: bool = Field(
        False, description="the program's tools have side effects, so it is not replayed unless they are `recorded`"
    )
    recorded: bool = Field(
        False, description="with `effects`: all tools with side effects are recorded, see docs/programs.md"
    )
    keep: int = Field(
        1,
        ge=1,
        description="number of episodes that a process of a `function` runs, one after another; more than 1 only if "
        "the program keeps no state from one task to the next, see docs/programs.md",
    )
    workers: int = Field(1, ge=1, description="number of worker processes that runs are forked from")
    python: str = Field("", description="the Python interpreter that runs the program; default: this one")
    walls: Literal["sandbox", "none"] = Field(
        "sandbox", description="isolation of the program's processes, see docs/programs.md; recorded in run.json"
    )
    network: bool = Field(False, description="sandbox: allow all network connections, not only the gateway")
    memory_mb: float = Field(4096.0, gt=0, description="most megabytes of memory of all processes of one run together")
    disk_mb: float = Field(
        1024.0, gt=0, description="sandbox: most megabytes in the folder of one run, which is kept in memory"
    )
    processes: int = Field(64, ge=1, description="most processes of one run at the same time")
    cpu_seconds: float = Field(600.0, gt=0, description="most seconds of CPU time of each process of a run")
    readable: list[str] = Field([], description="sandbox: more files and folders that the program may read")
    environment: dict[str, str] = Field({}, description="more environment variables for the program")
    port: int = Field(0, ge=0, le=65535, description="the gateway's port, for services that attach; 0: any free port")
    embeddings: str = Field("", description="URL of a server to which requests to /v1/embeddings are forwarded")


class OutsideOptions(Section):
    """A program that asks models: a command, a function or a coroutine."""

    command: list[str] = Field([], description="a command that asks the server in OPENAI_BASE_URL")
    function: str = Field(
        "", description="module:function that asks the server in OPENAI_BASE_URL; it is called in a worker process"
    )
    coroutine: str = Field("", description="module:function, async def team(task, ask), run in this process")
    attach: bool = Field(False, description="a service that is already running opens a session for each episode")
    roles: list[str] = Field(description="the roles that can be asked; by default the model's name is the role")
    reward: str = Field("", description="module:function of (task, result): a number, {name: number} or Rewards")
    rewards: list[str] = Field(["score"], description="names of the rewards; a single number gets the first name")
    data: str = Field(
        "", description="a .jsonl file of tasks, or a folder with one for each split; empty: only index, seed and split"
    )
    route: dict[str, RouteSection] = Field({}, description="which calls belong to which role")
    program: RunSection = Field(default_factory=RunSection, description="how the program is run")

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
        if self.program.recorded and not self.program.effects:
            raise ConfigError("env.program.recorded is true, and effects is not; expected effects = true too.")
        if self.program.keep > 1 and not self.function:
            raise ConfigError(
                f"env.program.keep is {self.program.keep}, but the program is no function; expected keep = 1, or "
                "env.function."
            )
        for role in self.route:
            if role not in self.roles:
                raise ConfigError(f"env.route has '{role}'; expected one of env.roles: {', '.join(self.roles)}.")
        if not self.reward and not self.attach:
            raise ConfigError("env.reward is missing; expected module:function of (task, result).")
        return self
