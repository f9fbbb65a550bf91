"""Turn a recipe into a checked plan: environment, seats, algorithm. Does not import torch or other heavy packages.

Every error that can be found without loading a model is reported here, with the key to change.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interplay import algorithms, envs
from interplay.agents.bots import make_bot
from interplay.algorithms import Tree
from interplay.algorithms.credit import SHAPED
from interplay.config import TEAM, CurriculumSection, Recipe, WarmstartSection
from interplay.config.judges import SCORING
from interplay.errors import ConfigError, EnvError, counted, did_you_mean
from interplay.registry import imported
from interplay.rollout.curriculum import between
from interplay.rollout.evolve import make_evolution
from interplay.rollout.placement import check_engine, check_shard
from interplay.rollout.sight import check_senses
from interplay.rollout.wiring import check_channels
from interplay.seats import (
    ByTurn,
    Occupant,
    Policy,
    RunPlan,
    Scripted,
    everyone,
    parse_one,
    per_role,
)
from interplay.types import Role, seed_of

_TRIED, _LONG = 8, 1000  # games for counting turns, and the most turns in one


def resolve(recipe: Recipe, training: bool = True) -> RunPlan:
    """Return the plan, or raise a ConfigError. Without `training`, no policy needs to be trainable or to have a
    seat."""
    if training:
        recipe.refuse_unseated()
    with recipe.env.explained("env"):
        sample = envs.make(envs.sample_task(recipe.env.name, recipe.env.options, seed=recipe.seed))
    recipe = per_role(recipe, sample.roles)
    with recipe.algorithm.explained("algorithm"):
        algorithm = algorithms.make(recipe.algorithm, recipe.reward, recipe.seed)
    plan = RunPlan.make(recipe, sample.roles, algorithm)
    check_senses(plan, sample, training)
    _check_players(plan, sample)
    _check_eval(plan, sample)
    _check_warmstart(recipe, sample)
    _check_best(recipe)
    if training and not plan.learning:
        raise ConfigError(
            "no seat holds a trainable policy; expected at least one. Set policies.NAME.trainable = true."
        )
    steps = recipe.train.steps
    if training and steps and not any(plan.updated(step) for step in range(steps)):
        raise ConfigError(
            f"every trainable policy is frozen in all {steps} steps of train.steps, so nothing would be learned; "
            "expected policies.NAME.frozen to leave out some steps, or use interplay eval."
        )
    _check_algorithm(plan, sample)
    _check_stream(plan)
    _check_judges(plan, sample)
    _check_choosing(plan)
    counted = recipe.train.budget_policy
    if counted is not None and counted not in plan.trainable:
        raise ConfigError(f"train.budget_policy is '{counted}'; {did_you_mean(counted, plan.trainable)}")
    check_shard(plan)
    check_engine(plan)
    check_channels(plan, training)
    _check_weights(recipe, sample)
    make_evolution(plan)
    if recipe.curriculum is not None:
        _check_curriculum(plan, recipe.curriculum, sample)
    return plan


def records_of(section: WarmstartSection) -> Path:
    """The file of recorded play to imitate."""
    path = Path(section.records or "").expanduser()
    return path / "episodes.jsonl" if path.is_dir() else path


def _check_players(plan: RunPlan, sample: envs.Env) -> None:
    """Check that every player in [seats], a matchup or the league can play this environment."""
    tables = {"seats": plan.seats, **{f"matchups.{i}.seats": m.seats for i, m in enumerate(plan.matchups)}}
    for key, table in tables.items():
        _check_turns(plan.recipe, key, table)
        for role, occupant in table.items():
            for who in everyone(occupant):
                _check_bot(f"{key}.{role}", who, sample)
    players: dict[str, Occupant | None] = {}
    for i, matchup in enumerate(plan.matchups):
        players |= {f"matchups.{i}.one": matchup.one, f"matchups.{i}.others": matchup.others}
    if (league := plan.recipe.league) is not None:
        players |= {f"league.bots.{i}": plan.occupant(name) for i, name in enumerate(league.bots)}
        players |= {f"league.alarm.panel.{i}": who for i, who in enumerate(plan.panel)}
    for key, player in players.items():
        if player is not None:
            _check_bot(key, player, sample)


def _check_eval(plan: RunPlan, sample: envs.Env) -> None:
    recipe = plan.recipe
    for name in recipe.eval.opponents:
        if name == TEAM:
            if recipe.eval.success not in sample.reward_names:
                named = f": {', '.join(sample.reward_names)}" if sample.reward_names else ", but it lists no rewards"
                raise ConfigError(
                    f"eval.opponents has 'team', but eval.success is '{recipe.eval.success}'; expected the name of a "
                    f"reward of {recipe.env.name}{named}."
                )
        elif isinstance(who := plan.occupant(name), Scripted):
            _check_bot("eval.opponents", who, sample)
        elif name not in recipe.policies:
            raise ConfigError(
                f"eval.opponents names '{name}'; expected bot:NAME or the name of a policy, "
                f"{did_you_mean(name, recipe.policies)}"
            )
    if recipe.eval.exploitability:
        _check_exploitable(plan, sample)


def _check_warmstart(recipe: Recipe, sample: envs.Env) -> None:
    section = recipe.warmstart
    if section is None:
        return
    if section.bot is not None:
        _check_bot("warmstart.bot", parse_one(section.bot), sample)
    elif not records_of(section).is_file():
        raise ConfigError(
            f"warmstart.records is '{section.records}', but there are no episodes; expected an episodes.jsonl or a run "
            "folder."
        )


def _check_best(recipe: Recipe) -> None:
    """Check that `checkpoint.best` names a metric of the short evaluations only if they are run."""
    rates = ("win_rate", "draw_rate", "reward", "illegal")
    measured = [f"eval/{what}/{name}" for what in rates for name in recipe.eval.opponents[:1]]
    best = recipe.checkpoint.best or ""
    if best.startswith("eval/") and (best not in measured or not recipe.eval.every):
        raise ConfigError(
            f"checkpoint.best is '{best}' with eval.every = {recipe.eval.every}; expected a metric of the short "
            f"evaluations, and their interval in eval.every; {did_you_mean(best, measured)}"
        )


def _check_algorithm(plan: RunPlan, sample: envs.Env) -> None:
    """Check that environment and recipe offer what the algorithm needs. This plays a few moves of `sample`."""
    recipe, algorithm = plan.recipe, plan.algorithm
    sampling = algorithm.plan
    if isinstance(sampling, Tree) and recipe.env.name == "program":
        from interplay.envs.programs.program import OutsideProgram

        assert isinstance(sample, OutsideProgram)
        sample.refuse_replays()
    if isinstance(sampling, Tree) and sampling.joint == "crossed":
        joints = sampling.candidates ** sum(role in plan.learning for role in envs.seen_now(sample))
        if joints > 256:
            raise ConfigError(
                f"algorithm.joint is 'crossed' with {joints} joint actions per decision; expected at most 256. Lower "
                "algorithm.candidates, or set joint = 'aligned'."
            )
    now = isinstance(sampling, Tree) and sampling.continuation in ("none", "round")
    if isinstance(sampling, Tree) and now and not recipe.judges and not _rewards_steps(sample):
        raise ConfigError(
            f"algorithm.continuation is '{sampling.continuation}', but {recipe.env.name} gives rewards only at the "
            "end, so all candidates would have the same return; expected 'playout' or 'critic'."
        )
    if isinstance(sampling, Tree) and sampling.by_worth and not sampling.shows_own:
        _check_needs_no_own_play(recipe, sampling)
    if "legal" in algorithm.needs and not recipe.sampling.legal:
        raise ConfigError(
            f"{recipe.algorithm.name} trains every legal reply (algorithm.actor = 'gumbel'), so only legal replies may "
            "be sampled; expected sampling.legal = true, or algorithm.actor = 'score'."
        )


def _check_needs_no_own_play(recipe: Recipe, sampling: Tree) -> None:
    """Refuse curriculum and league: they need what the policy itself earns, which this tree does not show."""
    for section, given in (("curriculum", recipe.curriculum), ("league", recipe.league)):
        if given is not None:
            raise ConfigError(
                f"[{section}] needs to know what the policy itself earns, but algorithm.keep is '{sampling.keep}' with "
                f"algorithm.continuation = '{sampling.continuation}'. The line that is played is then better than the "
                "policy, by an unknown amount; expected keep = 'uniform' or 'first', or continuation = 'playout'."
            )


def _check_stream(plan: RunPlan) -> None:
    stream, settings, replicas = plan.recipe.stream, plan.algorithm.settings, plan.algorithm.plan.replicas
    if stream.min_group > replicas:
        raise ConfigError(
            f"stream.min_group is {stream.min_group}, but {plan.recipe.algorithm.name} plays {replicas} episodes of "
            f"each task; expected at most {replicas}."
        )
    if stream.max_staleness and settings.correction == "none":
        raise ConfigError(
            f"stream.max_staleness is {stream.max_staleness}, so older weights than the trained ones may sample "
            "replies, but algorithm.correction is 'none'; expected 'tis' or 'icepop'."
        )
    if stream.max_staleness and stream.deterministic:
        raise ConfigError(
            f"stream.deterministic is true, but with stream.max_staleness = {stream.max_staleness} the samples depend "
            "on when the weights change; expected max_staleness = 0, or deterministic to be left out."
        )


def _check_turns(recipe: Recipe, key: str, table: Mapping[Role, Occupant]) -> None:
    """A role that has seats only for single turns needs one for every turn. Check this with a few games of random play.
    A turn without a player would stop the run later."""
    few = {r: len(who.takers) for r, who in table.items() if isinstance(who, ByTurn) and not who.always}
    for index in range(_TRIED if few else 0):
        env = envs.make(envs.sample_task(recipe.env.name, recipe.env.options, "train", index, recipe.seed))
        rng = random.Random(seed_of("turns", recipe.seed, index))
        turns: Counter[Role] = Counter()
        while (seen := envs.seen_now(env)) and turns.total() < _LONG:
            turns.update(seen.keys())
            env.step({role: rng.choice(o.legal or ("",)) for role, o in seen.items()})
        for role, count in few.items():
            if turns[role] > count:
                raise ConfigError(
                    f"{key} names {counted(count, 'turn')} of {role}, but {role} can have {turns[role]} "
                    f"turns; expected {key}.{role}, or every turn up to {role}@{turns[role]}."
                )


def _check_curriculum(plan: RunPlan, section: CurriculumSection, sample: envs.Env) -> None:
    if section.success not in sample.reward_names:
        raise ConfigError(
            f"curriculum.success is '{section.success}', which {sample.task.env} does not give; "
            f"{did_you_mean(section.success, sample.reward_names)}"
        )
    if section.kind == "replay" and section.score == "regret" and "values" not in plan.algorithm.needs:
        raise ConfigError(
            f"curriculum.score is 'regret', which needs the values of a critic, but {plan.recipe.algorithm.name} has "
            "no critic; expected 'learnability', or an algorithm with a critic such as ppo."
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
                f"curriculum.{key} has the roles {', '.join(made.roles)}, but [env] has {', '.join(sample.roles)}; "
                "expected the same roles."
            )


def _check_choosing(plan: RunPlan) -> None:
    """With best_of, a policy draws several replies and uses the best one. Check that a judge can score them, and that
    some policy is not trained."""
    recipe = plan.recipe
    scoring = [name for name, judge in recipe.judges.items() if judge.kind in SCORING]
    for key, count, by in (
        ("sampling", recipe.sampling.best_of, recipe.sampling.best_by),
        ("eval", recipe.eval.best_of, recipe.eval.best_by),
    ):
        if (count > 1 or by is not None) and by not in scoring:
            said = "not set" if by is None else f"'{by}'"
            raise ConfigError(
                f"{key}.best_of is {count}, but {key}.best_by is {said}; expected a judge of kind reward_model, "
                f"verifier or function, {did_you_mean(by or '', scoring)}"
            )
    frozen = [name for name, policy in recipe.policies.items() if not policy.trainable]
    if recipe.sampling.best_of > 1 and not frozen:
        raise ConfigError(
            f"sampling.best_of is {recipe.sampling.best_of}, but every policy is trained, and training needs the "
            "policy's own samples; expected eval.best_of, or a policy with trainable = false."
        )


def _check_judges(plan: RunPlan, sample: envs.Env) -> None:
    names = sample.reward_names
    for name, judge in plan.recipe.judges.items():
        if name in (*names, *SHAPED):
            raise ConfigError(f"judges.{name} has the same name as another reward; expected a different name.")
        if judge.kind == "function":
            imported(f"judges.{name}.who", judge.who)
        for component in judge.components:
            if component not in names:
                raise ConfigError(
                    f"judges.{name} reads gold:{component}, which {sample.task.env} does not give; "
                    f"{did_you_mean(component, names)}"
                )
        for role in judge.roles:
            if role not in plan.roles:
                raise ConfigError(f"judges.{name}.roles has '{role}'; {did_you_mean(role, plan.roles)}")
        sampling = plan.algorithm.plan
        if isinstance(sampling, Tree) and judge.scope != "reply":
            raise ConfigError(
                f"judges.{name}.scope is '{judge.scope}', but {plan.recipe.algorithm.name} compares the replies to one "
                "prompt; expected scope = 'reply'."
            )
        alone = not isinstance(sampling, Tree) and sampling.replicas == 1
        if judge.against == "group" and alone:
            raise ConfigError(
                f"judges.{name}.against is 'group', but {plan.recipe.algorithm.name} plays only one episode of each "
                "task; expected several episodes of each task, or against = 'reference' or POLICY@start."
            )


def _check_weights(recipe: Recipe, env: envs.Env) -> None:
    """Refuse weights of unknown rewards, which would have no effect."""
    given = [*env.reward_names, *recipe.judges, *SHAPED]
    for name in recipe.reward.weights:
        if name not in given:
            raise ConfigError(
                f"reward.weights.{name} is not a reward of {env.task.env} or of an algorithm; "
                f"{did_you_mean(name, given)}"
            )


def _check_exploitable(plan: RunPlan, sample: envs.Env) -> None:
    recipe = plan.recipe
    if len(sample.roles) != 2 or not all(o.legal for o in envs.seen_now(sample).values()):
        raise ConfigError(
            f"eval.exploitability is true, but {recipe.env.name} is not a two-player game that lists its legal "
            "actions; expected false."
        )
    for role, who in plan.seats.items():
        if not isinstance(who, Policy):  # a remote model gives no probabilities of legal replies
            raise ConfigError(f"eval.exploitability is true, but seats.{role} is '{who}'; expected a local policy.")


def _check_bot(key: str, who: Occupant, env: envs.Env) -> None:
    """Check that a bot can play this environment. Other players are checked elsewhere."""
    if not isinstance(who, Scripted):
        return
    envs.seen_now(env)  # an error of the environment itself is not the bot's
    try:
        make_bot(who.bot, env.task.env).suits(env)
    except (ConfigError, EnvError) as error:
        raise ConfigError(f"{key} is '{who}': {error}") from None


def _rewards_steps(env: envs.Env) -> bool:
    """Play the first legal move once for each role. Whether that gives a reward other than `illegal`, or ends the
    episode."""
    moved: set[str] = set()
    while seen := envs.seen_now(env):
        if moved.issuperset(env.roles) or not set(seen) - moved:
            return False
        moved |= set(seen)
        rewards = env.step({role: (o.legal or ("",))[0] for role, o in seen.items()})
        if any(r.name != "illegal" for r in rewards):
            return True
    return True
