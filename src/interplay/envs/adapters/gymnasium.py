"""Any Gymnasium environment that can be shown as text, for one player: `gymnasium:FrozenLake-v1`, `gymnasium:Taxi-v4`.

Roles         player.
Observation   the environment's own `ansi` rendering if it has one, with its colours in words; else its observation:
              text as it is, numbers with their names if the game is known. The legal actions follow. Every prompt is
              fresh and complete. `view = "image"` shows the rendered frame, "both" the observation in words too.
Actions       names if the game is known or `actions` gives them, else numbers; only those that `info["action_mask"]`
              allows are legal. If the action space is Text, any reply is an action.
Rewards       `payoff` (agent): the reward of every step. An illegal reply changes nothing, counts as a step and costs
              −1, `illegal` (process).
Version       2 (tested with gymnasium 1.4.0). Environments of other packages: `arguments` go to `gymnasium.make`, and
              the name may be `module:Name-v0`, which imports the module first.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from interplay.envs.adapters import frames
from interplay.envs.adapters.adapter import matching
from interplay.envs.adapters.frames import FrameOptions
from interplay.envs.adapters.rules import GYMNASIUM, LABELS
from interplay.envs.adapters.spaces import Copied, allowed, choices, labelled, uncoloured
from interplay.envs.env import register
from interplay.errors import ConfigError
from interplay.types import MediaKind, Observation, Rewards, Role, Task

ACTIONS = {  # for Gymnasium's own games, by name without version: the actions in the order of their numbers
    "Acrobot": ("pull left", "nothing", "pull right"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "MountainCar": ("left", "nothing", "right"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
}
_LAST = re.compile(r"^ *\(\w+\)\n", re.MULTILINE)  # a line with the last action, which would shift the rows of a map


class Options(FrameOptions):
    actions: list[str] = Field([], description="names of the actions, in the order of their numbers")


@register("gymnasium:")
class Gymnasium(Copied):
    Options = Options
    package = "gymnasium"
    roles = ("player",)
    version = "2"  # version 1 gave no rules and only numbers

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.env = self._make(task)
        self.title = self.game.rpartition(":")[2].rpartition("/")[2].rpartition("-v")[0] or self.game
        names = task.data["actions"] or ACTIONS.get(self.title, ())
        self.choices = choices(self.env.action_space, names)
        self.total = 0.0
        self.seen, self.info = self.env.reset(seed=task.seed % 2**31)

    @classmethod
    def games(cls) -> list[str]:
        return sorted(cls.library().registry)

    def known_rules(self) -> str:
        return GYMNASIUM.get(self.title, "")

    def _make(self, task: Task) -> Any:
        gym, arguments = self.library(), dict(task.data["arguments"])
        module, colon, name = self.game.rpartition(":")
        if colon:
            self.library(module)
        if name not in gym.registry:
            raise self.unknown(gym.registry)
        try:
            wanted = "ansi" if task.data["view"] == "text" else "rgb_array"
            if wanted == "rgb_array":
                frames.headless()
            if "render_mode" not in arguments and wanted in _modes(gym.spec(name)):
                arguments["render_mode"] = wanted
            return gym.make(name, **arguments)
        except (gym.error.Error, ImportError, TypeError, ValueError) as error:
            raise ConfigError(f"env.name '{task.env}' cannot be made: {str(error).splitlines()[0]}") from None

    def _legal(self) -> dict[str, Any] | None:
        return None if self.choices is None else allowed(self.choices, self.info.get("action_mask"))

    def look(self) -> dict[Role, Observation]:
        legal = tuple(self._legal() or ())
        view = self.task.data["view"]
        words = "" if view == "image" else self._text()
        messages = self.prompt("player", words, legal, self.title)
        if view != "text":
            picture = frames.frame(self.env.render(), self.task.env, self.task.data["pixels"])
            messages = (*messages[:-1], replace(messages[-1], media=(picture,)))
        return {"player": Observation(messages, fresh=True, legal=legal)}

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        return frames.needs(options)

    def _text(self) -> str:
        if getattr(self.env, "render_mode", None) == "ansi":
            return uncoloured(_LAST.sub("", self.env.render()))
        return "a picture" if frames.is_picture(self.seen) else labelled(self.seen, LABELS.get(self.title, ()))

    def play(self, actions: dict[Role, str]) -> Rewards:
        (text,) = actions.values()
        legal = self._legal()
        if legal is None:
            action: Any = text if self.env.action_space.contains(text) else None
        else:
            action = legal.get(matching(text, legal) or "")
        if action is None:
            return Rewards.process("illegal", {"player": -1.0})
        seen, reward, ended, cut, info = self.env.step(action)
        self.seen, self.info = copy.deepcopy((seen, info))  # an environment may change these objects later
        self.over = bool(ended or cut)
        self.total += float(reward)
        return Rewards.agent("payoff", {"player": float(reward)})

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        end = "over" if self.over else f"step {len(self.history)}"
        return f"{self._text()}\n{end}, {self.total:g} so far"

    def redeal(self, role: Role, rng: random.Random) -> Gymnasium:
        return self.fork(rng.getrandbits(62))  # for a single player only the future is hidden


def _modes(spec: Any) -> list[str]:
    """The render modes of an environment, without making it."""
    import gymnasium

    entry = gymnasium.envs.registration.load_env_creator(spec.entry_point) if spec.entry_point else None
    return list(getattr(entry, "metadata", {}).get("render_modes", ()))
