"""An outside program as an environment: any program that asks models and ends with a result.

`observe()` gives the calls that wait, one for each role, and `step()` answers them. When the program has ended, a
function of the user computes the rewards from its result. A fork is a replay: the program runs again from its start and
gets the same answers (`replay.py`). If several calls of one role wait, they are answered one after another, in an order
that does not depend on which came first.

Rewards: those named in `rewards`, from the function `reward(task, result)`, or `reward(task, result, calls)` with every
question and its answer; `crashed` if the reply of a policy made the program crash.

If a program crashes after a reply, or runs too long, it is replayed once. If the replay crashes in the same way, the
reply caused the crash, and the team gets the reward `crashed`. Any other failure (a crash before the first call,
another crash or none in the replay) is a failure of the system: the episode is dropped and counted.
"""

from __future__ import annotations

import inspect
import math
import sys
import weakref
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any, ClassVar, Self

from interplay.config import Section
from interplay.envs.env import Env, register
from interplay.envs.programs import attach, ending
from interplay.envs.programs.coroutine import CoroutineRun, How
from interplay.envs.programs.counts import CRASHED, count, crash_line
from interplay.envs.programs.effects import EffectLog
from interplay.envs.programs.options import OutsideOptions
from interplay.envs.programs.process import LENT, ProcessRun
from interplay.envs.programs.replay import Answered, Decided, answer_again, begun, expect
from interplay.envs.programs.rows import row
from interplay.envs.programs.run import Inquiry, ProgramCrash, ProgramRun, Reply
from interplay.errors import ConfigError, EnvError, InterplayError, ReplayError
from interplay.registry import imported
from interplay.types import Observation, Rewards, Role, Spoken, Task, Turn

ROW = "row"  # the key in a task's data that holds its row


@dataclass(frozen=True, slots=True)
class ProgramTurn:
    """One call for the reward: what was asked, what was answered, and at which decision."""

    role: Role
    question: Inquiry
    reply: Spoken
    decision: int


class Asking(Env):
    """The base class of environments in which a program asks the roles. Subclasses define how a run begins."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._run: ProgramRun | None = None
        self._record: tuple[Decided, ...] = ()
        self._told = 0  # decisions of the record whose answers the run has got
        self._settled = False
        self._now: dict[Role, Inquiry] = {}
        self._crash: ProgramCrash | None = None
        self.log = EffectLog()  # what the program's tools did; the next run is started with it

    @abstractmethod
    def start(self) -> ProgramRun:
        """A new run of the program."""

    @abstractmethod
    def rewarded(self, result: Any, calls: list[ProgramTurn]) -> Rewards | Awaitable[Rewards]: ...

    blame: str = "replay"
    crashed: float = -0.1
    effects: bool = False  # tools have side effects that are not recorded

    # -- waiting for the program ----------------------------------------------------------------------------------

    async def settle(self) -> None:
        while not self._settled:
            run = self._begun()
            await run.settle()
            if self._goes_on(run):
                continue
            again = self._again(run)
            while again is not None:
                await again.settle()
                again = self._compared(again)
            self._settled = True

    def settle_now(self) -> None:
        """Does nothing: without an event loop, `observe` waits."""

    def observe(self) -> dict[Role, Observation]:
        while not self._settled:  # called without an event loop
            run = self._begun()
            run.settle_now()
            if self._goes_on(run):
                continue
            again = self._again(run)
            while again is not None:
                again.settle_now()
                again = self._compared(again)
            self._settled = True
        return {role: Observation(q.messages, fresh=True, phase=q.phase, call=q.call) for role, q in self._now.items()}

    def _begun(self) -> ProgramRun:
        if self._run is None:
            if self._record:
                self.refuse_replays()
                begun()
            self.log.replaying = bool(self._record)
            self._run = self._started()
        return self._run

    def _started(self) -> ProgramRun:
        """A new run. It is closed when this environment is not used any more."""
        run = self.start()
        expect(run, self._record, 0)
        weakref.finalize(self, ending.later, run.close)
        ending.begin()
        return run

    def refuse_replays(self) -> None:
        """Raise if the program must not be replayed."""
        if self.effects:
            raise ConfigError(
                "the program declares env.program.effects = true, so that it must not be replayed, but a tree of "
                "candidates replays it; expected a plan of independent episodes, or tools whose results are recorded "
                "and env.program.recorded = true."
            )

    def _goes_on(self, run: ProgramRun) -> bool:
        """Give the run the next recorded answers and return True. If it has got all of them, note which calls wait and
        return False."""
        if self.log.diverged:
            count("diverged")
            raise ReplayError(f"a replay diverged: it calls {self.log.diverged}, which was not called before.")
        if self._told < len(self._record):
            if run.crash is not None:  # before it got all answers; `_again` finds out who caused it
                self._told, self._now = len(self._record), {}
                return False
            if run.ended:
                raise EnvError(f"a replay ended early, after {self._told} of {len(self._record)} decisions.")
            self.log.replaying = self._told + 1 < len(self._record)
            answer_again(run, self._record, self._told)
            self._told += 1
            return True
        now: dict[Role, Inquiry] = {}
        for question in run.waiting if len(run.waiting) < 2 else sorted(run.waiting, key=lambda q: q.digest):
            if question.role not in self.roles:
                raise EnvError(f"the program asks '{question.role}'; expected one of {', '.join(self.roles)}.")
            now.setdefault(question.role, question)
        self._now = {role: now[role] for role in self.roles if role in now}
        return False

    # -- who caused a crash ---------------------------------------------------------------------------------------

    def _again(self, run: ProgramRun) -> ProgramRun | None:
        """If the run has crashed, start another one, to see whether it crashes again."""
        crash = run.crash
        if crash is None:
            return None
        if not self._record:
            raise EnvError(f"the program crashed before it asked anything: {crash} {crash_line(crash.signature)}")
        if self.blame != "replay" or self.effects or crash.machinery:
            raise EnvError(f"the program crashed: {crash} {crash_line(crash.signature)}")
        self._crash, self._told = crash, 0
        self.log = EffectLog(self.log.done, replaying=True)
        count("blame")
        return self._started()

    def _compared(self, again: ProgramRun) -> ProgramRun | None:
        """Give the replay the answers of one more decision. When it has ended: return None if it crashed in the same
        way, otherwise raise."""
        assert self._crash is not None
        if self._told < len(self._record) and not again.ended:
            answer_again(again, self._record, self._told)
            self._told += 1
            return again
        same = again.crash is not None and again.crash.signature == self._crash.signature
        again.close()
        if not same:
            what = f"{self._crash} {crash_line(self._crash.signature)}"
            raise EnvError(f"the program crashed, but not again when it got the same answers: {what}")
        count("crashed")
        return None

    # -- playing --------------------------------------------------------------------------------------------------

    def step(self, actions: dict[Role, str]) -> Rewards:
        return self.say({role: Spoken(text) for role, text in actions.items()})

    def say(self, spoken: Mapping[Role, Spoken]) -> Rewards:
        """Like `step`, with replies that may call the program's tools."""
        return self._decide({role: Reply(one) for role, one in spoken.items()})

    def act(self, turns: Mapping[Role, Turn]) -> Rewards:
        return self._decide({role: Reply.of(turn) for role, turn in turns.items()})

    def _decide(self, answers: Mapping[Role, Reply]) -> Rewards:
        if not self._now:
            self.observe()
        if missing := self._now.keys() ^ answers.keys():
            raise EnvError(
                f"{', '.join(sorted(missing))} got no answer, or did not wait for one; expected an answer for each "
                "role that waits."
            )
        decided = tuple(Answered(self._now[role], answers[role]) for role in self._now)
        if self._run is not None and self._told == len(self._record):  # the run waits for these answers, so give them
            for one in decided:
                self._run.answer(one.question, one.answer)
            self._told += 1
        self._record += (decided,)
        self._settled, self._now = False, {}
        return Rewards()

    def outcome(self) -> Rewards | Awaitable[Rewards]:
        run = self._run
        if self._crash is not None:
            return Rewards.team(CRASHED, self.crashed)
        if run is None or not run.ended:  # truncated
            self.close()
            return Rewards()
        return self.rewarded(run.result, self.calls)

    @property
    def waiting(self) -> dict[Role, Inquiry]:
        """The calls that `observe` shows, as the program made them."""
        return dict(self._now)

    @property
    def calls(self) -> list[ProgramTurn]:
        """Every call that was answered, in order."""
        return [
            ProgramTurn(a.question.role, a.question, a.answer.spoken, n)
            for n, decided in enumerate(self._record)
            for a in decided
        ]

    def state(self) -> str:
        lines = [f"{c.role}: {c.reply.content}" for c in self.calls]
        if self._crash is not None:
            lines += [str(self._crash), crash_line(self._crash.signature)]
        return "\n".join(lines)

    def fork(self, seed: int | None = None) -> Self:
        twin = type(self)(self.task)
        twin._record, twin._now = self._record, self._now
        twin.log = EffectLog(self.log.done)
        return twin

    def close(self) -> None:
        if self._run is not None:
            self._run.close()


def _users(key: str, name: str) -> Callable[..., Any]:
    """Import a function of the user into this process. Its module may be the program's own, so it can import what
    programs can."""
    if str(LENT) not in sys.path:
        sys.path.append(str(LENT))
    try:
        return imported(key, name)
    except ConfigError as error:
        raise ConfigError(
            f"{error} The trainer calls it, under its own Python. If its module needs packages that only the program "
            "has (env.program.python), move the function to a module without them."
        ) from None


@lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> int:
    return len(inspect.signature(function).parameters)


@register("program")
class OutsideProgram(Asking):
    Options: ClassVar[type[Section]] = OutsideOptions

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        known = {key: value for key, value in task.data.items() if key != ROW}
        self.options = OutsideOptions.model_validate(known)
        self.roles = tuple(self.options.roles)
        self.alone = False  # run in a process that has had no other run, whatever `keep` says
        how = self.options.program
        self.blame, self.crashed, self.effects = how.blame, how.crashed, how.effects and not how.recorded

    @property
    def reward_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.options.rewards, CRASHED)

    @classmethod
    def make_task(cls, name: str, split: str, index: int, seed: int, options: Mapping[str, Any]) -> Task:
        task = super().make_task(name, split, index, seed, options)
        data = str(options.get("data") or "")
        found = row(data, split, seed, index) if data else {"index": index, "seed": task.seed, "split": split}
        return Task(task.id, name, task.seed, {**options, ROW: found})

    def start(self) -> ProgramRun:
        options = self.options
        if options.reward:
            _users("env.reward", options.reward)  # what cannot be imported is told before the program has run
        if options.coroutine:
            team = _users("env.coroutine", options.coroutine)
            only = {role: route.only for role, route in options.route.items() if route.only}
            way = options.program
            how = How(way.seconds, way.history, only, self.log, way.names)
            return CoroutineRun(team, self.task.data[ROW], how)
        if options.attach:
            attach.prepare(options)
            return attach.AttachedRun(options, self.task.data[ROW], self.task.seed, self.log)
        alone = self.alone or self._crash is not None  # what an earlier run left behind must not crash a replay again
        return ProcessRun(options, self.task.data[ROW], self.task.seed, self.log, alone)

    def rewarded(self, result: Any, calls: list[ProgramTurn]) -> Rewards | Awaitable[Rewards]:
        if not self.options.reward:  # a service posted its rewards
            return self._rewards(result)
        function = _users("env.reward", self.options.reward)
        given = [self.task.data[ROW], result]
        if _parameters(function) > 2:
            given.append(calls)
        with self._rewarding():
            found = function(*given)
        if inspect.isawaitable(found):
            return self._awaited(found)
        return self._rewards(found)

    async def _awaited(self, waiting: Awaitable[Any]) -> Rewards:
        with self._rewarding():
            found = await waiting
        return self._rewards(found)

    @contextmanager
    def _rewarding(self) -> Iterator[None]:
        """An error of the user's function fails its episode."""
        try:
            yield
        except InterplayError:
            raise
        except (Exception, SystemExit) as error:  # the function may raise anything
            raise EnvError(f"env.reward '{self.options.reward}' failed with {ProgramCrash.of(error)}.") from error

    @property
    def _rewarder(self) -> str:
        return self.options.reward or "the service"

    def _rewards(self, found: Any) -> Rewards:
        names = self.options.rewards
        if isinstance(found, Real):  # numbers of NumPy too
            found = Rewards.team(names[0], float(found))
        if isinstance(found, Mapping):
            try:
                found = sum((Rewards.team(n, None if v is None else float(v)) for n, v in found.items()), Rewards())
            except (TypeError, ValueError):
                raise EnvError(f"{self._rewarder} gave {dict(found)!r}; expected a number for each name.") from None
        if not isinstance(found, Rewards):
            raise EnvError(
                f"{self._rewarder} gave a {type(found).__name__}; expected a number, {{name: number}} or Rewards."
            )
        for record in found:
            if record.name not in names:
                raise EnvError(
                    f"{self._rewarder} gave the reward '{record.name}'; expected one of env.rewards: "
                    f"{', '.join(names)}."
                )
            if record.value is not None and not math.isfinite(record.value):
                raise EnvError(
                    f"{self._rewarder} gave the reward '{record.name}' the value {record.value}; expected a finite "
                    "number, or None if there is no score."
                )
            if record.role not in (None, *self.roles):
                raise EnvError(
                    f"{self._rewarder} gave the reward '{record.name}' to the role '{record.role}'; expected one of "
                    f"env.roles: {', '.join(self.roles)}."
                )
        return found
