"""Short imitation of a bot or of recorded play before reinforcement learning. It uses the same batch code.

If a policy has an adapter, either the adapter is trained, or the base model under it. In the second case the new base
is saved in the run folder and used from then on.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from interplay.config import TrainSection, WarmstartSection
from interplay.errors import ConfigError
from interplay.models.save import save
from interplay.models.senses import thaw
from interplay.rollout.team import Team
from interplay.seats import RunPlan
from interplay.training.demonstrations import demonstrations, readings
from interplay.training.learner import Learner
from interplay.training.local import LocalLearner
from interplay.training.minibatches import rate_factor
from interplay.training.tries import Example
from interplay.types import seed_of


def warmstart(
    plan: RunPlan, team: Team, learners: Mapping[str, Learner], folder: Path,
    report: Callable[[str, int, int, float], None], may_go_on: Callable[[], None],
) -> dict[str, str]:  # fmt: skip
    """Imitate as `plan.recipe.warmstart` says, then give the trained learners new optimisers. With `warmstart.base`,
    the base models under adapters are trained instead and saved in `folder`. With `warmstart.read`, models first learn
    to describe pictures and sounds in words. Returns the new base of each policy whose base was trained. `may_go_on` is
    called before every game that is played or read, and may raise."""
    section = plan.recipe.warmstart
    assert section is not None
    read = readings(plan, team, section, may_go_on) if section.read else {}
    if section.read and not any(read.values()):
        raise ConfigError(
            f"warmstart.read is set, but {plan.recipe.env.name} shows the policies no pictures or sounds; expected an "
            "environment that shows them, as with env.view = 'image', and a base that reads them."
        )
    examples = demonstrations(plan, team, section, may_go_on)
    moved: dict[str, str] = {}
    by_model: dict[int, list[str]] = defaultdict(list)
    for name in examples:
        if section.base and learners[name].adapter is not None:
            by_model[id(learners[name].model)].append(name)
        else:
            _imitate(learners[name], read.get(name, []), examples[name], section, plan.recipe.seed, report)
            learners[name].reset_optimizer(learners[name].config.lr)
    for names in by_model.values():
        loaded = team.members[names[0]].loaded
        thaw(loaded.model)
        whole = LocalLearner("base", loaded.model, plan.recipe.train, section.lr, plan.recipe.seed)
        first, then = ([e for n in names for e in found.get(n, [])] for found in (read, examples))
        _imitate(whole, first, then, section, plan.recipe.seed, report)
        loaded.model.requires_grad_(False)
        where = folder.resolve() / plan.recipe.policies[names[0]].base.strip("/.~").replace("/", "--")
        save(loaded, where)
        loaded.model.config.name_or_path = str(where)  # adapters save this as the name of their base
        moved |= {n: str(where) for n, m in team.members.items() if m.loaded is loaded}
    return moved


def _imitate(
    learner: Learner, read: Sequence[Example], examples: Sequence[Example], section: WarmstartSection, seed: int,
    report: Callable[[str, int, int, float], None],
) -> None:  # fmt: skip
    """First `section.read` epochs over `read`, then `section.epochs` over `examples`."""
    learner.reset_optimizer(section.lr)
    parts = [("read", read, section.read), ("warmstart", examples, section.epochs)]
    batches = sum(epochs * -(-len(part) // section.batch) for _, part, epochs in parts)
    pace = TrainSection(steps=batches, schedule=section.schedule, final_lr=0.0)
    done = 0
    for kind, part, epochs in parts:
        order = list(range(len(part)))
        for epoch in range(epochs):
            random.Random(seed_of(kind, seed, learner.name, epoch)).shuffle(order)
            for start in range(0, len(order), section.batch):
                taken = [part[i] for i in sorted(order[start : start + section.batch])]
                loss = learner.imitate(taken, section.lr * rate_factor(pace, done))
                done += 1
                report(learner.name, done, batches, loss)
