"""A recipe to checked parts, before anything heavy is imported: environment, seats, algorithm, plan. No torch.

Everything that can be refused without loading a model is refused here, with the key to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interplay import algorithms, envs
from interplay.agents.bots import make_bot
from interplay.algorithms import Algorithm, Tree
from interplay.config import START, TEAM, CurriculumSection, MatchupSection, Recipe
from interplay.errors import ConfigError, EnvError, did_you_mean
from interplay.policies.policy import BOT, seat_map
from interplay.rollout.curriculum import between
from interplay.types import Role, Task, seed_of


@dataclass(frozen=True)
class Plan:
    """What a recipe comes to."""

    recipe: Recipe
    roles: tuple[Role, ...]
    seats: dict[Role, str]
    algorithm: Algorithm

    def seats_for(self, task: Task, step: int = 0) -> dict[Role, str]:
        """Who sits where in the training episodes of a task: [seats], or one of the [[matchups]] by its share."""
        return self.matched(task, step)[1]

    def matched(self, task: Task, step: int) -> tuple[MatchupSection | None, dict[Role, str]]:
        """The matchup of a task, None where it is played with [seats], and the seats as they are written there."""
        draw = seed_of("matchup", self.recipe.seed, task.id) / 2**63
        for matchup in self.recipe.matchups:
            share = matchup.share_at(step)
            if draw < share:
                return matchup, self._seated(matchup, task)
            draw -= share
        return None, self.seats

    def _seated(self, matchup: MatchupSection, task: Task) -> dict[Role, str]:
        if matchup.one is None or matchup.others is None:
            return self.seats | matchup.seats
        mine = self.roles[seed_of("one", self.recipe.seed, task.id) % len(self.roles)]
        return {role: matchup.one if role == mine else matchup.others for role in self.roles}

    @property
    def snapshots(self) -> list[str]:
        """The policies that must be kept as they were when reinforcement learning began, as `name@start`."""
        named = {name for matchup in self.recipe.matchups for name in matchup.named.values()}
        league = self.recipe.league
        if self.algorithm.reference or league is not None:
            named |= {name + START for name in self.trainable}
        if league is not None and league.alarm is not None:
            named |= set(league.alarm.panel)
        return sorted(name for name in named if name.endswith(START))

    @property
    def trainable(self) -> list[str]:
        return [name for name, policy in self.recipe.policies.items() if policy.trainable]

    def task(self, index: int, split: str = "train", options: Mapping[str, Any] | None = None) -> Task:
        """Task number `index`; `options` go over those of [env]."""
        env = self.recipe.env
        return envs.sample_task(env.name, {**env.options, **(options or {})}, split, index, self.recipe.seed)


def resolve(recipe: Recipe) -> Plan:
    sample = envs.make(envs.sample_task(recipe.env.name, recipe.env.options, seed=recipe.seed))
    seats = seat_map(recipe.seats, sample.roles)
    for key, table in [("seats", seats), *((f"matchups.{i}.seats", m.seats) for i, m in enumerate(recipe.matchups))]:
        for role in table:
            if role not in sample.roles:
                raise ConfigError(f"{key}.{role} is no role of {recipe.env.name}; {did_you_mean(role, sample.roles)}")
    players = {f"seats.{role}": name for role, name in seats.items()}
    for i, matchup in enumerate(recipe.matchups):
        players |= {f"matchups.{i}.{key}": name for key, name in matchup.named.items()}
    if recipe.league is not None:
        alarm = recipe.league.alarm
        players |= {f"league.bots.{i}": name for i, name in enumerate(recipe.league.bots)}
        players |= {f"league.alarm.panel.{i}": name for i, name in enumerate(alarm.panel if alarm else ())}
    for key, name in players.items():
        if name.startswith(BOT):
            _check_bot(key, name, sample)
    for name in recipe.eval.opponents:
        if name == TEAM:
            if recipe.eval.success not in sample.reward_names:
                raise ConfigError(
                    f"eval.opponents has 'team', and eval.success is '{recipe.eval.success}'; expected a reward of "
                    f"{recipe.env.name}: {', '.join(sample.reward_names)}."
                )
        elif name.startswith(BOT):
            _check_bot("eval.opponents", name, sample)
        elif name not in recipe.policies:
            raise ConfigError(
                f"eval.opponents names '{name}'; expected bot:NAME or a policy, {did_you_mean(name, recipe.policies)}"
            )
    if recipe.eval.exploitability:
        _check_exploitable(recipe, seats, sample)
    if recipe.warmstart is not None:
        _check_bot("warmstart.bot", recipe.warmstart.bot, sample)
    algorithm = algorithms.make(recipe.algorithm, recipe.reward)
    if not any(not n.startswith(BOT) and recipe.policies[n].trainable for n in seats.values()):
        raise ConfigError(
            "no seat holds a trainable policy; expected at least one, set policies.NAME.trainable = true."
        )
    sampling = algorithm.plan
    if isinstance(sampling, Tree) and sampling.joint == "crossed":
        acting = [n for r, n in seats.items() if r in sample.observe() and n in recipe.policies]
        joints = sampling.candidates ** sum(recipe.policies[n].trainable for n in acting)
        if joints > 256:
            raise ConfigError(
                f"algorithm.joint is 'crossed' with {joints} joint actions per decision; expected at most 256, lower "
                "algorithm.candidates or take 'aligned'."
            )
    if isinstance(sampling, Tree) and sampling.continuation == "none" and not _rewards_steps(sample):
        raise ConfigError(
            f"algorithm.continuation is 'none', but {recipe.env.name} rewards only at the end, so all candidates tie; "
            "expected 'playout' or 'critic'."
        )
    plan = Plan(recipe, sample.roles, seats, algorithm)
    if recipe.curriculum is not None:
        _check_curriculum(plan, recipe.curriculum, sample)
    return plan


def _check_curriculum(plan: Plan, section: CurriculumSection, sample: envs.Env) -> None:
    if section.success not in sample.reward_names:
        raise ConfigError(
            f"curriculum.success is '{section.success}', which {sample.task.env} does not give; "
            f"{did_you_mean(section.success, sample.reward_names)}"
        )
    if section.kind == "replay" and section.score == "regret" and "values" not in plan.algorithm.needs:
        raise ConfigError(
            f"curriculum.score is 'regret', which needs a critic's values, and {plan.recipe.algorithm.name} has none; "
            "expected 'learnability', or an algorithm with a critic such as ppo."
        )
    sets: dict[str, Mapping[str, Any]] = {f"stages.{i}": stage for i, stage in enumerate(section.stages)}
    if section.easy:
        sets |= {f"easy to hard at difficulty {d}": between(section, d) for d in (0.0, 0.25, 0.5, 0.75, 1.0)}
    for key, options in sets.items():
        try:
            made = envs.make(plan.task(0, options=options))
        except ConfigError as error:
            raise ConfigError(f"curriculum.{key}: {error}") from None
        if made.roles != sample.roles:
            raise ConfigError(
                f"curriculum.{key} has the roles {', '.join(made.roles)}, [env] {', '.join(sample.roles)}; "
                "expected the same."
            )


def _check_exploitable(recipe: Recipe, seats: Mapping[Role, str], sample: envs.Env) -> None:
    if len(sample.roles) != 2 or not all(o.legal for o in sample.observe().values()):
        raise ConfigError(
            f"eval.exploitability is true, but {recipe.env.name} is no game for two that lists its legal actions; "
            "expected false."
        )
    for role, name in seats.items():
        if name not in recipe.policies:
            raise ConfigError(f"eval.exploitability is true, but seats.{role} is '{name}'; expected a policy.")


def _check_bot(key: str, name: str, env: envs.Env) -> None:
    try:
        make_bot(name.removeprefix(BOT), env.task.env).suits(env)
    except (ConfigError, EnvError) as error:
        raise ConfigError(f"{key} is '{name}': {error}") from None


def _rewards_steps(env: envs.Env) -> bool:
    """Whether first legal moves, one of each role, earn anything but `illegal` before the end, or end the episode."""
    moved: set[str] = set()
    while seen := env.observe():
        if moved.issuperset(env.roles) or not set(seen) - moved:
            return False
        moved |= set(seen)
        rewards = env.step({role: (o.legal or ("",))[0] for role, o in seen.items()})
        if any(r.name != "illegal" for r in rewards):
            return True
    return True
