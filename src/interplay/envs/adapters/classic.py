"""PettingZoo's classic games in words: the text of an agent's observation, and the names of its actions.

Each view is made from the agent's own observation, or from public information. No hidden cards are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class GameWords:
    """`view(env, agent, observation)`; the actions by number, or `move(env, agent, action)` if they vary."""

    view: Callable[[Any, Any, Any], str]
    actions: tuple[str, ...] = ()
    move: Callable[[Any, Any, Any], str] | None = None


def words_of(game: str) -> GameWords | None:
    """The words of `tictactoe_v3`, for any version; None if the game is not known here."""
    return GAMES.get(game.rpartition("_v")[0])


def _board(planes: Any, number: Callable[[int, int], int] | None = None) -> str:
    """# for mine, @ for theirs. An empty place is a dot, or the number of its action."""

    def cell(r: int, c: int) -> str:
        if planes[r, c, 0]:
            return "#"
        if planes[r, c, 1]:
            return "@"
        return str(number(r, c)) if number else "."

    height, width = planes.shape[:2]
    rows = [[cell(r, c) for c in range(width)] for r in range(height)]
    size = max(len(text) for row in rows for text in row)
    return "\n".join(" ".join(text.rjust(size) for text in row) for row in rows)


def _tictactoe(env: Any, agent: Any, seen: Any) -> str:
    # The numbers of actions count down the columns, and so does the first axis of the planes.
    return "# yours, @ theirs:\n" + _board(np.swapaxes(seen, 0, 1), lambda r, c: 3 * c + r)


def _connect_four(env: Any, agent: Any, seen: Any) -> str:
    return f"# yours, @ theirs:\n{' '.join(str(c) for c in range(seen.shape[1]))}\n{_board(seen)}"


def _go(env: Any, agent: Any, seen: Any) -> str:
    size = seen.shape[0]
    return f"# yours, @ theirs; point (row, column) is {size} · row + column, {size * size} passes:\n{_board(seen)}"


HANDS = ("rock", "paper", "scissors")


def _rps(env: Any, agent: Any, seen: Any) -> str:
    last = int(seen)
    return f"The other's last move: {HANDS[last] if last < len(HANDS) else 'none'}."


def _leduc(env: Any, agent: Any, seen: Any) -> str:
    ones = np.flatnonzero(seen)
    public = [("J", "Q", "K")[i - 3] for i in ones if 3 <= i < 6]
    mine, theirs = (next((int(i) - first for i in ones if first <= i < first + 15), 0) for first in (6, 21))
    hand = " ".join(("J", "Q", "K")[i] for i in ones if i < 3)
    return f"Your card: {hand}. Public card: {' '.join(public) or 'none yet'}. Chips in: you {mine}, they {theirs}."


def _cards(seen: Any) -> str:
    ranks, suits = "A23456789TJQK", "shdc"
    return " ".join(f"{ranks[i % 13]}{suits[i // 13]}" for i in np.flatnonzero(seen[:52]))


def _limit(env: Any, agent: Any, seen: Any) -> str:
    raises = [int(np.flatnonzero(seen[52 + 5 * i : 57 + 5 * i])[0]) for i in range(4)]
    return f"Your cards and the public ones: {_cards(seen)}. Raises by round: {' '.join(map(str, raises))}."


def _no_limit(env: Any, agent: Any, seen: Any) -> str:
    return f"Your cards and the public ones: {_cards(seen)}. Chips in: you {seen[52]:g}, the most {seen[53]:g}."


def _hanabi(env: Any, agent: Any, seen: Any) -> str:
    return str(_spiel(env).observation_string(env.possible_agents.index(agent)))


def _hanabi_move(env: Any, agent: Any, action: Any) -> str:
    return str(_spiel(env).action_to_string(env.possible_agents.index(agent), int(action)))


def _spiel(env: Any) -> Any:
    return env.unwrapped.hanabi_env.game_state


def _chess(env: Any, agent: Any, seen: Any) -> str:
    board = env.unwrapped.board
    side = "white (capitals)" if env.possible_agents.index(agent) == 0 else "black (small letters)"
    return f"{board}\nYou play {side}. {board.fen()}"


def _chess_move(env: Any, agent: Any, action: Any) -> str:
    from pettingzoo.classic.chess import chess_utils

    return chess_utils.action_to_move(env.unwrapped.board, int(action), env.possible_agents.index(agent)).uci()


POKER = ("call", "raise", "fold", "check")
GAMES = {
    "chess": GameWords(_chess, move=_chess_move),
    "connect_four": GameWords(_connect_four),
    "go": GameWords(_go),
    "hanabi": GameWords(_hanabi, move=_hanabi_move),
    "leduc_holdem": GameWords(_leduc, POKER),
    "rps": GameWords(_rps, HANDS),
    "texas_holdem": GameWords(_limit, POKER),
    "texas_holdem_no_limit": GameWords(
        _no_limit, ("fold", "check or call", "raise half the pot", "raise the pot", "all in")
    ),
    "tictactoe": GameWords(_tictactoe),
}
