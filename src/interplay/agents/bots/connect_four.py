"""Alpha-beta search for Connect Four on bitboards. Positions at the depth limit are estimated from open lines."""

from __future__ import annotations

import random
from functools import lru_cache

from interplay.agents.bots.bot import Bot, legal_actions, register_bot
from interplay.envs.env import Env
from interplay.envs.games.connect_four import ConnectFour, connected
from interplay.errors import ConfigError
from interplay.types import Role

WIN = 1_000_000  # minus the number of discs on the board, so that early wins and late losses score higher


@lru_cache(maxsize=32)
def _lines(columns: int, rows: int, line: int) -> tuple[int, ...]:
    """Every winning line of the grid, as a bitboard."""
    found = []
    for c in range(columns):
        for r in range(rows):
            for dc, dr in ((1, 0), (0, 1), (1, 1), (1, -1)):
                ends = (c + (line - 1) * dc, r + (line - 1) * dr)
                if ends[0] < columns and 0 <= ends[1] < rows:
                    found.append(sum(1 << (c + i * dc) * (rows + 1) + r + i * dr for i in range(line)))
    return tuple(found)


class _Search:
    """The search from one position. `mine` and `taken` are bitboards as in `connected`: the discs of the mover, and
    those of both players."""

    def __init__(self, env: ConnectFour) -> None:
        self.rows, self.line, self.columns = env.rows, env.line, env.columns
        self.lines = _lines(env.columns, env.rows, env.line)
        self.order = sorted(range(env.columns), key=lambda c: abs(2 * c - env.columns + 1))  # the middle columns first
        self.floor = [1 << c * (env.rows + 1) for c in range(env.columns)]
        self.top = [1 << c * (env.rows + 1) + env.rows - 1 for c in range(env.columns)]
        self.whole = [(top << 1) - floor for top, floor in zip(self.top, self.floor, strict=True)]
        self.known: dict[tuple[int, int, int], tuple[int, int]] = {}  # lower and upper bounds of searched positions

    def moves(self, taken: int) -> list[int]:
        """The cells, as bits, on which a disc can land."""
        return [(taken + self.floor[c]) & self.whole[c] for c in self.order if not taken & self.top[c]]

    def value(self, mine: int, taken: int, depth: int, low: int, high: int) -> int:
        """The value of the position for the mover; exact if it lies between `low` and `high`."""
        moves = self.moves(taken)
        if not moves:
            return 0
        for move in moves:
            if connected(mine | move, self.rows, self.line):
                return WIN - taken.bit_count() - 1
        if depth <= 0:
            return self._estimate(mine, taken ^ mine)
        key = (mine, taken, depth)
        floor, roof = self.known.get(key, (-WIN, WIN))
        if floor >= high or roof <= low or floor == roof:
            return floor if floor >= high or floor == roof else roof
        best, bar = -WIN, max(low, floor)
        for move in moves:
            best = max(best, -self.value(taken ^ mine, taken | move, depth - 1, -high, -bar))
            bar = max(bar, best)
            if bar >= high:
                break
        self.known[key] = (best, roof) if best >= high else (floor, best) if best <= low else (best, best)
        return best

    def _estimate(self, mine: int, theirs: int) -> int:
        """For every line with discs of one side only, the square of their number; the opponent's count negative."""
        total = 0
        for line in self.lines:
            a, b = line & mine, line & theirs
            if a and not b:
                total += a.bit_count() ** 2
            elif b and not a:
                total -= b.bit_count() ** 2
        return total


@register_bot("alpha_beta")
class AlphaBetaBot(Bot):
    """Connect Four by alpha-beta search; `alpha_beta:6` searches six moves deep (default 4); ties are random."""

    takes = "the depth, a whole number from 1"

    def __init__(self, env_name: str, setting: str = "") -> None:
        super().__init__(env_name, setting)
        if setting and not (setting.isdecimal() and int(setting) > 0):
            raise ConfigError(f"bot 'alpha_beta:{setting}' has a wrong depth; expected a whole number from 1.")
        self.depth = int(setting or 4)

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        legal_actions(env, role)
        if not isinstance(env, ConnectFour):
            self.refuse("is another game; expected Connect Four")
        search, mover = _Search(env), env.moves % 2
        mine, taken = env.discs[mover], env.discs[0] | env.discs[1]
        moves = search.moves(taken)
        rng.shuffle(moves)  # the first of equal moves is kept, so the shuffle decides among them
        chosen, best = moves[0], -WIN
        for move in moves:
            if connected(mine | move, env.rows, env.line):
                value = WIN
            else:
                value = -search.value(taken ^ mine, taken | move, self.depth - 1, -WIN, -best)
            if value > best:
                chosen, best = move, value
        return str((chosen.bit_length() - 1) // (env.rows + 1) + 1)

    def suits(self, env: Env) -> None:
        if not isinstance(env, ConnectFour):
            self.refuse("is another game; expected Connect Four")
