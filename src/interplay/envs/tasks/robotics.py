"""Robotics: a planner knows the order, and a controller moves a MuJoCo arm over a table of blocks by text commands.

A hand on three slides moves over a table and can hold a block by suction. Blocks are free bodies with weight and
friction; MuJoCo simulates how they lie, tip and collide.

Roles         planner, controller; `team = "single"`: the controller alone, who then sees the order.
Turns         in each round the planner, who sees order and table, says something. Then the controller, who sees the
              table and the planner's words but not the order, gives commands. The episode ends when the order is
              carried out, or after `rounds`.
Actions       planner: free text. controller: up to `commands` of them, separated by commas or lines: `move X Y` (in
              centimetres), `up`, `down`, `grip`, `release`. Each is simulated until the hand has arrived.
Rewards       `placed` (team, at the end): 1 if every block of the order is released within 3 cm of its zone, else 0.
              `progress` (team): how much nearer a reply brought those blocks; over a solved episode these add up to 1.
              `illegal` (process): −0.1 for a reply that cannot be parsed or names a place off the table; nothing is
              done then.
Data          tables drawn from the seed: `blocks` blocks, as many zones, and an order for `orders` of the blocks.
Checker       MuJoCo's own state. It is a value: a fork copies it, and the same commands give the same state.
Observation   where hand, blocks and zones are, in words. `view = "image"` shows the table by a camera instead, as
              MuJoCo renders it, and words say only what it cannot show: the height of the hand, what it holds, and
              where X and Y go. "both" shows all of it. On a machine without a screen, set MUJOCO_GL to egl or osmesa.
Version       1
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.envs.env import PENALTY, register
from interplay.envs.speech import heard
from interplay.envs.splits import TRIES, split_of
from interplay.envs.tasks.arm import COLOURS, HALF, HIGH, LOW, SHARPEST, TINTS, Command, arm
from interplay.envs.tasks.data import DataEnv, DataOptions, DataRow
from interplay.errors import ConfigError
from interplay.types import Media, MediaKind, Message, Observation, Rewards, Role, Task

ZONES = "ABCDE"
REACH = 30  # centimetres from the middle of the table to each side
PLACED = 0.03  # metres from the middle of a zone
APART = 9  # smallest distance in centimetres between things on a new table
LONGEST = 400  # the largest number of characters in a controller's reply
_COMMAND = re.compile(r"move\s+(?:to\s+)?(-?\d+(?:\.\d+)?)\s+(-?\d+(?:\.\d+)?)|(up|down|grip|release)", re.I)


class Options(DataOptions):
    team: Literal["pair", "single"] = Field("pair", description="planner and controller, or the controller alone")
    blocks: int = Field(3, ge=1, le=len(COLOURS), description="number of blocks on the table")
    orders: int = Field(1, ge=1, le=len(COLOURS), description="number of blocks that must be moved")
    rounds: int = Field(4, ge=1, le=50, description="turns of the controller")
    commands: int = Field(8, ge=1, le=40, description="largest number of commands in one reply")
    view: Literal["text", "image", "both"] = Field(
        "text", description="how the table is shown: in words, by a camera, or both"
    )
    pixels: int = Field(256, ge=16, le=SHARPEST, description="side of the camera's picture")

    @model_validator(mode="after")
    def _orders_fit(self) -> Options:
        if self.orders > self.blocks:
            raise ConfigError(f"env.orders is {self.orders}; expected at most env.blocks, which is {self.blocks}.")
        return self


@register("robotics")
class Robotics(DataEnv):
    Options = Options
    kind: ClassVar[str] = "blocks"
    success: ClassVar[str] = "placed"
    reward_names: ClassVar[tuple[str, ...]] = ("placed", "progress", "illegal")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("controller",) if task.data["team"] == "single" else ("planner", "controller")
        self.arm = arm(len(self.row["blocks"]))
        self.physics = self.arm.lay(self.row)  # the state of the simulation, as a value
        self.round = 0
        self.plan: str | None = None
        self.refused = ""
        self.first = self.potential = self._distance()

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        names, count = list(COLOURS)[: options["blocks"]], options["blocks"]
        for _ in range(TRIES):
            places = _scatter(rng, 2 * count)
            zones = dict(zip(ZONES, places[count:], strict=False))
            chosen = rng.sample(names, options["orders"]), rng.sample(list(zones), options["orders"])
            order = [list(pair) for pair in zip(*chosen, strict=True)]
            row = {"blocks": dict(zip(names, places, strict=False)), "zones": zones, "order": order}
            if split_of(repr(row)) == split:
                return row
        raise ConfigError(f"no table for the {split} split was found in {TRIES:,} draws; expected another seed.")

    # -- the contract ---------------------------------------------------------------------------------------------

    @property
    def solved(self) -> bool:
        table = self.arm.table(self.physics)
        return table.held is None and all(
            math.dist(table.blocks[block][:2], self._zone(zone)) < PLACED and table.blocks[block][2] < 2 * HALF
            for block, zone in self.row["order"]
        )

    @property
    def over(self) -> bool:
        return self.round >= self.task.data["rounds"] or self.solved

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        role = "planner" if self.plan is None and len(self.roles) == 2 else "controller"
        view = self.task.data["view"]
        now = [self._felt() if view == "image" else self._scene()]
        now.append(f"Round {self.round + 1} of {self.task.data['rounds']}.")
        if role == "planner" or len(self.roles) == 1:
            now.append(f"Order: {self._order()}.")
        if self.plan is not None:
            now.append(f"The planner says: {self.plan}")
        if self.refused:
            now.append(f"The last reply was refused: {self.refused}.")
        count = self.task.data["commands"]
        duty = (
            "You are the planner: tell the controller, who does not know the order, what to bring where."
            if role == "planner" else
            f"You move a hand over a table. Reply with up to {count} commands, separated by commas, and nothing else: "
            "move X Y (centimetres), up, down, grip, release. Grip when the hand is down over a block."
        )  # fmt: skip
        media = () if view == "text" else (Media("image", self.picture(self.task.data["pixels"])),)
        if media:
            colours = ", ".join(f"{z} is {tint}" for z, tint in zip(self.row["zones"], TINTS, strict=False))
            now.append(f"In the picture zones are discs: {colours}.")
        messages = (Message("system", duty), Message("user", "\n".join(now), media=media))
        return {role: Observation(messages, fresh=True, phase=role)}

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        return frozenset({"image"} if options.get("view") == "image" else ())

    def caption(self, role: Role) -> str:
        return "" if self.task.data["view"] == "text" else self._scene()

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        if role == "planner":
            self.plan = heard(text)
            return Rewards()
        self.plan, self.refused = None, ""
        self.round += 1
        try:
            commands = read(text, self.task.data["commands"])
        except ValueError as error:
            self.refused = str(error)
            return Rewards.team("progress", 0.0) + Rewards.process("illegal", {role: PENALTY})
        self.physics = self.arm.run(self.physics, commands)
        before, self.potential = self.potential, self._distance()
        return Rewards.team("progress", round((before - self.potential) / self.first, 3))

    def outcome(self) -> Rewards:
        return Rewards.team("placed", float(self.solved))

    def state(self) -> str:
        said = "" if self.plan is None else f"\nplan: {self.plan}"
        end = "solved" if self.solved else "not solved"
        return f"{self._scene()}\norder: {self._order()}; round {self.round}; {end}{said}"

    def script(self, role: Role) -> str:
        table = self.arm.table(self.physics)
        away = [(b, z) for b, z in self.row["order"] if math.dist(table.blocks[b][:2], self._zone(z)) >= PLACED]
        if not away:  # it is at its place and only has to be released
            return "Let go of it." if role == "planner" else "down, release"
        block, zone = away[0]
        if role == "planner":
            return f"Bring the {block} block to zone {zone}."
        (x, y), (u, v) = (_cm(table.blocks[block]), self.row["zones"][zone])
        return f"up, move {x:.1f} {y:.1f}, down, grip, up, move {u} {v}, down, release"

    def picture(self, size: int) -> bytes:
        """The table seen from above and in front, as a PNG."""
        return self.arm.picture(self.physics, size)

    # -- words ----------------------------------------------------------------------------------------------------

    def _felt(self) -> str:
        """What a picture does not show."""
        return f"hand: {self._hand()}\nX goes from -{REACH} (left) to {REACH}, Y from -{REACH} (near) to {REACH}."

    def _hand(self) -> str:
        table = self.arm.table(self.physics)
        holds = "nothing" if table.held is None else f"the {table.held} block"
        return f"{'up' if table.hand[2] > (HIGH + LOW) / 2 else 'down'}, holding {holds}"

    def _scene(self) -> str:
        table = self.arm.table(self.physics)
        x, y = _cm(table.hand)
        lines = [f"hand: {x:.1f} {y:.1f}, {self._hand()}"]
        lines += [f"{name} block: {_cm(at)[0]:.1f} {_cm(at)[1]:.1f}" for name, at in table.blocks.items()]
        return "\n".join([*lines, *(f"zone {name}: {u} {v}" for name, (u, v) in self.row["zones"].items())])

    def _order(self) -> str:
        return " and ".join(f"bring the {block} block to zone {zone}" for block, zone in self.row["order"])

    def _zone(self, name: str) -> tuple[float, float]:
        x, y = self.row["zones"][name]
        return x / 100, y / 100

    def _distance(self) -> float:
        """The total distance in metres that the blocks of the order still have to move."""
        blocks = self.arm.table(self.physics).blocks
        return sum(math.dist(blocks[b][:2], self._zone(z)) for b, z in self.row["order"])


def read(text: str, limit: int) -> list[Command]:
    """The commands in a reply. A ValueError says why there are none."""
    if len(text) > LONGEST:
        raise ValueError(f"it is longer than {LONGEST} characters")
    out: list[Command] = []
    for part in re.split(r"[,\n]+", text.strip(" \t\r\n.,")):
        found = _COMMAND.fullmatch(part.strip(" \t.;"))
        if found is None:
            raise ValueError(f"'{heard(part, 30)}' is no command")
        x, y = (float(found[i] or 0) for i in (1, 2))
        if max(abs(x), abs(y)) > REACH:
            raise ValueError(f"the table ends {REACH} cm from its middle")
        out.append((found[3].lower() if found[3] else "move", x / 100, y / 100))
    if len(out) > limit:
        raise ValueError(f"it has {len(out)} commands; {limit} are allowed")
    return out


def _cm(at: tuple[float, ...]) -> tuple[float, float]:
    return round(100 * at[0], 1) + 0.0, round(100 * at[1], 1) + 0.0


def _scatter(rng: random.Random, count: int) -> list[list[int]]:
    """Places on the table, in centimetres, that are far enough from each other."""
    places: list[list[int]] = []
    while len(places) < count:
        at = [rng.randint(4 - REACH, REACH - 4) for _ in range(2)]
        if all(math.dist(at, other) >= APART for other in places):
            places.append(at)
    return places
