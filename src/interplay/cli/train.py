"""`interplay train`: measure, train with a progress bar, measure again, and say where everything is."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from interplay.config import Recipe, load
from interplay.errors import ConfigError
from interplay.rollout.resolve import Plan, resolve


def show(console: Console, path: str, overrides: Sequence[str]) -> None:
    """Check a recipe and print it with every default filled in. Imports no torch."""
    plan = resolve(load(path, overrides))
    console.print_json(json.dumps(plan.recipe.model_dump()))
    console.print(
        f"seats: {', '.join(f'{r} = {w}' for r, w in plan.seats.items())}; plan: {plan.algorithm.plan}", highlight=False
    )


def train_recipe(console: Console, path: str, overrides: Sequence[str], run: Path | None, resume: bool) -> None:
    if resume and run is not None and not Path(path).is_dir():
        recipe = load(run, overrides) if (run / "run.json").is_file() else load(path, overrides)
    else:
        recipe = load(path, overrides)
    plan = resolve(recipe)
    folder = run or (
        Path(path) if Path(path).is_dir() else Path("runs") / f"{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    if (folder / "checkpoints").exists() and not resume:
        raise ConfigError(
            f"run folder '{folder}' already holds a run; add --resume to go on with it, or choose another --run."
        )
    if resume and not (folder / "checkpoints").exists():
        raise ConfigError(f"run folder '{folder}' holds no checkpoint to resume; leave --resume out to start there.")
    _train(console, plan, folder)


def _train(console: Console, plan: Plan, folder: Path) -> None:
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.evaluation import report, strategies
    from interplay.evaluation.benchmark import SeatResult, evaluate
    from interplay.evaluation.field import Field
    from interplay.rollout.team import Team
    from interplay.training.memory import estimate, explained
    from interplay.training.trainer import Observer, Trainer

    recipe = plan.recipe
    report_path = folder / "report.json"
    memory = estimate(plan)
    memory.refuse()
    with explained(plan):
        trainer = Trainer(plan, folder)
    stages: dict[str, list[SeatResult]] = {}
    exploits: dict[str, dict[str, float]] = {}
    if not trainer.fresh and report_path.is_file():  # measured earlier; an "after" was that of fewer steps
        earlier = json.loads(report_path.read_text())
        stages = {k: [SeatResult.from_json(r) for r in v] for k, v in earlier["results"].items() if k != "after"}
        exploits = {k: v for k, v in earlier.get("exploitability", {}).items() if k != "after"}

    async def measure(team: Team, games: int, split: str, opponents: Sequence[str]) -> list[SeatResult]:
        field = Field(plan, team, games, split, recipe.eval.temperature)
        return await evaluate(field, opponents, plan.learning)

    async def short(team: Team, step: int) -> Mapping[str, float]:
        out: dict[str, float] = {}
        for opponent in recipe.eval.opponents[:1]:
            found = await measure(team, recipe.eval.short_games, "validation", [opponent])
            games = max(1, sum(r.games for r in found))
            out[f"eval/win_rate/{opponent}"] = sum(r.wins for r in found) / games
            out[f"eval/draw_rate/{opponent}"] = sum(r.draws for r in found) / games
            out[f"eval/reward/{opponent}"] = sum(r.reward * r.games for r in found) / games
            out[f"eval/illegal/{opponent}"] = sum(r.illegal for r in found) / max(1, sum(r.turns for r in found))
        if recipe.eval.exploitability:
            out |= (await strategies.measure(plan, team)).metrics()
        return out

    console.print(_headline(recipe, plan, trainer.parameters(), folder), highlight=False)
    console.print(str(memory), highlight=False)
    began = time.monotonic()
    with _progress(console) as bar:
        job = bar.add_task("warm start", total=None, info="")

        def warmed(name: str, done: int, of: int, loss: float) -> None:
            bar.update(job, description=f"imitate {name}", completed=done, total=of, info=f"loss {loss:.3f}")

        seen: dict[str, float] = {}

        def stepped(step: int, metrics: Mapping[str, float]) -> None:
            seen.update({k: v for k, v in metrics.items() if k.startswith("eval/win_rate")})
            wins = " ".join(f"wins vs {k.split(':')[-1]} {100 * v:.0f}%" for k, v in seen.items())
            info = f"step {step} reward {metrics['reward']:+.2f} {wins} {metrics['tokens_per_second']:.0f} tok/s"
            bar.update(job, description="train", completed=step, total=recipe.train.steps, info=info)

        def whole(stage: str) -> None:
            info = f"{recipe.eval.games} games a seat"
            bar.update(job, description=f"measure {stage}", completed=0, total=None, info=info)
            stages[stage] = asyncio.run(measure(trainer.team, recipe.eval.games, "test", recipe.eval.opponents))
            if recipe.eval.exploitability:
                exploits[stage] = asyncio.run(strategies.measure(plan, trainer.team)).metrics()
            bar.update(job, completed=1, total=1)

        def warm_done() -> None:
            if recipe.eval.before and trainer.step_index == 0 and "before" not in stages:
                whole("before")
                extra = {"name": recipe.name, "seed": recipe.seed, "exploitability": exploits}
                report.write(report_path, stages, extra)  # outlives a kill
            bar.reset(job, total=recipe.train.steps, completed=trainer.step_index, description="train", info="")

        trainer.observer = Observer(warmed, warm_done, stepped, short if recipe.eval.every else None)
        if recipe.eval.before and trainer.fresh and recipe.warmstart is not None:
            whole("untrained")
        try:
            trainer.train()
            if recipe.eval.after and not trainer.stopping:
                whole("after")
        finally:
            trainer.close()
    extra = {
        "name": recipe.name, "seed": recipe.seed, "steps": trainer.step_index, "training_seconds": trainer.seconds,
        "total_seconds": time.monotonic() - began, "exploitability": exploits,
    }  # fmt: skip
    report.write(report_path, stages, extra)
    if stages:
        console.print(
            report.table(
                stages, f"{recipe.name}, seed {recipe.seed}" + (", only legal replies" if recipe.eval.legal else "")
            )
        )
    for stage, found in exploits.items():
        value, stray = found["eval/exploitability"], found["eval/stray"]
        console.print(f"exploitability {stage}: {value:.3f} (replies off the list: {stray:.2%})", highlight=False)
    _closing(console, trainer, plan, folder)


def _headline(recipe: Recipe, plan: Plan, parameters: Mapping[str, int], folder: Path) -> str:
    policies = ", ".join(f"{n} ({recipe.policies[n].base}, {c / 1e6:.2f}M parameters)" for n, c in parameters.items())
    return (
        f"{recipe.name}: {recipe.env.name}, {recipe.algorithm.name}, {recipe.train.steps} steps, seed {recipe.seed}\n"
        f"policies {policies}; seats {', '.join(f'{r} = {w}' for r, w in plan.seats.items())}\nrun folder {folder}"
    )


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[info]}"),
        console=console, refresh_per_second=4,
    )  # fmt: skip


def _closing(console: Console, trainer: object, plan: Plan, folder: Path) -> None:
    from interplay.training.trainer import Trainer

    assert isinstance(trainer, Trainer)
    role = plan.roles[-1]
    if trainer.stopping:
        console.print(
            f"stopped at step {trainer.step_index}; go on with: interplay train {folder} --resume", highlight=False
        )
        return
    console.print(
        f"trained {trainer.step_index} steps in {trainer.seconds:.0f} s; everything is in {folder}\n"
        f"next:  interplay play {folder} --seat {role}          play against it yourself\n"
        f"       interplay eval {folder} eval.games=1000     measure it again\n"
        f"       interplay train {folder} train.steps={2 * plan.recipe.train.steps} --resume   train on\n"
        f"       less {folder}/logs/llm_conversation_*.log   read what was said",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
