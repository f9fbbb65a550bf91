"""Hanabi replays recorded games move by move, tracks what hints say, and never shows a player its own cards."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interplay.envs import make, sample_task
from interplay.envs.games import hanabi
from interplay.envs.games.hanabi import VARIANTS, Hanabi, Held, Variant
from interplay.types import Level, Rewards

TRACES = Path(__file__).parents[1] / "data" / "hanabi_traces.jsonl"


class Dealt(Hanabi):
    """Draws the given cards first."""

    def __init__(self, cards: str, **options: Any) -> None:
        self.ahead = cards.split()
        super().__init__(sample_task("hanabi", options))

    def _draw(self) -> str:
        if not self.ahead:
            return super()._draw()
        card = self.ahead.pop(0)
        self.deck.remove(card)
        return card


def new(**options: Any) -> Hanabi:
    env = make(sample_task("hanabi", options))
    assert isinstance(env, Hanabi)
    return env


def do(env: Hanabi, *actions: str) -> Rewards:
    rewards = Rewards()
    for action in actions:
        (role,) = env.observe()
        rewards = env.step({role: action})
    return rewards


def team(rewards: Rewards) -> float:
    assert {(r.name, r.level) for r in rewards if r.name == "score"} <= {("score", Level.TEAM)}
    return sum(r.value or 0.0 for r in rewards if r.name == "score")


def short(env: Hanabi, action: str) -> str:
    """An action as the recorded games write it."""
    what, *rest = action.split()
    if what != "hint":
        return what[0].upper() + str(int(rest[0]) - 1)
    seats_on = (int(rest[0][1:]) - env.player) % len(env.roles)
    return f"{'R' if rest[1].isdigit() else 'C'}{seats_on}{rest[1]}"


def recorded() -> Iterator[Any]:
    for line in TRACES.read_text(encoding="utf-8").splitlines():
        game = json.loads(line)
        yield pytest.param(game, id=f"{game['players']}-{game['agent']}-{game['seed']}")


def replayed(game: dict[str, Any]) -> Iterator[tuple[Hanabi, str]]:
    """Before each move of a recorded game: the environment and the move. Everything is compared on the way."""
    cards, deck = [card for hand in game["hands"] for card in hand], 50 - sum(map(len, game["hands"]))
    for step in game["trace"]:
        if step["deck"] < deck:
            cards.append(step["hand"].split()[-1])
        deck = step["deck"]
    env, total = Dealt(" ".join(cards), players=game["players"]), 0.0
    assert [[h.card for h in hand] for hand in env.hands] == game["hands"]
    for step in game["trace"]:
        ((role, o),) = env.observe().items()
        assert role == f"p{step['p']}"
        legal = [short(env, action) for action in o.legal]
        assert " ".join(legal) == step["legal"]
        move = o.legal[legal.index(step["m"])]
        yield env, move
        total += team(env.step({role: move}))
        assert (env.hints, env.lives, len(env.deck)) == (step["info"], step["life"], step["deck"])
        assert (list(env.fireworks.values()), env.score) == (step["fw"], step["score"])
        if "hand" in step:
            assert " ".join(h.card for h in env.hands[step["p"]]) == step["hand"]
    assert not env.observe()
    assert total == game["score"] == env.score, "the rewards of the steps add up to the score"
    assert (env.discards, len(env.moves), env.lives) == (game["discards"], game["turns"], game["life"])


@pytest.mark.parametrize("game", list(recorded()))
def test_a_recorded_game_is_replayed(game: dict[str, Any]) -> None:
    """promise 8: every list of legal moves in its order, every state, the score and the end, as in the reference."""
    assert len(list(replayed(game))) == game["turns"]


def test_all_recorded_games_are_replayed(samples: Path) -> None:
    """The whole collection, four games of four agents with two to five players."""
    games = [json.loads(line) for line in (samples / "hanabi_reference" / "hle_traces.jsonl").read_text().splitlines()]
    assert len(games) == 64
    for game in games:
        assert len(list(replayed(game))) == game["turns"]


def test_what_hints_say_agrees_with_openspiel(monkeypatch: pytest.MonkeyPatch) -> None:
    """promise 8: OpenSpiel's recorded game of a smaller variant, to its end; what each holder knows at the end is what
    OpenSpiel printed."""
    monkeypatch.setitem(hanabi.VARIANTS, "small", Variant("RY", "123", (3, 3, 3, 3), hints=8, lives=3))
    env = Dealt("Y1 R2 Y2 Y2 R3 Y1 R1 R2 Y1 Y3 R1 R1", players=3, variant="small")
    do(env, "hint p2 2", "hint p0 1", "hint p1 3", "discard 1", "hint p0 R", "play 3", "play 2", "hint p0 Y")
    do(env, "hint p0 2", "discard 3")
    assert not env.observe() and (env.lives, env.hints, env.score) == (3, 4, 2)
    assert env.fireworks == {"R": 0, "Y": 2} and env.discards == ["Y1", "R1"] and not env.deck
    assert [" ".join(h) for hand in env.hands for h in hand] == [
        "R2 R 2", "Y3 Y 13",
        "Y2 RY 12", "R3 RY 3", "Y1 RY 12",
        "R1 RY 13", "R2 RY 2", "R1 RY 123",
    ]  # fmt: skip


def test_the_deck_is_the_games() -> None:
    """promise 8: fifty cards, three 1s, one 5 and two of the rest of each colour; twenty in the small game."""
    full = Counter(VARIANTS["full"].deck())
    assert full.total() == 50 and len(full) == 25
    assert {card[1]: n for card, n in full.items()} == {"1": 3, "2": 2, "3": 2, "4": 2, "5": 1}
    assert len(VARIANTS["small"].deck()) == 20
    for players, hand in ((2, 5), (3, 5), (4, 4), (5, 4)):
        env = new(players=players)
        assert [len(h) for h in env.hands] == [hand] * players and len(env.deck) == 50 - hand * players
    small = new(variant="small")
    assert (small.hints, small.lives, [len(h) for h in small.hands]) == (3, 1, [2, 2])


def test_a_hint_also_tells_what_the_other_cards_are_not() -> None:
    """promise 8: positive and negative knowledge from hints moves with its card, and a new card has none."""
    env = Dealt("R1 R2 Y3 G4 B5 W1 W2 W3 W4 Y1")
    do(env, "hint p1 W")
    assert [h.colours for h in env.hands[1]] == ["W", "W", "W", "W", "RYGB"]
    do(env, "hint p0 1", "hint p1 1")
    assert [h.ranks for h in env.hands[0]] == ["1", "2345", "2345", "2345", "2345"]
    do(env, "hint p0 R", "hint p1 3", "play 1")
    hand = env.hands[1]
    assert [(h.card, h.colours, h.ranks) for h in hand[:4]] == [
        ("W2", "W", "245"), ("W3", "W", "3"), ("W4", "W", "245"), ("Y1", "RYGB", "1"),
    ]  # fmt: skip
    assert (hand[4].colours, hand[4].ranks) == ("RYGWB", "12345")
    seen = env.observe()["p0"].messages[-1].content
    assert "p1: W2 [W 245] W3 [W 3]" in seen and "hold: 1 [R 1] 2 [R 2345] 3 [YGWB 2345]" in seen
    assert "Since your last turn: p1 play 1: W1, added." in seen


def test_hint_tokens_are_spent_and_returned() -> None:
    """promise 8: no hint without a token, no discard if all tokens are there, one token back for a discard and for a
    5."""
    env = Dealt("R1 R2 R3 R4 R5 Y1 Y2 Y3 Y4 Y5")
    assert not any(a.startswith("discard") for a in env.legal())
    for i in range(8):
        assert env.hints == 8 - i
        do(env, f"hint p{1 - env.player} 1")
    assert not any(a.startswith("hint") for a in env.legal())
    for card in range(1, 5):
        assert team(do(env, "play 1")) == 1 and env.hints == 0, card
        do(env, "play 1")
    do(env, "play 1")
    assert env.fireworks["R"] == 5 and env.hints == 1, "a completed colour returns a hint"
    do(env, "discard 5")
    assert env.hints == 2


def test_the_final_round_gives_everybody_one_more_turn() -> None:
    """promise 8: also the player who drew the last card; nobody draws, and hands become smaller."""
    env = new(players=3)
    while env.deck:
        do(env, "discard 1" if env.hints < 8 else next(a for a in env.legal() if a.startswith("hint")))
    last = (env.player - 1) % 3
    assert "The deck is empty: 3 turns are left" in env.observe()[f"p{env.player}"].messages[-1].content
    for k in range(3):
        assert env.player == (last + 1 + k) % 3
        do(env, "discard 1" if env.hints < 8 else next(a for a in env.legal() if a.startswith("hint")))
    assert not env.observe()


@pytest.mark.parametrize(("strikes", "kept"), [("zero", 0), ("keep", 1)])
def test_losing_the_last_life(strikes: str, kept: int) -> None:
    """promise 8: the score is taken back, or kept, as asked for."""
    env = Dealt("R1 R3 R3 R4 R4 Y1 Y2 Y3 Y4 Y5", strikes=strikes)
    total = team(do(env, "play 1"))
    for action in ("play 5", "play 1", "play 5"):
        assert env.observe()
        total += team(do(env, action))
    assert not env.observe() and env.lives == 0 and total == env.score == kept


@pytest.mark.parametrize(
    "reply", ["", "play", "play 0", "play 6", "discard 1", "hint p0 R", "hint p1 6", "hint p1 B", "☃"]
)
@pytest.mark.parametrize("strikes", ["zero", "keep"])
def test_an_illegal_reply_ends_the_game_and_takes_the_score_back(reply: str, strikes: str) -> None:
    """promise 8: here with no token spent, no blue card in the other hand, and a score of one point."""
    env = Dealt("R1 R2 R3 R4 R5 Y1 Y2 Y3 Y4 Y5 G1 G1", strikes=strikes)
    do(env, "play 1", "play 1")
    rewards = env.step({"p0": reply})
    assert [(r.level, r.role, r.value) for r in rewards if r.name == "illegal"] == [(Level.PROCESS, "p0", -1.0)]
    assert team(rewards) == -2 and env.score == 0 and not env.observe()


def test_case_spaces_and_a_full_stop_are_forgiven() -> None:
    """promise 8: what counts as a legal reply is defined."""
    env = Dealt("R1 R2 R3 R4 R5 Y1 Y2 Y3 Y4 Y5")
    assert not do(env, " Hint P1  y.\n")
    assert env.moves[-1].action == "hint p1 Y" and env.moves[-1].places == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("options", [{}, {"players": 5}, {"variant": "small", "brief": True}])
def test_the_own_hand_is_never_shown(options: dict[str, Any]) -> None:
    """promise 8: a prompt does not change if the own hand and the deck are other cards."""
    rng = random.Random(1)
    for index in range(5):
        env = make(sample_task("hanabi", options, index=index))
        assert isinstance(env, Hanabi)
        while seen := env.observe():
            ((role, o),) = seen.items()
            twin = env.redeal(role, rng)
            me = env.player
            assert twin.observe() == seen
            assert all(h.fits(h.card) for h in twin.hands[me])
            assert [h for i, h in enumerate(twin.hands) if i != me] == [h for i, h in enumerate(env.hands) if i != me]
            cards = [sorted([*e.deck, *(h.card for h in e.hands[me])]) for e in (env, twin)]
            assert cards[0] == cards[1] and len(twin.deck) == len(env.deck)
            env.step({role: rng.choice(o.legal)})


def test_a_redeal_is_uniform_among_what_the_hints_allow() -> None:
    """promise 8: the own hand is a 1 and a red 1, and two R1 and two Y1 are unseen. The second card is one of the two
    R1. The first is one of the other three, so it is a Y1 with probability 2/3 and not 1/2."""
    env, rng = new(variant="small"), random.Random(0)
    env.hands[0] = [Held("Y1", "RY", "1"), Held("R1", "R", "1")]
    env.hands[1] = [Held("R1", "RY", "12345"), Held("Y1", "RY", "12345")]
    env.deck = ["R1", "Y1", "R2", "Y5"]
    count = Counter(" ".join(h.card for h in env.redeal("p0", rng).hands[0]) for _ in range(4_000))
    assert count.keys() == {"Y1 R1", "R1 R1"}
    assert abs(count["Y1 R1"] / 4_000 - 2 / 3) < 0.03


def test_a_reseeded_fork_draws_other_cards() -> None:
    """promise 8: the deck has no order until a card is drawn."""
    env = new()
    drawn = {tuple(h.card for h in _played(env.fork(seed)).hands[0]) for seed in range(20)}
    assert len(drawn) > 5
    assert len({tuple(h.card for h in _played(env.fork()).hands[0]) for _ in range(3)}) == 1


def _played(env: Hanabi) -> Hanabi:
    do(env, "play 1")
    return env


# -- the reference's scripted players ---------------------------------------------------------------------------------


def playable(env: Hanabi, card: str) -> bool:
    return int(card[1]) == env.fireworks[card[0]] + 1


def pointed_at(env: Hanabi) -> list[list[bool]]:
    """For every card in every hand, whether a hint of its colour ever touched it."""
    marks = [[False] * env.variant.hand[len(env.roles) - 2] for _ in env.roles]
    for move in env.moves:
        what, *rest = move.action.split()
        hand = marks[int(rest[0][1:])] if what == "hint" else marks[move.player]
        if what == "hint" and not rest[1].isdigit():
            for place in move.places:
                hand[place] = True
        elif what != "hint":
            del hand[int(rest[0]) - 1]
            hand.append(False)
    return [mine[: len(hand)] for mine, hand in zip(marks, env.hands, strict=True)]


def any_move(env: Hanabi, rng: random.Random) -> str:
    return rng.choice(env.legal())


def simple(env: Hanabi, rng: random.Random) -> str:
    """The learning environment's `SimpleAgent`, as in the recorded games: play what was hinted, hint what can be
    played, discard the oldest card or, if that is not allowed, play the newest."""
    marks, n = pointed_at(env), len(env.roles)
    if True in marks[env.player]:
        return f"play {marks[env.player].index(True) + 1}"
    for other in ((env.player + k) % n for k in range(1, n)) if env.hints else ():
        for held, known in zip(env.hands[other], marks[other], strict=True):
            if playable(env, held.card) and not known:
                return f"hint p{other} {held.card[0]}"
    return "discard 1" if env.hints < env.variant.hints else f"play {len(env.hands[env.player])}"


def certain(env: Hanabi, rng: random.Random) -> str:
    """Plays a card that is certainly playable; otherwise gives any hint or discards."""
    for place, h in enumerate(env.hands[env.player], 1):
        if all(playable(env, colour + rank) for colour in h.colours for rank in h.ranks):
            return f"play {place}"
    return rng.choice([action for action in env.legal() if not action.startswith("play")])


# Cards added before the third strike with two to five players, over 5,000 games of the reference engine each, and how
# far one game is from another.
PUBLISHED = {
    any_move: ((1.260, 1.257, 1.233, 1.245), 1.3),
    simple: ((3.487, 4.332, 5.375, 5.655), 3.1),
    certain: ((4.532, 4.307, 3.808, 3.435), 1.9),
}


@pytest.mark.parametrize("players", [2, 3, 4, 5])
@pytest.mark.parametrize("agent", list(PUBLISHED))
def test_scripted_players_score_as_published(agent: Any, players: int) -> None:
    """promise 8: over 150 games, within four standard errors."""
    rng, added, games = random.Random(0), 0, 150
    for index in range(games):
        env = new_task(index, players)
        while not env.over:
            env.step({env.roles[env.player]: agent(env, rng)})
        added += env.score
    means, spread = PUBLISHED[agent]
    assert abs(added / games - means[players - 2]) < 4 * spread / games**0.5


def new_task(index: int, players: int) -> Hanabi:
    env = make(sample_task("hanabi", {"players": players, "strikes": "keep"}, index=index))
    assert isinstance(env, Hanabi)
    return env


def test_the_simple_player_moves_as_the_reference_moved(samples: Path) -> None:
    """Every move of its recorded games, so that its score tests the rules and not the player."""
    games = [json.loads(line) for line in (samples / "hanabi_reference" / "hle_traces.jsonl").read_text().splitlines()]
    mine = [game for game in games if game["agent"] == "hle_simple_rule"]
    assert len(mine) == 16
    for game in mine:
        for env, move in replayed(game):
            assert simple(env, random.Random(0)) == move
