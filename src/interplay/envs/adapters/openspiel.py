"""Any game of OpenSpiel: `openspiel:kuhn_poker`, `openspiel:leduc_poker(players=3)`, `openspiel:hanabi`.

Roles         p0, p1, …, as many as the game has players.
Observation   in games of imperfect information: the player's own information state, or its observation if the game has
              no such text. In games of perfect information: its observation, usually the board (`view` chooses). The
              legal actions follow. Every prompt is fresh and complete.
Actions       as OpenSpiel writes them, `x(1,1)` or `Bet`. Simultaneous moves are made at once.
Chance        drawn from the task, outcome by outcome, so that exploitability can be computed if draws are uniform. The
              few games that draw random numbers themselves (`rng_seed`) are seeded and forked by replay: they keep
              their random numbers even if a fork is given a seed.
Rewards       `payoff` (agent; team if all players have the same): at once if the game pays as it goes, else at the end.
              An illegal reply ends the game: its player ends with the least that the game can pay (or `forfeit`). In
              zero-sum games the others share what it loses. In games with one payoff for all, everybody gets this
              payoff. `illegal` is −1 (process). A truncated game that pays at the end pays nothing.
Left out      mean-field games, which have no players to seat, and crossword, which lists no actions.
Version       2 (tested with open_spiel 2.0.2)
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field

from interplay.envs.adapters.adapter import AdaptedEnv, AdapterOptions, matching, written
from interplay.envs.adapters.rules import OPENSPIEL
from interplay.envs.env import register
from interplay.errors import ConfigError, EnvError
from interplay.types import Observation, Rewards, Role, Task

# Games whose resample_from_infostate works. The others raise an error and write to standard error.
RESAMPLES = frozenset(
    (
        "bargaining", "blackjack", "bridge", "colored_trails", "euchre", "gin_rummy", "hearts", "kuhn_poker",
        "leduc_poker", "oh_hell", "universal_poker",
    )
)  # fmt: skip


class Options(AdapterOptions):
    view: Literal["auto", "information", "observation", "state"] = Field(
        "auto", description="which of OpenSpiel's texts a player sees; state shows everything to everybody"
    )
    forfeit: float | None = Field(None, description="payoff for an illegal reply; default: the least in the game")


@register("openspiel:")
class OpenSpiel(AdaptedEnv):
    Options = Options
    package = "pyspiel"
    version = "2"  # version 1 gave no rules

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.spiel = self._load(task)
        kind = self.spiel.get_type()
        self.kind = kind
        self.roles = tuple(f"p{i}" for i in range(self.spiel.num_players()))
        self.together = kind.utility.name == "IDENTICAL"
        self.paid = [0.0] * len(self.roles)
        self.final: list[float] | None = None  # the final payoffs, if they are not those of the game
        self.seen_as = _view(kind, task.data["view"])
        self.state_now = self.spiel.new_initial_state()
        self.moves: dict[Role, dict[str, int]] = {}
        self._chance()

    @classmethod
    def games(cls) -> list[str]:
        return sorted(cls.library().registered_names())

    def known_rules(self) -> str:
        return OPENSPIEL.get(str(self.kind.short_name), "")

    def _load(self, task: Task) -> Any:
        if self.game.partition("(")[0] not in (names := self.games()):
            raise self.unknown(names)
        game = _load(self.game, json.dumps(task.data["arguments"], sort_keys=True))
        if game.get_type().chance_mode.name == "SAMPLED_STOCHASTIC":
            parameters = dict(game.get_parameters())
            if "rng_seed" not in parameters:
                raise ConfigError(
                    f"env.name '{task.env}' draws random numbers that cannot be seeded; expected another game."
                )
            given = {k: v for k, v in parameters.items() if k != "rng_seed"}
            return self.library().load_game(game.get_type().short_name, {**given, "rng_seed": task.seed % 2**31})
        return game

    def _chance(self) -> None:
        """Draw random outcomes until a player must decide."""
        state = self.state_now
        while state.is_chance_node():
            actions, shares = zip(*state.chance_outcomes(), strict=True)
            even = max(shares) - min(shares) < 1e-12
            state.apply_action(self.rng.choice(actions) if even else self.rng.choices(actions, shares)[0])
        self.over = state.is_terminal()

    def look(self) -> dict[Role, Observation]:
        state, out = self.state_now, {}
        players = range(len(self.roles)) if state.is_simultaneous_node() else (state.current_player(),)
        self.moves = {}
        for i in players:
            actions = state.legal_actions(i)
            if not actions:
                continue
            role = self.roles[i]
            self.moves[role] = written(actions, lambda a, i=i: state.action_to_string(i, a))  # type: ignore[misc]
            legal = tuple(self.moves[role])
            shown = self.prompt(role, self._text(i), legal, self.kind.long_name)
            out[role] = Observation(shown, fresh=True, legal=legal)
        return out

    def _text(self, player: int) -> str:
        if self.seen_as == "information":
            return str(self.state_now.information_state_string(player))
        if self.seen_as == "observation":
            return str(self.state_now.observation_string(player))
        return str(self.state_now)

    def play(self, actions: dict[Role, str]) -> Rewards:
        chosen = {role: matching(text, self.moves[role]) for role, text in actions.items()}
        refused = [role for role, move in chosen.items() if move is None]
        if refused:
            self.over, self.final = True, self._forfeited({self.roles.index(r) for r in refused})
            return Rewards.process("illegal", dict.fromkeys(refused, -1.0))
        moves = {role: self.moves[role][move] for role, move in chosen.items() if move is not None}
        if self.state_now.is_simultaneous_node():
            self.state_now.apply_actions([moves.get(role, 0) for role in self.roles])
        else:
            (move,) = moves.values()
            self.state_now.apply_action(move)
        self._chance()
        if self.kind.reward_model.name == "REWARDS":
            return self._pay(self.state_now.returns())
        return Rewards()

    def _forfeited(self, guilty: set[int]) -> list[float]:
        given, n = self.task.data["forfeit"], len(self.roles)
        least = given if given is not None else self.spiel.min_utility()
        least = least if math.isfinite(least) else -1.0
        if self.together:
            return [least] * n
        rest = n - len(guilty)
        other = [self.paid[i] for i in range(n)]
        if self.kind.utility.name in ("ZERO_SUM", "CONSTANT_SUM") and rest:
            other = [((self.spiel.utility_sum() or 0.0) - least * len(guilty)) / rest] * n
        return [least if i in guilty else other[i] for i in range(n)]

    def _pay(self, total: list[float]) -> Rewards:
        due = [now - before for now, before in zip(total, self.paid, strict=True)]
        self.paid = list(total)
        if self.together:
            return Rewards.team("payoff", due[0]) if due[0] else Rewards()
        return Rewards.agent("payoff", {r: v for r, v in zip(self.roles, due, strict=True) if v})

    def outcome(self) -> Rewards:
        total = self.final
        if total is None:
            total = self.state_now.returns() if self.state_now.is_terminal() else self.paid
        due = [now - before for now, before in zip(total, self.paid, strict=True)]
        if self.together:
            return Rewards.team("payoff", due[0])
        return Rewards.agent("payoff", dict(zip(self.roles, due, strict=True)))

    def state(self) -> str:
        end = "\nover" if self.over else ""
        return f"{self.state_now}{end}{f', a forfeit: {self.final}' if self.final else ''}"

    def fork(self, seed: int | None = None) -> OpenSpiel:
        if self.kind.chance_mode.name == "SAMPLED_STOCHASTIC":
            if (again := self.replayed(self.task.seed)) is None:
                raise EnvError(
                    f"'{self.task.env}' did not repeat itself when it was replayed, so it cannot be forked; expected "
                    "another game."
                )
            return again
        twin = self.twin()
        twin.state_now, twin.history, twin.paid = self.state_now.clone(), self.history.copy(), self.paid.copy()
        twin.rng = random.Random(seed)
        if seed is None:
            twin.rng.setstate(self.rng.getstate())
        return twin

    def redeal(self, role: Role, rng: random.Random) -> Any:
        if self.kind.information.name != "IMPERFECT_INFORMATION":
            return self.fork(rng.getrandbits(62))
        if self.kind.short_name in RESAMPLES and role in self.observe():
            twin = self.fork(rng.getrandbits(62))
            twin.state_now = self.state_now.resample_from_infostate(self.roles.index(role), rng.random)
            return twin
        return super().redeal(role, rng)


@lru_cache(maxsize=64)
def _load(game: str, arguments: str) -> Any:
    """Load a game. It never changes, so all episodes share it."""
    spiel = OpenSpiel.library()
    given: Mapping[str, Any] = json.loads(arguments)
    try:
        loaded = spiel.load_game(game, dict(given)) if given else spiel.load_game(game)
    except (spiel.SpielError, IndexError, TypeError) as error:
        raise ConfigError(f"env.name 'openspiel:{game}' cannot be loaded: {str(error).splitlines()[-1]}.") from None
    if loaded.get_type().dynamics.name == "MEAN_FIELD":
        raise ConfigError(
            f"env.name 'openspiel:{game}' is a mean-field game, which has no players to seat; expected another game."
        )
    if not loaded.num_distinct_actions():
        raise ConfigError(
            f"env.name 'openspiel:{game}' does not list its actions (they are structures); expected another game."
        )
    return loaded


def _view(kind: Any, wanted: str) -> str:
    has = {
        "information": kind.provides_information_state_string,
        "observation": kind.provides_observation_string,
        "state": True,
    }
    if wanted == "auto":
        if kind.information.name == "ONE_SHOT":
            return "state"  # it shows the payoffs, which no other view does
        hidden = kind.information.name == "IMPERFECT_INFORMATION"
        order = ("information", "observation") if hidden else ("observation", "information", "state")
        wanted = next((view for view in order if has[view]), "none")
    if not has.get(wanted):
        raise ConfigError(
            f"env.view is '{wanted}', but '{kind.short_name}' does not have this view; expected one of "
            f"{', '.join(view for view, there in has.items() if there)}."
        )
    return wanted
