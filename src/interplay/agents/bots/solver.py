"""The bot `solver`: solves every puzzle, as the actor, the planner, or both.

As the planner it names the moves that it would play as the actor. The solvers of Path, Sudoku, Blocksworld and Queens
are in the modules of these games, which need them to generate levels; Sokoban's solver is here. In word games (twenty
questions, taboo, proposer–solver, the spy, negotiation, spotter and pilot, matrix games) it plays each role by a simple
rule.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from functools import cache
from typing import Literal

from interplay.agents.bots.bot import Bot, register_bot
from interplay.envs.env import Env
from interplay.envs.games.blocksworld import Blocksworld
from interplay.envs.games.eight_queens import EightQueens
from interplay.envs.games.hider_guesser import HiderGuesser
from interplay.envs.games.matrix import Matrix
from interplay.envs.games.negotiation import WORTH, Negotiation, worth
from interplay.envs.games.plan_path import PlanPath
from interplay.envs.games.proposer_solver import ProposerSolver
from interplay.envs.games.puzzle import Puzzle
from interplay.envs.games.signalling import NOTHING, Signalling
from interplay.envs.games.social_deduction import SocialDeduction
from interplay.envs.games.sokoban import Sokoban
from interplay.envs.games.sokoban_room import Room, bits, offsets, reach, shift, walk
from interplay.envs.games.spotter_pilot import SIGNS, SpotterPilot
from interplay.envs.games.sudoku import Sudoku
from interplay.envs.games.taboo import Taboo
from interplay.errors import ConfigError, EnvError
from interplay.types import Role

LIMIT = 400_000  # positions that a Sokoban search may visit; beyond it the room counts as too hard


@register_bot("solver")
class SolverBot(Bot):
    """Solves puzzles (the best moves as actor, the best advice as planner). In word games it follows a simple rule."""

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        if role not in env.observe():
            raise EnvError(f"a bot was asked to act as '{role}', but '{role}' must not act in '{env.task.env}' now.")
        if isinstance(env, Puzzle):
            return ", ".join(solution(env)[: env.task.data["moves"]])
        for kind, rule in _RULES.items():
            if isinstance(env, kind):
                return rule(env, role, rng)
        self.suits(env)
        raise AssertionError("unreachable")

    def suits(self, env: Env) -> None:
        if not isinstance(env, (*_RULES, PlanPath, Sudoku, Blocksworld, EightQueens, Sokoban)):
            raise ConfigError(
                f"bot 'solver' cannot play '{self.env_name}'; bot 'random' plays any game with listed actions."
            )


def solution(env: Puzzle) -> list[str]:
    """The fewest moves that solve the puzzle from here. In Sokoban: the fewest pushes and, among those solutions, the
    fewest moves. In Sudoku and Queens: one move for each cell that is not right.

    If a Sokoban position cannot be solved any more, this is any one legal move.
    """
    if isinstance(env, Sokoban):
        return list(sokoban(env.level, env.boxes, env.player) or env.legal_moves()[:1])
    if isinstance(env, (PlanPath, Sudoku, Blocksworld, EightQueens)):
        return env.solution()
    raise ConfigError(f"there is no solver for '{env.task.env}'; expected a puzzle.")


# -- Sokoban ----------------------------------------------------------------------------------------------------------


Fewest = Literal["pushes", "moves"]


def sokoban(room: Room, boxes: int, player: int, fewest: Fewest = "pushes") -> tuple[str, ...] | None:
    """The moves of a solution with the fewest pushes (or moves) and, among those, the fewest moves (or pushes).

    None if there is no solution. The solution is cached for every position on its path, so following it needs only one
    search.
    """
    level = (fewest, room.width, room.floor, room.goals)
    if (plan := _PLANS.get((level, boxes, player))) is None:
        plan = _search(room, boxes, player, fewest)
        if len(_PLANS) > 100_000:
            _PLANS.clear()
        _PLANS[level, boxes, player] = plan
        for n, (now, at) in enumerate(_positions(room, boxes, player, plan)):
            _PLANS[level, now, at] = plan[n:]
    return plan or None


_PLANS: dict[tuple[tuple[str, int, int, int], int, int], tuple[str, ...]] = {}


def _positions(room: Room, boxes: int, player: int, moves: tuple[str, ...]) -> list[tuple[int, int]]:
    steps, found = offsets(room.width), []
    for move in moves:
        found.append((boxes, player))
        player += steps[move]
        if boxes >> player & 1:
            boxes ^= 1 << player | 1 << (player + steps[move])
    return found


def _search(room: Room, boxes: int, player: int, fewest: Fewest) -> tuple[str, ...]:
    """A* over (boxes, player after a push), ordered by pushes and then moves, or the reverse; () if it is unsolvable.

    The estimate is the cheapest matching of boxes to goals on an empty floor, a lower bound of both pushes and moves.
    It is very large if some box cannot reach any goal.
    """
    width, floor, goals = room.width, room.floor, room.goals
    if boxes == goals:
        return ()
    alive = sum(1 << cell for cell in {cell for pulls in room.pulls for cell in pulls})
    estimate = _estimator(room)
    first = (boxes, player)
    cost: dict[tuple[int, int], tuple[int, int]] = {first: (0, 0)}
    came: dict[tuple[int, int], tuple[tuple[int, int], int, int]] = {}  # previous node, the pusher's cell, the offset
    queue = [(estimate(boxes), 0, 0, first)]  # first cost plus estimate, second cost, first cost, node
    while queue:
        _, second, leading, node = heapq.heappop(queue)
        if cost[node] < (leading, second):
            continue
        boxes, player = node
        if boxes == goals:
            return tuple(_unwind(room, first, node, came))
        if len(cost) > LIMIT:
            raise EnvError(f"a Sokoban room has more than {LIMIT:,} positions to search; expected a smaller one.")
        free = floor & ~boxes
        walked = _walked(player, free, width)
        for offset in (1, -1, width, -width):
            # Cells from which the player can push a box onto a free cell that still has a way to some goal.
            beside = shift(boxes, -offset) & shift(free & alive, -2 * offset) & free
            for cell in bits(beside):
                if cell not in walked:
                    continue
                box = cell + offset
                pushed = boxes ^ 1 << box ^ 1 << (box + offset)
                if _frozen(pushed, box + offset, floor, goals, width):
                    continue
                new, steps = (pushed, box), walked[cell] + 1
                spent = (leading + 1, second + steps) if fewest == "pushes" else (leading + steps, second + 1)
                if spent < cost.get(new, (10**9, 0)) and (ahead := estimate(pushed)) < 10**6:
                    cost[new], came[new] = spent, (node, cell, offset)
                    heapq.heappush(queue, (spent[0] + ahead, spent[1], spent[0], new))
    return ()


def _estimator(room: Room) -> Callable[[int], int]:
    tables = [{cell: pulls.get(cell, 10**6) for cell in bits(room.floor)} for pulls in room.pulls]
    count = len(tables)

    @cache
    def estimate(boxes: int) -> int:
        rows = [[table[cell] for table in tables] for cell in bits(boxes)]
        if count <= 4:
            ways = itertools.permutations(range(count))
            return min(sum(row[goal] for row, goal in zip(rows, way, strict=True)) for way in ways)
        # The cheapest matching, by dynamic programming over sets of used goals.
        best = {0: 0}
        for row in rows:
            following: dict[int, int] = {}
            for taken, spent in best.items():
                for goal, steps in enumerate(row):
                    if not taken >> goal & 1:
                        after = taken | 1 << goal
                        following[after] = min(following.get(after, 10**9), spent + steps)
            best = following
        return best[(1 << count) - 1]

    return estimate


def _walked(player: int, free: int, width: int) -> dict[int, int]:
    """The number of steps from the player to every cell that it can reach."""
    found, edge, seen, steps = {player: 0}, 1 << player, 1 << player, 0
    while edge:
        edge = (edge << 1 | edge >> 1 | edge << width | edge >> width) & free & ~seen
        seen |= edge
        steps += 1
        for cell in bits(edge):
            found[cell] = steps
    return found


def _frozen(boxes: int, cell: int, floor: int, goals: int, width: int) -> bool:
    """Whether the box just pushed to `cell` is part of a 2×2 square of boxes and walls in which some box is not on a
    goal. Such a position cannot be solved."""
    for down in (width, -width):
        for side in (1, -1):
            square = 1 << cell | 1 << (cell + side) | 1 << (cell + down) | 1 << (cell + down + side)
            if not square & floor & ~boxes and square & boxes & ~goals:
                return True
    return False


def _unwind(
    room: Room,
    first: tuple[int, int],
    node: tuple[int, int],
    came: dict[tuple[int, int], tuple[tuple[int, int], int, int]],
) -> list[str]:
    letters = {offset: move for move, offset in offsets(room.width).items()}
    parts: list[list[str]] = []
    while node != first:
        node, cell, offset = came[node]
        way = walk(node[1], cell, room.floor & ~node[0], room.width)
        assert way is not None and reach(node[1], room.floor & ~node[0], room.width) >> cell & 1
        parts.append([*way, letters[offset]])
    return [move for part in reversed(parts) for move in part]


# -- the word games ---------------------------------------------------------------------------------------------------


def _twenty_questions(env: Env, role: Role, rng: random.Random) -> str:
    assert isinstance(env, HiderGuesser)
    return env.truth() if role == "hider" else env.best_question()


def _propose_or_solve(env: Env, role: Role, rng: random.Random) -> str:
    assert isinstance(env, ProposerSolver)
    return env.propose(rng) if role == "proposer" else env.answer()


def _deduce(env: Env, role: Role, rng: random.Random) -> str:
    assert isinstance(env, SocialDeduction)
    return env.advise(role, rng)


def _describe_or_guess(env: Env, role: Role, rng: random.Random) -> str:
    assert isinstance(env, Taboo)
    return env.best_clue(rng) if role == "hinter" else rng.choice(env.fitting())


def _haggle(env: Env, role: Role, rng: random.Random) -> str:
    """Ask for everything at first and for half of the worth at the end. Accept any offer that is worth as much as is
    asked for now."""
    assert isinstance(env, Negotiation)
    me, turns = env.roles.index(role), env.task.data["turns"]
    left = turns - len(env.said)  # turns including this one; an offer in the last turn comes too late
    wanted = WORTH / 2 * (1 + (left - 1) / turns)
    if env.said:
        offered = worth(env.rest(env.said[-1][1]), env.values[me])
        if offered >= wanted or (left == 1 and offered):
            return "accept"
    splits = [(keeps, worth(keeps, env.values[me])) for keeps in env.splits()]
    fair = [(keeps, value) for keeps, value in splits if value >= wanted]
    most = min(sum(keeps) for keeps, _ in fair)  # keep as few items as possible: items of little value are given away
    a, b, c = rng.choice([keeps for keeps, _ in fair if sum(keeps) == most])
    return f"offer {a} {b} {c}"


def _respond(env: Env, role: Role, rng: random.Random) -> str:
    """The best response to the others' moves so far; in the first round, to moves drawn at random. It sends no message
    when players talk."""
    assert isinstance(env, Matrix)
    if env.talking:
        return ""
    me = env.roles.index(role)
    seen = env.history or [tuple(rng.choice(words) for words in env.actions) for _ in range(32)]
    total = {
        word: sum(env.pays((*moves[:me], word, *moves[me + 1 :]))[me] for moves in seen) for word in env.actions[me]
    }
    return rng.choice([word for word, value in total.items() if value == max(total.values())])


def _spot_or_fly(env: Env, role: Role, rng: random.Random) -> str:
    """The spotter names the signs in order; the pilot looks for the one it heard in the spotter's words. A pilot alone
    looks at the doors."""
    assert isinstance(env, SpotterPilot)
    if role == "spotter":
        return " ".join(env.doors)
    said = (env.said or "").split() if len(env.roles) == 2 else list(env.doors)
    door = str(said.index(env.wanted) + 1 if env.wanted in said[: len(SIGNS)] else 1)
    seen = env.doors if len(env.roles) == 1 else ()
    return " ".join((*seen, env.wanted, door)) if env.task.data["aloud"] else door


def _signal(env: Env, role: Role, rng: random.Random) -> str:
    """The sender says the state if its words are passed on, and the receiver names it."""
    assert isinstance(env, Signalling)
    silent = role == "sender" and not env.task.data["talk"]
    return NOTHING if silent else str(env.hidden)


_RULES: dict[type[Env], Callable[[Env, Role, random.Random], str]] = {
    HiderGuesser: _twenty_questions,
    Matrix: _respond,
    Negotiation: _haggle,
    ProposerSolver: _propose_or_solve,
    Signalling: _signal,
    SocialDeduction: _deduce,
    SpotterPilot: _spot_or_fly,
    Taboo: _describe_or_guess,
}
