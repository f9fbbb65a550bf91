"""A recipe to checked parts, before anything heavy is imported: environment, seats, algorithm, plan. No torch.

Everything that can be refused without loading a model is refused here, with the key to change.
"""

from __future__ import annotations

from dataclasses import dataclass

from interplay import algorithms, envs
from interplay.agents.bots import make_bot
from interplay.algorithms import Algorithm, Tree
from interplay.config import Recipe
from interplay.errors import ConfigError, did_you_mean
from interplay.policies.policy import BOT, seat_map
from interplay.types import Role, Task


@dataclass(frozen=True)
class Plan:
    """What a recipe comes to."""

    recipe: Recipe
    roles: tuple[Role, ...]
    seats: dict[Role, str]
    algorithm: Algorithm

    @property
    def trainable(self) -> list[str]:
        return [name for name, policy in self.recipe.policies.items() if policy.trainable]

    def task(self, index: int, split: str = "train") -> Task:
        env = self.recipe.env
        return envs.sample_task(env.name, env.options, split, index, self.recipe.seed)


def resolve(recipe: Recipe) -> Plan:
    sample = envs.make(envs.sample_task(recipe.env.name, recipe.env.options, seed=recipe.seed))
    seats = seat_map(recipe.seats, sample.roles)
    for role, name in seats.items():
        if name.startswith(BOT):
            _check_bot(f"seats.{role}", name, recipe)
    for name in recipe.eval.opponents:
        if name.startswith(BOT):
            _check_bot("eval.opponents", name, recipe)
        elif name not in recipe.policies:
            raise ConfigError(f"eval.opponents names '{name}'; expected bot:NAME or a policy, {did_you_mean(name, recipe.policies)}")
    if recipe.warmstart is not None:
        _check_bot("warmstart.bot", recipe.warmstart.bot, recipe)
    algorithm = algorithms.make(recipe.algorithm, recipe.reward)
    if not any(not n.startswith(BOT) and recipe.policies[n].trainable for n in seats.values()):
        raise ConfigError("no seat holds a trainable policy; expected at least one, set policies.NAME.trainable = true.")
    if isinstance(algorithm.plan, Tree) and algorithm.plan.continuation == "none" and not _rewards_steps(sample):
        raise ConfigError(
            f"algorithm.continuation is 'none', but {recipe.env.name} rewards only at the end: every candidate would tie; "
            "expected 'playout' or 'critic'."
        )
    return Plan(recipe, sample.roles, seats, algorithm)


def _check_bot(key: str, name: str, recipe: Recipe) -> None:
    try:
        make_bot(name.removeprefix(BOT), recipe.env.name)
    except ConfigError as error:
        raise ConfigError(f"{key} is '{name}': {error}") from None


def _rewards_steps(env: envs.Env) -> bool:
    """Whether a first legal move earns anything but `illegal` before the end, or ends the episode."""
    seen = env.observe()
    rewards = env.step({role: (o.legal or ("",))[0] for role, o in seen.items()})
    return any(r.name != "illegal" for r in rewards) or not env.observe()
