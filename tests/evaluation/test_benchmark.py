"""Wins, draws, losses and illegal moves are counted correctly, and the same seeds give the same table."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from small import RECIPE

from interplay.config import parse
from interplay.errors import ConfigError, InterplayError
from interplay.evaluation import report
from interplay.evaluation.benchmark import SeatResult, evaluate, lineups, tally
from interplay.evaluation.field import Field
from interplay.evaluation.intervals import wilson
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.types import Episode, Keys, Observation, Occupant, Policy, Rewards, Sample, Scripted, Status, Task, Turn

PLAYER, RANDOM = Policy("player"), Scripted("random")


def episode(x: float, o: float, *turns: tuple[str, Status, int], task: str = "t") -> Episode:
    """An episode with these rewards; turns are (role, status, tokens), and the environment refused the ILLEGAL ones."""
    rewards = Rewards.agent("win", {"X": x, "O": o})
    made = [
        Turn(str(i), None, Keys("t", 0, "t#0", i, role, "", "", "p"), "player", "a", Observation(()),
             (Sample(str(i), (1,), (2,) * tokens, (0.0,) * tokens, (0,) * tokens, "a"),), status,
             Rewards.process("illegal", {role: -1.0}) if status is Status.ILLEGAL else Rewards())
        for i, (role, status, tokens) in enumerate(turns)
    ]  # fmt: skip
    seats: dict[str, Occupant] = {"X": PLAYER, "O": RANDOM}
    return Episode(f"{task}#0", Task(task, "tictactoe", 0), 0, seats, made, rewards)


OK, ILLEGAL = Status.OK, Status.ILLEGAL
GAMES = [
    episode(1, -1, ("X", OK, 2), ("O", OK, 5), ("X", OK, 2), task="a"),
    episode(1, -1, ("X", OK, 3), ("O", ILLEGAL, 1), task="b"),
    episode(0, 0, ("X", OK, 1), task="c"),
    episode(-1, 1, ("X", ILLEGAL, 4), task="d"),
]
BROKEN = episode(1, -1, ("X", OK, 9), task="e")
BROKEN.error = "EngineError: gone."


def test_tally_by_hand() -> None:
    """X: two wins, a draw, a loss; mean reward 0.25; 5 turns, one of them illegal, 12 tokens."""
    found = tally(parse(RECIPE), [*GAMES, BROKEN, BROKEN, BROKEN], "player", "bot:random", "X")
    assert (found.wins, found.draws, found.losses, found.games, found.failed) == (2, 1, 1, 4, 3)
    assert (found.turns, found.illegal, found.tokens) == (5, 1, 12)
    assert found.win_rate == 0.5 and found.illegal_rate == 0.2
    assert found.reward == 0.25
    # Sample deviation of 1, 1, 0, −1 is √(11/12); Student's t for three degrees of freedom.
    half = 3.1824 * (11 / 12) ** 0.5 / 2
    assert (found.reward_low, found.reward_high) == pytest.approx((0.25 - half, 0.25 + half), abs=5e-5)
    assert (found.win_low, found.win_high) == pytest.approx((0.15, 0.85), abs=0.005)


def test_tally_from_the_other_seat() -> None:
    found = tally(parse(RECIPE), GAMES, "player", "bot:random", "O")
    assert (found.wins, found.draws, found.losses) == (1, 1, 2)
    assert (found.turns, found.illegal) == (2, 1)


def test_a_win_is_more_than_every_other_role() -> None:
    """Three players: equal to the best rival is a draw, however far behind the third one is."""
    game = episode(0, 0)
    game.seats = {"a": PLAYER, "b": RANDOM, "c": RANDOM}
    for scores, expected in [((2, 1, 0), (1, 0, 0)), ((1, 1, 0), (0, 1, 0)), ((1, 0, 2), (0, 0, 1))]:
        game.rewards = Rewards.agent("win", dict(zip("abc", map(float, scores), strict=True)))
        found = tally(parse(RECIPE), [game], "player", "bot:random", "a")
        assert (found.wins, found.draws, found.losses) == expected


def test_rewards_are_mixed_as_the_recipe_says() -> None:
    """Process rewards count with their weight, as in training."""
    game = episode(1, -1)
    game.rewards += Rewards.process("illegal", {"X": -1.0})
    for weight, reward in [(1.0, 0.0), (0.0, 1.0)]:
        recipe = parse({**RECIPE, "reward": {"process": weight}})
        assert tally(recipe, [game], "player", "bot:random", "X").reward == reward


def test_candidates_and_playouts_are_not_counted() -> None:
    """Illegal moves are counted only on the line that was played."""
    game = episode(1, -1, ("X", OK, 2), ("X", ILLEGAL, 2), ("X", ILLEGAL, 2))
    game.turns[1].kept = False
    game.turns[2].playout = 0
    found = tally(parse(RECIPE), [game], "player", "bot:random", "X")
    assert (found.turns, found.illegal, found.tokens) == (1, 0, 2)


# -- playing ----------------------------------------------------------------------------------------------------------


def measure(team: Team, games: int = 12, **changes: Any) -> list[SeatResult]:
    plan = resolve(parse({**RECIPE, **changes}))
    return asyncio.run(evaluate(Field(plan, team, games), ["bot:random", "bot:first"]))


def test_every_seat_against_every_opponent(team: Team) -> None:
    found = measure(team)
    assert [(r.opponent, r.role) for r in found] == [(o, r) for o in ("bot:random", "bot:first") for r in ("X", "O")]
    assert all(r.games == 12 == r.wins + r.draws + r.losses and r.failed == 0 for r in found)
    assert all(r.illegal > 0 for r in found), "an untrained model is not helped by masking"


def test_a_policy_is_measured_in_the_roles_it_is_seated_in(team: Team) -> None:
    """X belongs to one policy, O to another: policies are measured only in their own seats, and bots not at all."""
    policies = {"one": {"base": "tiny-16x1"}, "two": {"base": "tiny-16x1"}}
    for seats, expected in [
        ({"X": "one", "O": "two"}, [("one", "X"), ("two", "O")]),
        ({"X": "two", "O": "bot:first"}, [("two", "X")]),
    ]:
        used = {name: p for name, p in policies.items() if name in seats.values()}
        plan = resolve(parse({**RECIPE, "policies": used, "seats": seats}))
        found = list(lineups(plan, ["bot:random"]))
        assert [(x.policy, x.role) for x in found] == expected
        assert found[0].seats == {"X": Policy(found[0].policy), "O": RANDOM}


def test_the_same_seeds_give_the_same_results(team: Team) -> None:
    """Twice in one process, whatever was played in between: the same replies give the same table. Another seed plays
    other games."""
    said: list[list[tuple[str, str]]] = []

    def run(**changes: Any) -> list[SeatResult]:
        games: dict[str, str] = {}
        plan = resolve(parse({**RECIPE, **changes}))
        told = lambda e: games.update({f"{e.seats}{e.id}": " ".join(t.text for t in e.turns)})  # noqa: E731
        found = asyncio.run(evaluate(Field(plan, team, 8, done=told), ["bot:random"]))
        said.append(sorted(games.items()))
        return found

    first = run()
    measure(team, games=3, seed=5)
    assert run() == first
    run(seed=1)
    assert said[0] == said[1] and len(said[0]) == 16
    assert [moves for _, moves in said[0]] != [moves for _, moves in said[2]]


def test_bots_can_be_measured_too(team: Team) -> None:
    """Perfect play never loses, which checks the measurement itself."""
    plan = resolve(parse(RECIPE))
    seats = dict.fromkeys(plan.roles, Scripted("minimax"))
    found = asyncio.run(evaluate(Field(plan, team, 10), ["bot:random"], seats))
    assert [r.losses for r in found] == [0, 0] and sum(r.wins for r in found) > 10
    assert all(r.tokens == 0 for r in found)


def test_failed_games_are_counted_and_left_out(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 7: a game that failed technically is neither a loss nor a draw; if all failed, there is an error."""
    engine = team.members["player"].engine
    honest = engine.generate

    async def generate(request: Any) -> Any:
        if request.key[1].endswith(("-0", "-1")):
            raise InterplayError("gone.")
        return await honest(request)

    monkeypatch.setattr(engine, "generate", generate)
    assert {(r.games, r.failed) for r in measure(team, games=6)} == {(4, 2)}
    with pytest.raises(
        InterplayError, match=r"all 2 games with X = player, O = bot:random failed; the error of the first one: .*gone"
    ):
        measure(team, games=2)


# -- report -----------------------------------------------------------------------------------------------------------


def result(role: str, wins: int, **changes: Any) -> SeatResult:
    low, high = wilson(wins, 10)
    values = {"policy": "player", "opponent": "bot:random", "role": role, "games": 10, "failed": 0, "wins": wins,
              "draws": 1, "losses": 9 - wins, "win_low": low, "win_high": high, "reward": 0.5, "reward_low": 0.25,
              "reward_high": 0.75, "turns": 40, "illegal": 2, "tokens": 80}  # fmt: skip
    return SeatResult(**{**values, **changes})


STAGES = {"before": [result("X", 1), result("O", 0)], "after": [result("X", 9), result("O", 5, illegal=0)]}


def rendered(stages: dict[str, list[SeatResult]]) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(report.table(stages, "tictactoe-demo, seed 0"))
    return out.getvalue()


def test_the_table_shows_both_stages_seat_by_seat_and_together() -> None:
    text = rendered(STAGES)
    assert "tictactoe-demo, seed 0" in text
    lines = [line.split() for line in text.splitlines() if "bot:random" in line]
    assert [(w[1], w[2], w[3]) for w in lines] == [
        ("X", "before", "10.0"), ("X", "after", "90.0"), ("O", "before", "0.0"), ("O", "after", "50.0"),
        ("all", "before", "5.0"), ("all", "after", "70.0"),
    ]  # fmt: skip
    assert "90.0 (59.6–98.2)" in text, "the interval stands beside the share"
    assert lines[1][-2] == "5.00" and lines[-1][-2] == "2.50", "illegal moves: 2 of 40, 2 of 80"
    assert lines[-1][-1] == "20", "games of both seats"
    assert max(map(len, text.splitlines())) <= 80, "fits a narrow terminal"


def test_a_table_without_the_mask_of_training_says_so() -> None:
    masked, plain = ({**RECIPE, "sampling": {**RECIPE.get("sampling", {}), "legal": value}} for value in (True, False))
    told = report.unmasked(parse(masked), {"after": [result("X", 0, illegal=40)]})
    assert told is not None and "eval.legal=true" in told
    assert report.unmasked(parse(masked, ["eval.legal=true"]), STAGES) is None
    assert report.unmasked(parse(masked), {"before": STAGES["before"], "after": [result("X", 9, illegal=0)]}) is None
    assert report.unmasked(parse(plain), STAGES) is None and report.unmasked(parse(masked), {}) is None


def test_the_table_of_nothing_is_empty() -> None:
    assert "bot" not in rendered({})


def test_the_report_is_json_with_intervals(tmp_path: Path) -> None:
    """It can be read back as the same results, for a run that continues."""
    report.write(tmp_path / "report.json", STAGES, {"seed": 3})
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["seed"] == 3
    row = data["results"]["after"][0]
    assert (row["win_rate"], row["illegal_rate"]) == (0.9, 0.05)
    assert (row["win_low"], row["win_high"]) == pytest.approx((0.5958, 0.9821), abs=1e-4)
    again = {stage: [SeatResult.from_json(r) for r in found] for stage, found in data["results"].items()}
    assert again == STAGES


PUZZLE = {
    **RECIPE,
    "env": {"name": "plan_path", "brief": True},
    "eval": {"opponents": ["team"], "success": "solved"},
}


def test_a_team_is_measured_in_its_own_seats_by_its_success() -> None:
    """The recipe's seats play together: the solver in both seats always succeeds, and is measured once."""
    plan = resolve(parse({**PUZZLE, "seats": {"planner": "player", "actor": "bot:solver"}}))
    team = Team(plan.recipe)
    (found,) = asyncio.run(evaluate(Field(plan, team, 12), ["team"]))
    team.close()
    assert (found.policy, found.opponent, found.role, found.games) == ("team", "team", "team", 12)
    assert (found.wins, found.draws, found.losses) == (12, 0, 0)
    out = Console(file=io.StringIO(), width=100)
    out.print(report.table({"now": [found]}, "t"))


def test_a_team_that_fails_has_no_success() -> None:
    plan = resolve(parse(PUZZLE))
    team = Team(plan.recipe)
    (found,) = asyncio.run(evaluate(Field(plan, team, 12), ["team"]))
    team.close()
    assert found.wins < 12 and found.losses == 12 - found.wins and found.turns > 0


def test_a_team_needs_a_reward_that_says_success() -> None:
    with pytest.raises(
        ConfigError, match=r"eval.success is 'solvd'; expected the name of a reward of plan_path: solved"
    ):
        resolve(parse({**PUZZLE, "eval": {"opponents": ["team"], "success": "solvd"}}))
