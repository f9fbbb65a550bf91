"""`import interplay as ip`: training, evaluation, runs and teams from Python, also inside a running event loop."""

from __future__ import annotations

import ast
import asyncio
import json
import shutil
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import interplay as ip
from interplay.api.loop import finished
from interplay.envs.env import ENVIRONMENTS

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "name": "small", "env": {"name": "matrix", "game": "rock_paper_scissors"},
    "policies": {"player": {"base": "tiny-16x1"}}, "seats": "player", "algorithm": {"name": "grpo", "group": 2},
    "sampling": {"max_tokens": 9, "legal": True}, "rollout": {"tasks": 2}, "train": {"steps": 2, "lr": 3e-3},
    "eval": {"opponents": ["bot:random"], "games": 2, "before": False, "after": False},
    "records": {"tensorboard": "off"},
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ip.TrainedRun]:
    """A small run, trained from inside an event loop as a notebook would."""

    async def cell() -> ip.TrainedRun:
        return ip.train(SMALL, run=tmp_path_factory.mktemp("api") / "small", quiet=True)

    yield asyncio.run(cell())


def test_a_run_has_its_recipe_metrics_and_episodes(trained: ip.TrainedRun) -> None:
    assert trained.step == 2 and trained.recipe.name == "small"
    assert [row["step"] for row in trained.rows()] == [1, 2]
    metrics = trained.folder / "metrics.jsonl"
    whole = metrics.read_bytes()
    first, rest = whole.split(b"\n", 1)
    metrics.write_bytes(first + b'\n{"step": 1.5, \xff\n7\n' + rest)  # a disk that was full, or another program
    assert [row["step"] for row in trained.rows()] == [1, 2]
    metrics.write_bytes(whole)
    frame = trained.metrics("pandas")
    assert list(frame["step"]) == [1, 2] and "player/entropy" in frame.columns
    records = list(trained.episodes(step=2))
    assert len(records) == 4 and {r.step for r in records} == {2}
    assert any(r.credit.advantages for r in records)
    assert len(list(trained.episodes())) == 8
    assert [run.folder for run in ip.runs(trained.folder.parent)] == [trained.folder]


def test_runs_are_found_in_folders_inside_a_folder(trained: ip.TrainedRun, tmp_path: Path) -> None:
    """A study keeps its runs in OUT/STUDY/ARM/seed-N."""
    seeds = [tmp_path / "study" / "pair" / f"seed-{n}" for n in (0, 1)]
    for folder in seeds:
        folder.mkdir(parents=True)
        (folder / "run.json").write_bytes((trained.folder / "run.json").read_bytes())
    assert [run.folder for run in ip.runs(tmp_path)] == seeds
    assert [run.folder for run in ip.runs(seeds[1])] == [seeds[1]]
    assert ip.runs(tmp_path / "none") == []


def test_metrics_are_a_polars_frame_if_that_is_asked_for_or_pandas_is_missing(
    trained: ip.TrainedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polars is not among the packages that tests need, so a stand-in says how it was called."""
    polars = types.ModuleType("polars")
    polars.DataFrame = lambda rows, **options: ("polars", rows, options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", polars)
    made = ("polars", trained.rows(), {"infer_schema_length": None})  # every row counts: metrics can begin late
    assert trained.metrics("polars") == made
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert trained.metrics() == made
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ip.ConfigError, match="pandas and polars are not installed; pip install pandas, or use rows"):
        trained.metrics()


def test_a_team_plays_and_answers(trained: ip.TrainedRun) -> None:
    with ip.load(trained) as team:
        assert team.roles == ("p0", "p1") and team.seats == {"p0": "player", "p1": "player"}
        first, again = team.play(3, seed=5), team.play(team.task(3), seed=5)
        assert [t.text for t in first.line()] == [t.text for t in again.line()]
        mixed = team.play(0, seats={"p1": "bot:random"})
        assert {str(t.policy) for t in mixed.line()} == {"player", "bot:random"}
        said = team.chat("p0", [{"role": "user", "content": "rock?"}, ip.Message("assistant", "no")], max_tokens=3)
        assert isinstance(said, str)
        with pytest.raises(ip.ConfigError, match="'p2' is not a role of this environment"):
            team.chat("p2", [])
        with pytest.raises(ip.ConfigError, match="'q' is not a role of this environment"):
            team.play(0, seats={"q": "bot:random"})


def test_an_evaluation_is_returned_and_written(trained: ip.TrainedRun, tmp_path: Path) -> None:
    report = ip.evaluate(trained, "eval.games=3", out=tmp_path / "out", quiet=True)
    assert [entry.result.games for entry in report.entries] == [3, 3]
    assert json.loads((tmp_path / "out" / "eval.json").read_text())["games"] == 3


def test_training_goes_on_where_it_stopped(trained: ip.TrainedRun, tmp_path: Path) -> None:
    with pytest.raises(ip.ConfigError, match="already contains a run"):
        ip.train(SMALL, run=trained)
    own = ip.TrainedRun(shutil.copytree(trained.folder, tmp_path / "small"))  # the other tests share the first one
    longer = ip.train(own, "train.steps=3", resume=True, quiet=True)
    assert longer.folder == own.folder and longer.step == 3


def test_a_recipe_comes_from_a_table_a_file_or_a_recipe() -> None:
    table = ip.recipe(SMALL, "train.steps=7")
    assert table.train.steps == 7
    assert ip.recipe(table, "seed=3").train.steps == 7
    assert ip.recipe(ROOT / "recipes" / "tictactoe" / "demo.toml").env.name == "tictactoe"
    with pytest.raises(ip.ConfigError, match="unknown key 'sead'"):
        ip.recipe({**SMALL, "sead": 1})


def test_importing_interplay_imports_nothing_heavy() -> None:
    heavy = "[m for m in ('torch', 'transformers') if m in sys.modules]"
    code = f"import sys, interplay as ip; dir(ip); ip.Recipe; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_every_stable_name_is_there_typed_and_documented() -> None:
    stub = ast.parse((ROOT / "src" / "interplay" / "__init__.pyi").read_text())
    typed = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {*typed, "__version__"} == set(ip.__all__)
    page = (ROOT / "docs" / "python.md").read_text()
    described = {"Task", "Episode", "TrainedRun", "TrainedTeam", "InterplayError", "__version__"}  # in words
    for name in set(ip.__all__) - described:
        assert f"ip.{name}" in page, name
    assert all(getattr(ip, name) is not None for name in ip.__all__)
    with pytest.raises(AttributeError):
        ip.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_work_inside_a_running_loop_returns_and_raises_as_elsewhere() -> None:
    def fails() -> None:
        raise ValueError("as expected")

    async def cell() -> int:
        with pytest.raises(ValueError, match="as expected"):
            finished(fails)
        return finished(lambda: asyncio.run(asyncio.sleep(0, 7)))

    assert asyncio.run(cell()) == 7


def test_interrupting_a_cell_asks_the_work_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first join is interrupted, as by the stop button of a notebook; the work then ends by itself."""
    stop, joins = threading.Event(), []
    join = threading.Thread.join

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        joins.append(timeout)
        if len(joins) == 1 and thread.name == "interplay":
            raise KeyboardInterrupt
        join(thread, timeout)

    async def cell() -> bool:
        monkeypatch.setattr(threading.Thread, "join", interrupted)
        return finished(lambda: stop.wait(60), stop.set)

    assert asyncio.run(cell()), "it was told to stop, and did not wait for its minute to end"


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells are run one after another inside a running event loop."""
    monkeypatch.chdir(tmp_path)
    book = json.loads((ROOT / "examples" / "notebooks" / "first_run.ipynb").read_text())
    names: dict[str, Any] = {}

    async def cells() -> None:
        for cell in book["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), "first_run.ipynb", "exec"), names)

    asyncio.run(cells())
    assert len(names["metrics"]) == 3 and names["report"].entries


def test_the_environment_of_the_page_can_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ENVIRONMENTS, "classes", dict(ENVIRONMENTS.classes))  # what the page registers is forgotten
    block = (ROOT / "docs" / "python.md").read_text().split("```python\n")[2].split("```")[0]
    short = block.replace('"steps": 10', '"steps": 1').rstrip().removesuffix(")") + ', "seed=1", quiet=True)'
    names: dict[str, Any] = {"ip": ip}
    exec(compile(short, "python.md", "exec"), names)
    assert names["run"].step == 1
