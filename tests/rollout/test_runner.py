"""Playing many episodes with one sample per role and decision: rewards, limits, failures, determinism."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import fake_time
import pytest

from interplay.algorithms import Independent, Tree
from interplay.config import RolloutSection
from interplay.envs import Env
from interplay.errors import EngineError, LimitError
from interplay.rollout import line
from interplay.rollout.records import to_json
from interplay.types import Episode, Keys, Level, Message, Observation, Reward, Rewards, Role, Status, Stop, Task, Turn

# X takes the upper row: 1, 2, 3; O answers 4, 5.
ROW = {0: "1", 1: "4", 2: "2", 3: "5", 4: "3"}


def by_decision(moves: dict[int, str]) -> Callable[[Any], str]:
    return lambda call: moves[call.decision]


def without_times(episodes: list[Episode]) -> list[dict[str, Any]]:
    out = []
    for episode in episodes:
        data = to_json(episode)
        for part in [data, *(s for t in data["turns"] for s in t["samples"])]:
            del part["seconds"]
        out.append(data)
    return out


# -- rewards ----------------------------------------------------------------------------------------------------------


def test_rewards_go_to_each_roles_latest_turn(table: Any) -> None:
    """The loser's last turn gets its −1, although the winner's move decided the game."""
    (episode,) = table(by_decision(ROW)).play()
    assert [t.text for t in episode.turns] == ["1", "4", "2", "5", "3"]
    assert [t.role for t in episode.turns] == ["X", "O", "X", "O", "X"]
    wins = [[(r.name, r.value) for r in t.rewards] for t in episode.turns]
    assert wins == [[], [], [], [("win", -1.0)], [("win", 1.0)]]
    assert episode.rewards == Rewards.agent("win", {"X": 1.0, "O": -1.0})
    assert (episode.error, episode.truncated) == (None, False)
    assert episode.final_state.endswith("X won")


def test_an_illegal_move_is_an_outcome_with_its_reward(table: Any) -> None:
    """Promise 7: what the policy caused is not an error. O plays on a taken cell and forfeits."""
    (episode,) = table(by_decision({0: "1", 1: "1"})).play()
    first, second = episode.turns
    assert second.status is Status.ILLEGAL and first.status is Status.OK
    assert [(r.name, r.level, r.value) for r in second.rewards] == [
        ("illegal", Level.PROCESS, -1.0),
        ("win", Level.AGENT, -1.0),
    ]
    assert [(r.name, r.value) for r in first.rewards] == [("win", 1.0)]
    assert episode.error is None


def test_a_reply_that_was_cut_off_says_so(table: Any) -> None:
    """Its status is LENGTH and its text is played unchanged, even if the environment then refuses it."""
    (episode,) = table(by_decision({**ROW, 1: "1"}), stop=Stop.LENGTH).play()
    assert [(t.status, t.illegal) for t in episode.turns] == [(Status.LENGTH, False), (Status.LENGTH, True)]


def test_roles_that_act_at_once_are_one_decision(table: Any) -> None:
    """Prisoner's dilemma, two rounds: both replies belong to one decision, and each gets its own payoff."""
    said = {(0, "p0"): "cooperate", (0, "p1"): "defect", (1, "p0"): "defect", (1, "p1"): "defect"}
    (episode,) = table(lambda c: said[c.decision, c.role], env="matrix", options={"rounds": 2}).play()
    assert [(t.decision, t.role, t.text) for t in episode.turns] == [(d, r, s) for (d, r), s in said.items()]
    assert [[r.value for r in t.rewards] for t in episode.turns] == [[0.0], [5.0], [1.0], [1.0]]


def test_a_conversation_keeps_the_ids_it_was_sampled_with(table: Any) -> None:
    """Promise 1 through rollout: the next prompt extends prompt + action token for token."""
    (episode,) = table(lambda c: "cooperate", env="matrix", options={"rounds": 3}).play()
    for role in ("p0", "p1"):
        line = episode.line(role)
        assert [t.parent for t in line] == [None, line[0].id, line[1].id]
        assert [t.last.extends for t in line] == [None, line[0].last.id, line[1].last.id]
        for before, after in itertools.pairwise(t.last for t in line):
            said = before.prompt + before.action
            assert after.prompt[: len(said)] == said and len(after.prompt) > len(said)


class Relay(Env):
    """a and b speak in turn. `goal` is the team's reward, given with the last word; `tip` is b's, given on a's move."""

    reward_names = ("goal", "tip")
    roles = ("a", "b")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said: list[str] = []

    def observe(self) -> dict[Role, Observation]:
        if len(self.said) >= 3:
            return {}
        role = self.roles[len(self.said) % 2]
        return {role: Observation((Message("user", f"{self.said}"),), fresh=True, phase=f"part {len(self.said)}")}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        self.said.append(text)
        return Rewards.process("tip", {"b": 0.5}) if role == "a" and len(self.said) > 1 else Rewards()

    def outcome(self) -> Rewards:
        return Rewards.team("goal", 2.0)

    def state(self) -> str:
        return " ".join(self.said)


def test_the_teams_reward_reaches_every_roles_latest_turn(table: Any, known_as: Any) -> None:
    """A process reward for b that arrives on a's move belongs to b's last turn."""
    (episode,) = table(lambda c: "yes", env=known_as("relay", Relay)).play()
    goal, tip = Reward("goal", Level.TEAM, None, 2.0), Reward("tip", Level.PROCESS, "b", 0.5)
    assert [t.rewards.records for t in episode.turns] == [(), (tip, goal), (goal,)]


class Outside(Relay):
    """Waits for something outside before each observation, and for its final rewards, which name their turns."""

    ready = False

    async def settle(self) -> None:
        await asyncio.sleep(0)
        self.ready = True

    def observe(self) -> dict[Role, Observation]:
        assert self.ready, "observe() was called before settle() had ended"
        return super().observe()

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.ready = False
        return super().step(actions)

    async def outcome(self) -> Rewards:  # type: ignore[override]
        await asyncio.sleep(0)
        first = Reward("tip", Level.PROCESS, "a", 3.0, turn=0)
        both = Reward("goal", Level.TEAM, None, 7.0, turn=1)
        return Rewards((first, both, Reward("tip", Level.PROCESS, "a", 5.0)))


@pytest.mark.parametrize("plan", [Independent(), Tree(2, "playout", playouts=1)], ids=["line", "tree"])
def test_an_environment_may_wait_and_its_late_rewards_may_name_their_turns(
    table: Any, known_as: Any, plan: Any
) -> None:
    """`settle` is awaited before every `observe`, also in playouts, and `outcome` may be async. A reward that names a
    decision goes to the role's turn there, one of the team to each role's latest turn up to it, and one that names none
    to the role's latest turn."""
    (episode,) = table(lambda c: f"yes{c.candidate}", env=known_as("outside", Outside), plan=plan).play()
    assert episode.error is None
    line = [t for t in episode.turns if t.kept and t.playout is None]
    assert [t.role for t in line] == ["a", "b", "a"]
    found = [[(r.name, r.value) for r in t.rewards] for t in line]
    assert found == [[("tip", 3.0), ("goal", 7.0)], [("tip", 0.5), ("goal", 7.0)], [("tip", 5.0)]]


class Hindsight(Relay):
    """What a says last decides what its first turn is worth; the reward comes with that move, or at the end."""

    at_the_end = False

    def _late(self) -> Rewards:
        return Rewards((Reward("tip", Level.PROCESS, "a", float(self.said[2][-1]), turn=0),))

    def step(self, actions: dict[Role, str]) -> Rewards:
        found = super().step(actions)
        return found if self.at_the_end or len(self.said) < 3 else found + self._late()

    def outcome(self) -> Rewards:
        return super().outcome() + self._late() if self.at_the_end else super().outcome()


@pytest.mark.parametrize("continuation", ["playout", "none"])
@pytest.mark.parametrize("at_the_end", [False, True], ids=["with the move", "at the end"])
def test_a_reward_that_names_an_earlier_turn_is_no_part_of_a_candidates_worth(
    table: Any, known_as: Any, monkeypatch: pytest.MonkeyPatch, at_the_end: bool, continuation: Any
) -> None:
    monkeypatch.setattr(Hindsight, "at_the_end", at_the_end)
    plan = Tree(2, continuation, playouts=1)
    (episode,) = table(lambda c: f"yes{c.candidate}", env=known_as("hindsight", Hindsight), plan=plan).play()
    last = [t for t in episode.turns if t.decision == 2 and t.outlook is not None]
    assert len(last) == 2 and all(all(r.turn is None for r in t.outlook.rewards) for t in last if t.outlook)
    first = [t for t in episode.line("a") if t.decision == 0]
    assert [r.name for r in first[0].rewards] == ["tip"], "the turn that it names gets it"


class Repaid(Relay):
    """Four moves; each move of a brings a reward of 3 for a's first turn."""

    def observe(self) -> dict[Role, Observation]:
        role = self.roles[len(self.said) % 2]
        return {role: Observation((Message("user", f"{self.said}"),), fresh=True)} if len(self.said) < 4 else {}

    def step(self, actions: dict[Role, str]) -> Rewards:
        first = Reward("tip", Level.PROCESS, "a", 3.0, turn=0)
        return super().step(actions) + (Rewards((first,)) if "a" in actions else Rewards())


class Listening:
    """A critic that notes what it is told that the step of each kept turn paid."""

    def __init__(self) -> None:
        self.paid: list[tuple[int, Role, list[float | None]]] = []

    def arrived(self, role: Role, env: Env, turn: Turn, rewards: Rewards) -> None:
        self.paid.append((turn.decision, role, [r.value for r in rewards.of(role)]))

    async def value(self, role: Role, env: Env, turn: Turn) -> float:
        return 0.0


def test_a_critic_is_not_told_of_rewards_that_name_an_earlier_turn(table: Any, known_as: Any) -> None:
    """Its target is the return of the turn less what the step paid, and this return does not hold them."""
    critic = Listening()
    plan = Tree(2, "critic")
    (episode,) = table(lambda c: f"yes{c.candidate}", env=known_as("repaid", Repaid), plan=plan, critic=critic).play()
    assert episode.error is None
    assert critic.paid == [(0, "a", [3.0]), (1, "b", []), (2, "a", [])]


def test_turns_are_stamped_when_they_are_sampled(table: Any, known_as: Any, renderer: Any) -> None:
    """Keys hold task, replica, episode, decision, role, phase and the hash of the exact prompt."""
    game = table(lambda c: "yes", env=known_as("relay", Relay), plan=Independent(2))
    episode = game.play()[1]
    second = episode.turns[1]
    digest = renderer.prompt((Message("user", "['yes']"),)).digest
    assert second.keys == Keys(episode.task.id, 1, episode.id, 1, "b", "part 1", "", digest)
    assert second.asked == renderer.prompt((Message("user", "['yes']"),)).ids


def test_bots_play_without_tokens(table: Any) -> None:
    (episode,) = table(lambda c: c.choose(c.free), seats={"O": "bot:first"}).play()
    bot = [t for t in episode.turns if t.role == "O"]
    assert bot and all(t.policy == "bot:first" and not t.is_model and t.samples == () for t in bot)
    assert {role: str(who) for role, who in episode.seats.items()} == {"X": "player", "O": "bot:first"}


# -- limits -----------------------------------------------------------------------------------------------------------


def test_the_token_limit_truncates(table: Any) -> None:
    """Every reply here has two tokens, so a limit of 4 ends the game after two moves; this is not an error."""
    (episode,) = table(by_decision(ROW), limits=RolloutSection(max_episode_tokens=4)).play()
    assert [t.text for t in episode.turns] == ["1", "4"]
    assert episode.truncated and episode.error is None
    assert episode.rewards == Rewards.agent("win", {"X": 0.0, "O": 0.0})


def test_an_engine_that_never_answers_is_an_error_of_the_episode(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy does not cause the wall-clock limit: it is a typed error, and the other episode is not delayed."""
    monkeypatch.setattr(line, "time", SimpleNamespace(monotonic=lambda: 0.0))  # what this machine takes does not count
    game = table(
        lambda c: ROW[c.decision],
        limits=RolloutSection(max_episode_seconds=2),
        patience=lambda c: 60.0 if c.task.endswith("-0") and c.decision == 2 else 0.0,
        run=fake_time.run,
    )
    stuck, fine = game.play(2)
    assert stuck.error is not None and stuck.error.startswith("LimitError: ")
    assert "rollout.max_episode_seconds (2)" in stuck.error
    assert [t.text for t in stuck.turns] == ["1", "4"]
    assert fine.error is None and len(fine.turns) == 5


class Slow(Relay):
    """Each step seems to take eleven seconds: the test adds `late` to the clock."""

    late = 0.0

    def step(self, actions: dict[Role, str]) -> Rewards:
        Slow.late += 11.0
        return super().step(actions)


def test_a_slow_environment_is_stopped_between_decisions(
    table: Any, known_as: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slow, "late", 0.0)
    monkeypatch.setattr(line, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + Slow.late))
    (episode,) = table(
        lambda c: "yes", env=known_as("slow", Slow), limits=RolloutSection(max_episode_seconds=10)
    ).play()
    assert episode.error is not None and episode.error.startswith("LimitError: the episode ran longer")
    assert len(episode.turns) == 1


class Waiting(Relay):
    """Its steps wait for each other: they only continue if two of them run at once."""

    slow = True
    together = threading.Barrier(2, timeout=60)

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.together.wait()
        return super().step(actions)


class WaitingAtTheEnd(Relay):
    """The same for what an episode is worth at its end: the query of `sql` runs then."""

    slow = True
    together = threading.Barrier(2, timeout=60)

    def outcome(self) -> Any:
        self.together.wait()
        return super().outcome()


@pytest.mark.parametrize("kind", [Waiting, WaitingAtTheEnd])
def test_other_episodes_go_on_while_an_environment_waits(table: Any, known_as: Any, kind: type[Relay]) -> None:
    episodes = table(lambda c: "yes", env=known_as("waiting", kind), plan=Independent(2)).play()
    assert [e.error for e in episodes] == [None, None]


# -- failures ---------------------------------------------------------------------------------------------------------


def test_an_engine_failure_is_a_typed_error_on_its_episode(table: Any) -> None:
    """Promise 7: there is no empty action, no zero reward and no invented sample; other episodes are not affected."""

    def script(call: Any) -> str | Exception:
        return (
            EngineError("the server is gone.")
            if call.task.endswith("-1") and call.decision == 2
            else ROW[call.decision]
        )

    episodes = table(script).play(3)
    assert [e.error for e in episodes] == [None, "EngineError: the server is gone.", None]
    failed = episodes[1]
    assert [t.text for t in failed.turns] == ["1", "4"]
    assert all(t.text and not t.rewards for t in failed.turns) and not failed.rewards
    assert [len(e.turns) for e in episodes] == [5, 2, 5]


class Broken(Relay):
    """Fails at the point that its task names."""

    where = "step"

    def _fail(self, here: str) -> None:
        if here == self.where and self.task.id.endswith("-1"):
            raise RuntimeError("boom")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._fail("init")

    def observe(self) -> dict[Role, Observation]:
        self._fail("observe")
        return super().observe()

    def step(self, actions: dict[Role, str]) -> Rewards:
        self._fail("step")
        return super().step(actions)

    def outcome(self) -> Rewards:
        self._fail("outcome")
        return super().outcome()


@pytest.mark.parametrize("where", ["init", "observe", "step", "outcome"])
def test_an_environments_bug_stays_in_its_episode(table: Any, known_as: Any, where: str) -> None:
    """A third-party environment must not end the run: the error names it and what it raised."""
    cls = type("Broken", (Broken,), {"where": where})
    episodes = table(lambda c: "yes", env=known_as("broken", cls)).play(3)
    assert [e.error is None for e in episodes] == [True, False, True]
    assert re.fullmatch(
        rf"EnvError: RuntimeError in broken: boom \({re.escape(__file__)}:\d+\)", episodes[1].error or ""
    )
    assert [len(e.turns) for e in episodes][::2] == [3, 3]


def test_nothing_is_left_in_flight_when_one_of_several_roles_fails(table: Any) -> None:
    """p0's engine fails at once while p1's still works: the episode ends when both have ended."""

    def script(call: Any) -> str | Exception:
        return EngineError("gone.") if call.role == "p0" else "defect"

    game = table(script, env="matrix", patience=lambda c: 0.0 if c.role == "p0" else 0.05)
    (episode,) = game.play()
    assert episode.error == "EngineError: gone."


# -- order and determinism --------------------------------------------------------------------------------------------


def test_replicas_come_in_order_and_differ(table: Any) -> None:
    """`replicas` whole episodes of each task, by (task, replica), each with its own random numbers."""
    game = table(lambda c: c.choose(c.free), plan=Independent(3))
    episodes = game.play(2)
    tasks = [game.task(i).id for i in range(2)]
    assert [e.id for e in episodes] == [f"{t}#{r}" for t in tasks for r in range(3)]
    assert [(e.task.id, e.replica) for e in episodes] == [(t, r) for t in tasks for r in range(3)]
    assert len({tuple(t.text for t in e.turns) for e in episodes}) > 1
    assert len({t.id for e in episodes for t in e.turns}) == sum(len(e.turns) for e in episodes)


def test_two_runs_are_identical(table: Any) -> None:
    """Whatever the timing: one at a time, all at once, or with replies in another order."""
    settings = [
        {},
        {"limits": RolloutSection(concurrency=1)},
        {"patience": lambda c: 0.002 * (c.seed % 3)},
    ]
    runs = [
        without_times(table(lambda c: c.choose(c.free), seats={"O": "bot:random"}, plan=Independent(2), **s).play(3))
        for s in settings
    ]
    assert runs[0] == runs[1] == runs[2]
    other = table(lambda c: c.choose(c.free), seats={"O": "bot:random"}, plan=Independent(2), seed=1).play(3)
    assert without_times(other) != runs[0]


def test_concurrency_is_a_limit(table: Any) -> None:
    most = 0

    def script(call: Any) -> str:
        nonlocal most
        most = max(most, game.engine.in_flight)
        return ROW[call.decision]

    game = table(script, limits=RolloutSection(concurrency=2))
    assert all(e.error is None for e in game.play(6))
    assert most == 2


def test_collections_are_rare_while_episodes_run_and_as_before_after(table: Any) -> None:
    """Also if another run begins before this one ends, and ends after it."""
    before, seen = gc.get_threshold(), []
    begun, release = threading.Event(), threading.Event()

    def waiting(call: Any) -> str:
        begun.set()
        release.wait(60)
        return call.free[0]

    def script(call: Any) -> str:
        seen.append(gc.get_threshold()[0])
        return call.free[0]

    other = threading.Thread(target=table(waiting).play)
    other.start()
    assert begun.wait(60)
    table(script).play()
    seen.append(gc.get_threshold()[0])
    release.set()
    other.join()
    assert min(seen) >= 100_000 > before[0] and gc.get_threshold() == before


def test_the_caller_is_told_about_every_episode(table: Any) -> None:
    """Progress bars count failed episodes too."""
    seen: list[str] = []
    game = table(lambda c: EngineError("gone.") if c.task.endswith("-0") else ROW[c.decision])
    game.play(3, done=lambda e: seen.append(e.id))
    assert sorted(seen) == [f"{game.task(i).id}#0" for i in range(3)]


def test_pauses_do_not_count_for_the_time_limit_of_an_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those before the episode nor those in it change how long it may run."""
    pause: Any = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(line, "time", SimpleNamespace(monotonic=lambda: 1_000.0))
    ledger = line.Ledger(RolloutSection(max_episode_seconds=10), pause)
    monkeypatch.setattr(line, "time", SimpleNamespace(monotonic=lambda: 1_059.0))
    with pytest.raises(LimitError, match=r"rollout\.max_episode_seconds \(10\)"):
        ledger.check_time()
    pause.seconds = 150.0
    ledger.check_time()
    monkeypatch.setattr(line, "time", SimpleNamespace(monotonic=lambda: 1_061.0))
    with pytest.raises(LimitError):
        ledger.check_time()
