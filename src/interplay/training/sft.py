"""A short imitation before reinforcement learning, of a bot or of recorded play: the same turns, the same batch code.

Each move becomes the reply that the policy in that seat should have given to the prompt it would have seen. A bot sits
in every seat; recorded play is read from `episodes.jsonl`, whoever played it. An adapter learns it as it learns
anything, or leaves it to the model under it: that one then stays in the run's folder, and is the base from there on.
Tools that were called are called again, in the form of the model that learns it; recorded calls stay as they were said,
unless that was another model's form.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interplay import envs
from interplay.agents.agent import LAST, Agent, ModelAgent, Relay, View, cut, replies
from interplay.agents.bots import Bot, make_bot
from interplay.agents.syntax import FORMS, Call, Malformed, checked
from interplay.agents.toolbox import Toolbox
from interplay.algorithms import credit
from interplay.config import WarmstartSection
from interplay.envs import Env
from interplay.errors import ConfigError, InterplayError, did_you_mean
from interplay.models.save import save
from interplay.rollout import records
from interplay.rollout.resolve import Plan, records_of
from interplay.rollout.team import Team
from interplay.seats.policy import BOT
from interplay.training.learner import Learner
from interplay.types import Episode, Keys, Message, Observation, Role, Tool, Turn, seed_of


@dataclass(frozen=True, slots=True)
class Called:
    """Tools used before a move: one call by a bot, which has no form yet, or a reply as it was recorded."""

    call: Call | None
    text: str = ""
    outputs: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """Who saw what at a decision, which tools it called, and what it said."""

    decision: int
    role: Role
    observation: Observation
    text: str
    calls: tuple[Called, ...] = ()


def demonstrations(plan: Plan, team: Team, section: WarmstartSection) -> dict[str, list[Turn]]:
    """The moves as turns, by the policy that would have made them; tool calls are turns of their own."""
    out: dict[str, list[Turn]] = defaultdict(list)
    tools = Toolbox()
    for name, moves in _bot_play(plan, section) if section.bot else _recorded_play(plan, section):
        agents = {role: team.agent(role, who, 1.0, 1) for role, who in plan.seats.items()}
        for move in moves:
            seated = agents[move.role]
            agent = seated.now if isinstance(seated, Relay) else seated
            view = seated.look(move.observation)
            turn = _turn(agent, view, move, f"{name}/{move.decision}{move.role}", tools)
            seated.commit(view, turn)
            if agent.trainable:
                out[agent.policy].extend(turn.whole)
    return out


def _bot_play(plan: Plan, section: WarmstartSection) -> Iterator[tuple[str, Iterator[Move]]]:
    bot = make_bot((section.bot or "").removeprefix(BOT), plan.recipe.env.name)
    for index in range(section.episodes):
        task = plan.task(index)
        rng = random.Random(seed_of("warmstart", plan.recipe.seed, index))
        yield task.id, _moves_of(bot, envs.make(task), rng)


def _moves_of(bot: Bot, env: Env, rng: random.Random) -> Iterator[Move]:
    """Each move before it is made: tools that it calls read the environment as it is then."""
    for decision in itertools.count():
        if not (seen := env.observe()):
            return
        actions = {role: bot.act(env, role, rng) for role in seen}
        for role, observation in seen.items():
            calls = [Called(_call(bot, role, *call, observation.tools)) for call in bot.calls(env, role)]
            yield Move(decision, role, observation, actions[role], tuple(calls))
        env.step(actions)


def _call(bot: Bot, role: Role, name: str, given: Mapping[str, Any], tools: Sequence[Tool]) -> Call:
    call = checked(name, given, tools)
    if isinstance(call, Malformed):
        raise ConfigError(f"warmstart.bot: bot '{bot.name}' as {role} in {bot.env_name} makes no call: {call.why}")
    return call


def _recorded_play(plan: Plan, section: WarmstartSection) -> Iterator[tuple[str, list[Move]]]:
    """What every role did in each whole episode; with `min_reward`, what those did that earned it."""
    path = records_of(section)
    may_call = bool(plan.recipe.tools.calls)
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
            yield f"{number}:{episode.id}", [m for m in _moves(episode, path, may_call) if m.role in good]
    if not found:
        raise ConfigError(f"warmstart.records: '{path}' holds no episode to imitate; lower warmstart.min_reward.")


def _moves(episode: Episode, path: Path, may_call: bool) -> list[Move]:
    """The line that was played; without `may_call` no tools are shown."""
    try:
        tools = _tools(episode) if may_call else {}
    except (InterplayError, LookupError) as error:  # its data or package is gone, or it has an option more by now
        why = f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else str(error)
        raise ConfigError(
            f"warmstart.records: episode {episode.id} of '{path}' cannot be played again, which shows what tools there "
            f"were ({why.rstrip('.')}); expected what it was played with, or tools.calls = 0."
        ) from None
    moves = []
    for t in episode.line():
        offered = tools.get((t.decision, t.role), ())
        if t.calls and may_call and not offered:
            raise ConfigError(
                f"warmstart.records: episode {episode.id} of '{path}' calls tools at decision {t.decision}, and played "
                f"again {episode.task.env} offers none there; expected records of this version of the environment."
            )
        observation = Observation(t.whole[0].messages, t.fresh, t.legal, t.keys.phase, offered)
        calls = tuple(Called(None, c.text, after.messages) for c, after in itertools.pairwise(t.whole))
        moves.append(Move(t.decision, t.role, observation, t.text, calls))
    return moves


def _tools(episode: Episode) -> dict[tuple[int, Role], tuple[Tool, ...]]:
    """What could be called at each decision. Records do not say: the task is played again, as far as it goes."""
    env, line = envs.make(episode.task), episode.line()
    last = max((t.decision for t in line), default=0)
    out: dict[tuple[int, Role], tuple[Tool, ...]] = {}
    for decision, turns in itertools.groupby(line, lambda t: t.decision):
        said, seen = {t.role: t.text for t in turns}, env.observe()
        if seen.keys() != said.keys():
            break
        out |= {(decision, role): observation.tools for role, observation in seen.items()}
        if decision < last:  # what only the end shows is not needed, and is often the dearest
            env.step(said)
    return out


def _turn(agent: Agent, view: View, move: Move, name: str, tools: Toolbox) -> Turn:
    """The move as the agent's own, after its calls."""
    if not isinstance(agent, ModelAgent):
        return _said(agent, view, move, move.text, name, agent.parent)
    calls: list[Turn] = []
    outputs: tuple[Message, ...] = ()
    left = agent.tools.calls if view.observation.tools else 0
    for text, wanted in itertools.chain.from_iterable(_replies(agent, view, called) for called in move.calls):
        if not left:
            break
        answers = [one if isinstance(one, str) else _used(agent, one, tools) for one in wanted[:left]]
        left -= len(answers)
        turn = _said(agent, view, move, text, name, calls[-1].id if calls else agent.parent, len(calls), outputs)
        outputs = replies(agent, answers, last=not left)
        calls.append(turn)
        view = agent.follow(view, turn, outputs)
    last = _said(agent, view, move, move.text, name, calls[-1].id if calls else agent.parent, len(calls), outputs)
    last.calls = tuple(calls)
    return last


def _replies(agent: ModelAgent, view: View, called: Called) -> Iterator[tuple[str, Sequence[str | Call]]]:
    """Replies that call, as this model would say them, each with what its calls were answered, or are yet to be."""
    syntax, tools = agent.renderer.syntax, view.observation.tools
    if called.call:
        yield syntax.write(called.call), [called.call]
        return
    answers = [m.content.removesuffix(LAST) for m in called.outputs]
    if syntax.calls(called.text, tools):
        yield called.text, answers
        return
    wanted = next((found for form in FORMS if (found := form.calls(called.text, tools))), [])
    for call, answer in zip(wanted, answers, strict=False):
        if isinstance(call, Call):  # a mistake in another model's form cannot be made in this one's
            yield syntax.write(call), [answer]


def _used(agent: ModelAgent, call: Call, tools: Toolbox) -> str:
    return cut(tools.use_now(call), agent.tools.characters)


def _said(
    agent: Agent, view: View, move: Move, text: str, name: str, parent: str | None, call: int = 0,
    outputs: tuple[Message, ...] = (),
) -> Turn:  # fmt: skip
    prompt = view.prompt
    action = agent.renderer.encode_reply(text) if isinstance(agent, ModelAgent) else ()
    digest = prompt.digest if prompt else ""
    keys = Keys(name, 0, name, move.decision, move.role, view.observation.phase, "", digest)
    return Turn(
        f"{name}.{call}" if call else name, parent, move.role, move.decision, keys, agent.policy, 0,
        prompt.ids if prompt else (), action, (0.0,) * len(action), text, call=call,
        merged=bool(prompt and prompt.merged), messages=outputs,
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
