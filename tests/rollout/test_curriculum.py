"""Curricula with a simulated learner: stages are passed, the target is held, and learnable levels are repeated more."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from interplay.config import CurriculumSection, parse, validate
from interplay.errors import CheckpointError, ConfigError
from interplay.rollout.curriculum import (
    Curriculum,
    Known,
    LevelReplay,
    Result,
    SelfPaced,
    Staged,
    between,
    make_curriculum,
    results_of,
)
from interplay.rollout.resolve import resolve
from interplay.types import Credit, Episode, Keys, Observation, Rewards, Sample, Task, Turn, seed_of
from interplay.types.occupant import parse as occupant

STAGES = [{"blanks": b} for b in (1, 3, 6, 10)]


def section(kind: str, **changes: Any) -> CurriculumSection:
    return validate(CurriculumSection, {"kind": kind, **changes}, prefix="curriculum")


def make_task(index: int, options: Mapping[str, Any]) -> Task:
    return Task(f"t-{index}", "sudoku", seed_of(index), dict(options))


class Learner:
    """Its success probability falls with difficulty and rises with skill; skill grows with practice."""

    def __init__(self, skill: float = 0.0, growth: float = 0.0, episodes: int = 8) -> None:
        self.skill, self.growth, self.episodes = skill, growth, episodes

    def chance(self, difficulty: float) -> float:
        return 1 / (1 + math.exp(8 * (difficulty - self.skill)))

    def play(self, tasks: list[Task], difficulty: Mapping[str, float], step: int) -> dict[str, Result]:
        found = {}
        for task in tasks:
            rng = random.Random(seed_of(task.id, step))
            p = self.chance(difficulty[task.id])
            found[task.id] = Result(sum(rng.random() < p for _ in range(self.episodes)) / self.episodes, self.episodes)
        self.skill += self.growth
        return found


def run(curriculum: Curriculum, learner: Learner, steps: range, count: int = 16) -> list[dict[str, float]]:
    logs = []
    for step in steps:
        tasks = curriculum.choose(step, count, make_task)
        assert len({t.id for t in tasks}) == count, "the tasks of a step are all different"
        difficulty = {t.id: float(t.data.get("blanks", 10 * (t.seed % 1000) / 1000)) / 10 for t in tasks}
        logs.append(curriculum.learn(step, learner.play(tasks, difficulty, step)))
    return logs


def test_stages_are_passed_one_after_the_other_as_skill_grows() -> None:
    """Each stage is played until its threshold is reached; a learner that does not improve stays in its stage."""
    logs = run(Staged(section("staged", stages=STAGES), 0), Learner(0.2, growth=0.02), range(80))
    stages = [log["stage"] for log in logs]
    assert stages == sorted(stages) and set(stages) == {0, 1, 2, 3}
    for stage in range(3):
        assert logs[stages.index(stage + 1) - 1]["success"] >= 0.8
    stuck = run(Staged(section("staged", stages=STAGES), 0), Learner(0.2), range(80))
    assert stuck[-1]["stage"] < 2


def test_a_stage_needs_its_whole_window() -> None:
    """A lucky first step does not end a stage, and a new stage begins with an empty window."""
    staged = Staged(section("staged", stages=STAGES, window=100), 0)
    run(staged, Learner(5.0, episodes=1), range(6))
    assert staged.stage == 0 and len(staged.recent) == 96
    run(staged, Learner(5.0, episodes=1), range(6, 7))
    assert staged.stage == 1 and staged.recent == []


def test_review_goes_back_to_earlier_stages() -> None:
    """A share of the tasks, which does not count for the current stage."""
    staged = Staged(section("staged", stages=STAGES, review=0.25, window=10**6), 0)
    staged.stage = 2
    blanks = Counter(t.data["blanks"] for s in range(50) for t in staged.choose(s, 16, make_task))
    assert blanks[6] / 800 == pytest.approx(0.75, abs=0.05) and blanks[1] > 50 < blanks[3] and not blanks[10]
    tasks = staged.choose(50, 16, make_task)
    staged.learn(50, {t.id: Result(float(t.data["blanks"] == 6), 1) for t in tasks})
    assert set(staged.recent) == {1.0}


@pytest.mark.parametrize(("skill", "growth"), [(0.5, 0.0), (0.1, 0.004), (0.8, -0.003)])
def test_self_paced_holds_its_target(skill: float, growth: float) -> None:
    """Whether the learner stays, improves or forgets, success settles at the target and difficulty follows the
    skill."""
    paced = SelfPaced(
        section("self_paced", easy={"blanks": 0.0}, hard={"blanks": 10.0}, target=0.6, rate=0.1, start=0.3), 0
    )
    learner = Learner(skill, growth)
    logs = run(paced, learner, range(150))
    late = [log["success"] for log in logs[60:]]
    assert sum(late) / len(late) == pytest.approx(0.6, abs=0.06)
    fits = learner.skill - math.log(0.6 / 0.4) / 8
    assert paced.difficulty == pytest.approx(fits, abs=0.1)


def test_self_paced_stays_in_its_range() -> None:
    """A perfect learner ends at hard, and one that never succeeds at easy."""
    for skill, end in ((9.0, 1.0), (-9.0, 0.0)):
        paced = SelfPaced(section("self_paced", easy={"blanks": 1}, hard={"blanks": 10}, start=0.5), 0)
        run(paced, Learner(skill), range(60))
        assert paced.difficulty == end
        assert all(1 <= t.data["blanks"] <= 10 for t in paced.choose(60, 16, make_task))


def test_options_between_easy_and_hard() -> None:
    """Whole numbers are rounded, fractions are not, and values may also decrease."""
    at = section("self_paced", easy={"size": 4, "walls": 0.0, "given": 5}, hard={"size": 9, "walls": 0.5, "given": 1})
    assert between(at, 0.0) == {"size": 4, "walls": 0.0, "given": 5}
    assert between(at, 0.5) == {"size": 6, "walls": 0.25, "given": 3}
    assert between(at, 2.0) == {"size": 9, "walls": 0.5, "given": 1}
    assert all(type(between(at, d / 7)["size"]) is int for d in range(8))


def test_replay_prefers_what_can_be_learned() -> None:
    """Of levels from trivial to impossible, those that are solved about half of the time are replayed most."""
    replay = LevelReplay(section("replay", replay=0.7, temperature=0.3), 0)
    learner = Learner(0.5)
    run(replay, learner, range(30))
    chances = []
    for step in range(30, 60):
        tasks = replay.choose(step, 16, make_task)
        difficulty = {t.id: (t.seed % 1000) / 1000 for t in tasks}
        chances += [learner.chance(difficulty[t.id]) for t in tasks if "@" in t.id]
        replay.learn(step, learner.play(tasks, difficulty, step))
    fresh = [learner.chance((seed_of(i) % 1000) / 1000) for i in range(2000)]

    def learnable(found: list[float]) -> float:
        return sum(0.2 < p < 0.8 for p in found) / len(found)

    assert learnable(chances) > 1.5 * learnable(fresh)


def test_replay_follows_the_learner_as_it_grows() -> None:
    """Levels that were learnable and are now mastered are replaced by harder ones."""
    replay = LevelReplay(section("replay", easy={"blanks": 0.0}, hard={"blanks": 10.0}, temperature=0.3), 0)
    learner = Learner(0.2, growth=0.01)

    def replayed(steps: range) -> float:
        found = []
        for step in steps:
            tasks = replay.choose(step, 16, make_task)
            difficulty = {t.id: t.data["blanks"] / 10 for t in tasks}
            found += [difficulty[t.id] for t in tasks if "@" in t.id]
            replay.learn(step, learner.play(tasks, difficulty, step))
        return sum(found) / len(found)

    early = replayed(range(20))
    replayed(range(20, 50))
    assert replayed(range(50, 70)) > early + 0.15


def test_the_weights_are_those_of_the_paper() -> None:
    """(1 − ρ) rank^(−1/β), normalised, plus ρ times the share of age; regret and learnability rank differently."""
    replay = LevelReplay(section("replay", temperature=0.5, staleness=0.25), 0)
    replay.known = {
        1: Known(1, 0.0, step=7, won=4.0, played=8.0, regret=0.1),
        2: Known(2, 0.0, step=9, won=8.0, played=8.0, regret=0.5),
        3: Known(3, 0.0, step=4, won=0.0, played=4.0, regret=0.3),
    }
    ranks, ages = {1: 1, 3: 2, 2: 3}, {1: 3, 2: 1, 3: 6}
    whole = sum(1 / r**2 for r in ranks.values())
    expected = {i: 0.75 * (1 / ranks[i] ** 2) / whole + 0.25 * ages[i] / 10 for i in ranks}
    assert replay.weights(10) == pytest.approx(expected)
    assert sum(replay.weights(10).values()) == pytest.approx(1.0)
    by_regret = LevelReplay(section("replay", score="regret", staleness=0.0), 0)
    by_regret.known = replay.known
    assert sorted(by_regret.known, key=lambda i: -by_regret.weights(10)[i]) == [2, 3, 1]


def test_a_very_low_temperature_still_fills_a_step() -> None:
    """Low ranks have weights that are too small for a float; they are drawn when the best are used up."""
    replay = LevelReplay(section("replay", temperature=1e-4, staleness=0.0, replay=1.0), 0)
    run(replay, Learner(0.5), range(3))
    assert len(replay.choose(3, 16, make_task)) == 16


def test_the_least_worth_are_forgotten_first() -> None:
    """Above the capacity the lowest scores are dropped."""
    small, large = (LevelReplay(section("replay", capacity=n, replay=0.0), 0) for n in (10, 100))
    for replay in (small, large):
        run(replay, Learner(0.5), range(6), count=5)
    scores = sorted((k.score("learnability") for k in large.known.values()), reverse=True)
    assert len(large.known) == 30 and scores[9] > scores[20]
    assert sorted((k.score("learnability") for k in small.known.values()), reverse=True) == scores[:10]


def test_a_replayed_task_is_the_same_level_under_another_name() -> None:
    """The same number and options, so the same seed; another id, so other random numbers for the replies."""
    replay = LevelReplay(section("replay", replay=1.0, easy={"blanks": 1}, hard={"blanks": 9}), 0)
    first = {t.id: t for t in replay.choose(0, 8, make_task)}
    replay.learn(0, {i: Result(0.5, 4) for i in first})
    again = replay.choose(1, 8, make_task)
    assert sorted(t.id for t in again) == sorted(f"{i}@1" for i in first)
    for task in again:
        assert (task.seed, task.data) == (first[task.id[:-2]].seed, first[task.id[:-2]].data)
    replay.learn(1, {t.id: Result(1.0, 4) for t in again})
    known = replay.known[int(again[0].id.removeprefix("t-").removesuffix("@1"))]
    assert known.played == pytest.approx(0.7 * 4 + 4) and known.won == pytest.approx(0.7 * 2 + 4) and known.step == 1


ALL = [
    section("staged", stages=STAGES, review=0.3),
    section("self_paced", easy={"blanks": 1}, hard={"blanks": 10}),
    section("replay", easy={"blanks": 1}, hard={"blanks": 10}, capacity=30),
]


@pytest.mark.parametrize("settings", ALL, ids=lambda s: s.kind)
def test_the_choice_is_a_function_of_seed_and_history(settings: CurriculumSection) -> None:
    """promise 9: saved as JSON and loaded elsewhere, it continues in the same way; an interrupted step has no
    effect."""
    one, learner = make_curriculum(settings, 3), Learner(0.4, growth=0.01)
    run(one, learner, range(10))
    saved = json.loads(json.dumps(one.state_dict()))
    other, twin = make_curriculum(settings, 3), Learner(learner.skill, learner.growth)
    other.load_state_dict(saved)
    one.choose(10, 16, make_task)
    one.choose(99, 16, make_task)  # chosen and never played
    assert json.loads(json.dumps(one.state_dict())) == saved
    assert one.choose(10, 16, make_task) == other.choose(10, 16, make_task)
    assert run(one, learner, range(10, 20)) == run(other, twin, range(10, 20))
    assert one.state_dict() == other.state_dict()
    assert make_curriculum(settings, 4).choose(0, 16, make_task) != [] and one.state_dict() != saved


def test_the_state_of_another_kind_is_refused() -> None:
    """A changed recipe with an old checkpoint is reported."""
    with pytest.raises(CheckpointError, match="the curriculum 'staged', but this recipe has 'replay'"):
        make_curriculum(ALL[2], 0).load_state_dict(make_curriculum(ALL[0], 0).state_dict())


def test_tasks_whose_episodes_all_failed_teach_nothing() -> None:
    """A task whose episodes were all dropped is left out; the others still count."""
    for settings in ALL:
        curriculum = make_curriculum(settings, 0)
        tasks = curriculum.choose(0, 4, make_task)
        curriculum.learn(0, {tasks[2].id: Result(1.0, 2)})
        known = curriculum.state_dict()
        curriculum.learn(0, {})
        assert curriculum.state_dict() == known


def episode(
    task: str, seats: dict[str, str], rewards: Rewards, given: Credit, advantages: tuple[float, ...] = ()
) -> Episode:
    """Its turns have values of 0.5, and targets that are above them by this much."""
    seated = {role: occupant(who) for role, who in seats.items()}
    found = Episode(f"{task}#0", Task(task, "sudoku", 0), 0, seated, rewards=rewards)
    for i, advantage in enumerate(advantages):
        name = f"{len(given.values)}"
        given.values[name], given.targets[name] = (0.5,), (0.5 + advantage,)
        keys = Keys(task, 0, found.id, i, "actor", "", "", "")
        sample = Sample(name, (1,), (2,), (0.0,), (0,), "")
        found.turns.append(Turn(name, None, keys, "player", "", Observation(()), (sample,)))
    return found


def test_success_and_regret_come_from_the_episodes() -> None:
    """Success is a positive sum of the named reward in a learner's seat; regret is the mean positive value loss."""
    seats, given = {"planner": "bot:solver", "actor": "player"}, Credit()
    episodes = [
        episode("a", seats, Rewards.team("solved", 1.0), given, (0.4, -0.2)),
        episode("a", seats, Rewards.team("solved", 0.0) + Rewards.team("progress", 1.0), given, (0.2, 0.0)),
        episode("b", {"X": "player", "O": "player"}, Rewards.agent("win", {"X": 1.0, "O": -1.0}), given),
        episode("c", {"X": "bot:random"}, Rewards.team("solved", 1.0), given),
    ]
    solved = results_of(episodes, "solved", {"player"}, given)
    assert solved["a"] == Result(0.5, 2, pytest.approx(0.15))
    assert results_of(episodes, "win", {"player"}, given)["b"].success == 0.5
    assert "c" not in solved, "no learner sat there"


BASE: dict[str, Any] = {
    "name": "test",
    "env": {"name": "sudoku"},
    "policies": {"player": {"base": "tiny"}},
    "seats": "player",
    "algorithm": {"name": "grpo"},
    "eval": {"opponents": ["player"]},
}


@pytest.mark.parametrize(
    ("curriculum", "says"),
    [
        ({"kind": "stage"}, "curriculum.kind is 'stage'; expected one of 'staged', 'self_paced', 'replay'"),
        ({"kind": "staged"}, "curriculum.stages is empty"),
        ({"kind": "self_paced"}, "curriculum.easy is empty"),
        ({"kind": "self_paced", "easy": {"blanks": 1}, "hard": {"size": 9}}, "expected the same options in both"),
        ({"kind": "staged", "stages": [{"blanks": 1}, {"blank": 2}]}, r"curriculum.stages.1: unknown key 'blank'"),
        ({"kind": "staged", "stages": [{"team": "single"}]}, "has the roles actor, but \\[env\\] has planner, actor"),
        (
            {"kind": "self_paced", "easy": {"blanks": 1}, "hard": {"blanks": 30}},
            "easy to hard at difficulty 0.5: env.bl",
        ),
        ({"kind": "replay", "success": "solve"}, "curriculum.success is 'solve'.*Did you mean 'solved'"),
        ({"kind": "replay", "score": "regret"}, "needs the values of a critic, but grpo has no critic"),
        ({"kind": "replay", "thresold": 1.0}, "unknown key 'thresold' in \\[curriculum\\].*Did you mean 'threshold'"),
    ],
)
def test_a_mistake_in_the_recipe_is_one_sentence(curriculum: dict[str, Any], says: str) -> None:
    """The recipe is refused before anything is loaded, and the error names the key to change."""
    with pytest.raises(ConfigError, match=says):
        resolve(parse(BASE | {"curriculum": curriculum}))


def test_regret_is_accepted_with_a_critic() -> None:
    """PPO has values, so value loss can rank levels."""
    good = BASE | {"algorithm": {"name": "ppo"}, "curriculum": {"kind": "replay", "score": "regret"}}
    assert resolve(parse(good)).recipe.curriculum is not None


def test_a_plans_task_takes_options_over_the_recipes() -> None:
    """The level changes; the number and the split do not."""
    plan = resolve(parse(BASE))
    assert plan.task(3, options={"blanks": 2}).data["blanks"] == 2
    assert plan.task(3, options={"blanks": 2}).seed == plan.task(3).seed
    assert plan.task(3).data["blanks"] == 6
