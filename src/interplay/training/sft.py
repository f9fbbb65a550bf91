"""A short imitation of scripted play before reinforcement learning: the same turns, the same batch code.

The bot sits in every seat; each of its moves becomes the reply that the policy in that seat should have given to the
prompt it would have seen.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping

from interplay import envs
from interplay.agents.agent import ModelAgent, View
from interplay.agents.bots import make_bot
from interplay.config import WarmstartSection
from interplay.policies.policy import BOT
from interplay.rollout.resolve import Plan
from interplay.rollout.team import Team
from interplay.training.learner import Learner
from interplay.types import Keys, Turn, seed_of


def demonstrations(plan: Plan, team: Team, section: WarmstartSection) -> dict[str, list[Turn]]:
    """The bot's moves as turns, by the policy whose seat it held."""
    out: dict[str, list[Turn]] = defaultdict(list)
    bot = make_bot(section.bot.removeprefix(BOT), plan.recipe.env.name)
    for index in range(section.episodes):
        task = plan.task(index)
        env = envs.make(task)
        rng = random.Random(seed_of("warmstart", plan.recipe.seed, index))
        agents = {role: team.agent(role, who, 1.0, 1) for role, who in plan.seats.items()}
        decision = 0
        while seen := env.observe():
            actions = {role: bot.act(env, role, rng) for role in seen}
            for role, observation in seen.items():
                agent = agents[role]
                if isinstance(agent, ModelAgent):
                    view = agent.look(observation)
                    turn = _turn(agent, view, actions[role], f"{task.id}/{decision}{role}", decision)
                    agent.commit(view, turn)
                    if agent.trainable:
                        out[agent.policy].append(turn)
            env.step(actions)
            decision += 1
    return out


def _turn(agent: ModelAgent, view: View, text: str, name: str, decision: int) -> Turn:
    assert view.prompt is not None
    action = agent.renderer.encode_reply(text)
    keys = Keys(name, 0, name, decision, agent.role, view.observation.phase, "", view.prompt.digest)
    logprobs = (0.0,) * len(action)
    return Turn(
        name, agent.parent, agent.role, decision, keys, agent.policy, 0, view.prompt.ids, action, logprobs, text,
        merged=view.prompt.merged,
    )  # fmt: skip


def warmstart(
    plan: Plan, team: Team, learners: Mapping[str, Learner], section: WarmstartSection,
    report: Callable[[str, int, int, float], None],
) -> None:  # fmt: skip
    """Imitate, then give every learner a clean optimiser."""
    for name, turns in demonstrations(plan, team, section).items():
        learner = learners[name]
        learner.reset_optimizer(section.lr)
        order = list(range(len(turns)))
        batches = section.epochs * -(-len(turns) // section.batch)
        done = 0
        for epoch in range(section.epochs):
            random.Random(seed_of("warmstart", plan.recipe.seed, name, epoch)).shuffle(order)
            for start in range(0, len(order), section.batch):
                loss = learner.imitate([turns[i] for i in sorted(order[start : start + section.batch])])
                done += 1
                report(name, done, batches, loss)
        learner.reset_optimizer(plan.recipe.policies[name].lr or plan.recipe.train.lr)
