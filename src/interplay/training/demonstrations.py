"""Examples for imitation: moves of a bot or of recorded play, as replies of the policies that learn them.

Each move becomes the reply that the policy in that seat should give to the prompt that it would see. A bot plays all
seats. Recorded play is read from `episodes.jsonl`, no matter who played. If a bot calls tools, they are run, and the
calls are written in the format of the learning model. Recorded calls are kept as they are, unless they are in
another model's format.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interplay import envs
from interplay.agents.arguments import Call, Malformed, checked
from interplay.agents.bots import Bot, make_bot
from interplay.agents.calls import LAST, cut, replies
from interplay.agents.joined import with_vectors
from interplay.agents.model import ModelAgent
from interplay.agents.player import Agent, View
from interplay.agents.relay import Relay
from interplay.agents.syntax import FORMS
from interplay.agents.toolbox import Toolbox
from interplay.algorithms import credit
from interplay.config import WarmstartSection
from interplay.envs import Env
from interplay.errors import ConfigError, InterplayError, did_you_mean
from interplay.rollout import records
from interplay.rollout.records import Record
from interplay.rollout.resolve import records_of
from interplay.rollout.team import Speech, Team
from interplay.seats import RunPlan
from interplay.training.tries import Example
from interplay.types import Episode, Keys, Message, Observation, Pictured, Role, Sample, Tool, Turn, seed_of
from interplay.types.occupant import Scripted, parse_one

READ = "I see:"  # the prompt to which the caption is the reply; it is short in every tokenizer


@dataclass(frozen=True, slots=True)
class Called:
    """Tool use before a move: one call by a bot, not yet written as text, or a recorded reply and its outputs."""

    call: Call | None
    text: str = ""
    outputs: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What a role saw at a decision, which tools it called, and what it said."""

    decision: int
    role: Role
    observation: Observation
    text: str
    calls: tuple[Called, ...] = ()
    caption: str = ""  # what the role's pictures and sounds show, in words


def demonstrations(
    plan: RunPlan, team: Team, section: WarmstartSection, may_go_on: Callable[[], None] = lambda: None
) -> dict[str, list[Example]]:
    """The training examples of each policy: one for every move and one for every reply that calls a tool. `may_go_on`
    is called before every game, and may raise."""
    out: dict[str, list[Example]] = defaultdict(list)
    tools = Toolbox()
    for name, moves in _bot_play(plan, section) if section.bot else _recorded_play(plan, section):
        may_go_on()
        agents = {role: team.agent(role, who, Speech(1.0, 1)) for role, who in plan.seats.items()}
        for move in moves:
            seated = agents[move.role]
            agent = seated.now if isinstance(seated, Relay) else seated
            view = seated.look(with_vectors(agents, move.role, move.observation))
            turn = _turn(agent, view, move, f"{name}/{move.decision}{move.role}", tools)
            seated.commit(view, turn)
            if agent.trainable:
                out[agent.policy] += [Example(agent.policy, sample) for sample in turn.samples]
    return out


def readings(
    plan: RunPlan, team: Team, section: WarmstartSection, may_go_on: Callable[[], None] = lambda: None
) -> dict[str, list[Example]]:
    """Examples that teach each policy to describe pictures and sounds in words. They come from a bot's play, and equal
    ones are used once."""
    out: dict[str, dict[str, Example]] = defaultdict(dict)
    for name, moves in _bot_play(plan, section):
        may_go_on()
        agents = {role: team.agent(role, who, Speech(1.0, 1)) for role, who in plan.seats.items()}
        for move in moves:
            seated = agents[move.role]
            agent = seated.now if isinstance(seated, Relay) else seated
            if not isinstance(agent, ModelAgent) or not agent.trainable or not move.caption:
                continue
            shown = (m.only(agent.engine.capabilities.media) for m in move.observation.messages)
            media = tuple(itertools.chain.from_iterable(m.media for m in shown))
            asked = Observation((Message("user", READ, media=media),), fresh=True)
            view = agent.look(with_vectors({move.role: agent}, move.role, asked))
            if media and view.prompt is not None:
                sample = _sample(agent, view, move.caption, f"{name}/read{move.decision}{move.role}", ())
                out[agent.policy].setdefault(view.prompt.digest, Example(agent.policy, sample))
    return {policy: list(examples.values()) for policy, examples in out.items()}


def _bot_play(plan: RunPlan, section: WarmstartSection) -> Iterator[tuple[str, Iterator[Demonstration]]]:
    who = parse_one(section.bot or "")
    assert isinstance(who, Scripted)  # checked when the recipe was resolved
    bot = make_bot(who.bot, plan.recipe.env.name)
    for index in range(section.episodes):
        task = plan.task(index)
        rng = random.Random(seed_of("warmstart", plan.recipe.seed, index))
        yield task.id, _moves_of(bot, envs.make(task), rng)


def _moves_of(bot: Bot, env: Env, rng: random.Random) -> Iterator[Demonstration]:
    """Yield each move before the environment is stepped, so that its tools read the state before the move."""
    for decision in itertools.count():
        if not (seen := envs.seen_now(env)):
            return
        actions = {role: bot.act(env, role, rng) for role in seen}
        for role, observation in seen.items():
            calls = [Called(_call(bot, role, *call, observation.tools)) for call in bot.calls(env, role)]
            yield Demonstration(decision, role, observation, actions[role], tuple(calls), env.caption(role))
        env.step(actions)


def _call(bot: Bot, role: Role, name: str, given: Mapping[str, Any], tools: Sequence[Tool]) -> Call:
    call = checked(name, given, tools)
    if isinstance(call, Malformed):
        raise ConfigError(
            f"warmstart.bot: the tool call of bot '{bot.name}' as {role} in {bot.env_name} is malformed: {call.why}"
        )
    return call


def _recorded_play(plan: RunPlan, section: WarmstartSection) -> Iterator[tuple[str, list[Demonstration]]]:
    """The moves of each episode without an error; with `min_reward`, only of roles that earned at least that."""
    path = records_of(section)
    may_call = bool(plan.recipe.tools.calls)
    found = 0
    for number, record in enumerate(records.read(path)):
        episode = record.episode
        if found == section.episodes:
            break
        if episode.error is not None:
            continue
        for role in episode.seats:
            if role not in plan.roles:
                raise ConfigError(
                    f"warmstart.records: '{path}' has the role '{role}', which {plan.recipe.env.name} does not have; "
                    f"{did_you_mean(role, plan.roles)}"
                )
        least, weights = section.min_reward, plan.recipe.reward
        good = {r for r in episode.seats if least is None or credit.mix(episode.rewards, r, weights) >= least}
        if good:
            found += 1
            yield f"{number}:{episode.id}", [m for m in _moves(record, path, may_call) if m.role in good]
    if not found:
        raise ConfigError(f"warmstart.records: '{path}' holds no episode to imitate; lower warmstart.min_reward.")


def _moves(record: Record, path: Path, may_call: bool) -> list[Demonstration]:
    """The moves of the played line; without `may_call`, no tools are offered."""
    episode, tools = record.episode, _tools_of(record, path) if may_call else {}
    moves = []
    for t in episode.line():
        offered = tools.get((t.decision, t.role), ())
        if len(t.samples) > 1 and may_call and not offered:
            raise ConfigError(
                f"warmstart.records: episode {episode.id} of '{path}' calls tools at decision {t.decision}, but "
                f"{episode.task.env} offers no tools at this decision when the episode is played again; expected "
                "records of this version of the environment."
            )
        calls = tuple(Called(None, c.text, after.messages) for c, after in itertools.pairwise(t.samples))
        moves.append(Demonstration(t.decision, t.role, replace(t.observation, tools=offered), t.text, calls))
    return moves


def _tools_of(record: Record, path: Path) -> dict[tuple[int, Role], tuple[Tool, ...]]:
    """The tools offered at each decision. Early records do not have them, so their task is played again."""
    episode = record.episode
    if record.schema > 0:
        return {(t.decision, t.role): t.observation.tools for t in episode.line()}
    try:
        return _tools(episode)
    except (InterplayError, LookupError) as error:  # data or a package is missing, or options have changed
        why = f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else str(error)
        raise ConfigError(
            f"warmstart.records: the tools of episode {episode.id} of '{path}' are not recorded, and the episode "
            f"cannot be played again to find them ({why.rstrip('.')}); restore what it was played with, or set "
            "tools.calls = 0."
        ) from None


def _tools(episode: Episode) -> dict[tuple[int, Role], tuple[Tool, ...]]:
    """Play the recorded actions again and collect the tools; stop where other roles act than in the record."""
    env, line = envs.make(episode.task), episode.line()
    last = max((t.decision for t in line), default=0)
    out: dict[tuple[int, Role], tuple[Tool, ...]] = {}
    for decision, turns in itertools.groupby(line, lambda t: t.decision):
        said, seen = {t.role: t.text for t in turns}, envs.seen_now(env)
        if seen.keys() != said.keys():
            break
        out |= {(decision, role): observation.tools for role, observation in seen.items()}
        if decision < last:  # the last step is not needed, and is often the slowest
            env.step(said)
    return out


def _turn(agent: Agent, view: View, move: Demonstration, name: str, tools: Toolbox) -> Turn:
    """The move as a turn of the agent, after its tool calls."""
    samples: list[Sample] = []
    digest = view.prompt.digest if view.prompt else ""
    if isinstance(agent, ModelAgent):
        outputs: tuple[Message, ...] = ()
        left = agent.tools.calls if view.observation.tools else 0
        for text, wanted in itertools.chain.from_iterable(_replies(agent, view, called) for called in move.calls):
            if not left:
                break
            answers = [one if isinstance(one, str) else _used(agent, one, tools) for one in wanted[:left]]
            left -= len(answers)
            samples.append(_sample(agent, view, text, _numbered(name, len(samples)), outputs))
            outputs = replies(agent, answers, last=not left)
            view = agent.follow(view, samples[-1], outputs)
        samples.append(_sample(agent, view, move.text, _numbered(name, len(samples)), outputs))
    keys = Keys(name, 0, name, move.decision, move.role, view.observation.phase, "", digest)
    last = samples[-1].id if samples else name
    return Turn(last, agent.parent, keys, agent.policy, move.text, move.observation, tuple(samples))


def _numbered(name: str, call: int) -> str:
    return f"{name}.{call}" if call else name


def _sample(agent: ModelAgent, view: View, text: str, name: str, outputs: tuple[Message, ...]) -> Sample:
    """A reply that the agent should give, in its own tokens."""
    prompt = view.prompt
    assert prompt is not None
    action = agent.renderer.encode_reply(text)
    size = len(action)
    return Sample(
        name, prompt.ids, action, (0.0,) * size, (0,) * size, text, media=prompt.media, extends=prompt.extends,
        messages=outputs,
    )  # fmt: skip


def _replies(agent: ModelAgent, view: View, called: Called) -> Iterator[tuple[str, Sequence[str | Call]]]:
    """Replies with tool calls in this model's format, each with the recorded answers, or with calls still to be run."""
    syntax, tools = agent.renderer.syntax, view.observation.tools
    if called.call:
        yield syntax.write(called.call), [called.call]
        return
    answers = [Pictured(m.content.removesuffix(LAST), m.media) for m in called.outputs]
    if syntax.calls(called.text, tools):
        yield called.text, answers
        return
    wanted = next((found for form in FORMS if (found := form.calls(called.text, tools))), [])
    for call, answer in zip(wanted, answers, strict=False):
        if isinstance(call, Call):  # a malformed call of another format cannot be translated
            yield syntax.write(call), [answer]


def _used(agent: ModelAgent, call: Call, tools: Toolbox) -> str:
    return cut(tools.use_now(call), agent.tools.characters)
