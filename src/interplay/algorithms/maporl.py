"""MAPoRL: an answer is also rewarded for the later answers of all agents (2502.18439).

V(t, a) is what agent a earned for its t-th answer. The return of an answer is
R(t, a) = [V(t, a) + Σ_{t'>t} γ^{t'−t} mean_j V(t', j)] / Σ_{t'≥t} γ^{t'−t}, with γ = 0.3. The advantage is R minus its
mean over the group's episodes at the same turn of the same role. V contains the agent-level and team-level rewards of
the environment. Process rewards (a format penalty, an illegal reply) belong to one agent and are added only to the R of
this agent.

`persuaded` and `persuading` add rewards. An agent earns `persuaded` if a right peer corrected it, and `persuading` if
it corrected a wrong peer. It pays `persuaded` if a peer misled it, and `persuading` if it misled a peer. Helping never
lowers the reward and misleading never raises it (the released code has the opposite sign). GRPO rewards an agent only
for its own return, so no agent learns to convince others.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.compare import CompareEpisodes, EpisodeSettings
from interplay.types import Credit, Episode, Role, Turn


class MAPoRLSettings(EpisodeSettings):
    discount: float = Field(0.3, ge=0, le=1, description="discount factor from one round of answers to the next")
    persuaded: float = Field(
        0.0, ge=0, description="reward for an agent that a right peer corrected; an agent that was misled pays it"
    )
    persuading: float = Field(
        0.0, ge=0, description="reward for an agent that corrected a wrong peer; an agent that misled a peer pays it"
    )
    right: float = Field(0.5, description="an answer is right if it earned more than this")


@register("maporl")
class MAPoRL(CompareEpisodes):
    Settings = MAPoRLSettings
    settings: MAPoRLSettings

    def rule(self, returns: Sequence[float]) -> list[float]:
        return credit.centred(returns, False)

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        s, worth = self.settings, {}
        metrics: dict[str, float] = defaultdict(float)
        for episode in episodes:
            turns = [t for t in episode.line() if t.is_model]
            values = {t.id: credit.mix(credit.shared(t.rewards), t.role, self.reward) for t in turns}
            rounds = rounds_of(turns)
            answers = [{role: (t.id, values[t.id] > s.right) for role, t in round_.items()} for round_ in rounds]
            shaped = influence(answers)
            for n, round_ in enumerate(rounds):
                later = [fmean(values[t.id] for t in after.values()) for after in rounds[n + 1 :]]
                for turn in round_.values():
                    push = shaped.get(turn.id, (0.0, 0.0))
                    own = credit.mix(credit.own(turn.rewards), turn.role, self.reward)
                    worth[turn.id] = discounted(values[turn.id], later, s.discount) + own
                    worth[turn.id] += s.persuaded * push[0] + s.persuading * push[1]
            for name, share in debated(answers).items():
                metrics[f"credit/{name}"] += share / len(episodes)
        turns = self._centre(episodes, worth, given)
        return {**metrics, **credit.summary(turns, given)}

    def _centre(self, episodes: Sequence[Episode], worth: Mapping[str, float], given: Credit) -> list[Turn]:
        played = [[t for t in line if t.is_model] for line in credit.lines(episodes)]
        for n in range(max((len(line) for line in played), default=0)):
            for group in credit.groups([line[n] for line in played if len(line) > n], ("task", "role")):
                for turn, advantage in zip(group, self.rule([worth[t.id] for t in group]), strict=True):
                    given.give(turn, advantage)
        return [t for line in played for t in line]


def rounds_of(turns: Sequence[Turn]) -> list[dict[Role, Turn]]:
    """Groups turns into rounds: the first answer of every role, then the second, and so on. It does not matter whether
    roles answered at once or one after the other."""
    rounds: list[dict[Role, Turn]] = []
    seen: dict[Role, int] = defaultdict(int)
    for turn in turns:
        if seen[turn.role] == len(rounds):
            rounds.append({})
        rounds[seen[turn.role]][turn.role] = turn
        seen[turn.role] += 1
    return rounds


def discounted(value: float, later: Sequence[float], gamma: float) -> float:
    """R(t, a): a weighted mean of the value of the agent's own answer and the mean values of all later rounds."""
    weights = [gamma**k for k in range(1, len(later) + 1)]
    return (value + sum(w * m for w, m in zip(weights, later, strict=True))) / (1 + sum(weights))


Answers = Sequence[Mapping[Role, tuple[str, bool]]]  # per round: each role's turn and whether it was right


def influence(rounds: Answers) -> dict[str, tuple[float, float]]:
    """For each turn, two numbers from −1 to 1: how its agent was persuaded, and how it persuaded others.

    If a wrong agent becomes right in the next round and a peer was right, its new answer gets 1 for being persuaded,
    and the old answer of each right peer gets 1 for persuading. If a right agent becomes wrong and a peer was wrong,
    its new answer gets −1, and the old answer of each wrong peer gets −1. If the agent does not change, these peers get
    0. The number for persuading is the mean over all agents that the answer could have influenced.
    """
    persuaded: dict[str, float] = defaultdict(float)
    persuading: dict[str, list[float]] = defaultdict(list)
    for before, after in itertools.pairwise(rounds):
        for role in before.keys() & after.keys():
            was, now = before[role][1], after[role][1]
            peers = [before[p] for p in before if p != role]
            for turn, peer_right in peers:
                # A peer can only have helped if it was right and the agent wrong, and only misled in the reverse case.
                if peer_right and not was:
                    persuading[turn].append(float(now))
                elif was and not peer_right:
                    persuading[turn].append(-float(not now))
            if now and not was and any(r for _, r in peers):
                persuaded[after[role][0]] = 1.0
            elif was and not now and any(not r for _, r in peers):
                persuaded[after[role][0]] = -1.0
    moved = {turn: sum(v) / len(v) for turn, v in persuading.items()}
    return {t: (persuaded.get(t, 0.0), moved.get(t, 0.0)) for t in {*persuaded, *moved}}


def debated(rounds: Answers) -> dict[str, float]:
    """Metrics of one episode: the share of right answers in each round, the shares of answers that improved, declined
    or stayed the same from one round to the next, and whether most or any of the last answers were right. `rescued`
    counts agents that improved after a peer was right, `misled` those that declined after a peer was wrong."""
    out = {f"right/{n}": sum(r for _, r in answers.values()) / len(answers) for n, answers in enumerate(rounds)}
    seen: Counter[str] = Counter()
    for before, after in itertools.pairwise(rounds):
        for role in before.keys() & after.keys():
            was, now = before[role][1], after[role][1]
            peers = {before[peer][1] for peer in before if peer != role}
            change = "unchanged" if was == now else "improved" if now else "declined"
            seen.update({change: 1, "rescued": change == "improved" and True in peers})
            seen.update({"misled": change == "declined" and False in peers})
    kinds = ("improved", "declined", "unchanged")
    if asked := sum(seen[kind] for kind in kinds):
        out |= {kind: seen[kind] / asked for kind in (*kinds, "rescued", "misled")}
    if rounds:
        out["majority_right"] = float(out[f"right/{len(rounds) - 1}"] > 0.5)
        out["any_right"] = float(out[f"right/{len(rounds) - 1}"] > 0)
    return out
