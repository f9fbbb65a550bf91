"""One training run on the terminal: measure, train and show the progress, measure again.

The first measurements are written to `report.json` before training begins, so a killed run need not repeat them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from interplay.cli.exit_codes import FAILED, STOPPED
from interplay.cli.flow import flow
from interplay.cli.progress import reporter
from interplay.config import TEAM
from interplay.errors import DataError, EngineLost, LearnerLost, counted
from interplay.evaluation import report, strategies
from interplay.evaluation.benchmark import SeatResult, evaluate
from interplay.evaluation.field import Field
from interplay.rollout.team import Team
from interplay.seats import RunPlan
from interplay.training.interrupt import Interrupt
from interplay.training.memory import estimate
from interplay.training.shortage import explained
from interplay.training.trainer import Observer, Trainer
from interplay.types import Occupant, Role

log = logging.getLogger("interplay")


class Session:
    def __init__(self, console: Console, plan: RunPlan, folder: Path, interrupt: Interrupt | None = None) -> None:
        self.console, self.plan, self.recipe, self.folder = console, plan, plan.recipe, folder
        self.interrupt = interrupt or Interrupt()  # trainers that are made after a lost process use it too
        self.report = folder / "report.json"
        earlier = self._earlier()
        self.memory = estimate(plan)
        self.memory.refuse(plan)
        with explained(plan):
            self.trainer = self._make_trainer()
        short = self._short if self.recipe.eval.every else None
        self.trainer.observer = Observer(self._warmed, self._ready, self._stepped, short)
        self.stages: dict[str, list[SeatResult]] = {}  # results of each stage: "untrained", "before", "after"
        self.exploits: dict[str, dict[str, float]] = {}
        self.measuring: dict[str, float] = {}  # seconds
        self.imitation = 0.0  # seconds
        if not self.trainer.fresh and earlier:  # keep all but "after", which was measured earlier
            results = {k: v for k, v in earlier["results"].items() if k != "after"}
            self.stages = {k: [SeatResult.from_json(r) for r in v] for k, v in results.items()}
            self.exploits = {k: v for k, v in earlier.get("exploitability", {}).items() if k != "after"}
            self.measuring = {k: v for k, v in earlier.get("measuring_seconds", {}).items() if k != "after"}
            if earlier.get("steps") == self.trainer.step_index:  # a checkpoint lacks the time it took to write it
                self.trainer.seconds = max(self.trainer.seconds, earlier.get("training_seconds", 0.0))
        self.progress = reporter(console)
        self.imitating = ""  # the policy that is in its warm start now
        self.wins: dict[str, float] = {}  # win rates of the last short evaluation

    def _earlier(self) -> dict[str, Any]:
        """The report of a run that is resumed; empty if it has none."""
        if not self.report.is_file() or not (self.folder / "checkpoints").is_dir():
            return {}
        try:
            found: dict[str, Any] = json.loads(self.report.read_bytes())
            dict(found["results"])
            return found
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"'{self.report}' is damaged ({type(error).__name__}: {error}); it holds what was measured before "
                "training: restore it, or remove it to go on without these results."
            ) from None

    def _make_trainer(self) -> Trainer:
        cluster = self.recipe.cluster
        if not cluster.uses_ray:
            return Trainer(self.plan, self.folder, interrupt=self.interrupt)
        from interplay.distributed.cluster import RolloutFleet
        from interplay.distributed.rank_actors import ranks_on

        start = ranks_on(self.plan) if self.recipe.train.shard == "fsdp" else None
        trainer = Trainer(self.plan, self.folder, start_ranks=start, interrupt=self.interrupt)
        trainer.make_fleet = RolloutFleet if cluster.rollout_workers else None
        return trainer

    def run(self) -> bool:
        """Measures and trains. Returns whether the run is finished; if not, a signal stopped it."""
        trainer, wanted = self.trainer, self.recipe.eval
        exit_code = FAILED
        self._say(self._headline())
        self._say(str(self.memory))
        with self.progress, self.interrupt.heard():
            try:
                if wanted.before and trainer.fresh and self.recipe.warmstart is not None:
                    self._measure("untrained")
                    self._write({})  # now, because a resumed run has no untrained policies to measure
                if not trainer.stopping:
                    self._train()
                trainer = self.trainer
                if wanted.after and not trainer.stopping:
                    self._measure("after")
                exit_code = STOPPED if trainer.stopping else 0
            finally:
                self.trainer.close(exit_code)
                if self.recipe.cluster.uses_ray:
                    from interplay.distributed.connection import disconnect

                    disconnect()
        self._write({"steps": trainer.step_index})
        self._tell()
        return not trainer.stopping

    def _train(self) -> None:
        """Trains. If a process of a learner or an engine is lost, all processes start again from the newest
        checkpoint, at most `cluster.restarts` times without a new checkpoint between them."""
        restarts, tried, saved = self.recipe.cluster.restarts, 0, self.trainer.saved_step
        while True:
            try:
                if tried:
                    self._begin_again()
                return self.trainer.train()
            except (EngineLost, LearnerLost) as lost:
                if self.trainer.saved_step > saved:
                    tried, saved = 0, self.trainer.saved_step
                if tried == restarts:
                    raise
                tried += 1
                log.warning("%s The run goes on from its newest checkpoint (%d of %d).", lost, tried, restarts)

    def _begin_again(self) -> None:
        """Ends all processes of the run and starts them again from the newest checkpoint."""
        observer = self.trainer.observer
        self.trainer.close(FAILED)
        self.trainer = self._make_trainer()
        self.trainer.observer = observer

    # -- measuring ------------------------------------------------------------------------------------------------

    async def _played(
        self, team: Team, games: int, split: str, opponents: Sequence[str], seats: Mapping[Role, Occupant]
    ) -> list[SeatResult]:
        evolution = self.trainer.evolution
        workflow = None if evolution is None else evolution.champion.graph
        plan = replace(self.plan, seats=dict(seats), workflow=workflow)
        field = Field(plan, team, games, split, self.recipe.eval.temperature)
        return await evaluate(field, opponents, {role: seats[role] for role in self.plan.learning})

    def _measure(self, stage: str) -> None:
        """Measures the current policies. If a signal stops the measurement, nothing of it is kept."""
        team, wanted, interrupt = self.trainer.team, self.recipe.eval, self.interrupt
        if wanted.opponents or wanted.exploitability:  # else there is nothing to measure
            self.progress.stage(f"measure {stage}", info=f"{counted(wanted.games, 'game')} a seat")
        began = time.monotonic()
        played = self._played(team, wanted.games, "test", wanted.opponents, self.plan.seats)
        found = asyncio.run(interrupt.ends(played))
        if found is None:
            return
        if wanted.exploitability:
            strategy = asyncio.run(interrupt.ends(strategies.measure(self.plan, team)))
            if strategy is None:
                return
            self.exploits[stage] = strategy.metrics()
        self.stages[stage] = found
        self.measuring[stage] = time.monotonic() - began

    async def _short(self, team: Team, step: int, seats: Mapping[Role, Occupant]) -> Mapping[str, float]:
        out: dict[str, float] = {}
        wanted = self.recipe.eval
        for opponent in wanted.opponents[:1]:
            found = await self._played(team, wanted.short_games, "validation", [opponent], seats)
            games = max(1, sum(r.games for r in found))
            out[f"eval/win_rate/{opponent}"] = sum(r.wins for r in found) / games
            out[f"eval/draw_rate/{opponent}"] = sum(r.draws for r in found) / games
            out[f"eval/reward/{opponent}"] = sum(r.reward * r.games for r in found) / games
            out[f"eval/illegal/{opponent}"] = sum(r.illegal for r in found) / max(1, sum(r.turns for r in found))
        if wanted.exploitability:
            out |= (await strategies.measure(self.plan, team, seats)).metrics()
        return out

    # -- called by the trainer ------------------------------------------------------------------------------------

    def _warmed(self, name: str, done: int, of: int, loss: float) -> None:
        if name != self.imitating:
            self.imitating = name
            self.progress.stage(f"imitate {name}", 0, of)
        self.progress.advance(done, of, f"loss {loss:.3f}")

    def _ready(self) -> None:
        at = self.trainer.step_index
        if at == 0:
            self.imitation = self.trainer.seconds
        if self.recipe.eval.before and at == 0 and "before" not in self.stages:
            self._measure("before")
            self._write({})  # now, so that a run that is killed later still has it
        self.progress.stage("train", at, self.recipe.train.steps, each=True)

    def _stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        self.wins.update({k: v for k, v in metrics.items() if k.startswith("eval/win_rate")})
        wins = " ".join(f"{_measured(k)} {100 * v:.0f}%" for k, v in self.wins.items())
        name = "reward" if "reward" in metrics else "reward_kept"
        info = f"{name} {metrics[name]:+.2f} {wins} {metrics['tokens_per_second']:.0f} tok/s"
        self.progress.advance(step, self.recipe.train.steps, " ".join(info.split()))

    # -- output for the user --------------------------------------------------------------------------------------

    def _write(self, more: Mapping[str, Any]) -> None:
        spent = self.trainer.seconds
        about = {
            "name": self.recipe.name,
            "seed": self.recipe.seed,
            **more,
            "training_seconds": spent,
            "measuring_seconds": self.measuring,
            "total_seconds": spent + sum(self.measuring.values()),
            "exploitability": self.exploits,
            "flow": flow(self.folder / "metrics.jsonl"),
        }
        report.write(self.report, self.stages, about)

    def _headline(self) -> str:
        recipe = self.recipe
        sizes = self.trainer.parameters()
        policies = ", ".join(f"{n} ({recipe.policies[n].base}, {c / 1e6:.2f}M parameters)" for n, c in sizes.items())
        seats = ", ".join(f"{r} = {w}" for r, w in self.plan.seats.items())
        return (
            f"{recipe.name}: {recipe.env.name}, {recipe.algorithm.name}, {counted(recipe.train.steps, 'step')}, "
            f"seed {recipe.seed}\npolicies {policies}; seats {seats}\nrun folder {self.folder}"
        )

    def _tell(self) -> None:
        if self.stages:
            legal = ", only legal replies" if self.recipe.eval.legal else ""
            self.console.print(report.table(self.stages, f"{self.recipe.name}, seed {self.recipe.seed}{legal}"))
            if hint := report.unmasked(self.recipe, self.stages):
                self._say(hint)
        for stage, found in self.exploits.items():
            value, stray = found["eval/exploitability"], found["eval/stray"]
            line = f"exploitability {stage}: {value:.3f} (chance of an illegal reply: {stray:.2%})"
            self._say(line)
        used = flow(self.folder / "metrics.jsonl")
        if any(name.startswith(("stream/", "cluster/")) for name in used):
            self._say("means over the steps: " + ", ".join(f"{name} {value:.3g}" for name, value in used.items()))
        trainer, folder = self.trainer, shlex.quote(str(self.folder))  # so that the commands can be copied
        if trainer.stopping:
            if trainer.saved_step < 0:
                self._say("stopped before the first checkpoint; call the same command again to start anew.")
            else:
                self._say(f"stopped at step {trainer.step_index}; go on with: interplay train {folder} --resume")
            return
        steps = counted(trainer.step_index, "step")
        self._say(f"trained {steps} in {trainer.seconds:.0f} s; everything is in {self.folder}")
        following = {
            f"interplay view {folder}": "look at it in the browser",
            f"interplay play {folder} --seat {self.plan.roles[-1]}": "play a seat yourself",
            f"interplay eval {folder} eval.games=1000": "measure it again",
            f"interplay train {folder} train.steps={2 * self.recipe.train.steps} --resume": "train on",
        }
        wide = max(map(len, following))
        for first, (command, what) in zip(("next:", "", "", ""), following.items(), strict=True):
            self._say(f"{first:7}{command:{wide}}   {what}")

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


def _measured(metric: str) -> str:
    """The name of a short evaluation's metric on the terminal. `eval/win_rate/team` is called success."""
    opponent = metric.removeprefix("eval/win_rate/")
    return "success" if opponent == TEAM else f"wins vs {opponent.removeprefix('bot:')}"
