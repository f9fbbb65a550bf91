"""Any game of TextArena: `textarena:TicTacToe-v0`, `textarena:KuhnPoker-v0-train`, `textarena:Chess-v0-raw`.

Roles         p0, p1, …: `players` of them, by default the smallest number that the game accepts (two if possible).
Observation   what TextArena shows the player. `Name-v0` shows the whole history in every prompt, and `-train` the rules
              and the position; these prompts are fresh. `-raw` shows what is new since the player's last turn, and
              the conversation is kept.
Actions       free text, as the game explains, usually in brackets: `[4]`. If a game lists all its moves, these are the
              legal actions (`GAMES_THAT_LIST`, `MOVES`), and a reply that contains two of them is not legal.
Chance        TextArena draws from Python's and NumPy's global generators; here every episode has its own generators.
Rewards       `payoff` (agent, at the end): TextArena's. An illegal reply costs −1, `illegal` (process). Then TextArena
              asks once more; after a second illegal reply in a row the player loses the game or leaves it.
Left out      games that need a language model as judge, or word lists that NLTK must download first.
Version       1 (tested with textarena 0.7.4)
"""

from __future__ import annotations

import copy
import io
import json
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from typing import Any

import numpy as np
from pydantic import Field

from interplay.envs.adapters.adapter import AdaptedEnv, AdapterOptions
from interplay.envs.env import register
from interplay.errors import ConfigError
from interplay.types import Message, Observation, Rewards, Role, Task

PLAYERS = (2, 1, *range(3, 16))  # numbers of players, tried in this order
# Games whose own list of moves is complete: every listed move is accepted, and no move is missing.
GAMES_THAT_LIST = frozenset(
    (
        "Crusade", "KuhnPoker", "Othello", "PigDice", "SimpleTak", "Stratego", "ThreePlayerTicTacToe", "TicTacToe",
        "WildTicTacToe",
    )
)  # fmt: skip
MOVES = {  # games whose moves are always the same, and which list them only in their rules
    "Blackjack": ("[Hit]", "[Stand]"),
    "IteratedMatchingPennies": ("[heads]", "[tails]"),
    "IteratedRockPaperScissors": ("[rock]", "[paper]", "[scissors]"),
}
_TOO_LONG = re.compile(r"\d{1000}")  # games convert numbers with int(), which raises an error from 4,300 digits on
_LIST = re.compile(r"(?:available|valid|legal)[^:\n]*:(.*)", re.IGNORECASE)


class Options(AdapterOptions):
    players: int = Field(
        0, ge=0, le=15, description="number of players; 0: the fewest possible, but two if the game can"
    )


@register("textarena:")
class TextArena(AdaptedEnv):
    Options = Options
    package = "textarena"

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        arena, arguments = self.library(), json.dumps(task.data["arguments"], sort_keys=True)
        if self.game not in arena.envs.registration.ENV_REGISTRY:
            raise self.unknown(self.games())
        players = task.data["players"] or _players(self.game, arguments)
        self.roles = tuple(f"p{i}" for i in range(players))
        self.chance = _Chance(task.seed)
        with self.chance.mine():
            self.env = _begun(self.game, arguments, players)
        self.listed: dict[int, tuple[str, ...]] = {}

    @classmethod
    def games(cls) -> list[str]:
        return sorted(cls.library().envs.registration.ENV_REGISTRY)

    def look(self) -> dict[Role, Observation]:
        state = self.env.state
        player = state.current_player_id
        for sender, text, _ in state.observations[player]:
            if sender == -1 and (found := _LIST.search(text)):  # said by the game, and not by a player in its name
                self.listed[player] = tuple(dict.fromkeys(re.findall(r"\[[^\[\]]+\]", found[1])))
        with self.chance.mine():
            _, view = self.env.get_observation()
        if isinstance(view, str):
            messages: tuple[Message, ...] = (Message("user", view.strip()),)
        else:
            messages = tuple(Message("user", _spoken(state, *said)) for said in view if said[0] != player)
        family = self.game.partition("-")[0]
        legal = self.listed.get(player, ()) if family in GAMES_THAT_LIST else MOVES.get(family, ())
        if self.task.data["rules"] and isinstance(view, str):
            messages = (Message("system", self.task.data["rules"]), *messages)
        seen = Observation(messages, fresh=isinstance(view, str), legal=legal)
        return {self.roles[player]: seen}

    def play(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        legal, words = self.history[-1][0][role].legal, text.casefold()
        if sum(move.casefold() in words for move in legal) > 1:  # games take the first one, so an echo would be a move
            text = ""
        if _TOO_LONG.search(text):
            text = ""
        state = self.env.state
        player, before, out = state.current_player_id, self._errors(), self._invalid(state.current_player_id)
        with self.chance.mine():
            self.over, _ = self.env.step(text)
        refused = (self._errors() > before and self.env.state.current_player_id == player) or (
            self._invalid(player) and not out
        )
        if refused:
            return Rewards.process("illegal", {role: -1.0})
        self.listed.pop(player, None)
        return Rewards()

    def _errors(self) -> int:
        return int(getattr(self.env.state, "error_count", 0))

    def _invalid(self, player: int) -> bool:
        return bool(self.env.state.game_info.get(player, {}).get("invalid_move"))

    def outcome(self) -> Rewards:
        paid = self.env.state.rewards or {}
        return Rewards.agent("payoff", {role: float(paid.get(i, 0.0)) for i, role in enumerate(self.roles)})

    def state(self) -> str:
        """Everything that was said, including what only one player heard."""
        state = self.env.state
        end = f"over, {state.rewards}" if self.over else f"{self.roles[state.current_player_id]} to speak"
        return "\n".join([*(f"{'game' if i == -1 else f'p{i}'}: {text}" for i, text in state.logs), end])

    def fork(self, seed: int | None = None) -> TextArena:
        self.observe()  # observing takes new messages from the game, so it must happen before the copy
        twin = self.twin()
        twin.env, twin.history, twin.listed = copy.deepcopy(self.env), self.history.copy(), dict(self.listed)
        twin.chance = _Chance(seed) if seed is not None else self.chance.copy()
        return twin


class _Chance:
    """The states of Python's and NumPy's global generators for one episode."""

    def __init__(self, seed: int) -> None:
        self.python: Any = random.Random(seed).getstate()
        self.numpy: Any = np.random.RandomState(seed % 2**32).get_state()

    def copy(self) -> _Chance:
        return copy.copy(self)  # both are replaced, never changed

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Inside, the global generators have this episode's states; afterwards, their earlier states."""
        outside = random.getstate(), np.random.get_state()
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        try:
            with redirect_stdout(io.StringIO()):  # some games print
                yield
        finally:
            self.python, self.numpy = random.getstate(), np.random.get_state()
            random.setstate(outside[0])
            np.random.set_state(outside[1])


def _spoken(state: Any, sender: int, text: str, *_: object) -> str:
    return text if sender == -1 else f"[{state.role_mapping.get(sender, f'Player {sender}')}] {text}"


def _begun(game: str, arguments: str, players: int) -> Any:
    arena = TextArena.library()
    try:
        env = arena.make(game, **json.loads(arguments))
    except (TypeError, ValueError, ImportError, LookupError, OSError, SyntaxError) as error:
        raise ConfigError(f"env.name 'textarena:{game}' cannot be made: {_why(error)}.") from None
    try:
        env.reset(num_players=players)
    except (AssertionError, ValueError) as error:
        raise ConfigError(
            f"env.players is {players}, but 'textarena:{game}' does not accept this: {_why(error)}."
        ) from None
    except (TypeError, AttributeError, KeyError, IndexError) as error:  # games that cannot start in this version
        raise ConfigError(f"env.name 'textarena:{game}' cannot be started: {_why(error)}.") from None
    return env


def _why(error: Exception) -> str:
    text = " ".join(str(error).replace("*", "").split())[:200]
    newer = " (this game is written for a newer Python)" if isinstance(error, SyntaxError) else ""
    return f"{type(error).__name__}: {text}{newer}"


@lru_cache(maxsize=1024)
def _players(game: str, arguments: str) -> int:
    """The first number of players with which the game starts."""
    for count in PLAYERS:
        with _Chance(0).mine():
            try:
                _begun(game, arguments, count)
            except ConfigError as error:
                if "env.players" in str(error):
                    continue
                raise
            return count
    raise ConfigError(f"'textarena:{game}' does not start with any number of players from 1 to 15; set env.players.")
