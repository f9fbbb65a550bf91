"""The league: past versions of policies as opponents, and how they are drawn. Does not import torch.

Snapshots are players called `policy@start`, `policy@120`, …; a matchup that seats `policy@league` or `@league` gets one
of them. The draw depends on how often the learner beats each: by PFSP (prioritised fictitious self-play, AlphaStar,
Vinyals et al. 2019) with weight (1 − p)^power, or by p(1 − p), or uniformly, or always the newest. p is the learner's
mean score against the opponent (a win is 1, a draw ½). Older games count less, so an opponent that was not met for a
long time counts as equally strong again.

An exploiter is a policy that learns to beat the opponents in its matchups. When it succeeds, or after `patience` steps,
it is saved and begins a new life: its games are counted anew, and its weights may be reset. The alarm stores each
policy's best rating and reports a large drop as a collapse. `training/season.py` carries out what is decided here.

The draw is a function of (seed, step, task, state), and only `record`, `add`, `rate`, `rebirth` and `roll_back` change
the state. An interrupted step changes nothing, and a resumed run draws the same opponents as an uninterrupted one.

There are never more than `capacity` snapshots of a policy. When the league is full, drop the snapshot that the policy
beats most often; of equals, the oldest. The start and the newest stay (a rollback goes to the newest).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from interplay.algorithms import credit
from interplay.config import Draw, RewardSection
from interplay.errors import CheckpointError, ConfigError, GuardError
from interplay.seats import (
    FromLeague,
    Matchup,
    Occupant,
    One,
    Policy,
    RunPlan,
    Scripted,
    Snapshot,
    everyone,
    parse_one,
    parse_snapshot,
)
from interplay.types import Episode, Role, Task, reply_share, seed_of

_STEPS = 64  # steps whose line-ups are remembered: as many as can be played at once


@dataclass
class Tally:
    """A learner's results against one opponent. Older games count less. The score adds one drawn game as a prior."""

    won: float = 0.0
    games: float = 0.0

    @property
    def score(self) -> float:
        return (self.won + 0.5) / (self.games + 1.0)

    def fade(self, memory: float) -> None:
        self.won, self.games = self.won * memory, self.games * memory

    def add(self, score: float) -> None:
        self.won, self.games = self.won + score, self.games + 1.0


@dataclass
class Life:
    """The current life of an exploiter: its first step, its number, and its games."""

    born: int = 0
    number: int = 1
    games: int = 0


@dataclass
class Health:
    """What the alarm knows of a policy: its best rating so far, and the rollbacks since its newest snapshot."""

    best: float | None = None
    rollbacks: int = 0


def score(episode: Episode, role: Role, reward: RewardSection) -> float:
    """1 if the role's total reward is higher than that of every other player, ½ if it ties with the best, 0 if it is
    lower. Roles with the same occupant are one player. This is the mean over plays that were not selected by their
    return."""
    found = []
    for play in episode.own:
        totals = {r: credit.mix(play, r, reward) for r in episode.seats}
        rival = max((v for r, v in totals.items() if episode.seats[r] != episode.seats[role]), default=0.0)
        found.append(0.5 + 0.5 * ((totals[role] > rival) - (totals[role] < rival)))
    return sum(found) / len(found)


def chances(scores: Sequence[float], draw: Draw, power: float) -> list[float]:
    """The probability of each opponent, given the learner's scores against them, the newest opponent last."""
    weights = {
        "pfsp": [(1.0 - p) ** power for p in scores],
        "variance": [p * (1.0 - p) for p in scores],
        "uniform": [1.0 for _ in scores],
        "latest": [float(i == len(scores) - 1) for i in range(len(scores))],
    }[draw]
    total = sum(weights)
    return [w / total for w in weights] if total > 0 else [1.0 / len(scores)] * len(scores)


@dataclass
class League:
    plan: RunPlan
    snapshots: dict[str, list[Snapshot]] = field(default_factory=dict)  # by policy, oldest first
    tallies: dict[str, dict[str, Tally]] = field(default_factory=lambda: defaultdict(dict))  # by learner, opponent
    lives: dict[str, Life] = field(default_factory=dict)
    health: dict[str, Health] = field(default_factory=dict)

    def __post_init__(self) -> None:
        section = self.plan.recipe.league
        if section is None:
            raise ConfigError(
                "the recipe has no [league] section; expected one, because a seat is filled from the league."
            )
        self.section = section
        self.snapshots = {name: [Snapshot(name)] for name in self.plan.trainable}
        self.bots = [parse_one(name) for name in section.bots]
        self.lives = {name: Life() for name in section.exploiters}
        self.mains = [name for name in self.plan.trainable if name not in section.exploiters]
        self.health = {name: Health() for name in self.mains}
        self._lineups: dict[int, dict[tuple[int, FromLeague], list[One]]] = {}  # of the last few steps

    # -- who plays whom -------------------------------------------------------------------------------------------

    def seats_for(self, task: Task, step: int) -> dict[Role, Occupant]:
        """The plan's seats for a task, with a drawn opponent in place of each `@league`."""
        matchup, seats = self.plan.matched(task, step)
        if matchup is None:
            return seats
        index, lineups = self.plan.matchups.index(matchup), self.lineups(step)
        out = {}
        for role, who in seats.items():
            if isinstance(who, FromLeague):
                drawn = lineups[index, who]
                who = drawn[seed_of("league", self.plan.recipe.seed, step, task.id, role) % len(drawn)]
            out[role] = who
        return out

    def lineups(self, step: int) -> dict[tuple[int, FromLeague], list[One]]:
        """By matchup and name: the opponents drawn for a step. Each task then takes one of them at random, so a step
        needs at most `lineup` of them in memory. Over many steps each opponent plays with its probability."""
        if step not in self._lineups:
            found = {}
            for index, who in self._asked():
                odds = self.odds(self.plan.matchups[index], who)
                rng = random.Random(seed_of("lineup", self.plan.recipe.seed, step, index, str(who)))
                found[index, who] = rng.choices(list(odds), list(odds.values()), k=self.section.lineup)
            self._lineups[step] = found
            for old in sorted(self._lineups)[:-_STEPS]:
                del self._lineups[old]
        return self._lineups[step]

    def opponents(self, step: int) -> set[Snapshot]:
        """The snapshots that a step plays against."""
        drawn = (who for lineup in self.lineups(step).values() for who in lineup)
        return {who for who in drawn if isinstance(who, Snapshot)}

    def draw_as_of(self, state: Mapping[str, Any], step: int) -> None:
        """Draw the opponents of a step again, from the state of the league that they were drawn from."""
        earlier = League(self.plan)
        earlier.load_state_dict(state)
        self._lineups[step] = earlier.lineups(step)

    def _asked(self) -> list[tuple[int, FromLeague]]:
        named = ((i, who) for i, m in enumerate(self.plan.matchups) for who in dict.fromkeys(m.named))
        return [(i, who) for i, who in named if isinstance(who, FromLeague)]

    def odds(self, matchup: Matchup, who: FromLeague) -> dict[One, float]:
        """The probability of each opponent that `who` may stand for in a matchup."""
        mine = self.snapshots.values() if not who.policy else [self.snapshots[who.policy]]
        past = sorted((n for names in mine for n in names), key=lambda n: n.step)
        pool: list[One] = [*past] if who.policy else [*self.bots, *past]
        met = self.tallies[self.learner(matchup)]
        scores = [met[str(n)].score if str(n) in met else Tally().score for n in pool]
        found = chances(scores, matchup.section.draw or self.section.draw, self.section.power)
        return dict(zip(pool, found, strict=True))

    def learner(self, matchup: Matchup) -> str:
        """The learner whose scores decide a matchup's draw: the first one in it."""
        seated = [*matchup.named, *(who for occupant in self.plan.seats.values() for who in everyone(occupant))]
        return next((who.name for who in seated if isinstance(who, Policy) and who.name in self.snapshots), "")

    # -- results --------------------------------------------------------------------------------------------------

    def record(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Update the tallies with a step's episodes. The metrics have the chances before, and the scores after."""
        metrics = {}
        for index, who in self._asked():
            matchup = self.plan.matchups[index]
            for opponent, chance in self.odds(matchup, who).items():
                metrics[f"league/chance/{self.learner(matchup)}/{opponent}"] = chance
        for met in self.tallies.values():
            for tally in met.values():
                tally.fade(self.section.memory)
        for episode in episodes:
            for role, seated in episode.seats.items():
                if isinstance(seated, Policy) and seated.name in self.snapshots:
                    self._note(episode, role, seated)
        for name, met in self.tallies.items():
            metrics |= {f"league/score/{name}/{opponent}": tally.score for opponent, tally in met.items()}
            metrics |= {f"league/games/{name}/{opponent}": tally.games for opponent, tally in met.items()}
        for name, life in self.lives.items():
            metrics[f"league/life/{name}"] = float(life.number)
        metrics["league/size"] = float(sum(map(len, self.snapshots.values())))
        return metrics

    def _note(self, episode: Episode, role: Role, who: Policy) -> None:
        opponents = {other for other in episode.seats.values() if isinstance(other, Snapshot | Scripted)}
        for opponent in sorted(map(str, opponents)) if episode.own else ():  # empty if every playout failed
            self.tallies[who.name].setdefault(opponent, Tally()).add(score(episode, role, self.plan.recipe.reward))
        if who.name in self.lives and opponents:
            self.lives[who.name].games += 1

    def add(self, policy: str, step: int) -> Snapshot:
        """Add a snapshot and return its name. If there are more than `capacity`, remove another one."""
        added, mine = Snapshot(policy, str(step)), self.snapshots[policy]
        mine.append(added)
        if policy in self.health:
            self.health[policy].rollbacks = 0
        if len(mine) > self.section.capacity:
            met = self.tallies[policy]
            beaten = {n: met[str(n)].score if str(n) in met else Tally().score for n in mine}
            weakest = max(mine[1:-1], key=lambda n: (beaten[n], -n.step))
            mine.remove(weakest)
            for others in self.tallies.values():
                others.pop(str(weakest), None)
        return added

    # -- exploiters -----------------------------------------------------------------------------------------------

    def over(self, name: str, step: int) -> bool:
        """Whether the life of an exploiter ends: it has beaten every opponent it met, or `patience` steps are over."""
        section, life = self.section.exploiters[name], self.lives[name]
        beaten = all(tally.score >= section.beats for tally in self.tallies[name].values())
        return step - life.born >= section.patience or (life.games >= section.games and beaten)

    def rebirth(self, name: str, step: int) -> bool:
        """Begin a new life of an exploiter; return whether its weights go back to the start."""
        self.tallies[name].clear()
        self.lives[name] = Life(step, self.lives[name].number + 1)
        return seed_of("rebirth", self.plan.recipe.seed, name, step) / 2**63 < self.section.exploiters[name].reset

    # -- the alarm ------------------------------------------------------------------------------------------------

    def symptom(self, name: str, episodes: Sequence[Episode], entropy: float | None) -> str | None:
        """A sentence if the metrics of a step show a collapse, else None."""
        alarm = self.section.alarm
        if alarm is None:
            return None
        illegal = reply_share(episodes, {name}, lambda t: t.illegal)
        if illegal > alarm.illegal:
            return f"{illegal:.0%} of its turns are illegal, more than league.alarm.illegal ({alarm.illegal:.0%})"
        if entropy is not None and entropy < alarm.entropy:
            return f"its entropy is {entropy:.3g} nats per token, below league.alarm.entropy ({alarm.entropy:g})"
        return None

    def rating(self, scores: Mapping[str, float]) -> float:
        """The rating from the scores against the panel: the worst or the mean, as the recipe says."""
        assert self.section.alarm is not None
        return min(scores.values()) if self.section.alarm.rating == "worst" else sum(scores.values()) / len(scores)

    def rate(self, name: str, rating: float) -> str | None:
        """Note a policy's new rating; return a sentence if it shows a collapse."""
        alarm, health = self.section.alarm, self.health[name]
        assert alarm is not None
        if health.best is not None and rating < health.best - alarm.drop:
            fell = f"its rating fell from {health.best:.2f} to {rating:.2f}"
            return f"{fell}, by more than league.alarm.drop ({alarm.drop:g})"
        health.best = rating if health.best is None else max(health.best, rating)
        return None

    def roll_back(self, name: str, why: str) -> Snapshot:
        """Count a rollback and return the snapshot to go back to; raise after too many."""
        alarm, health = self.section.alarm, self.health[name]
        assert alarm is not None
        good = self.snapshots[name][-1]
        if health.rollbacks >= alarm.limit:
            raise GuardError(
                f"policy '{name}' collapsed again after {health.rollbacks} rollbacks to {good} (league.alarm.limit): "
                f"{why}; lower train.lr, or raise algorithm.kl or the share of @league."
            )
        health.rollbacks += 1
        return good

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {
            "snapshots": {name: [str(n) for n in mine] for name, mine in self.snapshots.items()},
            "tallies": {n: {o: [t.won, t.games] for o, t in met.items()} for n, met in self.tallies.items() if met},
            "lives": {name: asdict(life) for name, life in self.lives.items()},
            "health": {name: asdict(health) for name, health in self.health.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for key, mine in (("snapshots", self.snapshots), ("lives", self.lives)):
            if set(state[key]) != set(mine):
                raise CheckpointError(
                    f"the checkpoint's league has {key} of {sorted(state[key])}, but this recipe has {key} of "
                    f"{sorted(mine)}; start a new run."
                )
        self.snapshots = {name: [parse_snapshot(n) for n in mine] for name, mine in state["snapshots"].items()}
        self.tallies.clear()
        for name, met in state["tallies"].items():
            self.tallies[name] = {opponent: Tally(won, games) for opponent, (won, games) in met.items()}
        self.lives = {name: Life(**life) for name, life in state["lives"].items()}
        self.health = {name: Health(**health) for name, health in state["health"].items()}
        self._lineups = {}
