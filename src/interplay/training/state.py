"""The state of a run, as a checkpoint keeps it: made from the plan, saved and restored.

`save` and `_restore` are next to each other, so that neither misses a part. The training loop is in `trainer.py`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interplay.config import EngineSection, Recipe
from interplay.errors import CheckpointError
from interplay.rollout.curriculum import make_curriculum
from interplay.rollout.evolve import make_evolution
from interplay.rollout.league import League
from interplay.rollout.team import Team
from interplay.rollout.wiring import seat_of
from interplay.seats import RunPlan, parse_snapshot
from interplay.training import checkpoint
from interplay.training.channels import ChannelLearner, channel_settings
from interplay.training.checkpoint import Checkpoint
from interplay.training.critic import make_critics
from interplay.training.guards import Guards
from interplay.training.identity import made_of, refuse_another
from interplay.training.judges import Judges
from interplay.training.learner import Learner
from interplay.training.local import LocalLearner
from interplay.training.memory import learner_bytes
from interplay.training.run_folder import RunFolder
from interplay.training.snapshots import Snapshots
from interplay.training.tally import update_cost
from interplay.training.versions import Versions
from interplay.types import Snapshot

if TYPE_CHECKING:
    from interplay.training.rank_group import StartRanks  # only sharded learners need it


@dataclass
class RunState:
    """A new state, or that of the newest checkpoint in the run folder."""

    plan: RunPlan
    folder: Path
    # Starts the processes of a sharded learner on other machines. It is passed in, since this package may not import
    # `distributed`.
    start_ranks: StartRanks | None = field(default=None, kw_only=True)
    step_index: int = field(default=0, init=False)
    # The step that checkpoint.best found best, and its value.
    best: tuple[int, float] | None = field(default=None, init=False)
    # Time spent on training: imitation, steps and the short evaluations between them. A resumed run continues the
    # count of its checkpoint.
    seconds: float = field(default=0.0, init=False)
    tokens: Counter[str] = field(default_factory=Counter, init=False)  # sampled by each policy in trained episodes

    def __post_init__(self) -> None:
        found = checkpoint.latest(self.folder / "checkpoints")
        self.fresh = found is None
        self.saved_step = found.step if found else -1
        if found:
            refuse_another(self.plan, found)
        self.bases: dict[str, str] = found.trainer["bases"] if found else {}  # made by imitation with warmstart.base
        self.plan = self.plan.on(self.bases)
        recipe = self.plan.recipe
        sources = {n: str(found.policy(n)) for n in self.plan.saved} if found else {}
        self.team = Team(_for_driver(recipe), sources, reserve=learner_bytes(self.plan))
        self.learners: dict[str, Learner] = {}
        try:
            self._make_parts()
        except BaseException:  # the engines, and perhaps learners, have processes that must end
            self._end_processes()
            raise
        if found:
            try:
                self._restore(found)
            except BaseException:  # a rank may be lost now; then the processes of other models must end too
                RunState.close(self, 1)
                raise

    def _make_parts(self) -> None:
        """Make everything but the team, which exists already."""
        recipe = self.plan.recipe
        self.learners = self._make_learners()
        self.channels = self._make_channels()
        self.algorithm = self.plan.algorithm
        section = recipe.curriculum
        self.evolution = make_evolution(self.plan)
        self.curriculum = self.evolution if section is None else make_curriculum(section, recipe.seed)
        self.snapshots = Snapshots(self.folder / "snapshots", self.team)
        self.references = {name: Snapshot(name) for name in self.plan.trainable if self.algorithm.reference}
        self.league = None if recipe.league is None else League(self.plan)
        critic = self.algorithm.critic
        self.critics = make_critics(self.team, recipe, critic, self.plan.trainable) if critic is not None else {}
        for name, made in self.critics.items():
            self.learners[name].critic = made
        self.judges = Judges(self.plan)
        self.guards = Guards(recipe.train)
        self.versions = Versions()
        self.stream: dict[str, Any] | None = None  # which tasks were issued, and which of those were not trained on
        # The metrics of the last step, if a signal ended the round of evolution after it. A resumed run plays the round
        # again and completes them.
        self.unfinished: dict[str, float] | None = None
        self.records = RunFolder(self.folder, recipe)
        self.records.tokenizers({name: m.loaded.tokenizer for name, m in self.team.members.items()})

    def _make_learners(self) -> dict[str, Learner]:
        if self.plan.recipe.train.shard == "fsdp":
            from interplay.training.sharded import sharded_learners

            return sharded_learners(self.plan, self.team, self.start_ranks)
        out: dict[str, Learner] = {}
        for name in self.plan.trainable:
            member, settings = self.team.members[name], self.plan.settings(name)
            model, seed = member.loaded.model, self.plan.recipe.seed
            out[name] = LocalLearner(name, model, settings, settings.lr, seed, member.adapter)
        return out

    def _make_channels(self) -> dict[str, ChannelLearner]:
        """The learners of channels. The learner of an agent takes their steps together with its own, if the channel's
        receiver has the same base."""
        recipe, out = self.plan.recipe, {}
        for name, section in recipe.channels.items():
            model = self.team.members[seat_of(recipe, section.receiver)].loaded.model
            if section.trainable:
                settings = channel_settings(section, recipe.train)
                out[name] = ChannelLearner(self.team.pool.channels[name], model, settings)
        for learner in self.learners.values():
            if isinstance(learner, LocalLearner):
                learner.channels = [c for c in out.values() if c.model is learner.model]
        return out

    def save(self) -> None:
        """Write a checkpoint of the current step."""
        state: dict[str, Any] = {
            "learners": {n: x.state_dict() for n, x in self.learners.items()},
            "critics": {n: c.state_dict() for n, c in self.critics.items()},
            "judges": self.judges.state_dict(),
            "channels": {n: c.state_dict() for n, c in self.channels.items()},
            "drafts": {n: s.state_dict() for n, s in self.team.pool.speculations.items()},
        }
        papers = {
            "bases": self.bases,
            "made_of": made_of(self.plan, self.bases),
            "best": self.best,
            "seconds": self.seconds,
            "versions": {n: self.team.members[n].version for n in self.learners},
            "algorithm": self.algorithm.state_dict(),
            "curriculum": None if self.curriculum is None else self.curriculum.state_dict(),
            "league": None if self.league is None else self.league.state_dict(),
            "references": {name: str(who) for name, who in self.references.items()},
            "snapshots": {str(who): self.snapshots.digest(who) for who in sorted(self._snapshots(), key=str)},
            "judges": self.judges.papers(),
            "tokens": dict(self.tokens),
            "guards": self.guards.state_dict(),
            "stream": self.stream,
            "unfinished": self.unfinished,
            "records": self.records.offsets(),
        }
        policies = {n: self.team.members[n].save for n in self.learners}
        policies |= {n: channel.save for n, channel in self.team.pool.channels.items()}
        root, keep = self.folder / "checkpoints", self.plan.recipe.checkpoint.keep
        best = None if self.best is None else self.best[0]
        checkpoint.save(root, self.step_index, policies, state, papers)
        checkpoint.prune(root, self.step_index, keep, best)
        self.snapshots.prune(checkpoint.snapshots(root))
        self.saved_step = self.step_index

    def _snapshots(self) -> set[Snapshot]:
        """The snapshots that a run may need when it is resumed from here."""
        if self.fresh and self.step_index == 0:
            return set()  # at step 0 they equal this checkpoint, and are made from it
        league = [] if self.league is None else self.league.snapshots.values()
        playing = map(parse_snapshot, (self.stream or {}).get("snapshots", ()))  # the league may have dropped them
        return {*self.plan.snapshots, *self.references.values(), *playing, *(who for mine in league for who in mine)}

    def _restore(self, found: Checkpoint) -> None:
        """Load the rest of a checkpoint; the policies' weights were read from it already."""
        state, papers = found.state(), found.trainer
        if set(state["critics"]) != set(self.critics):
            raise CheckpointError(
                f"checkpoint '{found.folder}' has critics for {sorted(state['critics'])}, but this recipe has critics "
                f"for {sorted(self.critics)}; start a new run."
            )
        for name, learner in self.learners.items():
            learner.load_state_dict(state["learners"][name])
        for name, critic in self.critics.items():
            critic.load_state_dict(state["critics"][name])
        for name, channel in self.channels.items():
            channel.load_state_dict(state["channels"][name])
        for name, speculation in self.team.pool.speculations.items():
            if name in state.get("drafts", {}):  # else it was off before
                speculation.load_state_dict(state["drafts"][name])
        self.algorithm.load_state_dict(papers["algorithm"])
        self.guards.load_state_dict(papers["guards"])
        self.tokens = Counter(papers.get("tokens", {}))
        self._restore_judges(state, papers)
        self.stream, self.unfinished = papers["stream"], papers.get("unfinished")
        if self.curriculum is not None and papers.get("curriculum") is not None:  # else the curriculum begins now
            self.curriculum.load_state_dict(papers["curriculum"])
        if self.league is not None:
            if papers.get("league") is None:
                raise CheckpointError(
                    f"checkpoint '{found.folder}' has no league, but this recipe has one; start a new run."
                )
            self.league.load_state_dict(papers["league"])
        saved = papers.get("references", {})
        self.references |= {n: parse_snapshot(saved[n]) for n in self.references if n in saved}
        self.snapshots.digests = dict(papers.get("snapshots", {}))
        for name, version in papers["versions"].items():
            self.team.members[name].publish(version)
        self.records.rewind(papers["records"])
        self.best = None if papers["best"] is None else tuple(papers["best"])
        self.seconds = papers["seconds"]
        self.step_index = found.step

    def _restore_judges(self, state: Mapping[str, Any], papers: Mapping[str, Any]) -> None:
        had, have = sorted(state.get("judges", {})), sorted(self.judges.pupils)
        if had != have:
            raise CheckpointError(
                f"the checkpoint has reward models that learn for {had}, but this recipe has them for {have}; start a "
                "new run."
            )
        self.judges.load(state.get("judges", {}), papers.get("judges", {"pupils": {}, "watches": {}}))

    # -- versions -------------------------------------------------------------------------------------------------

    def follow_learners(self) -> None:
        """From now on, every optimiser step makes a new version of its policy's weights."""
        for name, learner in self.learners.items():
            learner.written = partial(self._written, name)
        self.mark_versions()

    def _written(self, name: str) -> None:
        """The optimiser has changed the weights. An engine that shares the full weights samples from them at once.
        Adapters, and weights of learners in other processes, are copied to it after the whole training step."""
        member = self.team.members[name]
        if self._is_shared(name):
            member.publish(member.version + 1)
        else:
            member.version += 1
        self.versions.made(name, member.version, self.step_index)

    def publish_copies(self, names: Iterable[str]) -> dict[str, float]:
        """Copy to the engine what a training step changed, for policies whose engine does not read the learner's
        tensors. Return how long that took."""
        metrics: dict[str, float] = {}
        for name in names:
            member, learner = self.team.members[name], self.learners[name]
            if self._is_shared(name):
                continue
            began = time.perf_counter()
            with learner.delivered():
                member.publish(member.version)
            size = sum(t.nbytes for t in learner.weights().values())
            metrics |= update_cost(f"{name}/", time.perf_counter() - began, size)
        return metrics

    def _is_shared(self, name: str) -> bool:
        """Whether the engine samples from the tensors that are trained, so that nothing has to be copied."""
        member = self.team.members[name]
        return member.adapter is None and not self.learners[name].apart and member.engine.capabilities.shared

    def publish(self, name: str) -> None:
        """Make a new version of a policy whose weights were replaced outside of a training step."""
        member = self.team.members[name]
        with self.learners[name].delivered():
            member.publish(member.version + 1)
        self.versions.made(name, member.version, self.step_index)

    def mark_versions(self) -> None:
        """Note that the newest versions belong to the current number of completed training steps."""
        for name in self.learners:
            self.versions.made(name, self.team.members[name].version, self.step_index)

    @property
    def spent(self) -> bool:
        """Whether the recipe's budget of tokens is used up."""
        train = self.plan.recipe.train
        counted = self.plan.trainable if train.budget_policy is None else [train.budget_policy]
        return bool(train.budget_tokens) and sum(self.tokens[name] for name in counted) >= train.budget_tokens

    def parameters(self) -> dict[str, int]:
        """The number of trained parameters of each policy."""
        return {n: x.size for n, x in self.learners.items()}

    def close(self, exit_code: int = 0) -> None:
        """End the run. Trackers get its exit code, which is 0 if it is finished."""
        self._end_processes()
        self.records.close(exit_code)

    def _end_processes(self) -> None:
        for learner in self.learners.values():
            learner.close()
        self.team.close()


def _for_driver(recipe: Recipe) -> Recipe:
    """If other processes sample (`cluster.engines`), they have the engines of the recipe, and the run's own process
    evaluates with a local one."""
    return recipe.model_copy(update={"engine": EngineSection()}) if recipe.cluster.engines else recipe
