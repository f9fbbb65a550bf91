"""A short imitation before reinforcement learning, of a bot or of recorded play: the same turns, the same batch code.

Each move becomes the reply that the policy in that seat should have given to the prompt it would have seen. A bot sits
in every seat; recorded play is read from `episodes.jsonl`, whoever played it. An adapter learns it as it learns
anything, or leaves it to the model under it: that one then stays in the run's folder, and is the base from there on.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from interplay import envs
from interplay.agents.agent import Agent, ModelAgent, Relay, View
from interplay.agents.bots import make_bot
from interplay.algorithms import credit
from interplay.config import WarmstartSection
from interplay.errors import ConfigError, did_you_mean
from interplay.policies.model import save
from interplay.policies.policy import BOT
from interplay.rollout import records
from interplay.rollout.resolve import Plan, records_of
from interplay.rollout.team import Team
from interplay.training.learner import Learner
from interplay.types import Keys, Observation, Role, Turn, seed_of

Move = tuple[int, Role, Observation, str]  # the decision, who saw what, and what it said


def demonstrations(plan: Plan, team: Team, section: WarmstartSection) -> dict[str, list[Turn]]:
    """The moves as turns, by the policy that would have made them."""
    out: dict[str, list[Turn]] = defaultdict(list)
    for name, moves in _bot_play(plan, section) if section.bot else _recorded_play(plan, section):
        agents = {role: team.agent(role, who, 1.0, 1) for role, who in plan.seats.items()}
        for decision, role, observation, text in moves:
            seated = agents[role]
            agent = seated.now if isinstance(seated, Relay) else seated
            view = seated.look(observation)
            turn = _turn(agent, role, view, text, f"{name}/{decision}{role}", decision)
            seated.commit(view, turn)
            if agent.trainable:
                out[agent.policy].append(turn)
    return out


def _bot_play(plan: Plan, section: WarmstartSection) -> Iterator[tuple[str, list[Move]]]:
    bot = make_bot((section.bot or "").removeprefix(BOT), plan.recipe.env.name)
    for index in range(section.episodes):
        task = plan.task(index)
        env = envs.make(task)
        rng = random.Random(seed_of("warmstart", plan.recipe.seed, index))
        moves: list[Move] = []
        decision = 0
        while seen := env.observe():
            actions = {role: bot.act(env, role, rng) for role in seen}
            moves += [(decision, role, observation, actions[role]) for role, observation in seen.items()]
            env.step(actions)
            decision += 1
        yield task.id, moves


def _recorded_play(plan: Plan, section: WarmstartSection) -> Iterator[tuple[str, list[Move]]]:
    """What every role did in each whole episode; with `min_reward`, what those did that earned it."""
    path = records_of(section)
    found = 0
    for number, episode in enumerate(records.read(path)):
        if found == section.episodes:
            break
        if episode.error is not None:
            continue
        for role in episode.seats:
            if role not in plan.roles:
                raise ConfigError(
                    f"warmstart.records: '{path}' has the role '{role}', which is none of {plan.recipe.env.name}; "
                    f"{did_you_mean(role, plan.roles)}"
                )
        least, weights = section.min_reward, plan.recipe.reward
        good = {r for r in episode.seats if least is None or credit.mix(episode.rewards, r, weights) >= least}
        if good:
            found += 1
            yield (
                f"{number}:{episode.id}",
                [
                    (t.decision, t.role, Observation(t.messages, t.fresh, t.legal, t.keys.phase), t.text)
                    for t in episode.line()
                    if t.role in good
                ],
            )
    if not found:
        raise ConfigError(f"warmstart.records: '{path}' holds no episode to imitate; lower warmstart.min_reward.")


def _turn(agent: Agent, role: Role, view: View, text: str, name: str, decision: int) -> Turn:
    prompt = view.prompt
    action = agent.renderer.encode_reply(text) if isinstance(agent, ModelAgent) else ()
    keys = Keys(name, 0, name, decision, role, view.observation.phase, "", prompt.digest if prompt else "")
    return Turn(
        name, agent.parent, role, decision, keys, agent.policy, 0, prompt.ids if prompt else (), action,
        (0.0,) * len(action), text, merged=bool(prompt and prompt.merged),
    )  # fmt: skip


def warmstart(
    plan: Plan, team: Team, learners: Mapping[str, Learner], section: WarmstartSection, folder: Path,
    report: Callable[[str, int, int, float], None],
) -> dict[str, str]:  # fmt: skip
    """Imitate, then give every learner a clean optimiser. With `base`, adapters leave it to the model under them, which
    is saved in `folder`; returns where each such policy's base is now."""
    turns = demonstrations(plan, team, section)
    moved: dict[str, str] = {}
    by_model: dict[int, list[str]] = defaultdict(list)
    for name in turns:
        if section.base and learners[name].adapter is not None:
            by_model[id(learners[name].model)].append(name)
        else:
            _imitate(learners[name], turns[name], section, plan.recipe.seed, report)
            learners[name].reset_optimizer(learners[name].config.lr)
    for names in by_model.values():
        loaded = team.members[names[0]].loaded
        loaded.model.requires_grad_(True)
        whole = Learner("base", loaded.model, plan.recipe.train, section.lr, plan.recipe.seed)
        _imitate(whole, [t for n in names for t in turns[n]], section, plan.recipe.seed, report)
        loaded.model.requires_grad_(False)
        where = folder.resolve() / plan.recipe.policies[names[0]].base.strip("/.~").replace("/", "--")
        save(loaded, where)
        loaded.model.config.name_or_path = str(where)  # what adapters call their base
        moved |= {n: str(where) for n, m in team.members.items() if m.loaded is loaded}
    return moved


def _imitate(
    learner: Learner, turns: Sequence[Turn], section: WarmstartSection, seed: int,
    report: Callable[[str, int, int, float], None],
) -> None:  # fmt: skip
    learner.reset_optimizer(section.lr)
    order = list(range(len(turns)))
    batches = section.epochs * -(-len(turns) // section.batch)
    done = 0
    for epoch in range(section.epochs):
        random.Random(seed_of("warmstart", seed, learner.name, epoch)).shuffle(order)
        for start in range(0, len(order), section.batch):
            loss = learner.imitate([turns[i] for i in sorted(order[start : start + section.batch])])
            done += 1
            report(learner.name, done, batches, loss)
