"""Judges as a stage of the stream: after all episodes of a task are played, their rewards are requested together.

If a server cannot be reached, the episodes that it concerns get an error. If a verdict cannot be parsed, the reward is
left without a score.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

from interplay.agents.calls import answered
from interplay.agents.model import ModelAgent
from interplay.agents.player import Stamp
from interplay.agents.remote import RemoteAgent
from interplay.config import JudgeSection
from interplay.config.judges import GOLD, SCORING
from interplay.engines.census import census
from interplay.errors import ConfigError, InterplayError, JudgeError
from interplay.rewards.judge import Scoring
from interplay.rewards.preference import Verdict, both_orders, points, voted
from interplay.rollout.arbiters import ROLE, Arbiter, GoldArbiter, JudgeQuestion, PolicyArbiter
from interplay.rollout.runner import Runner
from interplay.rollout.subjects import Subject, subjects
from interplay.rollout.team import Speech, Team, speech_of
from interplay.seats import RunPlan
from interplay.types import Episode, Occupant, Policy, Remote, Role, Snapshot


@dataclass(frozen=True)
class JudgedGroup:
    """What another process made of the episodes of one task: the episodes with a judge's rewards, and what `metrics`
    reads."""

    episodes: Sequence[Episode]
    counts: Counter[str]
    marks: Mapping[str, Sequence[float]]


# Lets another process ask the judge of this name about the episodes of one task.
JudgeElsewhere = Callable[[str, Sequence[Episode]], Awaitable[JudgedGroup]]


class Judging:
    """The judges of a run. `scorers` are the reward models among them, by name. With `elsewhere`, other processes ask
    those judges that are policies with local weights."""

    def __init__(
        self,
        plan: RunPlan,
        team: Team,
        runner: Runner,
        scorers: Mapping[str, Scoring],
        elsewhere: JudgeElsewhere | None = None,
    ) -> None:
        self.plan, self.team, self.runner, self.scorers, self._elsewhere = plan, team, runner, scorers, elsewhere
        self.sections = plan.recipe.judges
        self.counts: Counter[str] = Counter()  # counts since the last call of `metrics`
        self._marks: dict[str, list[float]] = defaultdict(list)
        self.arbiters: dict[str, Arbiter] = {n: self.arbiter(n, s) for n, s in self.sections.items()
                                             if s.kind not in SCORING}  # fmt: skip

    def arbiter(self, name: str, section: JudgeSection) -> Arbiter:
        """Who answers a judge's questions. `name` is part of the ids of its turns."""
        if section.policy is None:
            return GoldArbiter(section.who.removeprefix(GOLD))
        who = self.plan.occupant(section.policy)
        if isinstance(who, Policy) and who.name in self.plan.trainable:
            who = Snapshot(who.name, "now")  # it judges, and does not learn from these turns

        def agent(legal: bool) -> ModelAgent | RemoteAgent:
            made = self.team.plain(ROLE, who, Speech(section.temperature, section.max_tokens, legal))
            if not isinstance(made, ModelAgent | RemoteAgent):
                raise ConfigError(f"judges.{name}.who is '{who}'; expected a policy, gold:NAME or a reward model.")
            return made

        if section.marks == "expected" and not isinstance(agent(True), ModelAgent):
            raise ConfigError(
                f"judges.{name} has marks = 'expected', but '{section.policy}' is a remote policy, which does not tell "
                "the probabilities of its answers; expected a local policy, or marks = 'said'."
            )
        return PolicyArbiter(name, section, self.plan.recipe.seed, agent)

    def roles(self, section: JudgeSection) -> Sequence[Role]:
        """The roles whose replies are judged."""
        return section.roles or list(self.plan.learning)

    # -- a group --------------------------------------------------------------------------------------------------

    async def judge(self, episodes: Sequence[Episode]) -> None:
        """Add every judge's rewards to the episodes of one task."""
        if self.runner.pause is not None:
            await self.runner.pause.over()
        for name in self.sections:
            if self._elsewhere is not None and self._is_local_policy(name):
                self._take(episodes, await self._elsewhere(name, episodes))
            else:
                await self.judge_by(name, episodes)
        for episode in episodes:
            episode.judged.sort(key=lambda t: t.id)

    async def judge_by(self, name: str, episodes: Sequence[Episode]) -> None:
        """Add the rewards of one judge to the episodes of one task."""
        section = self.sections[name]
        every = [s for e in episodes for s in subjects(e, section, self.roles(section))]
        if name in self.scorers:
            await self._scored(name, every)
        elif section.kind == "pairwise":
            await self._compared(name, section, every)
        else:
            await self._marked(name, section, every)

    def _is_local_policy(self, name: str) -> bool:
        """Whether a judge is a policy whose weights every process that plays has. The key of a remote policy and the
        limit of its requests stay in one process, and so do the weights of a reward model, which may learn."""
        policy = self.sections[name].policy
        return name not in self.scorers and policy is not None and not isinstance(self.plan.occupant(policy), Remote)

    def _take(self, episodes: Sequence[Episode], judged: JudgedGroup) -> None:
        """Take over what another process has added to these episodes."""
        for mine, theirs in zip(episodes, judged.episodes, strict=True):
            mine.turns, mine.rewards, mine.plays = theirs.turns, theirs.rewards, theirs.plays
            mine.judged, mine.error = theirs.judged, theirs.error
        self.counts.update(judged.counts)
        for key, marks in judged.marks.items():
            self._marks[key] += marks

    def taken(self, episodes: Sequence[Episode]) -> JudgedGroup:
        """What the process that asked for it takes over. Nothing is counted twice."""
        found = JudgedGroup(episodes, self.counts, dict(self._marks))
        self.counts, self._marks = Counter(), defaultdict(list)
        return found

    async def _scored(self, name: str, every: Sequence[Subject]) -> None:
        if not every:
            return
        try:
            found = await self.scorers[name].scores([(s.question, s.reply) for s in every])
        except InterplayError as error:
            for subject in every:
                _fail(name, subject, error)
            return
        for subject, value in zip(every, found, strict=True):
            subject.pay(name, value)

    async def _marked(self, name: str, section: JudgeSection, every: Sequence[Subject]) -> None:
        arbiter = self.arbiters[name]
        asked = [(i, v) for i in range(len(every)) for v in range(section.votes)]
        jobs = [arbiter.score(every[i], JudgeQuestion(i, v)) for i, v in asked]
        answers: dict[int, list[float | None]] = defaultdict(list)
        for (i, _), answer in zip(asked, await answers_of(jobs), strict=True):
            if isinstance(answer, InterplayError):
                _fail(name, every[i], answer)
                continue
            answers[i].append(answer[0])
            for criterion, mark in answer[1].items():
                self._marks[f"judge/{name}/{criterion}"].append(mark)
        for i, marks in answers.items():
            good = [m for m in marks if m is not None]
            self._count(name, bool(good))
            every[i].pay(name, fmean(good) if good else None)

    async def _compared(self, name: str, section: JudgeSection, every: Sequence[Subject]) -> None:
        matches = await self._matches(name, section, every)
        found = await answers_of(self._verdict(name, section, one, other, n) for n, (one, other) in enumerate(matches))
        won: dict[str, list[float]] = {s.name: [] for s in every}
        asked: Counter[str] = Counter()
        errors: dict[str, InterplayError] = {}
        for (one, other), verdict in zip(matches, found, strict=True):
            ends = [(one, 1.0)] + ([(other, -1.0)] if other.name in won else [])
            for subject, sign in ends:
                if isinstance(verdict, InterplayError):
                    errors[subject.name] = verdict
                    continue
                asked[subject.name] += 1
                value = points(verdict, section.ties)
                if value is not None:
                    won[subject.name].append(sign * value)
        for subject in every:
            if not asked[subject.name]:
                if subject.name in errors:  # every question about it failed
                    _fail(name, subject, errors[subject.name])
                continue
            mine = won[subject.name]
            subject.pay(name, fmean(mine) if mine else None)

    async def _verdict(self, name: str, section: JudgeSection, one: Subject, other: Subject, number: int) -> Verdict:
        arbiter = self.arbiters[name]
        orders = (False, True) if section.swap else (False,)
        jobs = [
            arbiter.compare(one, other, JudgeQuestion(number, vote, swapped))
            for swapped in orders
            for vote in range(section.votes)
        ]
        found = await answers_of(jobs)
        if failed := next((x for x in found if isinstance(x, InterplayError)), None):
            raise failed
        said = [x for x in found if isinstance(x, Verdict)]
        there = voted(said[: section.votes])
        if not section.swap:
            self._count(name, there.p is not None)
            return there
        back = voted(said[section.votes :])
        verdict = both_orders(there, back)
        self._count(name, verdict.p is not None, there.decision * back.decision > 0)
        return verdict

    def _count(self, name: str, said: bool, flipped: bool = False) -> None:
        self.counts.update({f"{name}/asked": 1, f"{name}/said": said, f"{name}/flipped": flipped})

    # -- whom a reply is compared with ----------------------------------------------------------------------------

    async def _matches(
        self, name: str, section: JudgeSection, every: Sequence[Subject]
    ) -> list[tuple[Subject, Subject]]:
        """The pairs to compare. If a baseline cannot be made, the episodes that need it get an error."""
        if section.against == "group":
            together: dict[tuple[object, ...], list[Subject]] = defaultdict(list)
            for subject in every:
                together[subject.peers].append(subject)
            return [pair for peers in together.values() for pair in itertools.combinations(peers, 2)]
        if section.against == "reference":
            return [(s, replace(s, reply=_reference(s), decision=-1)) for s in every]
        who = self.plan.occupant(section.against or "")
        asked = {subject.peers: subject for subject in reversed(every)}  # the first subject of each prompt
        make = partial(self._reply, name) if section.scope == "reply" else partial(self._episode, name, section)
        made = await answers_of(make(subject, who) for subject in asked.values())
        baselines = dict(zip(asked, made, strict=True))
        matches: list[tuple[Subject, Subject]] = []
        for subject in every:
            if isinstance(baseline := baselines[subject.peers], InterplayError):
                _fail(name, subject, baseline)
            else:
                matches.append((subject, baseline))
        return matches

    def _spent(self, name: str, subject: Subject, used: Mapping[str, int]) -> None:
        """Count the tokens of a baseline with the episode that it was made for."""
        subject.episode.used = dict(Counter(subject.episode.used) + Counter(used))
        self.counts[f"{name}/baseline"] += sum(used.values())

    async def _reply(self, name: str, subject: Subject, who: Occupant) -> Subject:
        """The baseline's reply to the same prompt."""
        turn = subject.turn
        agent = self.team.plain(turn.role, who, speech_of(self.plan.recipe))
        if not isinstance(agent, ModelAgent | RemoteAgent):
            raise ConfigError(
                f"a judge compares replies with those of '{who}', which is not a policy; expected a policy."
            )
        seen = replace(turn.observation, messages=subject.question, fresh=True)
        task = replace(subject.episode.task, id=f"{subject.episode.task.id}/baseline")
        stamp = Stamp(self.plan.recipe.seed, task, 0, f"{subject.episode.task.id}/baseline", turn.decision)
        drawn = await answered(agent, agent.look(seen), stamp)
        self._spent(name, subject, {drawn.policy: drawn.sampled})
        return replace(subject, reply=drawn.text, turn=drawn)

    async def _episode(self, name: str, section: JudgeSection, subject: Subject, who: Occupant) -> Subject:
        """Play the same task with the baseline in the seats that are judged."""
        roles = self.roles(section)
        seats = {r: who if r in roles else taker for r, taker in subject.episode.seats.items()}
        task = replace(subject.episode.task, id=f"{subject.episode.task.id}/baseline")
        seated = self.team.seating(lambda _: seats, speech_of(self.plan.recipe))(task)
        played = await self.runner.episode(task, 0, seated)
        self._spent(name, subject, played.used)
        found = [s for s in subjects(played, section, roles) if s.role == subject.role]
        if played.error is not None or not found:
            raise JudgeError(f"the baseline's episode of {task.id} failed: {played.error}")
        return found[0]

    # -- metrics --------------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Metrics of the questions since the last call: the share that was answered, the share whose answer changed
        with the order, and the tokens of what replies were compared with."""
        out: dict[str, float] = {}
        for name in self.sections:
            if asked := self.counts[f"{name}/asked"]:
                out[f"judge/{name}/coverage"] = self.counts[f"{name}/said"] / asked
                out[f"judge/{name}/flips"] = self.counts[f"{name}/flipped"] / asked
        if any(s.kind == "pairwise" and s.against not in ("group", "reference") for s in self.sections.values()):
            out["baseline_tokens"] = float(sum(self.counts[f"{name}/baseline"] for name in self.sections))
        out |= {key: fmean(sorted(marks)) for key, marks in sorted(self._marks.items())}
        self.counts.clear()
        self._marks.clear()
        return out


async def answers_of(jobs: Any) -> list[Any]:
    """The result of every job, or the InterplayError that it failed with. Any other exception is raised."""
    work: list[Coroutine[Any, Any, Any]] = list(jobs)
    results = await census().gather(work)
    for result in results:
        if isinstance(result, ConfigError | asyncio.CancelledError):
            raise result
        if isinstance(result, BaseException) and not isinstance(result, InterplayError):
            raise result
    return results


def _fail(name: str, subject: Subject, error: InterplayError) -> None:
    """Give the episode an error that names the judge of this name."""
    subject.episode.error = subject.episode.error or f"{type(error).__name__}: judge '{name}' gave no reward: {error}"


def _reference(subject: Subject) -> str:
    data = subject.episode.task.data
    row = data.get("row")
    found = data.get("reference", row.get("reference") if isinstance(row, Mapping) else None)
    if not isinstance(found, str):
        raise ConfigError(
            f"a judge compares with the task's reference, but {subject.episode.task.env} gives no reference; expected "
            "a text under 'reference' in the task's data or in its row, or against = 'group' or POLICY@start."
        )
    return found
