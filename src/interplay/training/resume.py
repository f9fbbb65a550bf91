"""What a checkpoint holds of a trainer: taken down and put back, side by side, so that neither forgets a part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interplay.errors import CheckpointError
from interplay.training import checkpoint
from interplay.training.checkpoint import Checkpoint
from interplay.training.identity import made_of

if TYPE_CHECKING:
    from interplay.training.trainer import Trainer


def save(trainer: Trainer) -> None:
    """Write a checkpoint of the step the trainer is at."""
    state: dict[str, Any] = {
        "learners": {n: x.state_dict() for n, x in trainer.learners.items()},
        "critics": {n: c.state_dict() for n, c in trainer.critics.items()},
    }
    papers = {
        "bases": trainer.bases,
        "made_of": made_of(trainer.plan, trainer.bases),
        "best": trainer.best,
        "versions": {n: trainer.team.members[n].version for n in trainer.learners},
        "algorithm": trainer.algorithm.state_dict(),
        "curriculum": None if trainer.curriculum is None else trainer.curriculum.state_dict(),
        "league": None if trainer.season is None else trainer.season.state_dict(),
        "references": trainer.references,
        "snapshots": {name: trainer.snapshots.digest(name) for name in sorted(_snapshots(trainer))},
        "guards": trainer.guards.state_dict(),
        "records": trainer.records.offsets(),
    }
    policies = {n: trainer.team.members[n].save for n in trainer.learners}
    root, keep = trainer.folder / "checkpoints", trainer.plan.recipe.checkpoint.keep
    best = None if trainer.best is None else trainer.best[0]
    checkpoint.save(root, trainer.step_index, policies, state, papers, keep, best)
    trainer.snapshots.prune(checkpoint.snapshots(root))


def _snapshots(trainer: Trainer) -> set[str]:
    """What a run that goes on from here may need."""
    if trainer.fresh and trainer.step_index == 0:
        return set()  # they are what this checkpoint holds, and are made from it
    league = [] if trainer.season is None else trainer.season.league.snapshots.values()
    return {*trainer.plan.snapshots, *trainer.references.values(), *(name for mine in league for name in mine)}


def restore(trainer: Trainer, found: Checkpoint) -> None:
    """Go on from a checkpoint; the policies' weights were read from it already."""
    state, papers = found.state(), found.trainer
    if set(state["critics"]) != set(trainer.critics):
        raise CheckpointError(
            f"checkpoint '{found.folder}' has critics for {sorted(state['critics'])}, "
            f"this recipe for {sorted(trainer.critics)}."
        )
    for name, learner in trainer.learners.items():
        learner.load_state_dict(state["learners"][name])
    for name, critic in trainer.critics.items():
        critic.load_state_dict(state["critics"][name])
    trainer.algorithm.load_state_dict(papers["algorithm"])
    trainer.guards.load_state_dict(papers["guards"])
    if trainer.curriculum is not None and papers.get("curriculum") is not None:  # else it begins now
        trainer.curriculum.load_state_dict(papers["curriculum"])
    if trainer.season is not None:
        if papers.get("league") is None:
            raise CheckpointError(f"checkpoint '{found.folder}' has no league, this recipe has; begin a new run.")
        trainer.season.load_state_dict(papers["league"])
    trainer.references |= {n: s for n, s in papers.get("references", {}).items() if n in trainer.references}
    trainer.snapshots.digests = dict(papers.get("snapshots", {}))
    for name, version in papers["versions"].items():
        trainer.team.members[name].publish(version)
    trainer.records.rewind(papers["records"])
    trainer.best = None if papers["best"] is None else tuple(papers["best"])
    trainer.step_index = found.step
