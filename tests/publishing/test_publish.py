"""Pages about studies are written from the run folders, and refused if a number has no source."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from interplay.cli.experiment import in_a_line
from interplay.errors import DataError
from interplay.publishing.facts import Facts
from interplay.publishing.files import rows_of
from interplay.publishing.publish import publish, studies_in
from interplay.publishing.repeat import commands
from interplay.publishing.results import Results
from interplay.publishing.study import Study

ROOT = Path(__file__).parents[2]
pytest.importorskip("fpdf")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two arms and three seeds, as `interplay experiment` writes it, with chosen numbers."""
    folder = tmp_path_factory.mktemp("runs")
    study = folder / "story"
    study.mkdir()
    contrasts = [{"first": "multi-fixed", "second": "single", "test": "unseen", "measure": "gold"}]
    about = {"name": "story", "digest": "x", "learner": "learner", "role": "learner", "gold": "gold", "best": 4.0,
             "games": 64, "seeds": [0, 1, 2], "arms": {"single": [], "multi-fixed": []},
             "tests": {"unseen": {}}, "contrasts": contrasts,
             "given": ["studies/story.toml", 'policies.learner.base="a b"', "--seeds", "3"]}  # fmt: skip
    gold = {"single": {"single": 9.0, "multi-fixed": 0.5}, "multi-fixed": {"single": 1.5, "multi-fixed": 9.0}}
    cross = {"arm": "multi-fixed", "gold": {"0": {"0": 2.0, "1": 1.25}, "1": {"0": 0.75, "1": 2.0}}}
    (study / "arena").mkdir()
    (study / "arena" / "seed-0.json").write_text(json.dumps({"seed": 0, "gold": gold}))
    (study / "arena" / "cross-multi-fixed-2.json").write_text(json.dumps(cross))
    (study / "study.json").write_text(json.dumps(about))
    for arm, base in (("single", 1.0), ("multi-fixed", 2.0)):
        for seed in range(3):
            run = study / arm / f"seed-{seed}"
            run.mkdir(parents=True)
            means = {
                "gold": base + 0.125 * seed,
                "win": 0.75,
                "preference": 0.625,
                "success": 0.5,
                "regret": 1.75,
                "start": 0.5,
            }
            test = {"unseen": {"mean": means, "lineups": []}}
            counts = {
                "steps": 2,
                "learner_tokens": 1000 + seed,
                "all_tokens": 2500,
                "labels": 64 if arm == "single" else 16,
            }
            switches = [10] if arm == "multi-fixed" else []
            data = {"arm": arm, "seed": seed, "counts": counts, "switches": switches, "tests": test}
            (run / "test.json").write_text(json.dumps(data))
            rows = [{"learner/tokens": 500.0 * n, "reward/gold/learner": float(not 10 <= n < 14),
                     "reward/gold/partner": 1.0 + 2.0 * (n >= 10 and arm == "multi-fixed"), "tokens_sampled": 700.0,
                     "judge_tokens": 100.0, "judge/taste/gold": 0.25 * n, "judge/taste/proxy": 0.5 * n,
                     "judge/taste/rang": 0.0} for n in range(20)]  # fmt: skip
            (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            recipe = {"policies": {"learner": {"base": "smollm2"}, "judge": {"base": "tiny"}}}
            (run / "run.json").write_text(json.dumps({"recipe": recipe}))
    story = folder / "stories" / "seed-0"
    story.mkdir(parents=True)
    rows = []
    for step, mark, year in ((1, 0.9, 1997), (5, 0.1, 1998), (6, 0.3, 1999), (7, 0.2, 2000)):
        turns = [{"keys": {"role": role}, "kept": True, "text": text}
                 for role, text in (("learner", f"It was\n{year}."), ("partner", "It rained."))]  # fmt: skip
        rewards = [["gold", "agent", "learner", None], ["taste", "agent", "learner", mark]]
        rows.append(json.dumps({"step": step, "episode": {"turns": turns, "rewards": rewards}}) + "\n")
    (story / "episodes.jsonl").write_text("".join(rows))
    policies = {"learner": {"base": "smollm2"}, "partner": {"base": "tiny"}, "judge": {"base": "tiny"}}
    (story / "run.json").write_text(json.dumps({"recipe": {"policies": policies}}))
    marks = [json.dumps({"reward/taste/learner": mark}) + "\n" for mark in (-0.5, 0.25, 0.25, 0.75, 0.75, 0.75)]
    (story / "metrics.jsonl").write_text("".join(marks))
    return folder


def test_every_page_is_written_and_says_what_the_runs_say(runs: Path, tmp_path: Path) -> None:
    for path in publish(runs, tmp_path):
        assert path.stat().st_size > 500, path
    report = (tmp_path / "report.md").read_text()
    assert "| multi-fixed | 2.125 [1.814, 2.436] |" in report  # 2.125 ± 4.303 · 0.125 / √3
    assert "multi-fixed is better than single (gold with new partners)" in report
    assert "| story | multi-fixed minus single | gold with new partners | +1.000 [+1.000, +1.000] | 3 |" in report
    assert "| multi-fixed | 0.750 [0.750, 0.750] | 0.625 [0.625, 0.625] | 0.500 [0.500, 0.500] | 1.750" in report
    assert "| multi-fixed | 1.155 [1.155, 1.155] | 3 of 3 | 4.0 |" in report  # partners moved, gold came back
    assert "| single | 0.000 [0.000, 0.000] | no switch | n/a |" in report
    assert "| multi-fixed | 1.500 (one run) | 0.500 (one run) |" in report  # the arena, without itself
    assert "| multi-fixed | 2.000 [2.000, 2.000] | 1.000" in report  # cross-play
    assert "story-curves-all.svg" in report
    assert "| story | multi-fixed minus untrained | +1.625 [+1.314, +1.936] |" in report
    assert "| single | 1,001 | 2,500 | 2,000 | 2 | 64 |" in report  # 20 rows of 100 tokens by judges
    assert "single 64, multi-fixed 16" in report  # the judges learned from different numbers of comparisons
    assert "the difference is +0.750 (one run)" in report
    assert "It was 1999. (It rained.)" in report  # the best of the last three steps
    assert "It was 1997" not in report and "It was 2000" not in report
    assert "| story | single minus untrained | +0.625 [+0.314, +0.936] |" in report
    assert "begin with the weights of smollm2 and tiny, and the settings" in report
    assert "The learner (smollm2) writes with a partner that is not trained (tiny)." in report
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF") and (
        tmp_path / "slides.pdf"
    ).stat().st_size > 5000
    html = (tmp_path / "post.html").read_text()
    assert "Teaching AI Agents to Work Together (and Compete) via RLHF" in html and "data:image/svg+xml" in html
    assert not re.search(r'(?:src|href)="http', html)
    assert "IBM" in (tmp_path / "slides.html").read_text()


def test_pages_speak_only_of_what_the_studies_have(runs: Path, tmp_path: Path) -> None:
    """Without an oracle, a success or a highest possible score, no page mentions them; with them, every page does."""
    shutil.copytree(runs / "story", tmp_path / "runs" / "story")
    study, about = tmp_path / "runs" / "story", json.loads((runs / "story" / "study.json").read_text())
    publish(tmp_path / "runs", tmp_path / "with")
    report = (tmp_path / "with" / "report.md").read_text()
    command = """`interplay experiment studies/story.toml 'policies.learner.base="a b"' --seeds 3`"""
    assert f"- {command}\n- `interplay publish runs/experiment`" in report
    assert "Regret is the distance" in report and "oracle" not in report and "Every arm is tested alone" not in report
    assert "The tests are: with new partners (line-ups that no arm was trained with)." in report
    assert "gold score with new partners. The spread" in report and "unseen" not in report
    slides = (tmp_path / "with" / "slides.html").read_text()
    assert "what a learned judge costs" not in slides and "The audit warned in 0 of 6 runs" in slides

    about.update(arms={"single": [], "oracle": []}, best=None, contrasts=[])
    del about["given"]  # as in a folder of an earlier version
    about["tests"] = {"unseen": {"seats": [["partner=bot:writer:liar"], ["partner=bot:writer:plain"]]}}
    (study / "study.json").write_text(json.dumps(about))
    shutil.move(study / "multi-fixed", study / "oracle")
    shutil.rmtree(study / "arena")
    for path in study.glob("*/*/test.json"):
        data = json.loads(path.read_text())
        data["arm"] = path.parts[-3]
        mean = data["tests"]["unseen"]["mean"]
        del mean["regret"], mean["success"]
        data["tests"]["unseen"]["lineups"] = [{"gold": 1.0, "start": 0.375}, {"gold": 2.0, "start": -0.25}]
        path.write_text(json.dumps(data))
    for path in study.glob("*/*/metrics.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        judged = "oracle" not in path.parts
        kept = [
            {k: float(k.endswith("rang")) or v for k, v in row.items() if judged or "judge/" not in k} for row in rows
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    publish(tmp_path / "runs", tmp_path / "without")
    report = (tmp_path / "without" / "report.md").read_text()
    assert "Regret is the distance" not in report and "Task success" not in report
    assert "In every arm except the oracle, the reward comes from" in report
    assert "| oracle | 0.125 | no learned judge |" in report and "| single | 0.125 | 3 of 3 |" in report
    assert "| untrained | 0.375 | -0.250 |" in report
    slides = (tmp_path / "without" / "slides.html").read_text()
    assert "what a learned judge costs" in slides and "The audit warned in 3 of 3 runs" in slides


def test_pages_are_right_about_one_contrast_uneven_runs_and_a_setting_of_ones_own(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "story", tmp_path / "runs" / "story")
    study = tmp_path / "runs" / "story"
    publish(tmp_path / "runs", tmp_path / "before")
    said = (tmp_path / "before" / "report.md").read_text()
    assert "Before the runs, 1 difference between two arms was written down. After Holm's correction, it is" in said
    assert "All arms of a study have the same budget" in said
    assert "<h2>Settings</h2>" in (tmp_path / "before" / "slides.html").read_text()
    about = json.loads((study / "study.json").read_text())
    about["name"] = "kitchen"
    (study / "study.json").write_text(json.dumps(about))
    short = study / "single" / "seed-0" / "test.json"
    short.write_text(short.read_text().replace('"learner_tokens": 1000', '"learner_tokens": 700'))
    publish(tmp_path / "runs", tmp_path / "after")
    said = (tmp_path / "after" / "report.md").read_text()
    assert "The learners of a study did not all sample the same number of tokens: 700 to 1,002 in kitchen." in said
    assert "the same budget" not in said + (tmp_path / "after" / "slides.html").read_text()
    assert "<h2>Settings</h2>" not in (tmp_path / "after" / "slides.html").read_text()


def with_one_seed(runs: Path, to: Path) -> Path:
    """A copy of the runs whose arms have only one seed."""
    shutil.copytree(runs / "story", to / "story")
    for arm in ("single", "multi-fixed"):
        for seed in (1, 2):
            shutil.rmtree(to / "story" / arm / f"seed-{seed}")
    return to


def test_one_seed_is_called_one_seed(runs: Path, tmp_path: Path) -> None:
    """A page said "the same 1 seeds"; the command said "1 seeds", an endless interval and "p nan"."""
    one = with_one_seed(runs, tmp_path / "runs")
    found = []
    for folder in (one, runs):
        publish(folder, tmp_path / "pages")
        (contrast,) = Results.read(folder / "story").contrasts()
        found.append(((tmp_path / "pages" / "report.md").read_text(), in_a_line(contrast)))
    (report, line), (three, line_of_three) = found
    assert "every arm was trained with one seed." in report
    assert line == "story: multi-fixed cannot be told from single (gold with new partners) (gold +1.000, one seed)"
    assert "every arm was trained with the same 3 seeds." in three
    assert "(gold +1.000 [+1.000, +1.000], 3 seeds, p " in line_of_three


def test_pages_have_no_table_about_changing_partners_if_the_runs_cannot_show_any(runs: Path, tmp_path: Path) -> None:
    """Each of its cells was "- / -"."""
    few = with_one_seed(runs, tmp_path / "runs")
    for path in few.glob("*/*/*/metrics.jsonl"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    for path in few.glob("*/*/*/test.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "switches": []}))
    publish(few, tmp_path / "few")
    publish(runs, tmp_path / "all")
    for page, title in (("slides.html", "Non-stationarity"), ("post.html", "When partners change")):
        assert title not in (tmp_path / "few" / page).read_text() and title in (tmp_path / "all" / page).read_text()


def test_a_report_has_the_commands_that_repeat_it(tmp_path: Path) -> None:
    """Also for folders of earlier versions, which did not write down what the command was given, and for stories."""
    study = ROOT / "recipes/rlhf/smollm2/experiment/story.toml"
    about = Study.read(study, ["memory.share=0.07"], 2).section.model_dump()
    story = tmp_path / "stories" / "seed-1"
    story.mkdir(parents=True)
    command = ["/x/interplay", "train", "recipes/rlhf/smollm2/free.toml", "--run", "/x/free", "seed=1"]
    (story / "run.json").write_text(json.dumps({"sessions": [{"command": command}]}))
    studies = [{"name": "new", "given": ["n.toml"]}, about, {**about, "name": "other"}]
    made = [Results(tmp_path / str(one["name"]), one, []) for one in studies]
    assert commands(made) == [
        "`interplay experiment n.toml`",
        "`interplay experiment recipes/rlhf/smollm2/experiment/story.toml memory.share=0.07 --seeds 2`",
        "`interplay experiment` with the file of study `other`",
        "`interplay train recipes/rlhf/smollm2/free.toml --run runs/experiment/stories/seed-1 seed=1`",
        "`interplay publish runs/experiment`",
    ]


def test_every_number_of_the_report_is_traced_to_a_file(runs: Path, tmp_path: Path) -> None:
    publish(runs, tmp_path)
    sources = json.loads((tmp_path / "numbers.json").read_text())
    assert "story/multi-fixed/seed-{0,1,2}/test.json" in sources["2.125"]
    assert str(runs) not in (tmp_path / "numbers.json").read_text()  # no path of this machine
    assert all(sources.values())


def test_the_same_runs_give_the_same_files(runs: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        publish(runs, tmp_path / name)
    for path in sorted((tmp_path / "first").iterdir()):
        assert path.read_bytes() == (tmp_path / "second" / path.name).read_bytes(), path.name


def test_a_damaged_line_is_named_and_nothing_is_made_from_the_others(tmp_path: Path) -> None:
    rows = tmp_path / "metrics.jsonl"
    rows.write_bytes(b'{"step": 1}\n{"step": \xff\n')
    with pytest.raises(DataError, match=r"line 2 of '.*metrics\.jsonl' is damaged.*restore the file"):
        rows_of(rows)
    rows.write_bytes(b'{"step": 1}\n{"step": 2}\n')
    assert rows_of(rows) == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("single/seed-1/test.json", '{"arm": "sin'),
        ("single/seed-1/test.json", "{}"),
        ("single/seed-1/test.json", "[]"),
        ("study.json", "{"),
        ("study.json", "{}"),
        ("arena/seed-0.json", "x"),
        ("arena/cross-multi-fixed-2.json", "{}"),
    ],
)
def test_a_damaged_file_of_a_study_is_named(runs: Path, tmp_path: Path, file: str, text: str) -> None:
    copied = Path(shutil.copytree(runs / "story", tmp_path / "story"))
    (copied / file).write_text(text)
    with pytest.raises(DataError, match=rf"'.*{file}' is damaged \(.*restore it from a copy"):
        publish(copied, tmp_path / "pages")


def test_a_run_without_metrics_is_named(runs: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(runs / "story", tmp_path / "story"))
    (copied / "single" / "seed-1" / "metrics.jsonl").unlink()
    with pytest.raises(DataError, match=r"'.*single/seed-1/metrics\.jsonl' is missing"):
        publish(copied, tmp_path / "pages")


def test_a_number_from_nowhere_is_refused() -> None:
    facts = Facts()
    said = facts.say(0.5, ".2f", "a run")
    facts.check(f"It came to {said}, as `x = 7` says.", "the page")
    with pytest.raises(DataError, match=r"the page has the number 0.93, which cannot be traced"):
        facts.check(f"It came to {said} of 0.93.", "the page")


def test_a_folder_without_studies_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected the --out folder of interplay experiment"):
        studies_in(tmp_path)
    with pytest.raises(DataError, match="expected the --out folder of interplay experiment"):
        publish(tmp_path / "typo", tmp_path / "typo" / "pages")
    assert not (tmp_path / "typo").exists()
