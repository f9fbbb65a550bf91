"""Scripted players: perfect play has its known odds, computed exactly, and misuse is refused with one sentence."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from interplay.agents.bots import Bot, bot, known_bots, make_bot, minimax, register_bot
from interplay.agents.bots.minimax import MinimaxBot
from interplay.envs import Env, make, sample_task
from interplay.envs import env as registry
from interplay.envs.games.kuhn import Kuhn
from interplay.errors import ConfigError, EnvError
from interplay.types import Message, Observation, Rewards, Role, Task


def tictactoe(*moves: int) -> Env:
    env = make(sample_task("tictactoe", {}))
    for move in moves:
        (role,) = env.observe()
        env.step({role: str(move)})
    return env


def perfect(env_name: str = "tictactoe") -> MinimaxBot:
    made = make_bot("minimax", env_name)
    assert isinstance(made, MinimaxBot)
    return made


def odds(env: Env, bot: MinimaxBot, seat: Role, memo: dict[str, dict[str, Fraction]]) -> dict[str, Fraction]:
    """The exact chances of the bot in `seat` against a uniformly random player."""
    if env.state() not in memo:
        chance = dict.fromkeys(("win", "draw", "loss"), Fraction())
        acting = env.observe()
        if not acting:
            (value,) = (r.value for r in env.outcome() if r.role == seat)
            chance[{1.0: "win", 0.0: "draw", -1.0: "loss"}[value or 0.0]] = Fraction(1)
        for role, o in acting.items():
            moves = bot.best(env) if role == seat else list(o.legal)
            for move in moves:
                twin = env.fork()
                twin.step({role: move})
                for end, p in odds(twin, bot, seat, memo).items():
                    chance[end] += p / len(moves)
        memo[env.state()] = chance
    return memo[env.state()]


@pytest.mark.parametrize(("seat", "wins"), [("X", 96.78), ("O", 77.75)])
def test_minimax_beats_random_by_the_known_odds_and_never_loses(seat: Role, wins: float) -> None:
    """promise 8: with perfect play by fork, step and outcome, the game has its known value in both seats."""
    chance = odds(tictactoe(), perfect(), seat, {})
    assert chance["loss"] == 0
    assert sum(chance.values()) == 1
    assert round(100 * float(chance["win"]), 2) == wins


def test_minimax_against_itself_always_draws() -> None:
    """promise 8: two perfect players always draw, whichever of the equally good moves they choose."""
    bot = perfect()
    for seed in range(20):
        env, rng = tictactoe(), random.Random(seed)
        while acting := env.observe():
            (role,) = acting
            env.step({role: bot.act(env, role, rng)})
        assert {r.value for r in env.outcome()} == {0.0}


@pytest.mark.parametrize(
    ("moves", "best"),
    [
        ((), "123456789"),  # every opening holds the draw
        ((1,), "5"),  # a corner must be answered in the centre
        ((5,), "1379"),  # the centre must be answered in a corner
        ((1, 5, 9), "2468"),  # opposite corners: an edge, or lose to a fork
        ((1, 4, 2, 5), "3"),  # win now
        ((1, 5, 2), "3"),  # block
    ],
)
def test_the_best_moves_are_the_known_ones(moves: tuple[int, ...], best: str) -> None:
    """promise 8: the solver finds all optimal moves and no other."""
    env = tictactoe(*moves)
    before = env.state()
    assert perfect().best(env) == list(best)
    assert env.state() == before, "a bot that thinks must not move"


def test_minimax_solves_the_empty_board_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bots share the solution of an environment with the same options."""
    monkeypatch.setattr(minimax, "_SOLVED", {})
    perfect().best(tictactoe())
    ((key, solved),) = minimax._SOLVED.items()
    assert key[0] == "tictactoe"
    assert len(solved.values) == 5_477, "every reachable position but the empty board, whose value is never asked for"
    assert set(solved.values.values()) == {-1.0, 0.0, 1.0}
    monkeypatch.setattr(MinimaxBot, "LIMIT", 0)  # nothing new may be solved from here on
    perfect().best(tictactoe(1, 2))
    perfect().best(make(sample_task("tictactoe", {}, index=7)))
    with pytest.raises(ConfigError, match="positions"):
        perfect().best(make(sample_task("tictactoe", {"memory": True})))


def test_minimax_draws_uniformly_among_the_best() -> None:
    """Equal moves are equally likely, and the draw depends on the given randomness only."""
    bot, env = perfect(), tictactoe(5)
    rng = random.Random(0)
    count = Counter(bot.act(env, "O", rng) for _ in range(2000))
    assert set(count) == set("1379") and min(count.values()) > 400
    assert bot.act(env, "O", random.Random(3)) == bot.act(env, "O", random.Random(3))


def test_minimax_with_a_share_of_random_moves_says_its_odds_and_plays_by_them() -> None:
    """`minimax:0.4` is perfect in 60% of its moves. X threatens 3, so only 3 is perfect; six moves are legal."""
    noisy, env, rng = make_bot("minimax:0.4", "tictactoe"), tictactoe(1, 5, 2), random.Random(0)
    chances = noisy.odds(env, "O")
    assert chances == {move: pytest.approx(0.4 / 6 + 0.6 * (move == "3")) for move in "346789"}
    count = Counter(noisy.act(env, "O", rng) for _ in range(2000))
    assert set(count) == set("346789") and 1260 < count["3"] < 1410  # 1333, and three standard deviations of 21
    assert perfect().odds(env, "O") == {"3": 1.0}


@pytest.mark.parametrize("setting", ["often", "1.5", "-0.1", "nan"])
def test_a_wrong_share_of_random_moves_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="has a wrong share of random moves; expected 0 to 1"):
        make_bot(f"minimax:{setting}", "tictactoe")


def test_random_is_uniform_over_the_legal_moves_and_first_is_first() -> None:
    """Bots only play listed actions."""
    env, rng = tictactoe(1, 5), random.Random(0)
    count = Counter(make_bot("random", "tictactoe").act(env, "X", rng) for _ in range(2100))
    assert set(count) == set("2346789") and min(count.values()) > 240
    assert make_bot("first", "tictactoe").act(env, "X", rng) == "2"


def test_random_and_first_play_simultaneous_games() -> None:
    """A bot acts for one of several roles that act at once."""
    env, rng = make(sample_task("matrix", {"game": "stag_hunt"})), random.Random(0)
    bot = make_bot("random", "matrix")
    assert {bot.act(env, role, rng) for role in ("p0", "p1") for _ in range(20)} == {"stag", "hare"}
    assert make_bot("first", "matrix").act(env, "p1", rng) == "stag"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"game": "rock_paper_scissors"}, r"has simultaneous moves \(p0, p1 act at once\)"),
        ({"actions": [["a"]] * 3, "payoff": [[[[0, 0, 0]]]]}, "has 3 roles; expected two"),
    ],
)
def test_minimax_refuses_what_it_cannot_solve(options: dict[str, Any], why: str) -> None:
    """A solver in the wrong game says so before the first move, and in `suits`, which checks recipes."""
    bot, env = perfect("matrix"), make(sample_task("matrix", options))
    with pytest.raises(ConfigError, match=f"bot 'minimax' cannot play 'matrix', which {why}"):
        bot.act(env, "p0", random.Random(0))
    with pytest.raises(ConfigError, match=why):
        bot.suits(env)


class Nim(Env):
    """Take one or two of `heap` matches; the last taker wins. Options of the subclasses break what minimax needs."""

    reward_names = ("win",)
    roles = ("a", "b")
    heap = 7
    spoils = (1.0, -1.0)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.left, self.turn, self.secret = self.heap, 0, self.rng.random()

    def observe(self) -> dict[Role, Observation]:
        legal = tuple(str(n) for n in (1, 2) if n <= self.left)
        observation = Observation((Message("user", f"{self.left} left"),), legal=legal)
        return {self.roles[self.turn]: observation} if legal else {}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.left -= int(actions[self.roles[self.turn]])
        self.turn = 1 - self.turn
        return Rewards()

    def outcome(self) -> Rewards:
        winner, loser = self.roles[1 - self.turn], self.roles[self.turn]
        return Rewards.agent("win", dict(zip((winner, loser), self.spoils, strict=True)))

    def state(self) -> str:
        return f"{self.left} left, {self.roles[self.turn]} to move"


class NimPaidByStep(Nim):
    """The same game, won through the rewards of steps instead of the outcome."""

    def step(self, actions: dict[Role, str]) -> Rewards:
        super().step(actions)
        return super().outcome() if not self.left else Rewards()

    def outcome(self) -> Rewards:
        return Rewards()


class NimForTwoWinners(Nim):
    spoils = (1.0, 1.0)


class NimWithASecret(Nim):
    def state(self) -> str:
        return f"{super().state()} {self.secret}"

    def redeal(self, role: Role, rng: random.Random) -> Env:
        twin = self.fork()
        assert isinstance(twin, Nim)
        twin.secret = rng.random()
        return twin


class NimPuttingBack(Nim):
    def step(self, actions: dict[Role, str]) -> Rewards:
        super().step(actions)
        self.left = self.left or self.heap
        return Rewards()


class NimInWords(Nim):
    def observe(self) -> dict[Role, Observation]:
        return {role: Observation(o.messages) for role, o in super().observe().items()}


@pytest.fixture
def nim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Env:
    monkeypatch.setitem(registry.ENVIRONMENTS.classes, "nim", request.param)
    monkeypatch.setattr(minimax, "_SOLVED", {})
    return make(sample_task("nim", {}))


@pytest.mark.parametrize("nim", [Nim, NimPaidByStep], indirect=True)
def test_minimax_is_generic(nim: Env) -> None:
    """promise 8: only the environment contract is used. In nim the bot leaves multiples of three, in both seats."""
    bot = perfect("nim")
    assert bot.best(nim) == ["1"]  # 7 -> 6
    nim.step({"a": "2"})
    assert bot.best(nim) == ["2"]  # 5 -> 3
    nim.step({"b": "2"})
    assert bot.best(nim) == ["1", "2"]  # 3: lost, so anything goes


@pytest.mark.parametrize(
    ("nim", "why"),
    [
        (NimForTwoWinners, "is not zero-sum"),
        (NimWithASecret, "has hidden information"),
        (NimPuttingBack, "can take too many moves, or return to a position"),
    ],
    indirect=["nim"],
)
def test_minimax_refuses_games_of_another_kind(nim: Env, why: str) -> None:
    """Games that are not zero-sum, have secrets or never end are refused with a sentence."""
    with pytest.raises(ConfigError, match=f"bot 'minimax' cannot play 'nim', which {why}"):
        perfect("nim").act(nim, "a", random.Random(0))


@pytest.mark.parametrize("nim", [NimInWords], indirect=True)
@pytest.mark.parametrize("name", ["random", "first", "greedy", "minimax"])
def test_bots_need_a_legal_list(nim: Env, name: str) -> None:
    """Without a list of legal actions, a bot says what is missing."""
    bot = make_bot(name, "nim")
    with pytest.raises(EnvError, match="environment 'nim' lists no legal actions for 'a'"):
        bot.act(nim, "a", random.Random(0))
    with pytest.raises(EnvError, match="lists no legal actions"):
        bot.suits(nim)


@pytest.mark.parametrize("name", ["random", "first", "greedy", "minimax"])
def test_bots_act_only_for_the_role_to_act(name: str) -> None:
    """A bot refuses to act out of turn or after the end of the game."""
    bot = make_bot(name, "tictactoe")
    for env in (tictactoe(), tictactoe(1, 4, 2, 5, 3)):
        with pytest.raises(EnvError, match="must not act in 'tictactoe' now"):
            bot.act(env, "O", random.Random(0))


def test_no_best_move_after_the_end() -> None:
    """A solver refuses to move after the end of the game."""
    with pytest.raises(EnvError, match="the game has ended"):
        perfect().best(tictactoe(1, 4, 2, 5, 3))


def test_unknown_names_get_a_suggestion() -> None:
    """A mistake in a recipe is one sentence with the nearest known name."""
    with pytest.raises(ConfigError, match=r"'minmax' is not a bot; known: .*\. Did you mean 'minimax'"):
        make_bot("minmax", "tictactoe")
    with pytest.raises(ConfigError, match="Did you mean 'tictactoe'"):
        make_bot("random", "tictactoo")


def test_registered_bots_are_known_with_a_line_of_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """Authors add a player to an environment with one decorator."""
    monkeypatch.setitem(bot.BOTS.classes, "last", Bot)  # taken away again afterwards

    @register_bot("last")
    class LastBot(Bot):
        """Always the last legal action.

        More about it.
        """

        def act(self, env: Env, role: Role, rng: random.Random) -> str:
            return env.observe()[role].legal[-1]

    assert known_bots()["last"] == "Always the last legal action."
    shipped = {
        "random",
        "first",
        "always",
        "breaker",
        "greedy",
        "minimax",
        "alpha_beta",
        "equilibrium",
        "finder",
        "haggler",
        "hanabi",
        "rater",
        "replay",
        "solver",
        "writer",
        "expert",
    }
    assert set(known_bots()) == {*shipped, "last"} and all(known_bots().values())
    assert make_bot("last", "tictactoe").act(tictactoe(), "X", random.Random(0)) == "9"


def test_greedy_takes_what_it_can_get_at_once() -> None:
    """It takes a win in either seat. If no move wins now, all moves are equally likely."""
    greedy, rng = make_bot("greedy", "tictactoe"), random.Random(0)
    assert {greedy.act(tictactoe(1, 4, 2, 5), "X", rng) for _ in range(10)} == {"3"}
    assert {greedy.act(tictactoe(1, 4, 2, 5, 9), "O", rng) for _ in range(10)} == {"6"}
    assert len({greedy.act(tictactoe(1, 4), "X", rng) for _ in range(60)}) == 7


def test_greedy_counts_on_the_average_of_what_others_do_at_once() -> None:
    """With simultaneous moves, defecting is better against both answers."""
    env, rng = make(sample_task("matrix", {})), random.Random(0)
    assert {make_bot("greedy", "matrix").act(env, "p1", rng) for _ in range(10)} == {"defect"}


def test_greedy_does_not_peek() -> None:
    """After a bet, a call with the queen wins or loses 2, depending on the hidden card. The bot must not know the
    card."""
    greedy = make_bot("greedy", "kuhn")
    choices = []
    for card in "JK":
        env = make(sample_task("kuhn", {}))
        assert isinstance(env, Kuhn)
        env.cards = (card, "Q")
        env.step({"p0": "bet"})
        choices.append([greedy.act(env, "p1", random.Random(seed)) for seed in range(30)])
    assert choices[0] == choices[1] and "bet" in choices[0]


def test_a_setting_is_refused_where_none_is_taken() -> None:
    """`bot:random:3` is a mistake in a recipe, not a random player."""
    with pytest.raises(ConfigError, match="bot 'random' takes no setting, but its name is followed by ':3'"):
        make_bot("random:3", "tictactoe")
    with pytest.raises(ConfigError, match=r"'minmax' is not a bot; .*Did you mean 'minimax'"):
        make_bot("minmax:3", "tictactoe")


@pytest.mark.parametrize("name", ["alpha_beta", "equilibrium", "hanabi"])
def test_players_of_one_game_refuse_another(name: str) -> None:
    """In `suits`, which checks recipes, and when the bot is asked to move."""
    made = make_bot(name, "tictactoe")
    with pytest.raises(ConfigError, match=f"bot '{name}' cannot play 'tictactoe', which is another game"):
        made.suits(tictactoe())
    with pytest.raises(ConfigError, match="which is another game"):
        made.act(tictactoe(), "X", random.Random(0))


def test_always_says_the_same_where_it_can() -> None:
    env = make(sample_task("matrix", {"game": "rock_paper_scissors"}))
    assert make_bot("always:paper", "matrix").act(env, "p0", random.Random(0)) == "paper"
    with pytest.raises(ConfigError, match="Did you mean 'paper'"):
        make_bot("always:papr", "matrix").suits(env)
    with pytest.raises(ConfigError, match="always:paper"):
        make_bot("always", "matrix")
