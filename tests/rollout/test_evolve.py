"""Co-evolution: what motifs make of a workflow, how rounds choose, and what a run keeps of it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import interplay as ip
from interplay.cli import session
from interplay.cli.main import app
from interplay.config import RewardSection, SamplingSection, load
from interplay.config.evolve import EvolveSection
from interplay.envs.workflows.motifs import Design, Graph, moves, turned
from interplay.errors import ConfigError, GuardError
from interplay.evaluation import field as suite_field
from interplay.evaluation.field import Field
from interplay.publishing import whole
from interplay.rollout.evolve import Evolution, Fault, brief, design
from interplay.rollout.resolve import resolve
from interplay.training import checkpoint, evolving
from interplay.training.evolving import Evolver
from interplay.training.trainer import Observer, Trainer
from interplay.types import Rewards

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "programs" / "evolve.toml"
START: Graph = {
    "nodes": {
        "plan": {"role": "planner", "prompt": "Plan {task}", "next": "solve"},
        "solve": {"role": "solver", "prompt": "{task} {plan}"},
    }
}
START_PLAIN = Design(START).graph
SECTION = EvolveSection(verify="json:loads")
ROLES = ("planner", "solver")


def every_design() -> list[Design]:
    """All workflows that are at most two motifs away."""
    found = {Design(START).key: Design(START)}
    for _ in range(2):
        for one in list(found.values()):
            for option in moves(one, SECTION, ROLES):
                if (made := turned(one, *option)) is not None:
                    found.setdefault(made.key, made)
    return list(found.values())


def test_every_move_gives_a_whole_workflow_and_can_be_undone() -> None:
    start = Design(START)
    for name, motif, value in moves(start, SECTION, ROLES):
        made = turned(start, name, motif, value)
        assert made is not None and made.key != start.key, (name, motif, value)
        back = turned(made, name, motif, None)
        assert back is not None and back.key == start.key
    assert len(every_design()) > 150


def test_the_order_of_moves_does_not_matter() -> None:
    one = turned(Design(START), "solve", "review", "planner")
    other = turned(Design(START), "plan", "vote", 3)
    assert one is not None and other is not None
    both = turned(one, "plan", "vote", 3), turned(other, "solve", "review", "planner")
    assert both[0] is not None and both[1] is not None and both[0].key == both[1].key


def test_motifs_are_aflows_operators() -> None:
    design_ = Design(START, {"solve": {"program": True, "ensemble": 3, "test": "json:loads", "review": "planner"}})
    nodes = design_.graph["nodes"]
    assert nodes["solve_write"]["next"] == "solve_run" and nodes["solve_run"]["tool"] == "python"
    assert nodes["solve"]["samples"] == 3 and nodes["solve"]["merge"] == "concat"
    assert nodes["solve"]["next"] == "solve_pick"
    edges = nodes["solve_pick"]["next"]
    assert [e["to"] for e in edges] == ["solve_review", "solve", "solve_review"]
    assert edges[0]["verify"] == "json:loads" and edges[1]["times"] == 2
    assert nodes["solve_revise"]["role"] == "solver"


def test_a_motif_leaves_the_nodes_of_the_workflow_as_they_are() -> None:
    """A workflow may have a node with the name that a motif gives to its own; a designer's workflow often has one."""
    for motif, added in {"ensemble": "pick", "review": "review", "program": "run"}.items():
        base = {"nodes": {**START["nodes"], f"solve_{added}": {"role": "planner", "prompt": "Mine {task}"}}}
        base["nodes"]["solve"] = {**base["nodes"]["solve"], "next": f"solve_{added}"}
        options = [option for option in moves(Design(base), SECTION, ROLES) if option[:2] == ("solve", motif)]
        assert options and all(turned(Design(base), *option) is None for option in options)
        test = turned(Design(base), "solve", "test", "json:loads")
        assert test is not None and test.graph["nodes"][f"solve_{added}"]["prompt"] == "Mine {task}"
        assert test.graph["nodes"]["solve"]["next"][1] == {"to": "solve", "times": 2}


def test_a_motif_keeps_every_way_out_of_a_node() -> None:
    """A node ends the workflow if none of its transitions is taken. This end is tested and reviewed like any other, and
    a check of the user's own stays where it is."""
    some = [{"to": "plan", "contains": "unclear", "times": 1}]
    base = {"start": "plan", "nodes": {**START["nodes"], "solve": {**START["nodes"]["solve"], "next": some}}}
    tested = Design(base, {"solve": {"test": "json:loads"}}).graph["nodes"]["solve"]["next"]
    assert {"to": "end", "verify": "json:loads"} in tested and tested[-1] == {"to": "end"}
    reviewed = Design(base, {"solve": {"review": "planner"}}).graph["nodes"]
    assert [t["to"] for t in reviewed["solve"]["next"]] == ["solve_review", "solve_review"]
    assert reviewed["solve_revise"]["next"] == [*some, {"to": "end"}]
    own = [{"to": "end", "verify": "ast:parse"}, {"to": "plan"}]
    base["nodes"]["solve"]["next"] = own
    both = Design(base, {"solve": {"test": "json:loads", "review": "planner"}}).graph["nodes"]
    assert [t.get("verify") for t in both["solve"]["next"]] == ["ast:parse", "json:loads", None, "ast:parse", None]
    assert both["solve_revise"]["next"] == own
    own = [{"to": "end", "verify": "ast:parse"}, {"to": "plan", "contains": "unclear"}, {"to": "end"}]
    base["nodes"]["solve"]["next"] = own
    for motifs in ({"review": "planner"}, {"test": "json:loads", "review": "planner"}):
        assert Design(base, {"solve": motifs}).graph["nodes"]["solve_revise"]["next"] == own


def test_the_champion_wins_on_tasks_that_all_of_a_round_share() -> None:
    """A space with one better motif: it is found and kept, and every round has tasks of its own."""
    seen: list[tuple[str, tuple[int, ...]]] = []

    def earned(graph: Graph, numbers: Sequence[int]) -> list[float]:
        seen.append((json.dumps(graph, sort_keys=True), tuple(numbers)))
        better = graph["nodes"].get("solve", {}).get("samples") == 5 and "solve_pick" not in graph["nodes"]
        return [1.0 if better else 0.2] * len(numbers)

    async def play(graphs: Sequence[Graph], numbers: Sequence[int]) -> list[list[float]]:
        return [earned(graph, numbers) for graph in graphs]

    evolution = Evolution(EvolveSection(candidates=8, tasks=2, looks=3, motifs=["vote", "review"]), START, ROLES, 0)
    for _ in range(6):
        asyncio.run(evolution.round(play))
    assert evolution.champion.graph["nodes"]["solve"]["samples"] == 5
    first = [numbers for _, numbers in seen if numbers[0] == 0]
    assert set(first) == {(0, 1)} and len(first) >= 8
    assert {n for _, numbers in seen for n in numbers} == set(range(6 * 2 * 7))


def test_a_resumed_search_goes_on_as_if_nothing_had_happened() -> None:
    async def play(graphs: Sequence[Graph], numbers: Sequence[int]) -> list[list[float]]:
        return [[float((len(json.dumps(graph)) * 7 + n) % 5) for n in numbers] for graph in graphs]

    def made() -> Evolution:
        return Evolution(EvolveSection(candidates=4, tasks=2, looks=2), START, ROLES, 3)

    whole, cut = made(), made()
    for _ in range(4):
        asyncio.run(whole.round(play))
    for _ in range(2):
        asyncio.run(cut.round(play))
    resumed = made()
    resumed.load_state_dict(json.loads(json.dumps(cut.state_dict())))
    for _ in range(2):
        asyncio.run(resumed.round(play))
    assert resumed.state_dict() == whole.state_dict()


def test_a_designers_text_is_a_workflow_or_nothing() -> None:
    evolution = Evolution(SECTION, START, ROLES, 0)
    assert "planner" in brief(evolution)
    good = {"nodes": {"a": {"role": "solver", "prompt": "{task}!"}}}
    assert design(f"Here it is: {json.dumps(good)}", evolution) == good
    for bad in (
        "no json",
        json.dumps({"nodes": {"a": {"role": "stranger", "prompt": "x"}}}),
        json.dumps({"nodes": {"a": {"role": "solver", "prompt": "{b}"}}}),
        json.dumps({"nodes": {}}),
        proposed(next=[{"to": "end", "verify": "os:system"}]),
        proposed(next=[{"to": "end", "matches": "(a+)+$"}]),  # can take for ever
        proposed(next=[{"to": "end", "matches": "a{99999999999999999999}"}]),
        proposed(next="a", limit=10**9),  # a cycle that does not end
        proposed(prompt="\ud800"),  # not valid Unicode, so it cannot be written to a file
        proposed(samples=64, limit=64),
        "{" * 5000 + "}" * 5000,
    ):
        assert design(bad, evolution) is None, bad


def proposed(**node: Any) -> str:
    return json.dumps({"nodes": {"a": {"role": "solver", "prompt": "x", **node}}})


def test_a_designer_may_use_what_the_user_has_named() -> None:
    """The check of the motif test, and the functions and patterns of the workflow of the recipe."""
    start = {"nodes": {"a": {"role": "solver", "prompt": "{task}", "next": [{"to": "end", "matches": "[0-9]"}]}}}
    evolution = Evolution(SECTION, start, ROLES, 0)
    for good in ({"to": "end", "matches": "[0-9]"}, {"to": "end", "verify": "json:loads"}):
        assert design(proposed(next=[good, {"to": "a", "times": 1}]), evolution) is not None
    assert design(proposed(next=[{"to": "end", "matches": "[0-8]"}]), evolution) is None
    unnamed = Evolution(EvolveSection(), START, ROLES, 0)  # an empty name cannot be imported, which would stop the run
    assert design(proposed(next=[{"to": "end", "verify": ""}]), unnamed) is None
    named = {"nodes": {"verify": {"role": "solver", "prompt": "{task}"}}}
    assert design(json.dumps(named), evolution) == named


def test_champion_and_runner_up_are_played_again_in_every_round() -> None:
    rounds: list[set[str]] = []

    async def play(graphs: Sequence[Graph], numbers: Sequence[int]) -> list[list[float]]:
        rounds.append({json.dumps(graph, sort_keys=True) for graph in graphs})
        return [[len(json.dumps(graph)) / 1e4] * len(numbers) for graph in graphs]  # the longest workflow wins

    evolution = Evolution(EvolveSection(candidates=1, tasks=2, looks=1), START, ROLES, 0)
    for _ in range(5):
        before = {d.key for d in (evolution.champion, evolution.runner_up) if d is not None}
        counts = {key: evolution.worth[key].count for key in before if key in evolution.worth}
        asyncio.run(evolution.round(play))
        assert before <= rounds[-1] and len(rounds[-1]) <= len(before) + 1
        assert all(evolution.worth[key].count == pytest.approx(0.8 * old + 2) for key, old in counts.items())
    assert evolution.champion.key != Design(START).key and evolution.runner_up is not None


def test_a_round_without_candidates_plays_the_champion_alone() -> None:
    async def play(graphs: Sequence[Graph], numbers: Sequence[int]) -> list[list[float]]:
        return [[1.0] * len(numbers) for _ in graphs]

    evolution = Evolution(EvolveSection(motifs=[], tasks=1), START, ROLES, 0)
    found = asyncio.run(evolution.round(play))
    assert found["evolve/played"] == 1 + 2 + 4 + 8 and found["evolve/changed"] == 0
    assert evolution.champion.key == Design(START).key and evolution.runner_up is None


def test_a_workflow_that_cannot_be_played_leaves_the_round() -> None:
    """Whether it comes from a motif or from a designer. It never becomes champion, even if all others lose reward."""
    asked: list[int] = []

    async def play(graphs: Sequence[Graph], numbers: Sequence[int]) -> list[list[float] | Fault]:
        asked.append(len(graphs))
        return [[-1.0] * len(numbers) if graph == START_PLAIN else Fault.WORKFLOW for graph in graphs]

    evolution = Evolution(EvolveSection(candidates=3, tasks=1, looks=2), START, ROLES, 0)
    asyncio.run(evolution.round(play))
    assert asked == [4, 1] and evolution.champion.key == Design(START).key


@pytest.mark.parametrize("fault", Fault)
def test_a_workflow_whose_episodes_all_fail_is_played_in_two_rounds_and_not_again(fault: Fault) -> None:
    """Whether a motif or a designer makes it. A checkpoint keeps the count, and one episode that succeeds clears it."""
    good, bad = (Design(json.loads(proposed(prompt=prompt))).graph for prompt in ("good", "bad"))
    played: Counter[str] = Counter()

    async def play(graphs: Sequence[Graph], numbers: Sequence[int]) -> list[list[float] | Fault]:
        played.update(json.dumps(graph, sort_keys=True) for graph in graphs)
        return [[1.0] * len(numbers) if graph in (START_PLAIN, working) else fault for graph in graphs]

    section = EvolveSection(candidates=2, tasks=1, looks=1, motifs=["vote", "drop"])
    evolution, working = Evolution(section, START, ROLES, 0), None
    for number in range(40):
        working = good if number == 1 else None
        again = Evolution(section, START, ROLES, 0)
        again.load_state_dict(json.loads(json.dumps(evolution.state_dict())))
        evolution = again
        asyncio.run(evolution.round(play, [good, bad] if number < 6 else [bad]))
        evolution.champion, evolution.runner_up = Design(START), None
    assert played.pop(Design(START).key) == 40
    assert played.pop(Design(good).key) == 1 + 1 + 2  # in rounds 0 and 1, and in two rounds after its success
    assert played[Design(bad).key] == 2 and len(played) > 3 and set(played.values()) == {2}


def test_the_toy_space_is_searched_to_its_best(load_script: Any) -> None:
    """Three seeds here; benchmarks/evolve.py prints the figure for twenty."""
    toy = load_script("benchmarks/evolve.py")
    section = EvolveSection(verify="toy:right", motifs=list(toy.MOTIFS), fade=1.0)
    found = [asyncio.run(toy.search(seed, 4000, section)) for seed in (9, 10, 11)]
    assert [best for best, _, _ in found] == [True] * 3
    assert all(played <= 4000 for _, played, _ in found)


def test_a_run_evolves_its_workflow_and_its_designer_learns(tmp_path: Path) -> None:
    small = ["train.steps=3", "evolve.every=1", "rollout.tasks=2", "algorithm.group=2", "evolve.candidates=2"]
    small += ["evolve.tasks=2", "evolve.looks=1", "evolve.designs=3", "device=cpu", "sampling.max_tokens=4"]
    trainer = Trainer(resolve(load(RECIPE, small)), tmp_path)
    seen: list[dict[str, float]] = []
    trainer.observer = Observer(stepped=lambda step, metrics: seen.append(dict(metrics)))
    try:
        trainer.train()
        evolution = trainer.evolution
        before = {name: member.loaded.model.state_dict() for name, member in trainer.team.members.items()}
        before = {name: {k: v.clone() for k, v in weights.items()} for name, weights in before.items()}
        assert trainer.evolver is not None and evolution is not None
        kept = json.loads(json.dumps(evolution.state_dict()))
        asyncio.run(trainer.evolver.round())  # with frozen policies
        for name, member in trainer.team.members.items():
            assert all(torch.equal(v, before[name][k]) for k, v in member.loaded.model.state_dict().items())
        evolution.load_state_dict(kept)
    finally:
        trainer.close()
    assert evolution is not None and evolution.rounds == 3
    assert seen[0]["evolve/played"] > 0 and seen[0]["evolve/designs"] == 0
    assert seen[1]["episodes"] == 4 + 3  # the proposals of the round before are one group more
    assert "reward/illegal/designer" in seen[1]
    again = Trainer(resolve(load(RECIPE, small)), tmp_path)
    try:
        assert again.evolution is not None
        assert again.evolution.state_dict() == json.loads(json.dumps(evolution.state_dict()))
    finally:
        again.close()


class Killed(Exception):
    """Ends a run as a kill does: no checkpoint is written."""


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics. Of what a clock or the operating system measured, only the names."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    measured = ("time", "seconds/", "tokens_per_second", "memory")
    return [{k: None if k.startswith(measured) else v for k, v in row.items()} for row in rows]


def timeless(data: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a clock measured."""
    return {key: value for key, value in data.items() if key != "seconds"}


@pytest.mark.slow
def test_promise_9_a_run_ended_inside_a_round_resumes_bit_identical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, workflows, their results, the designer's proposals and the metrics. One run is killed. Another gets a
    SIGTERM twice in one round and once in the last one, and ends at once with a checkpoint each time. In every round,
    playing candidates leaves the weights of all policies as they are."""
    small = ["train.steps=3", "evolve.every=1", "rollout.tasks=2", "algorithm.group=2", "evolve.candidates=2"]
    small += ["evolve.tasks=2", "evolve.looks=2", "evolve.designs=2", "device=cpu", "sampling.max_tokens=4"]
    small += ["checkpoint.share=1.0", "evolve.price=0.0"]
    play, looks = Evolver._play, 0

    def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
        models = {name: member.loaded.model for name, member in trainer.team.members.items()}
        return {f"{name}/{key}": v.clone() for name, m in models.items() for key, v in m.state_dict().items()}

    def run(
        folder: Path, killed_at: int | None, ended_at: int | None = None
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        nonlocal looks
        looks = 0
        trainer = Trainer(resolve(load(RECIPE, small)), folder)

        async def frozen(self: Evolver, graphs: Sequence[Graph], numbers: Sequence[int]) -> list[list[float]]:
            nonlocal looks
            before, looks = weights(trainer), looks + 1
            found = await play(self, graphs, numbers)
            assert all(torch.equal(v, before[name]) for name, v in weights(trainer).items())
            if looks == killed_at:
                raise Killed
            if looks == ended_at:
                signal.raise_signal(signal.SIGTERM)
                await asyncio.sleep(1000)
            return found

        monkeypatch.setattr(Evolver, "_play", frozen)
        try:
            trainer.train()
            assert trainer.evolution is not None
            state = json.dumps(trainer.evolution.state_dict())
            return weights(trainer), json.loads(state, object_hook=timeless)
        finally:
            trainer.close()

    whole_weights, whole_state = run(tmp_path / "whole", None)
    assert looks == 6 and whole_state["pending"]
    with pytest.raises(Killed):
        run(tmp_path / "cut", 4)
    found, state = run(tmp_path / "cut", None)
    assert looks == 4  # the rounds after steps 2 and 3
    assert state == whole_state
    assert all(torch.equal(v, whole_weights[name]) for name, v in found.items())
    for ended_at, step in ((4, 2), (2, 2), (4, 3)):
        run(tmp_path / "signal", None, ended_at)
        newest = checkpoint.latest(tmp_path / "signal" / "checkpoints")
        assert looks == ended_at and newest is not None and newest.step == step
        assert len(metrics(tmp_path / "signal")) == step - 1  # the row is written when the round is complete
    found, state = run(tmp_path / "signal", None)
    assert looks == 2 and state == whole_state
    assert all(torch.equal(v, whole_weights[name]) for name, v in found.items())
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "cut") == metrics(tmp_path / "signal")


def test_the_tokens_of_a_workflow_have_a_price() -> None:
    evolver: Any = Evolver.__new__(Evolver)
    evolver.plan = SimpleNamespace(roles=ROLES, recipe=SimpleNamespace(reward=RewardSection()))
    evolver.evolution = SimpleNamespace(section=EvolveSection(price=0.1))
    turns = [SimpleNamespace(sampled=1500), SimpleNamespace(sampled=500)]
    assert evolver._worth(SimpleNamespace(rewards=Rewards.team("correct", 1.0), turns=turns)) == pytest.approx(0.8)


def test_a_run_stops_if_the_champion_cannot_be_played_and_not_for_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Design(START, {"solve": {"vote": 3}}).graph

    def fails(task: Graph, _: int) -> str | None:
        return "EnvError: broken" if task == bad else None

    evolver = faked(monkeypatch, fails)
    bad = other
    assert asyncio.run(evolver._play([other, START_PLAIN], [0, 1])) == [Fault.WORKFLOW, [1.0, 1.0]]
    bad = START_PLAIN
    with pytest.raises(GuardError, match=r"every episode of the best workflow so far failed; .*: EnvError: broken"):
        asyncio.run(evolver._play([other, START_PLAIN], [0, 1]))


def faked(monkeypatch: pytest.MonkeyPatch, fails: Callable[[Graph, int], str | None]) -> Any:
    """An evolver whose episodes are not played. `fails` gives the error of an episode from its workflow and number."""

    class Played:
        def __init__(self, *_: Any) -> None: ...

        async def run(self, tasks: Sequence[tuple[int, Graph]], _: Any) -> list[Any]:
            earned = Rewards.team("correct", 1.0)
            return [SimpleNamespace(error=fails(graph, n), rewards=earned, turns=[]) for n, graph in tasks]

    monkeypatch.setattr(evolving, "Runner", Played)
    recipe: Any = SimpleNamespace(
        seed=0, rollout=None, reward=RewardSection(), eval=SimpleNamespace(temperature=1.0), sampling=SamplingSection()
    )
    evolver: Any = Evolver.__new__(Evolver)
    evolver.plan = SimpleNamespace(
        roles=ROLES, recipe=recipe, task=lambda n, _split, data: (n, data["workflow"]), seats={}
    )
    evolver.team = SimpleNamespace(seating=lambda *_: None)
    section = EvolveSection(price=0.1, candidates=1, tasks=2, looks=1, motifs=[], designer="designer")
    evolver.evolution = Evolution(section, START, ROLES, 0)
    return evolver


@pytest.mark.parametrize(
    ("errors", "champion", "fault"),
    [
        (["EnvError: the program crashed before it asked anything"] * 2, None, Fault.WORKFLOW),
        (["LimitError: no answer within 5 s", "ModelError: no system messages"], None, Fault.WORKFLOW),
        (["EnvError: x", "SandboxError: a sandbox worker died"], None, Fault.SYSTEM),
        (["EngineLost: gone", "EngineLost: gone"], None, Fault.SYSTEM),
        (["LimitError: no answer within 5 s"] * 2, "LimitError: no answer within 5 s", Fault.SYSTEM),
        (["EnvError: x"] * 2, "EnvError: y", Fault.SYSTEM),
        (["LimitError: no answer within 5 s"] * 2, "EngineError: out of memory", Fault.WORKFLOW),
    ],
)
def test_a_workflow_is_blamed_for_its_own_errors_unless_the_champion_has_them_too(
    monkeypatch: pytest.MonkeyPatch, errors: list[str], champion: str | None, fault: Fault
) -> None:
    """`champion` is the error of one of the champion's two episodes."""
    other = Design(START, {"solve": {"vote": 3}}).graph
    evolver = faked(monkeypatch, lambda graph, n: errors[n] if graph == other else champion if n else None)
    found = asyncio.run(evolver._play([START_PLAIN, other], [0, 1]))
    assert found[1] is fault and found[0] == [1.0] * (1 if champion else 2)


@pytest.mark.parametrize("held_up", [1, 2])
def test_a_slow_workflow_that_holds_up_the_champion_is_blamed_and_does_not_stop_the_run(
    monkeypatch: pytest.MonkeyPatch, held_up: int
) -> None:
    """Some or all episodes of the champion take too long beside it. Then each workflow is played alone."""
    slow, other = (Design(START, {"solve": {"vote": n}}).graph for n in (3, 5))
    together: list[bool] = []

    def fails(graph: Graph, n: int) -> str | None:
        late = graph == slow or (together[-1] and (graph == other or n < held_up))
        return "LimitError: no answer within 5 s" if late else None

    evolver = faked(monkeypatch, fails)
    episodes = evolver._episodes

    async def noted(graphs: Sequence[Graph], numbers: Sequence[int]) -> Any:
        together.append(slow in graphs and len(graphs) > 1)
        return await episodes(graphs, numbers)

    evolver._episodes = noted
    found = asyncio.run(evolver._play([START_PLAIN, slow, other], [0, 1]))
    assert found == [[1.0, 1.0], Fault.WORKFLOW, [1.0, 1.0]] and together == [True, False, False, False]


def test_a_designer_is_penalised_for_a_workflow_that_always_fails_and_not_for_a_failure_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The penalty is there from the first round on, also when the workflow is not played any more."""
    graphs = {name: json.loads(proposed(prompt=name)) for name in ("good", "crash", "lost")}
    errors = {"crash": "EnvError: the program crashed", "lost": "EngineLost: the engine is gone"}
    evolver = faked(monkeypatch, lambda graph, _: errors.get(next(iter(graph["nodes"].values()))["prompt"]))

    async def proposals() -> list[Any]:
        made = [*graphs.values(), None]
        return [(SimpleNamespace(turns=[SimpleNamespace()], rewards=None), graph) for graph in made]

    evolver._proposals = proposals
    monkeypatch.setattr(evolving.episode_json, "to_json", lambda episode: episode.rewards)
    for before in (0.0, 1.0, 1.0):
        asyncio.run(evolver.round())
        found = [(r.name, r.value) for rewards in evolver.evolution.pending for r in rewards]
        assert found == [("design", 1.0 - before), ("failed", -0.1 - before), ("illegal", -0.1 - before)]
    for bad in (graphs["crash"], None):  # they never earn anything
        assert evolver._reward(bad, -5.0).value == -0.1


def test_a_round_that_is_cancelled_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    evolver = faked(monkeypatch, lambda *_: None)
    play = evolver._play

    async def proposals() -> list[Any]:
        return []

    async def cancelled(graphs: Sequence[Graph], numbers: Sequence[int]) -> Any:
        if len(numbers) > 2:  # the second look
            raise asyncio.CancelledError
        return await play(graphs, numbers)

    evolver._proposals, evolver._play = proposals, cancelled
    asyncio.run(evolver.round())
    before = json.dumps(evolver.evolution.state_dict())
    evolver.evolution.section = EvolveSection(tasks=2, looks=2)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(evolver.round())
    assert json.dumps(evolver.evolution.state_dict()) == before


@pytest.mark.slow
def test_a_run_is_measured_played_and_drawn_with_the_workflow_that_evolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by commands that read the run folder later. Before training it is the workflow of the recipe."""

    def crown(self: Evolution, _: Sequence[Design]) -> None:
        self.champion = Design(self.start, {"solve": {"vote": 3}})

    measured: list[Any] = []

    def field(plan: Any, *rest: Any, **named: Any) -> Field:
        measured.append(plan.task(0).data["workflow"]["nodes"]["solve"].get("samples", 1))
        return Field(plan, *rest, **named)

    monkeypatch.setattr(Evolution, "_crown", crown)
    monkeypatch.setattr(session, "Field", field)
    monkeypatch.setattr(suite_field, "Field", field)
    small = ["train.steps=1", "evolve.every=1", "rollout.tasks=1", "algorithm.group=2", "evolve.candidates=1"]
    small += ["evolve.tasks=1", "evolve.looks=1", "evolve.designs=2", "device=cpu", "sampling.max_tokens=2"]
    run = str(tmp_path / "run")

    def command(*words: str) -> str:
        found = CliRunner().invoke(app, list(words))
        assert found.exit_code == 0, found.output
        return found.output

    command("train", str(RECIPE), "--run", run, "eval.games=2", *small)
    command("eval", run, "eval.games=2")
    assert measured == [1, 3, 3]
    assert "solver ×3 vote" in command("draw", run) and "solver ×3 vote" not in command("draw", str(RECIPE))
    assert "solver ×3 vote" in (tmp_path / "run" / "eval" / "eval.md").read_text(encoding="utf-8")
    with ip.load(run) as team:
        assert team.task(0).data["workflow"]["nodes"]["solve"]["samples"] == 3


def test_a_study_of_whole_teams_tests_the_workflow_that_evolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before training, it is the workflow of the recipe."""
    played: list[int] = []

    async def play(self: Field, seats: Any) -> list[Any]:
        task = self.plan.task(0, "test")
        played.append(task.data["workflow"]["nodes"]["solve"].get("samples", 1))
        rewards = SimpleNamespace(won=True, drawn=False)
        monkeypatch.setattr(whole, "verdict_of", lambda *_: rewards)
        return [SimpleNamespace(error=None, task=task, line=lambda _: [])]

    monkeypatch.setattr(Field, "play", play)
    monkeypatch.setattr(whole, "tokens", lambda *_: 1)
    changes = ["device=cpu", "train.steps=1", 'eval.opponents=["team"]']
    trainer = Trainer(resolve(load(str(RECIPE), changes)), tmp_path / "run")
    test = whole.WholeTest(trainer, resets=False)
    test.begin()
    assert trainer.evolution is not None
    trainer.evolution.champion = Design(trainer.evolution.start, {"solve": {"vote": 3}})
    found = test.end()
    trainer.close()
    assert played == [1, 3] and found["mean"]["success"] == found["mean"]["start"] == 1.0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ('env={name = "tictactoe"}', "only a workflow has a section"),
        ('evolve.verify="nosuch:function"', "evolve.verify is 'nosuch:function', which cannot be imported"),
        ("evolve.price=inf", "evolve.price is inf"),
        ("evolve.designer=nobody", "evolve.designer is 'nobody', which is not a policy"),
        ('algorithm={name = "at_grpo", candidates = 2, continuation = "playout"}', "plays trees"),
    ],
)
def test_what_cannot_evolve_is_one_sentence(change: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        resolve(load(RECIPE, [change]))
