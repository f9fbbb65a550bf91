"""Studies: every arm and seed is run once and tested once; contrasts are paired by seed and corrected."""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interplay.errors import ConfigError, InterplayError
from interplay.evaluation.intervals import Estimate
from interplay.publishing import agenda
from interplay.publishing.agenda import Agenda, ExperimentPace, StudyCall, run_studies
from interplay.publishing.experiment import begin, check_measures, measured, one_run, optima
from interplay.publishing.results import Contrast, Results, holm
from interplay.publishing.results import Tested as FinishedRun
from interplay.publishing.study import Study, StudySection

ROOT = Path(__file__).parents[2]
STORY = ROOT / "recipes" / "rlhf" / "experiment" / "story.toml"
SMALL = [
    "policies.learner.base=tiny-32x1", "train.steps=2", "rollout.tasks=2", "algorithm.group=2",
    "records.tensorboard=off", "device=cpu", "env.sentences=2",
]  # fmt: skip


def contrast(p: float) -> Contrast:
    return Contrast("s", "a", "b", "t", "gold", 8, Estimate(1.0, 0.5, 1.5), p, p)


def test_holms_correction_by_hand() -> None:
    """Corrected values are p · (m − rank) and never decrease: 0.01·3, 0.03·2, then 0.04 is raised to 0.06."""
    found = [c.corrected for c in holm([contrast(0.04), contrast(0.01), contrast(0.03), contrast(math.nan)])]
    assert found[:3] == pytest.approx([0.06, 0.03, 0.06]) and math.isnan(found[3])
    assert holm([contrast(0.04)])[0].sentence == "a is better than b (gold in test t)"
    assert holm([contrast(0.2)])[0].sentence == "a cannot be told from b (gold in test t)"
    assert replace(contrast(0.04), measure="regret").verdict == "is worse than"  # less regret is better


@pytest.mark.parametrize(("measure", "option"), [("success", "success"), ("regret", "best")])
def test_a_contrast_of_what_the_study_does_not_measure_is_refused(tmp_path: Path, measure: str, option: str) -> None:
    path = small_study(tmp_path, {"one": [], "other": []}, [0])
    path.write_text(path.read_text() + f'\nmeasure = "{measure}"')
    with pytest.raises(ConfigError, match=f"measures {measure}, which is unknown because the study has no '{option}'"):
        Study.read(path)


def small_study(folder: Path, arms: dict[str, list[str]], seeds: list[int]) -> Path:
    """Write the story study with these arms and only a few steps."""
    lines = [
        'name = "small"', f'recipe = "{ROOT / "recipes" / "rlhf" / "story.toml"}"', f"seeds = {seeds}", "games = 2",
        f"common = {json.dumps(SMALL)}", "[arms]",
        *(f"{name} = {json.dumps(changes)}" for name, changes in arms.items()),
        "[tests]", 'seen = { seats = [["partner=bot:writer:plain"]] }',
        *(["[[contrasts]]", f'first = "{next(iter(arms))}"', f'second = "{list(arms)[-1]}"', 'test = "seen"']),
    ]  # fmt: skip
    path = folder / "small.toml"
    path.write_text("\n".join(lines))
    return path


def test_every_arm_of_the_shipped_studies_is_a_valid_recipe() -> None:
    from interplay.rollout.resolve import resolve

    for path in sorted((ROOT / "recipes" / "rlhf").glob("**/experiment/*.toml")):
        study = Study.read(path)
        for arm in study.section.arms:
            assert resolve(study.recipe(arm, 0)).trainable[0] == "learner"


def test_a_study_is_run_tested_once_and_resumed(tmp_path: Path) -> None:
    arms = {"fixed": [], "oracle": ['judges={ taste = { kind = "pointwise", who = "gold:gold" } }']}
    path = small_study(tmp_path, arms, [0])
    told: list[str] = []
    run_studies([path], tmp_path / "runs", told=told.append)
    assert told[0] == "small: 2 runs, 2 left" and len(told) == 3
    results = Results.read(tmp_path / "runs" / "small")
    before = {r.path: r.path.read_text() for r in results.runs}
    assert set(results.values("fixed", "seen", "gold")) == {0}
    assert set(results.runs[0].data["tests"]["seen"]["mean"]) <= (measured(Study.read(path), "fixed", "seen") or set())
    counts = results.runs[0].data["counts"]
    assert counts["steps"] == 2 and counts["labels"] > 0 and counts["learner_tokens"] <= counts["all_tokens"]
    assert [c.seeds for c in results.contrasts()] == [1] and math.isnan(results.contrasts()[0].p)
    assert len(results.curve("fixed", "reward/gold/learner")[0]) == 2
    told.clear()
    run_studies([path], tmp_path / "runs", told=told.append)
    assert told == ["small: 2 runs, 0 left"]
    assert before == {r.path: r.path.read_text() for r in results.runs}
    small_study(tmp_path, {**arms, "more": []}, [0])
    with pytest.raises(ConfigError, match="another study of this name"):
        run_studies([path], tmp_path / "runs")


def test_regret_is_the_distance_to_the_best_of_each_task(tmp_path: Path) -> None:
    """It needs nothing of the runs but the gold of their tasks, so `best` may be added to a study that has runs."""
    path = ROOT / "recipes" / "rlhf" / "experiment" / "negotiation.toml"
    study = Study.read(path, seeds=1)
    without = study.section.model_copy(update={"best": None})
    assert Study(without, study.base).digest == study.digest
    begin(study, tmp_path)
    best = optima(study)["seen"]
    assert len(best) == study.section.games and all(value is not None and 0 < value <= 1 for value in best.values())
    run = tmp_path / "single" / "seed-0"
    run.mkdir(parents=True)
    (first, most), (second, more) = [(task, value or 0.0) for task, value in best.items()][:2]
    lineups = [{"tasks": {first: most - 0.5}}, {"tasks": {second: more - 0.25}}]
    tests = {name: {"mean": {}, "lineups": lineups} for name in study.section.tests}
    (run / "test.json").write_text(json.dumps({"arm": "single", "seed": 0, "counts": {}, "tests": tests}))
    assert Results.read(tmp_path).values("single", "seen", "regret") == {0: pytest.approx(0.375)}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_signal_ends_the_whole_experiment_and_not_only_the_run_it_is_at(tmp_path: Path, jobs: int) -> None:
    path = small_study(tmp_path, {"fixed": [], "other": []}, [0, 1])
    out = tmp_path / "runs"
    endless = ["train.steps=100000", "train.budget_tokens=1000000000"]
    command = [sys.executable, "-m", "interplay", "experiment", str(path), *endless, "--out", str(out)]
    with subprocess.Popen([*command, "--jobs", str(jobs)], stdout=subprocess.PIPE, text=True) as experiment:
        while sum(bool(p.read_text()) for p in out.glob("*/*/*/metrics.jsonl")) < jobs:  # every run is at its steps
            assert experiment.poll() is None
            time.sleep(0.2)
        loaded = Path(f"/proc/{experiment.pid}/maps")
        if jobs > 1 and loaded.is_file():
            assert "libtorch" not in loaded.read_text(), "this process only waits for the runs"
        experiment.send_signal(signal.SIGTERM)
        try:
            said, _ = experiment.communicate(timeout=600)
        finally:
            experiment.kill()
    assert experiment.returncode == 75, said
    assert said.count(": interrupted at step") == jobs and f"interrupted; finished work is kept in {out}" in said
    assert len(list(out.glob("*/*/seed-*"))) == jobs  # no other run was begun
    assert not list(out.glob("*/*/*/test.json")) and len(list(out.glob("*/*/*/checkpoints/*"))) >= jobs


def test_curves_of_a_tree_are_those_of_the_replies_that_it_kept(tmp_path: Path) -> None:
    for kind, expected in (("reward", "reward"), ("reward_kept", "reward_kept")):
        run = tmp_path / kind
        run.mkdir()
        rows = [{f"{kind}/gold/learner": float(n), f"{kind}/gold/partner": 1.0, "learner/tokens": n} for n in range(10)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        about = {"gold": "gold", "role": "learner", "learner": "learner"}
        data = {"switches": [4], "tests": {}}
        results = Results(tmp_path, about, [FinishedRun("shifting", 0, run / "test.json", data)])
        assert results.paid == expected
        assert results.recoveries("shifting") == [0]
        assert results.partners_drift("shifting") == {0: 0.0}


def test_a_later_version_with_more_options_goes_on_with_the_runs_of_a_study(tmp_path: Path) -> None:
    """The digest of a study's folder was once different for every option that the package gained."""

    class Later(StudySection):
        added: int = 3

    study = Study.read(small_study(tmp_path, {"fixed": []}, [0]))
    said = study.section.model_dump(exclude_unset=True)
    assert Study(Later(**said), study.base).digest == study.digest
    assert Study(StudySection(**{**said, "games": 3}), study.base).digest != study.digest
    assert Study(StudySection(**{**said, "seeds": [0, 1]}), study.base).digest == study.digest


def test_only_the_values_of_a_recipe_say_which_study_a_folder_holds(tmp_path: Path) -> None:
    """A comment may change. A folder that an earlier version began has the hash of the recipe's text, and is known."""
    path, recipe, runs = small_study(tmp_path, {"fixed": []}, [0]), tmp_path / "own.toml", tmp_path / "runs"
    shipped = ROOT / "recipes" / "rlhf" / "story.toml"
    recipe.write_text(shipped.read_text())
    path.write_text(path.read_text().replace(str(shipped), recipe.name))
    study = Study.read(path)
    said = [study.section.model_dump(exclude={"seeds", "best", "notes"}, exclude_unset=True), recipe.read_text()]
    old = hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=8).hexdigest()
    runs.mkdir()
    noted = runs / "study.json"
    noted.write_text(json.dumps({"digest": old}))
    begin(study, runs)
    assert json.loads(noted.read_text())["digest"] == study.digest != old
    assert json.loads(noted.read_text())["given"] == [path.name]  # without its folder, which is one of this machine
    begin(Study.read(path, ["train.steps=1"], 1), tmp_path / "few")
    few = json.loads((tmp_path / "few" / "study.json").read_text())
    assert few["given"] == [path.name, "train.steps=1", "--seeds", "1"]
    recipe.write_text("# A comment.\n" + recipe.read_text())
    begin(study, runs)
    recipe.write_text(recipe.read_text() + "\n[memory]\nshare = 0.5\n")
    with pytest.raises(ConfigError, match="another study of this name"):
        begin(study, runs)


def test_a_time_limit_stops_an_experiment_and_the_next_call_goes_on(tmp_path: Path) -> None:
    path = small_study(tmp_path, {"fixed": []}, [0, 1])
    told: list[str] = []
    run_studies([path], tmp_path / "runs", told=told.append, pace=ExperimentPace(seconds=1e-6))
    assert told == ["small: 2 runs, 2 left"]  # nothing is begun when the time is over
    study, folder = Study.read(path), tmp_path / "runs" / "small"
    line = one_run(study, folder, "fixed", 0, until=0.0)
    assert line == "small fixed seed 0: interrupted at step 1" and not list(folder.glob("*/*/test.json"))
    line = one_run(study, folder, "fixed", 0)
    assert line.startswith("small fixed seed 0: gold seen")
    assert json.loads((folder / "fixed" / "seed-0" / "test.json").read_text())["counts"]["steps"] == 2


def test_the_training_of_a_run_is_not_in_memory_any_more_when_it_is_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU that several runs share, the tests found no room for their key-value cache."""
    from interplay.publishing import experiment
    from interplay.training.trainer import Trainer

    alive: list[int] = []

    def trainers() -> int:
        gc.collect()
        return sum(type(o) is Trainer for o in gc.get_objects())

    def tested(*_: Any) -> dict[str, Any]:
        until = time.monotonic() + 60
        while trainers() > before and time.monotonic() < until:
            time.sleep(0.05)  # a thread that is ending may still refer to its last piece of work
        alive.append(trainers())
        return {"mean": {"gold": 0.0}}

    monkeypatch.setattr(experiment, "tested", tested)
    study = Study.read(small_study(tmp_path, {"fixed": []}, [0]))
    before = trainers()
    one_run(study, tmp_path / "runs" / "small", "fixed", 0)
    assert alive and max(alive) <= before


def test_with_go_on_a_run_that_fails_is_reported_and_the_others_are_run(tmp_path: Path) -> None:
    path = small_study(tmp_path, {"bad": ["policies.learner.base=folder/that/is/not/there"], "good": []}, [0])
    said: list[str] = []
    run_studies([path], tmp_path / "runs", pace=ExperimentPace(go_on=True), told=said.append)
    assert [line.split(": ")[1] for line in said[1:]] == ["failed", "gold seen " + said[2].rpartition(" ")[2]]
    with pytest.raises(InterplayError):
        run_studies([path], tmp_path / "runs")


def test_a_bug_in_one_run_does_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(study: Study, folder: Path, arm: str, seed: int, until: float | None) -> str:
        if arm == "bad":
            raise RuntimeError("CUBLAS_STATUS_ALLOC_FAILED")
        return f"{arm} is done"

    monkeypatch.setattr(agenda, "one_run", run)
    path = small_study(tmp_path, {"bad": [], "good": []}, [0])
    said: list[str] = []
    run_studies([path], tmp_path / "runs", pace=ExperimentPace(go_on=True), told=said.append)
    assert said[1:] == ["small bad seed 0: failed: RuntimeError: CUBLAS_STATUS_ALLOC_FAILED", "good is done"]


@pytest.mark.parametrize(("given", "share"), [((), 0.323), (("memory.share=0.2",), 0.2)])
def test_runs_side_by_side_share_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], share: float
) -> None:
    """Each of three runs may take a third of the GPU's memory, without what CUDA needs. If the user has set
    `memory.share`, it is not changed."""
    path = small_study(tmp_path, {"one": []}, [0])
    call = StudyCall(path, given, None, tmp_path / "runs")
    assert agenda._sharing(call, call.study(), 3).recipe("one", 0).memory.share == pytest.approx(share)


def test_only_named_cells_are_run_group_by_group(tmp_path: Path) -> None:
    path = small_study(tmp_path, {"a": [], "b": [], "c": []}, [0, 1])
    study = Study.read(path)
    plans = [(StudyCall(path, (), None, tmp_path / "small"), study)]
    order = [(arm, seed) for _, arm, seed in Agenda(plans, cells=(("small/c",), ("small/b", "other/a"))).runs()]
    assert order == [("c", 0), ("c", 1), ("b", 0), ("b", 1)]
    assert [(arm, seed) for _, arm, seed in Agenda(plans).runs()] == [(x, n) for n in (0, 1) for x in "abc"]


def test_work_goes_seed_by_seed_and_arenas_come_first(tmp_path: Path) -> None:
    """After the runs of seed 0 its arena is played before the runs of seed 1."""
    plans = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        file = small_study(tmp_path / name, {"one": [], "two": []}, [0, 1])
        text = file.read_text().replace('"small"', f'"{name}"')
        file.write_text(text + '\n[arena]\nseats = [["partner=other"]]\n')
        plans.append((StudyCall(file, (), None, tmp_path / "runs" / name), Study.read(file)))
    plan, order = Agenda(plans), []
    while (work := plan.following()) is not None:
        given, what, seed = work
        order.append((given.folder.name, what, seed))
        if seed is not None:
            run = given.folder / what / f"seed-{seed}"
            run.mkdir(parents=True)
            (run / "test.json").write_text("{}")
    first = [("a", "one", 0), ("a", "two", 0), ("a", "seed-0", None), ("b", "one", 0), ("b", "two", 0)]
    assert order[:6] == [*first, ("b", "seed-0", None)] and order[6][2] == 1 and len(order) == 12


def test_a_study_does_not_ignore_a_cluster_that_an_arm_asks_for(tmp_path: Path) -> None:
    path = small_study(tmp_path, {"fixed": [], "many": ["cluster.rollout_workers=2"]}, [0])
    with pytest.raises(ConfigError, match="arm 'many' of study 'small' uses a Ray cluster"):
        Study.read(path)


def test_a_study_of_one_learner_does_not_ignore_a_workflow_that_evolves(tmp_path: Path) -> None:
    path = small_study(tmp_path, {"fixed": [], "evolving": ["evolve.every=2"]}, [0])
    with pytest.raises(ConfigError, match="arm 'evolving' of study 'small' has \\[evolve\\]"):
        Study.read(path)
    path.write_text("whole = true\n" + path.read_text())
    assert Study.read(path).recipe("evolving", 0).evolve is not None


def test_a_recipe_is_no_study() -> None:
    path = Path(__file__).parents[2] / "recipes" / "rlhf" / "story.toml"
    with pytest.raises(ConfigError, match=r"story\.toml' is a recipe, which interplay train takes; expected"):
        Study.read(path)


def test_a_mistake_in_any_arm_is_refused_before_the_first_run(tmp_path: Path) -> None:
    path = small_study(tmp_path, {"fixed": [], "wrong": ["train.stps=3"]}, [0])
    with pytest.raises(ConfigError, match="arm 'wrong' of study 'small': unknown key 'stps'"):
        run_studies([path], tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('measure = "golt"', "the measure of a contrast is 'golt', .*known: .*gold, .*win. Did you mean 'gold'"),
        ('measure = "success"', "a contrast measures success, which is unknown because the study has no 'success'"),
        ('measure = "regret"', "a contrast measures regret, which is unknown because the study has no 'best'"),
    ],
)
def test_a_measure_that_no_test_has_is_refused_before_the_first_run(tmp_path: Path, line: str, message: str) -> None:
    path = small_study(tmp_path, {"fixed": [], "other": []}, [0])
    path.write_text(path.read_text() + f"\n{line}\n")
    with pytest.raises(ConfigError, match=message):
        run_studies([path], tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_measures_of_every_shipped_study_exist() -> None:
    files = sorted((ROOT / "recipes").glob("**/experiment/*.toml"))
    for path in files:
        study = Study.read(path)
        check_measures(study)
        wrong = study.section.model_copy(update={"gold": "golt"})
        with pytest.raises(ConfigError, match="gold is 'golt', which test"):
            check_measures(Study(wrong, study.base))
    assert len(files) > 10


@pytest.mark.long
@pytest.mark.slow
def test_a_reduced_experiment_goes_from_the_study_to_the_pages(tmp_path: Path) -> None:
    """All arms of the debugging study with two seeds of a few steps: tests, arena, cross-play, report, post, slides.
    All of it takes less than five minutes of one core; the clock of a busy machine says nothing."""
    began = sum(os.times()[:4])  # of this process and of those that it started
    pytest.importorskip("fpdf")
    pytest.importorskip("matplotlib")
    from typer.testing import CliRunner

    from interplay.cli.main import app

    runs, given = str(tmp_path / "runs"), STORY.parent / "debugging.toml"
    changes = [
        "policies.learner.base=tiny-32x1", "train.steps=10", "rollout.tasks=2", "algorithm.group=2", "device=cpu",
        "records.tensorboard=off", "judges.taste.who=base:tiny-32x1", "judges.taste.train.pairs=8",
    ]  # fmt: skip
    text = given.read_text().replace("games = 64", "games = 4\narena_games = 2")
    file, arms = tmp_path / "debugging.toml", Study.read(given).section.arms
    file.write_text(text.replace('"../debugging.toml"', json.dumps(str(STORY.parents[1] / "debugging.toml"))))
    call = ["experiment", str(file), "--out", runs, "--seeds", "2", *changes]
    done = CliRunner().invoke(app, call, catch_exceptions=False)
    assert (
        done.exit_code == 0
        and "debugging: 14 runs, 14 left" in done.output
        and "debugging arena seed-1: played" in done.output
    )
    results = Results.read(Path(runs) / "debugging")
    for arm in arms:
        found = results.runs[0].data["tests"]["unseen"]["mean"]
        assert {"win", "preference", "success", "regret", "start"} <= set(found)
        assert set(results.values(arm, "unseen", "win")) == {0, 1}
        assert found["regret"] == pytest.approx(2.0 - found["gold"])
    assert set(results.arena()) == set(arms) and set(results.cross()) == {"context-learns"}
    again = CliRunner().invoke(app, call, catch_exceptions=False)
    assert "14 runs, 0 left" in again.output and "arena" not in again.output
    pages = CliRunner().invoke(app, ["publish", runs], catch_exceptions=False)
    assert pages.exit_code == 0 and "numbers.json" in pages.output
    report = (Path(runs) / "pages" / "report.md").read_text()
    assert "In cross-play" in report and "win rate" in report and "how steady training was" in report
    assert sum(os.times()[:4]) - began < 300
