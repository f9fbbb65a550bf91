"""[league]: snapshots as opponents, exploiters, and the alarm that detects a collapse."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from pydantic import Field

from interplay.config.policies import PolicySection
from interplay.config.seats import Draw
from interplay.config.section import Section
from interplay.errors import ConfigError, did_you_mean
from interplay.types import FromLeague, Scripted, Snapshot
from interplay.types.occupant import parse_one


class ExploiterSection(Section):
    """A policy that is trained to beat the opponents in its matchups. When it beats them, or when its patience ends, it
    is saved as a snapshot and starts again. The time between two such snapshots is called a life."""

    beats: float = Field(
        0.7,
        gt=0.5,
        le=1,
        description="the exploiter is saved as a snapshot, which ends a life, when its score against every opponent is "
        "at least this",
    )
    games: int = Field(32, ge=1, description="games that the exploiter must play in a life before its scores count")
    patience: int = Field(50, ge=1, description="a life ends after this many steps, whatever the scores are")
    reset: float = Field(
        1.0, ge=0, le=1, description="probability that the next life begins with the exploiter's first weights"
    )


class AlarmSection(Section):
    """Whether a policy has collapsed. Its rating is its score (win 1, draw ½) against a fixed panel."""

    panel: list[str] = Field(description="the opponents of the rating: bots or policy@start")
    games: int = Field(16, ge=1, description="games for each seat and each member of the panel")
    rating: Literal["mean", "worst"] = Field(
        "mean", description="the rating over the panel: its mean, or its worst member"
    )
    drop: float = Field(
        0.15, gt=0, le=1, description="how far the rating may fall below its best value before the alarm is raised"
    )
    illegal: float = Field(
        1.0, gt=0, le=1, description="the share of illegal turns in training that counts as a collapse; 1 turns it off"
    )
    entropy: float = Field(
        0.0,
        ge=0,
        description="the entropy in training, in nats per token, below which the policy has collapsed; 0 turns it off",
    )
    rollback: bool = Field(True, description="go back to the last good snapshot; false only warns")
    limit: int = Field(3, ge=1, description="rollbacks to one snapshot before the run stops")


class LeagueSection(Section):
    """Snapshots of policies to play against, as `@league` in [[matchups]]."""

    every: int = Field(
        10, ge=1, description="steps between snapshots of each policy; an exploiter is saved at the end of each life"
    )
    capacity: int = Field(16, ge=2, description="how many snapshots of each policy are kept")
    draw: Draw = Field(
        "pfsp",
        description="how opponents are weighted, where p is the score against them: pfsp (1 − p)^power, variance p(1 "
        "− p), uniform, or latest",
    )
    power: float = Field(2.0, gt=0, description="pfsp: a higher value draws strong opponents more often")
    memory: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="in every step, the weight of older games is multiplied by this",
    )
    lineup: int = Field(
        4,
        ge=1,
        description="how many opponents are drawn for a matchup in each step; each full model among them needs memory",
    )
    bots: list[str] = Field([], description="bots that are members of the league from the start")
    exploiters: dict[str, ExploiterSection] = Field(
        {}, description="policies that are trained to beat the others, by their names"
    )
    alarm: AlarmSection | None = Field(None, description="detect a policy that has collapsed; default: no alarm")

    def check(self, policies: Mapping[str, PolicySection], named: Collection[str]) -> None:
        """Check this section against the recipe's policies, and against the players that its seats name."""
        if not any(isinstance(parse_one(name), FromLeague) for name in named) and self.alarm is None:
            raise ConfigError(
                'league is set, but no matchup plays against it; expected [[matchups]] with a player such as "@league".'
            )
        for name in self.exploiters:
            if name not in policies:
                raise ConfigError(f"league.exploiters.{name} is not a policy; {did_you_mean(name, policies)}")
            if name not in named or not policies[name].trainable:
                raise ConfigError(
                    f"league.exploiters.{name} is not trainable or has no seat; expected a trainable policy in a "
                    "matchup."
                )
        panel = [] if self.alarm is None else self.alarm.panel
        if self.alarm is not None and not panel:
            raise ConfigError("league.alarm.panel is empty; expected bots, or policies at their start: policy@start.")
        for key, name in [*(("bots", n) for n in self.bots), *(("alarm.panel", n) for n in panel)]:
            who = parse_one(name)
            start = key == "alarm.panel" and isinstance(who, Snapshot) and who.at == "start" and who.policy in policies
            if not isinstance(who, Scripted) and not start:
                more = " or policy@start" if key == "alarm.panel" else ""
                raise ConfigError(f"league.{key} has '{name}'; expected bot:NAME{more}.")
