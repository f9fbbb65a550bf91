"""`interplay play`: a person plays one seat, and the players that the recipe names take the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from rich.console import Console

from interplay import envs
from interplay.agents.bots import make_bot
from interplay.cli.evaluate import newest, with_evolved
from interplay.cli.pictures import show
from interplay.cli.recipe import recipe_for
from interplay.config import ToolSection
from interplay.errors import ConfigError, InterplayError, counted, did_you_mean
from interplay.rollout.guest import Guest, GuestGame, PersonsTools
from interplay.rollout.resolve import resolve
from interplay.seats import RunPlan
from interplay.types import Observation, Occupant, Rewards, Role
from interplay.types.occupant import BOT

QUIT = ("q", "quit", "exit")


def play_game(
    console: Console, path: str, overrides: Sequence[str], seat: str | None, against: str | None, seed: int
) -> None:
    plan = with_evolved(path, resolve(recipe_for(path, overrides), training=False), None)
    role = seat or plan.roles[0]
    if role not in plan.roles:
        raise ConfigError(f"--seat is '{role}'; {did_you_mean(role, plan.roles)}")
    if against is not None and len(plan.roles) == 1:
        raise ConfigError(f"--against has no effect if '{role}' is the only role; leave --against out.")
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.rollout.team import Speech, Team

    team = Team(plan.recipe, newest(path, plan, None))
    if against is None and path == plan.recipe.env.name:  # no recipe says who else plays
        against = _strongest(plan)
    others = {r: plan.occupant(against) if against else who for r, who in plan.seats.items() if r != role}
    how = Speech(plan.recipe.eval.temperature, plan.recipe.sampling.max_tokens, plan.recipe.eval.legal)
    agents = {r: team.agent(r, who, how) for r, who in others.items()}
    env = envs.make(plan.task(seed, "test"))
    seating = "; ".join([f"You are {role}", ", ".join(f"{r} is {w}" for r, w in others.items())])
    console.print(f"{seating.removesuffix('; ')}. Type your move, or q to leave.", highlight=False, soft_wrap=True)

    async def game() -> None:
        played = GuestGame(env, role, others, agents, _on_the_terminal(console, others, plan.recipe.tools))
        if await played.play(seed):
            console.print(env.state(), highlight=False, markup=False)
            _tell(console, await played.outcome())

    try:
        asyncio.run(game())
    finally:
        team.close()


def _on_the_terminal(console: Console, others: Mapping[Role, Occupant], tools: ToolSection) -> Guest:
    async def reply(observation: Observation) -> str | None:
        return _ask(console, observation, tools)

    def heard(role: Role, text: str) -> None:
        console.print(f"{role} ({others[role]}): {text}", highlight=False, markup=False)

    return Guest(reply, heard, lambda rewards: _tell(console, rewards))


def _strongest(plan: RunPlan) -> str | None:
    """The first bot of this list, strongest first, that can play the game, or None."""
    env = envs.make(plan.task(0, "test"))
    for name in ("solver", "equilibrium", "alpha_beta", "hanabi", "expert", "greedy", "random"):
        with contextlib.suppress(InterplayError):
            make_bot(name, plan.recipe.env.name).suits(env)
            return BOT + name
    return None


def _ask(console: Console, observation: Observation, limits: ToolSection) -> str | None:
    """The person's move, or None if the person leaves. After an illegal move the person is asked again, which models
    are not. A free-text reply may have several lines. The person calls a tool with a line `@NAME argument`."""
    tools = PersonsTools(observation, limits)
    for message in observation.messages:
        console.print(message.content, highlight=False, markup=False, style="dim" if message.role == "system" else None)
        show(console, message.media)
    if not observation.legal:
        console.print("(end a line with \\ to go on in the next one)", highlight=False, markup=False, style="dim")
    if tools.told:
        console.print(tools.told, highlight=False, markup=False, style="dim")
    while True:
        try:
            reply = console.input("> ").strip()
            while reply.endswith("\\"):
                reply = reply[:-1].rstrip() + "\n" + console.input("| ").strip()
        except EOFError:
            return None
        if reply.lower() in QUIT:
            return None
        if outputs := tools.outputs(reply):
            for output in outputs:
                console.print(output, highlight=False, markup=False)
            console.print(f"({counted(tools.left, 'call')} left)", highlight=False, markup=False)
            continue
        if not observation.legal:
            return reply
        for action in observation.legal:
            if action.lower() == reply.lower():
                return action
        console.print(f"not a legal move; choose from: {', '.join(observation.legal)}", highlight=False, markup=False)


def _tell(console: Console, rewards: Rewards) -> None:
    for r in rewards:
        if r.value is not None:
            console.print(f"{r.role or 'team'}: {r.name} {r.value:+g}", highlight=False, markup=False)
