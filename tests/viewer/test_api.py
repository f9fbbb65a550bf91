"""The answers to the page's requests: lists and filters, episodes, tokens, and the origin of an advantage."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from written import HOSTILE, TREE, WHOLE, add_step, group_episodes, illegal, turn, write_run

from interplay.errors import InterplayError
from interplay.rollout import records
from interplay.types import Credit, Episode, Occupant, Outlook, Policy, Rewards, Scripted, Snapshot, Task
from interplay.viewer.api import Api, written
from interplay.viewer.library import Library
from interplay.viewer.run import MetricsFile, RunReader


def asked(folder: Path, question: str, **query: str) -> Any:
    return Api(Library([folder])).answer(f"run/{folder.name}/{question}", query)


def test_runs_are_listed_wherever_they_are(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "one", 2)
    write_run(tmp_path / "a" / "two", 1)
    write_run(tmp_path / "b" / "one", 1)
    found = Api(Library([tmp_path / "a", tmp_path / "b", tmp_path / "b" / "one"])).answer("runs", {})
    assert sorted(run["key"] for run in found) == ["b~one", "one", "two"]
    assert {run["key"]: run["step"] for run in found}["one"] == 2


def test_runs_of_a_study_are_named_by_their_path_whatever_was_found_first(tmp_path: Path) -> None:
    """A study keeps its runs in OUT/STUDY/ARM/seed-N, so that many have the same name."""
    later, first = write_run(tmp_path / "study" / "pair" / "seed-0", 1), tmp_path / "study" / "alone" / "seed-0"
    library = Library([tmp_path])
    assert [run.key for run in library.runs()] == ["study~pair~seed-0"]
    write_run(first, 1)
    write_run(first / "checkpoints" / "copy", 1)  # what is inside a run belongs to it
    write_run(tmp_path / ".hidden" / "run", 1)
    assert sorted(run.key for run in library.runs()) == ["study~alone~seed-0", "study~pair~seed-0"]
    assert library.run("study~pair~seed-0").folder == later


@pytest.mark.parametrize("text", ['{"recipe": "none"}', '{"recipe": {"train": 3}}', "[", "3"])
def test_a_damaged_run_does_not_hide_the_others(tmp_path: Path, text: str) -> None:
    write_run(tmp_path / "good", 2)
    write_run(tmp_path / "bad", 1).joinpath("run.json").write_text(text)
    found = {run["key"]: run for run in Api(Library([tmp_path])).answer("runs", {})}
    assert found["good"]["step"] == 2 and "bad" in found


def test_a_base_that_was_made_for_the_run_is_named_without_the_folders_of_this_machine(tmp_path: Path) -> None:
    bases = {"a": {"base": str(tmp_path / "run" / "bases" / "tiny-64x2")}, "b": {"base": "owner/model"}}
    run = write_run(tmp_path / "run", 1, WHOLE, policies=bases, seats={"X": "a", "O": "b"})
    assert RunReader(run, "run").card()["bases"] == ["owner/model", "tiny-64x2"]


def test_metrics_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    huge = "1" + "0" * 400
    lines = [
        f'{{"step": 1, "a": {huge}, "b": 2}}',
        f'{{"step": {huge}}}',
        "[" * 100_000,
        '{"step": 2, "a": "x", "b": NaN}',
    ]
    path.write_text("\n".join(lines) + "\n")
    metrics = MetricsFile(path)
    metrics.refresh()
    assert metrics.steps == [1, 2] and metrics.columns == {"a": [None, None], "b": [2, None]}


def test_files_that_are_removed_while_they_are_read_get_a_sentence(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 2)
    api = Api(Library([tmp_path]))
    index = api.library.run("run").episodes["train"]
    index.refresh()
    (run / "episodes.jsonl").unlink()
    index.refresh = lambda seconds=0.2: True  # type: ignore[method-assign]  # they were there a moment ago
    asked = {"step": "1", "id": "task-2#0", "turn": "task-2#0/0X0"}
    for question, query in (("episodes", {"text": "task"}), ("episode", asked), ("tokens", asked), ("explain", asked)):
        with pytest.raises(InterplayError, match=r"was the run removed or moved|is no episode record"):
            api.answer(f"run/run/{question}", query)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ({"step": "2"}, ["task-5#0", "task-4#0"]),
        ({"task": "task-4"}, ["task-4#0"]),
        ({"role": "X", "min": "0.5"}, ["task-6#0", "task-4#0", "task-2#0"]),
        ({"role": "O", "max": "-0.5", "sort": "old"}, ["task-2#0", "task-4#0", "task-6#0"]),
        ({"role": "X", "sort": "worst", "step": "1"}, ["task-3#0", "task-2#0"]),
        ({"status": "error"}, []),
        ({"policy": "nobody"}, []),
        ({"text": "TASK-3#0"}, ["task-3#0"]),
        ({"text": "no such text"}, []),
    ],
)
def test_filters_choose_and_order_episodes(tmp_path: Path, query: dict[str, str], ids: list[str]) -> None:
    run = write_run(tmp_path / "run", 3)
    found = asked(run, "episodes", **query)
    assert [row["id"] for row in found["rows"]] == ids
    assert (found["total"], found["searched"], found["of"]) == (len(ids), 6, 6)


@pytest.mark.parametrize("rival", [Scripted("random"), Snapshot("player", "5")])
def test_the_best_and_worst_games_are_by_the_policy_and_not_by_its_opponent(tmp_path: Path, rival: Occupant) -> None:
    """In a game of two, the mean over both roles is 0 whoever wins."""
    run = write_run(tmp_path / "run", 0, WHOLE)
    played = group_episodes(60, (0.0, 1.0, -1.0, 0.5))
    for number, episode in enumerate(played):  # the policy is X in the first two, and O in the others
        roles = ("X", "O") if number < 2 else ("O", "X")
        episode.seats = dict(zip(roles, (Policy("player"), rival), strict=True))
    add_step(run, 1, WHOLE, more=played)
    order = {sort: [row["id"] for row in asked(run, "episodes", task="task-60", sort=sort)["rows"]]
             for sort in ("worst", "best")}  # fmt: skip
    assert order["worst"] == ["task-60#3", "task-60#0", "task-60#1", "task-60#2"]
    assert order["best"] == ["task-60#1", "task-60#2", "task-60#0", "task-60#3"]


def test_a_search_without_time_goes_on_in_the_next_call(tmp_path: Path) -> None:
    run = RunReader(write_run(tmp_path / "run", 3), "run")
    found = [run.listing({"text": "task-7#0"}, seconds=2.5e-6) for _ in range(3)]  # time for two records
    assert [one["searched"] for one in found] == [2, 4, 6] and found[0]["of"] == 6
    assert [[row["id"] for row in one["rows"]] for one in found] == [[], [], ["task-7#0"]]


@pytest.mark.parametrize(
    ("algorithm", "kind", "formula"), [(TREE, "replies", "centred"), (WHOLE, "episodes", "scaled")]
)
def test_an_advantage_is_explained_by_the_numbers_of_its_group(
    tmp_path: Path, algorithm: dict[str, Any], kind: str, formula: str
) -> None:
    """The algorithm's own credit was recorded; the explanation must arrive at the same number."""
    run = write_run(tmp_path / "run", 1, algorithm)
    first = asked(run, "episodes", sort="old")["rows"][0]
    at = {"step": str(first["step"]), "id": first["id"]}
    page = asked(run, "episode", **at)
    for row in page["turns"]:
        found = asked(run, "explain", **at, turn=row["id"])
        assert (found["kind"], found["formula"]) == (kind, formula)
        assert found["recomputed"] == pytest.approx(found["advantage"], abs=1e-12)
        assert found["advantage"] == row["advantage"]
        assert len(found["members"]) == 4
        own = next(m for m in found["members"] if m["turn"] == row["id"])
        assert own["return"] == found["return"]
    assert {t["advantage"] for t in page["turns"]} != {0.0}


@pytest.mark.parametrize("algorithm", [TREE, WHOLE, {"name": "reinforce_pp"}])
def test_the_rewards_that_are_listed_add_up_to_the_return(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    """With weights and a discount."""
    reward = {"gamma": 0.5, "agent": 2.0, "weights": {"win": 0.25, "bonus": 3.0}}
    run = write_run(tmp_path / "run", 0, algorithm, reward=reward)
    name = "task-1#0"
    turns = [turn(name, d, "X", f"say {d}", outlook=Outlook(Rewards.agent("win", {"X": d - 0.5}))) for d in range(3)]
    for d, one in enumerate(turns):
        one.rewards = (
            Rewards.agent("win", {"X": 1.0 + d}) + Rewards.process("bonus", {"X": 0.5}) + Rewards.team("all", d)
        )
    episode = Episode(name, Task("task-1", "tictactoe", 1), 0, {"X": Policy("player")}, turns, Rewards())
    records.write(run / "episodes.jsonl", [episode], 1, Credit())
    for one in turns:
        found = asked(run, "explain", step="1", id=name, turn=one.id)
        total = sum(r["value"] * r["weight"] * r.get("discount", 1.0) for r in found["rewards"])
        assert found["return"] == pytest.approx(total, abs=1e-12)


def test_candidates_that_are_all_the_same_are_not_said_to_have_earned_nothing(tmp_path: Path) -> None:
    """A tree does not play them on, so their outlook is empty. The reply that was kept earned something in its step."""
    run = write_run(tmp_path / "run", 0, TREE)
    name = "task-1#0"
    turns = [turn(name, 0, "X", "say", k, kept=k == 0, outlook=Outlook()) for k in range(3)]
    turns[0].rewards = Rewards.process("bonus", {"X": -1.0})
    worth = [Outlook(Rewards.agent("win", {"X": 0.0}))] * 3
    turns += [turn(name, 1, "X", "say", k, kept=k == 0, outlook=worth[k]) for k in range(3)]
    episode = Episode(name, Task("task-1", "tictactoe", 1), 0, {"X": Policy("player")}, turns, Rewards())
    records.write(run / "episodes.jsonl", [episode], 1, Credit())
    unplayed = [asked(run, "explain", step="1", id=name, turn=t.id).get("unplayed") for t in turns]
    assert unplayed == [True] * 3 + [False] * 3


def test_a_group_that_was_not_recorded_whole_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 1, WHOLE)
    path = run / "episodes.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    found = asked(run, "explain", step="1", id="task-1#0", turn="task-1#0/0X0")
    assert (len(found["members"]), found["expected"]) == (3, 4)


def test_a_role_is_shown_what_it_was_not_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 1, WHOLE)
    page = asked(run, "episode", step="1", id="task-1#2")
    assert page["seen"] == {"task-1#2/0X0": ["O"], "task-1#2/1O0": []}


def test_tokens_have_their_numbers_even_without_a_tokenizer(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 1)
    found = asked(run, "tokens", step="1", id="task-2#0", turn="task-2#0/0X0")
    (sample,) = found["samples"]
    assert sample["logprobs"] == [-0.5, -1.5] and sample["versions"] == [7, 7]
    assert sample["advantages"] == [0.875, 0.875]
    assert sample["gaps"] == [1e-7, -2e-7] and sample["entropies"] == [1.5, 0.25]
    assert sample["texts"] == ["⟨5⟩", "⟨6⟩"] and "tokenizers" in sample["missing"]


def test_hostile_texts_and_numbers_become_plain_json(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 1)
    add_step(run, 2, more=[illegal(90)])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "reward": NaN, "player/entropy": Infinity, "text": "no number"}\ntorn {"step"')
    page = asked(run, "episode", step="2", id="task-90#0")
    again = json.loads(written(page))
    assert again["turns"][0]["text"] == "nonsense " + HOSTILE
    metrics = json.loads(written(asked(run, "metrics")))
    assert metrics["steps"] == [1, 2, 3] and metrics["columns"]["reward"][-1] is None
    assert written({"x": float("nan"), "y": [float("inf"), (1.0,)]}) == b'{"x":null,"y":[null,[1.0]]}'


def test_a_question_about_what_is_not_there_gets_a_sentence(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 1)
    for question, query in (("episode", {"step": "9", "id": "x"}), ("tokens", {"step": "1"}), ("nonsense", {})):
        with pytest.raises(InterplayError):
            asked(run, question, **query)
    (run / "run.json").write_text("{")
    assert asked(run, "about")["about"] == {}


def test_long_curves_are_thinned_and_rare_metrics_survive(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": s, "a": s, **({"rare": s} if s % 50 == 0 else {})} for s in range(1, 3501)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = MetricsFile(path)
    metrics.refresh()
    found = metrics.thinned()
    assert len(found["steps"]) <= 1000 and found["steps"][-1] == 3500
    assert [v for v in found["columns"]["rare"] if v is not None] == list(range(50, 3501, 50))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:10]))
    metrics.refresh()
    assert metrics.steps == list(range(1, 11))


def test_the_viewer_imports_no_torch(tmp_path: Path) -> None:
    """It starts at once, and on a machine that could not train."""
    run = write_run(tmp_path / "run", 1)
    code = (
        "import sys; from pathlib import Path; import interplay.viewer.server, interplay.viewer.export as e;"
        "from interplay.viewer.library import Library;"
        f"e.export(Library([Path({str(run)!r})]), Path({str(tmp_path / 'x.html')!r}), 5);"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
