"""Games that a person plays in the browser. They run on one event loop in a thread of their own; the newest checkpoint
of a run is loaded when its first game begins."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interplay import envs
from interplay.config import RewardSection, ToolSection
from interplay.errors import ConfigError, InterplayError, did_you_mean
from interplay.rollout.evolve import evolved
from interplay.rollout.guest import Guest, GuestGame, PersonsTools
from interplay.rollout.resolve import resolve
from interplay.seats import RunPlan
from interplay.types import Message, Observation, Rewards, Role
from interplay.viewer.episode import reward_rows
from interplay.viewer.library import Library
from interplay.viewer.run import RunReader

if TYPE_CHECKING:
    from interplay.rollout.team import Team

_GAMES = 20  # games that are kept


@dataclass
class BrowserGame:
    """A game as the page sees it. `waiting` is what the person must answer now."""

    id: str
    seats: dict[Role, str]
    weights: RewardSection
    tools: ToolSection
    log: list[dict[str, Any]] = field(default_factory=list)
    waiting: Observation | None = None
    over: bool = False
    state: str = ""
    rewards: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    answer: asyncio.Future[str] | None = None

    def to_json(self) -> dict[str, Any]:
        waiting = None if self.waiting is None else {"legal": list(self.waiting.legal)}
        return {
            "id": self.id, "seats": self.seats, "log": self.log, "waiting": waiting, "over": self.over,
            "state": self.state, "rewards": self.rewards, "error": self.error,
        }  # fmt: skip

    async def reply(self, observation: Observation) -> str:
        """Show an observation and wait for the person's move. A tool that the person calls is run first."""
        shown = [_shown(m) for m in observation.messages]
        tools = PersonsTools(observation, self.tools)
        if tools.told:
            shown.append(_shown(Message("system", tools.told)))
        self.log.append({"kind": "seen", "messages": shown})
        while True:
            self.answer = asyncio.get_running_loop().create_future()
            self.waiting = observation
            text = await self.answer
            outputs = tools.outputs(text)
            if not outputs:
                return text
            for output in outputs:
                self.log.append({"kind": "seen", "messages": [_shown(Message("tool", output))]})

    def heard(self, role: Role, text: str) -> None:
        self.log.append({"kind": "said", "role": role, "text": text})

    def rewarded(self, rewards: Rewards) -> None:
        if rows := self.rows(rewards):
            self.log.append({"kind": "rewards", "rewards": rows})

    def rows(self, rewards: Rewards) -> list[dict[str, Any]]:
        return reward_rows([[r.name, r.level.value, r.role, r.value] for r in rewards], self.weights)


def _shown(message: Message) -> dict[str, Any]:
    media = [{"kind": m.kind, "digest": m.digest} for m in message.media]
    return {"role": message.role, "content": message.content, "name": message.name, "calls": [], "media": media}


class Games:
    def __init__(self, library: Library) -> None:
        self.library = library
        self._games: dict[str, BrowserGame] = {}
        self._teams: dict[str, tuple[RunPlan, Team]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}  # games that are not over, by name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def begin(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a game of a run: `seat` is the person's role, `against` who takes the others."""
        run = self.library.run(str(given.get("run", "")))
        with self._lock:
            plan, team = self._team(run)
        role = str(given.get("seat") or plan.roles[0])
        if role not in plan.roles:
            raise ConfigError(f"the seat is '{role}'; {did_you_mean(role, plan.roles)}")
        seed, against = int(given.get("seed") or 0), str(given.get("against") or "")
        from interplay.rollout.team import Speech

        others = {r: plan.occupant(against) if against else who for r, who in plan.seats.items() if r != role}
        how = Speech(plan.recipe.eval.temperature, plan.recipe.sampling.max_tokens, plan.recipe.eval.legal)
        agents = {r: team.agent(r, who, how) for r, who in others.items()}
        seats = {r: "you" if r == role else str(others[r]) for r in plan.roles}
        shown = BrowserGame(secrets.token_urlsafe(8), seats, plan.recipe.reward, plan.recipe.tools)
        env = envs.make(plan.task(seed, "test"))
        played = GuestGame(env, role, others, agents, Guest(shown.reply, shown.heard, shown.rewarded))
        with self._lock:
            self._games[shown.id] = shown
            for old in list(self._games)[:-_GAMES]:
                del self._games[old]
        asyncio.run_coroutine_threadsafe(self._start(shown, played, seed), self._running()).result()
        return shown.to_json()

    async def _start(self, shown: BrowserGame, played: GuestGame, seed: int) -> None:
        for name in [name for name in self._tasks if name not in self._games]:  # nobody can continue them
            self._tasks[name].cancel()
        self._tasks[shown.id] = task = asyncio.create_task(_play(shown, played, seed))
        task.add_done_callback(lambda _: self._tasks.pop(shown.id))
        await asyncio.sleep(0.05)

    def show(self, name: str) -> dict[str, Any]:
        return self._game(name).to_json()

    def move(self, name: str, text: str) -> dict[str, Any]:
        game = self._game(name)
        waiting, answer = game.waiting, game.answer
        if waiting is None or answer is None:
            raise InterplayError("the game does not wait for you now.")
        if waiting.legal:
            legal = next((a for a in waiting.legal if a.lower() == text.strip().lower()), None)
            if legal is None:
                raise InterplayError(f"'{text}' is no legal move; choose from: {', '.join(waiting.legal)}.")
            text = legal
        game.waiting = None
        loop = self._running()
        own = next(r for r, who in game.seats.items() if who == "you")
        game.heard(own, text)
        loop.call_soon_threadsafe(answer.set_result, text)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.15), loop).result()
        return game.to_json()

    def _game(self, name: str) -> BrowserGame:
        if name not in self._games:
            raise InterplayError("this game is no longer there; begin a new one.")
        return self._games[name]

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True, name="interplay-games").start()
        return self._loop

    def _team(self, run: RunReader) -> tuple[RunPlan, Team]:
        """The newest checkpoint of a run, loaded."""
        from interplay.rollout.team import Team
        from interplay.training import checkpoint

        found = checkpoint.latest(run.folder / "checkpoints")
        if found is None or run.recipe is None:
            raise InterplayError(f"run '{run.key}' has no checkpoint yet; wait for its first one.")
        key = f"{run.key} {found.folder}"
        if key not in self._teams:
            for _, team in self._teams.values():
                team.close()
            self._teams.clear()
            plan = evolved(resolve(run.recipe, training=False), found.trainer)
            self._teams[key] = plan, Team(plan.recipe, {name: str(found.policy(name)) for name in plan.saved})
        return self._teams[key]

    def close(self) -> None:
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
        for _, team in self._teams.values():
            team.close()

    async def _end(self) -> None:
        """End the games that are not over."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _play(shown: BrowserGame, played: GuestGame, seed: int) -> None:
    """Play a game to its end. Whatever goes wrong is shown to the person."""
    try:
        if await played.play(seed):
            shown.rewards = shown.rows(await played.outcome())
            shown.state = played.env.state()
    except Exception as error:  # a game that failed is shown as such, and the viewer goes on
        shown.error = str(error) if isinstance(error, InterplayError) else f"{type(error).__name__}: {error}"
    finally:
        shown.over = True
