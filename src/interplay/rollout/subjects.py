"""What judges look at: single replies, all words of a role in an episode, or all words of everybody. No torch."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from interplay.config import JudgeSection
from interplay.rewards.gold import component_sum
from interplay.types import Episode, Level, Message, Reward, Rewards, Role, Turn, seed_of


@dataclass(frozen=True)
class Subject:
    """Something that is judged: what was asked, what was said, and the turn that the reward goes to. `role` is None if
    it covers all roles. `decision` is set only for a single reply."""

    episode: Episode
    role: Role | None
    turn: Turn
    question: tuple[Message, ...]
    reply: str
    decision: int | None = None

    @property
    def name(self) -> str:
        return f"{self.turn.id}" if self.decision is not None else f"{self.episode.id}/{self.role or 'team'}"

    @property
    def peers(self) -> tuple[object, ...]:
        """Two subjects may be compared if this value is equal: the same role of a task and, for replies, the same
        prompt."""
        asked = self.turn.keys.prompt if self.decision is not None else ""
        return self.episode.task.id, self.role, asked

    def gold(self, component: str) -> float | None:
        """The sum of a component of the environment's reward. For a reply, only what the reply itself earned."""
        turn = self.turn
        if self.decision is None:
            return component_sum(self.episode.rewards, component, self.role or turn.role)
        if turn.outlook is None:
            return component_sum(turn.rewards, component, turn.role)
        found = component_sum(turn.outlook.rewards, component, turn.role)
        if found is None:  # all candidates said the same and were not scored: what the kept one earned holds for all
            (kept,) = (t for t in self.episode.line(turn.role) if t.decision == turn.decision)
            found = component_sum(kept.rewards, component, turn.role) if kept.words == turn.words else None
        return found

    def pay(self, name: str, value: float | None) -> None:
        """Give the reward. None means that it was never scored."""
        level = Level.TEAM if self.role is None else Level.AGENT
        reward = Rewards((Reward(name, level, self.role, value, self.decision),))
        if self.turn.outlook is not None:
            self.turn.outlook = replace(self.turn.outlook, rewards=self.turn.outlook.rewards + reward)
        if not self.turn.kept:
            return
        self.episode.rewards += reward
        if self.episode.plays is not None:  # the judge saw only the line that was selected by its return
            self.episode.plays = ()
        if self.role is None:
            for last in {t.role: t for t in self.episode.line()}.values():
                last.rewards += reward
        else:
            self.turn.rewards += reward


def subjects(episode: Episode, section: JudgeSection, roles: Collection[Role]) -> list[Subject]:
    """What a judge with these settings looks at in an episode. The list is empty if the episode failed."""
    line = episode.line()
    if episode.error is not None or not line:
        return []
    if section.scope == "team":
        said = "\n".join(f"[{t.role}] {t.text}" for t in line)
        return [Subject(episode, None, line[-1], line[0].observation.messages, said)]
    out: list[Subject] = []
    for role in dict.fromkeys(t.role for t in line if t.role in roles):
        mine = [t for t in line if t.role == role]
        if section.scope == "episode":
            question = mine[0].observation.messages
            fresh = all(t.observation.fresh for t in mine[1:])  # whether every prompt repeats what was said before
            said = _transcript(line, role) if fresh else _told(mine)
            out.append(Subject(episode, role, mine[-1], question, said))
            continue
        history: tuple[Message, ...] = ()
        for turn in mine:
            seen = turn.observation.messages
            history = seen if turn.observation.fresh else history + seen
            drawn = [t for t in episode.turns if t.decision == turn.decision and t.role == role and t.playout is None]
            out += [Subject(episode, role, t, history, t.text, t.decision) for t in drawn]
            history += (Message("assistant", turn.text),)
    return out


def pairs_of(every: Sequence[Subject], *draw: object) -> list[tuple[Subject, Subject]]:
    """All pairs of different replies to the same question, in an order that is drawn by `draw` and their names."""
    together: dict[tuple[object, ...], list[Subject]] = defaultdict(list)
    for subject in every:
        together[subject.peers].append(subject)
    found = [p for peers in together.values() for p in itertools.combinations(peers, 2) if p[0].reply != p[1].reply]
    return sorted(found, key=lambda p: seed_of(*draw, p[0].name, p[1].name))


def _transcript(line: Sequence[Turn], role: Role) -> str:
    """What everybody said, in order. The words of others are in brackets."""
    return "\n".join(t.text if t.role == role else f"({t.text})" for t in line)


def _told(turns: Sequence[Turn]) -> str:
    """What a role said. What it heard in between is in brackets."""
    parts = [turns[0].text]
    for turn in turns[1:]:
        parts += [f"({m.content})" for m in turn.observation.messages]
        parts.append(turn.text)
    return "\n".join(parts)
