"""The results with real models, on tiny ones: cells run, are resumed and tested, and the page comes from the runs."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from interplay.publishing.experiment import one_run
from interplay.publishing.study import Study

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "recipes" / "results" / "experiment").glob("*.toml"))
FIRST = ["gsm8k/single", "gsm8k/pair", "gsm8k/pair-grpo", "gsm8k/pair-l2"]
Call = Callable[..., str]


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("benchmarks/results.py")


@pytest.fixture
def call(script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def called(out: Path, *arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["results.py", "--out", str(out), *arguments])
        script.main()
        return capsys.readouterr().out

    return called


def test_the_order_of_the_cells_names_every_arm_of_every_study_once(script: ModuleType) -> None:
    listed = [cell for group in script.GROUPS for cell in group]
    read = [Study.read(path).section for path in STUDIES]
    assert sorted(listed) == sorted(f"{s.name}/{arm}" for s in read for arm in s.arms)
    assert listed[:4] == FIRST


def test_the_arms_of_a_study_have_one_budget_three_seeds_no_masks_and_name_their_weights() -> None:
    for path in STUDIES:
        study = Study.read(path)
        recipes = [study.recipe(arm, 0) for arm in study.section.arms]
        assert len({r.train.budget_tokens for r in recipes}) == 1 and recipes[0].train.budget_tokens > 0
        assert len(study.section.seeds) >= 3 and "dequantised from Q4_K_M" in study.section.model
        assert not any(r.sampling.legal or r.eval.legal for r in recipes)
        assert len({(r.sampling.max_tokens, r.eval.temperature, r.eval.games) for r in recipes}) == 1


def test_the_plan_lists_the_cells_in_their_order_and_marks_speeds_that_were_not_measured(
    call: Call, tmp_path: Path
) -> None:
    lines = call(tmp_path, "--plan", "--cells", "gsm8k", "--seeds", "1").splitlines()
    assert [line.split()[0] for line in lines[1:5]] == FIRST
    assert all("(assumed)" in line for line in lines[1:-1]) and lines[-1].startswith("7 of 7 cells left")


def test_an_unknown_cell_is_refused(call: Call, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--cells has 'gsm9k'; expected a study or an arm of gsm8k/single"):
        call(tmp_path, "--plan", "--cells", "gsm9k")


def test_a_stopped_cell_goes_on_from_its_checkpoint_and_ends_like_one_that_was_not_stopped(
    script: ModuleType, tmp_path: Path
) -> None:
    study = Study.read(STUDIES[0].with_name("kuhn.toml"), script.TINY)
    assert one_run(study, tmp_path / "a", "league", 0, until=0.0) == "kuhn league seed 0: interrupted at step 1"
    one_run(study, tmp_path / "a", "league", 0)
    one_run(study, tmp_path / "b", "league", 0)
    stopped, whole = (json.loads((tmp_path / x / "league" / "seed-0" / "test.json").read_text()) for x in "ab")
    assert stopped["tests"]["games"]["mean"]["exploitability"] > 0
    assert stopped["tests"] == whole["tests"]
    assert stopped["counts"]["learner_tokens"] == whole["counts"]["learner_tokens"] > 0


def test_the_page_is_written_from_packed_cells_alone(
    script: ModuleType, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = ("--tiny", "--seeds", "1", "--cells", "gsm8k/single", "gsm8k/pair-l2")
    packed, page = str(tmp_path / "all.tar.gz"), tmp_path / "results.md"
    counts, pack = [], script.pack

    def counted(out: Path, file: Path) -> None:
        pack(out, file)
        with tarfile.open(file) as tar:
            counts.append(sum(name.endswith("test.json") for name in tar.getnames()))

    monkeypatch.setattr(script, "pack", counted)
    said = call(tmp_path / "here", *cells, "--pack", packed)
    assert counts == [1, 2, 2]  # after each cell, and at the end
    assert "gsm8k single seed 0: success questions" in said and "0 cells left" in said
    run = tmp_path / "here" / "gsm8k" / "pair-l2" / "seed-0"
    means = json.loads((run / "test.json").read_text())["tests"]["questions"]["mean"]
    assert {"success", "start", "tokens", "reset/reasoner", "reset/tool"} <= means.keys()
    assert not (run / "checkpoints").exists()
    assert call(tmp_path / "there", *cells, "--unpack", packed, "--plan").count("done") == 2
    call(tmp_path / "there", "--markdown", str(page))
    text = page.read_text()
    assert "| single | 1 |" in text and "(one run)" in text and "tiny-32x1, a small model with random weights" in text
    assert "| pair-l2 | tool |" in text


def test_the_page_in_the_documentation_is_what_the_packed_runs_say(call: Call, tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    call(tmp_path / "runs", "--unpack", str(ROOT / "benchmarks" / "results.tar.gz"), "--markdown", str(page))
    assert page.read_text() == (ROOT / "docs" / "results.md").read_text()
    assert "| pair-grpo | 3 |" in page.read_text()
    found = call(tmp_path / "runs", "--metrics", "turns_cut", "nothing").splitlines()
    runs = list((tmp_path / "runs").glob("*/*/seed-*/test.json"))
    assert len(found) == 2 + len(runs) > 2, "a row for each finished run, and none for a metric that nobody has"
    row = next(line for line in found if line.startswith("| gsm8k/pair-l2/seed-1 |"))
    assert row.endswith("| turns_cut | 0.19 | 0.00672 | 0.287 | 0.0339 | 0.0061 | 0.0169 | 0.00694 | 0.00676 |")


def test_notes_that_were_added_after_the_runs_do_not_make_it_another_study(tmp_path: Path) -> None:
    path = STUDIES[0].with_name("kuhn.toml")
    text = path.read_text().replace("[arms]", 'notes = ["Read ten games."]\n\n[arms]', 1)
    (tmp_path / "kuhn.toml").write_text(text.replace("../kuhn.toml", str(path.parents[1] / "kuhn.toml")))
    noted, plain = Study.read(tmp_path / "kuhn.toml"), Study.read(path)
    assert noted.section.notes == ["Read ten games."]
    changed = plain.section.model_copy(update={"recipe": noted.section.recipe})
    assert noted.digest == Study(changed, plain.base).digest
