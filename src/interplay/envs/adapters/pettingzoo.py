"""Any PettingZoo game whose actions can be listed: `pettingzoo:tictactoe_v3`, `pettingzoo:chess_v6`, AEC or Parallel.

Roles         the game's agents, such as player_0.
Observation   what PettingZoo gives that agent alone, as text: boards, cards and moves in words for the classic games,
              other observations by `adapters/spaces.py`. The legal actions follow. Every prompt is fresh.
              `view = "image"` shows a picture, "both" words too: the agent's own observation if that is a picture,
              else the rendered frame, in games that hide nothing (chess, connect_four, go, tictactoe).
Actions       in words for the classic games (chess: e2e4), else numbers or `actions`; only those that the action mask
              (in the observation or in the info) allows are legal.
Moves         if the game has a Parallel version, all its agents move at once; else in turn (`api` chooses).
Rewards       `payoff` (agent; `level = "team"`: the mean, for all): each agent's reward of every step. An illegal reply
              ends the game as in PettingZoo's own wrapper: its player gets `forfeit`, the others nothing more, and
              `illegal` is −1 (process). If payoffs of a game can be below −1, set `forfeit` lower than these.
Version       2 (tested with pettingzoo 1.27.0). Games of other packages: `pettingzoo:package.module`, a module with
              `env` or `parallel_env`. A fork keeps what was drawn when the game began, such as a shuffled deck.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from interplay.envs.adapters import frames
from interplay.envs.adapters.adapter import matching
from interplay.envs.adapters.classic import GameWords, words_of
from interplay.envs.adapters.frames import FrameOptions
from interplay.envs.adapters.rules import PETTINGZOO
from interplay.envs.adapters.spaces import Copied, allowed, choices, told
from interplay.envs.env import register
from interplay.errors import ConfigError
from interplay.types import Media, MediaKind, Observation, Rewards, Role, Task

OPEN = ("chess", "connect_four", "go", "tictactoe")  # a frame of these shows nothing that a player may not see


class Options(FrameOptions):
    api: Literal["auto", "aec", "parallel"] = Field(
        "auto", description="agents move in turn (aec) or at once (parallel); auto: at once if the game can"
    )
    actions: list[str] = Field([], description="names of the actions, in the order of their numbers")
    level: Literal["agent", "team"] = Field("agent", description="who gets the payoffs; team: all get their mean")
    forfeit: float = Field(-1.0, description="payoff for an illegal reply, which ends the game")


@register("pettingzoo:")
class PettingZoo(Copied):
    Options = Options
    package = "pettingzoo"
    version = "2"  # version 1 gave no rules

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.env, self.parallel = self._make(task)
        self.words: GameWords | None = words_of(self.game.rpartition("/")[2].rpartition(".")[2])
        self.seen, self.infos = {}, {}
        started = self.env.reset(seed=task.seed % 2**31)
        if self.parallel:
            self.seen, self.infos = copy.deepcopy(started)
        self.roles = tuple(str(agent) for agent in self.env.possible_agents)
        self.listed = {agent: self._listed(agent) for agent in self.env.possible_agents}
        self.legal: dict[Role, dict[str, Any]] = {}
        self.totals = dict.fromkeys(self.roles, 0.0)
        self.guilty: list[Role] = []

    @classmethod
    def games(cls) -> list[str]:
        registry = cls.library("pettingzoo.env_registry.registration")
        return sorted({_module(name) for name in (*registry.aec_registry, *registry.parallel_registry)})

    def known_rules(self) -> str:
        return PETTINGZOO.get(self.game.rpartition("/")[2].rpartition("_v")[0], "")

    def _make(self, task: Task) -> tuple[Any, bool]:
        self.library()
        makers = _makers(self)
        if not makers:
            raise self.unknown(self.games())
        wanted = task.data["api"]
        api = wanted if wanted != "auto" else "parallel" if "parallel" in makers else "aec"
        if api not in makers:
            raise ConfigError(f"env.api is '{api}', which '{task.env}' does not have; expected {' or '.join(makers)}.")
        failed = self.library("pettingzoo.env_registry.exceptions").FailedToImport
        arguments = dict(task.data["arguments"])
        if task.data["view"] != "text":
            frames.headless()
            arguments.setdefault("render_mode", "rgb_array")
        try:
            return makers[api](**arguments), api == "parallel"
        except (ImportError, failed) as error:
            raise ConfigError(f"env.name '{task.env}' cannot be made: {error}") from None
        except TypeError as error:
            raise ConfigError(f"the game '{task.env}' does not accept env.arguments: {error}.") from None

    def _listed(self, agent: Any) -> dict[str, Any] | None:
        space, names = self.env.action_space(agent), self.task.data["actions"]
        if not names and self.words is not None and len(self.words.actions) == getattr(space, "n", 0):
            names = self.words.actions
        return choices(space, names)

    # -- what is seen ---------------------------------------------------------------------------------------------

    def look(self) -> dict[Role, Observation]:
        self.legal, out = {}, {}
        for agent in self.env.agents if self.parallel else (self.env.agent_selection,):
            value = self.seen[agent] if self.parallel else self.env.observe(agent)
            info = (self.infos if self.parallel else self.env.infos).get(agent, {})
            mask = info.get("action_mask")
            if isinstance(value, dict) and "action_mask" in value:
                mask = value["action_mask"]
                value = value["observation"] if "observation" in value else {
                    key: part for key, part in value.items() if key != "action_mask"
                }  # fmt: skip
            listed, role = self.listed[agent], str(agent)
            if listed is not None:
                self.legal[role] = self._worded(agent, allowed(listed, mask))
            legal = tuple(self.legal.get(role, ()))
            view = self.task.data["view"]
            text = "" if view == "image" else self._worded_view(agent, value)
            title = self.game.rpartition("_v")[0].replace("_", " ") or self.game
            messages = self.prompt(role, text, legal, title)
            if view != "text":
                messages = (*messages[:-1], replace(messages[-1], media=(self._picture(value),)))
            out[role] = Observation(messages, fresh=True, legal=legal)
        return out

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        return frames.needs(options)

    def _picture(self, value: Any) -> Media:
        """What an agent sees: its observation, or the frame of a game in which everybody sees the same."""
        if not frames.is_picture(value):
            if self.game.rpartition("/")[2].rpartition("_v")[0] not in OPEN:
                raise ConfigError(
                    f"env.view asks for pictures, and the frames of '{self.task.env}' may show what is hidden from a "
                    f"player; expected a game whose observations are pictures, {', '.join(OPEN)}, or "
                    'env.view = "text".'
                )
            value = self.env.render()
        return frames.frame(value, self.task.env, self.task.data["pixels"])

    def _worded_view(self, agent: Any, value: Any) -> str:
        if self.words is not None:
            return self.words.view(self.env, agent, value)
        return "a picture" if frames.is_picture(value) else told(value)

    def _worded(self, agent: Any, legal: dict[str, Any]) -> dict[str, Any]:
        if self.words is None or self.words.move is None:
            return legal
        return {self.words.move(self.env, agent, action): action for action in legal.values()}

    # -- what is played -------------------------------------------------------------------------------------------

    def play(self, actions: dict[Role, str]) -> Rewards:
        chosen, agents = {}, {str(agent): agent for agent in self.env.agents}
        for role, text in actions.items():
            if role in self.legal:
                chosen[role] = self.legal[role].get(matching(text, self.legal[role]) or "")
            else:
                chosen[role] = text if self.env.action_space(agents[role]).contains(text) else None
        self.guilty = [role for role, action in chosen.items() if action is None]
        if self.guilty:
            self.over = True
            return Rewards.process("illegal", dict.fromkeys(self.guilty, -1.0))
        if self.parallel:
            moves = {agents[role]: action for role, action in chosen.items()}
            seen, rewards, _, _, infos = self.env.step(moves)
            self.seen, self.infos = copy.deepcopy((seen, infos))  # a game may change these objects later
        else:
            (action,) = chosen.values()
            self.env.step(action)
            rewards = dict(self.env.rewards)
            while self.env.agents and self._dead(self.env.agent_selection):
                self.env.step(None)
        self.over = not self.env.agents
        paid = {str(agent): float(value) for agent, value in rewards.items() if value}
        self.totals = {role: total + paid.get(role, 0.0) for role, total in self.totals.items()}
        return self._payoff(paid)

    def _dead(self, agent: Any) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _payoff(self, values: dict[Role, float]) -> Rewards:
        if not values:
            return Rewards()
        if self.task.data["level"] == "team":
            return Rewards.team("payoff", sum(values.values()) / len(self.roles))
        return Rewards.agent("payoff", values)

    def outcome(self) -> Rewards:
        return self._payoff(dict.fromkeys(self.guilty, self.task.data["forfeit"]))

    def state(self) -> str:
        """What every agent sees, and whether the game is over."""
        lines = [f"{role} {total:g}" for role, total in self.totals.items()]
        for agent in self.env.agents:
            value = self.seen.get(agent) if self.parallel else self.env.observe(agent)
            value = value["observation"] if isinstance(value, dict) and "observation" in value else value
            lines.append(f"{agent} sees: {self._worded_view(agent, value)}")
        if self.over:
            lines.append("over" + (f", an illegal reply of {', '.join(self.guilty)}" if self.guilty else ""))
        elif not self.parallel:
            lines.append(f"{self.env.agent_selection} to move")
        return "\n".join([*lines, f"step {len(self.history)}"])


def _makers(env: PettingZoo) -> dict[str, Callable[..., Any]]:
    """The functions that make a game, by kind: from PettingZoo's registry, or from a module of another package."""
    game = env.game
    if "." in game:
        module = env.library(game)
        found = {"parallel": getattr(module, "parallel_env", None), "aec": getattr(module, "env", None)}
        return {api: make for api, make in found.items() if make is not None}
    registry = env.library("pettingzoo.env_registry.registration")
    makers: dict[str, Callable[..., Any]] = {}
    for api, names in (("parallel", registry.parallel_registry), ("aec", registry.aec_registry)):
        for name in names:
            if game in (name, _module(name)):
                makers[api] = lambda api=api, name=name, **arguments: registry.make(api, name, **arguments)
    return makers


def _module(name: str) -> str:
    """`tictactoe_v3`, as games are imported, from `classic/tictactoe-v3`, as they are registered."""
    return re.sub(r"-v(\d+)$", r"_v\1", name.rpartition("/")[2])
