"""The recipe: strict pydantic models over TOML plus `a.b=c` overrides. No torch.

Every mistake becomes one sentence that names the key, what was expected and the nearest known name.
Two sections carry keys of their own, checked by whoever owns them: `[env]` (the environment's `Options`)
and `[algorithm]` (the algorithm's `Settings`); see `rollout/resolve.py`.
"""

from __future__ import annotations

import json
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from interplay.errors import ConfigError, did_you_mean

TEAM = "team"  # among eval.opponents: nobody, the recipe's own seats play together
REMOTE = "openai:"  # before a policy's base: the name of a model behind an OpenAI-compatible server
START = "@start"  # after a policy's name: as it was when reinforcement learning began
NOW = "@now"  # as it is at this step; it plays and does not learn
LEAGUE = "@league"  # one of its snapshots, drawn by [league]; without a name before it, of anybody's
Draw = Literal["pfsp", "variance", "uniform", "latest"]
M = TypeVar("M", bound=BaseModel)


class Section(BaseModel):
    """A part of the recipe: unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Open(BaseModel):
    """A part whose extra keys belong to the environment or algorithm it names."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


Optimizer = Literal["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit"]
Schedule = Literal["constant", "linear", "cosine"]


class AdapterSection(Section):
    """A LoRA adapter: the base stays as it is, and policies with the same base share it."""

    rank: int = Field(16, ge=1)
    alpha: float | None = Field(None, gt=0, description="scale · rank; default twice the rank")
    targets: list[str] = Field([], description="layers by the end of their names, such as q_proj; none: all of them")


class RemoteSection(Section):
    """Where a remote model answers: any server that speaks OpenAI's chat completions."""

    url: str = Field("https://api.openai.com/v1", description="up to and with /v1")
    key_variable: str = Field(
        "OPENAI_API_KEY", description="the environment variable that holds the key, if it needs one"
    )
    timeout: float = Field(120.0, gt=0, description="seconds for one answer")
    retries: int = Field(4, ge=0, description="tries after the first, with growing pauses")
    concurrency: int = Field(16, ge=1, description="requests in flight at once")
    limit: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="what the server calls the limit of a reply"
    )
    images: bool = Field(True, description="it is sent the pictures that an environment shows; false: the words alone")
    options: dict[str, Any] = Field({}, description="more fields of every request, such as top_p")


class PolicySection(Section):
    """Who holds weights: a base model (`tiny`, `smollm2`, a folder, a hub name or a .gguf file), all of it or, with
    `adapter`, what is added to it. `openai:NAME` is a model behind somebody's server: it can play, not be trained."""

    base: str
    adapter: AdapterSection | None = None
    remote: RemoteSection | None = None
    trainable: bool = True
    per: Literal["team", "role"] = Field("team", description="one for all its seats, or one of its own for each role")
    # Over those of [train]:
    lr: float | None = Field(None, gt=0, description="learning rate of this policy; default train.lr")
    optimizer: Optimizer | None = None
    schedule: Schedule | None = None
    warmup_steps: int | None = Field(None, ge=0)
    final_lr: float | None = Field(None, ge=0, le=1)
    weight_decay: float | None = Field(None, ge=0)
    beta1: float | None = Field(None, ge=0, lt=1)
    beta2: float | None = Field(None, ge=0, lt=1)
    grad_clip: float | None = Field(None, gt=0)
    frozen: list[list[int]] = Field(
        [], description="steps in which it plays and does not learn: [first, end), or [first] for ever; counted from 0"
    )

    @model_validator(mode="after")
    def _windows_have_two_ends(self) -> PolicySection:
        for window in self.frozen:
            if not (len(window) in (1, 2) and window[0] >= 0 and (len(window) == 1 or window[1] > window[0])):
                raise ConfigError(f"a policy's frozen has the window {window}; expected [first, end) or [first].")
        return self

    def learns(self, step: int) -> bool:
        """Whether it may take a step then."""
        return self.trainable and not any(w[0] <= step and (len(w) == 1 or step < w[1]) for w in self.frozen)

    @property
    def is_remote(self) -> bool:
        return self.base.startswith(REMOTE)


class MatchupSection(Section):
    """Other seats for a share of the training episodes: a bot, a frozen policy, or a policy as it was or is:
    `policy@start` (when reinforcement learning began), `policy@now` (it plays and does not learn), `policy@league` (a
    snapshot that [league] draws) or `@league` (anybody's). Roles left out of `seats` keep what [seats] says; or `one`
    sits in a role drawn for each task, and `others` in all the rest.
    """

    share: float | list[list[float]] = Field(description="of the episodes; or [[step, share], ...], the first at 0")
    change: Literal["switch", "drift"] = Field("switch", description="a share by steps: at once, or in a straight line")
    period: int = Field(0, ge=0, description="a share by steps begins again after so many; 0: never")
    seats: dict[str, str] = {}
    one: str | None = None
    others: str | None = None
    draw: Draw | None = Field(None, description="how @league is drawn here; default league.draw")

    @model_validator(mode="after")
    def _is_whole(self) -> MatchupSection:
        if (self.one is None) != (self.others is None) or (self.one is None) == (not self.seats):
            raise ConfigError("a matchup has either seats, a table of role = player, or both one and others.")
        if isinstance(self.share, list):
            steps = [point[0] for point in self.share if len(point) == 2]
            if len(steps) < len(self.share) or steps[:1] != [0] or any(b <= a for a, b in pairwise(steps)):
                raise ConfigError(
                    f"a matchup's share is {self.share}; expected [[0, share], [step, share], ...], in order."
                )
        shares = [self.share] if isinstance(self.share, float | int) else [point[1] for point in self.share]
        if not all(0 <= share <= 1 for share in shares) or not any(shares):
            raise ConfigError(f"a matchup's share is {self.share}; expected more than 0 and at most 1.")
        return self

    def share_at(self, step: int) -> float:
        """The share of the episodes of one training step."""
        if not isinstance(self.share, list):
            return self.share
        at = step % self.period if self.period else step
        (begin, low), after = [p for p in self.share if p[0] <= at][-1], [p for p in self.share if p[0] > at]
        if self.change == "switch" or not after:
            return low
        end, high = after[0]
        return low + (high - low) * (at - begin) / (end - begin)

    @property
    def named(self) -> dict[str, str]:
        """Who sits somewhere, by the key that says so."""
        if self.one is None or self.others is None:
            return _keyed("seats", self.seats)
        return {"one": self.one, "others": self.others}


class ExploiterSection(Section):
    """A policy that lives to beat whom its matchups name: when it does, or its patience ends, it is kept as a snapshot
    and begins a new life."""

    beats: float = Field(0.7, gt=0.5, le=1, description="score against every opponent met that ends a life")
    games: int = Field(32, ge=1, description="games of a life before its scores count")
    patience: int = Field(50, ge=1, description="steps after which a life ends anyway")
    reset: float = Field(1.0, ge=0, le=1, description="chance that the next life begins from the start")


class AlarmSection(Section):
    """Whether a policy has collapsed. Its rating is its score (win 1, draw ½) against a fixed panel."""

    panel: list[str] = Field(description="bots or policy@start")
    games: int = Field(16, ge=1, description="per seat and member of the panel")
    rating: Literal["mean", "worst"] = Field("mean", description="over the panel")
    drop: float = Field(0.15, gt=0, le=1, description="how far the rating may fall under its best")
    illegal: float = Field(1.0, gt=0, le=1, description="share of illegal turns in training that is a collapse; 1: off")
    entropy: float = Field(0.0, ge=0, description="nats a token in training under which it is one; 0: off")
    rollback: bool = Field(True, description="go back to the last good snapshot; or only warn")
    limit: int = Field(3, ge=1, description="rollbacks to one snapshot before the run stops")


class LeagueSection(Section):
    """Past selves to play against: `@league` in [[matchups]]."""

    every: int = Field(10, ge=1, description="steps between snapshots of each policy that is no exploiter")
    capacity: int = Field(16, ge=2, description="snapshots kept of each policy")
    draw: Draw = Field("pfsp", description="(1 - p)^power, p(1 - p), all alike, or the newest; p: score against it")
    power: float = Field(2.0, gt=0, description="pfsp: higher prefers the strongest more")
    memory: float = Field(0.9, ge=0, lt=1, description="of the scores, from one step to the next")
    lineup: int = Field(4, ge=1, description="opponents drawn for one matchup and step: full models in memory")
    bots: list[str] = Field([], description="bots that are in the league from the beginning")
    exploiters: dict[str, ExploiterSection] = {}
    alarm: AlarmSection | None = None


class RewardSection(Section):
    """How credit mixes the three levels; `weights` are per component name."""

    process: float = 1.0
    agent: float = 1.0
    team: float = 1.0
    gamma: float = Field(1.0, ge=0, le=1, description="discount from one turn of a role to its next")
    weights: dict[str, float] = {}


class SamplingSection(Section):
    """How trainable seats sample during training."""

    temperature: float = Field(1.0, gt=0)
    max_tokens: int = Field(64, ge=1, description="limit of one reply")
    stop: list[str] = Field([], description="strings that end a reply, and are part of it")
    legal: bool = Field(
        False, description="where legal actions are listed, only they can be sampled (evaluation: eval.legal)"
    )


class ToolSection(Section):
    """What roles may do with the tools their environment gives them."""

    calls: int = Field(4, ge=0, description="tool calls inside one turn; 0 takes the tools away")
    characters: int = Field(2000, ge=1, description="of one tool's output; the rest is cut off")


class RolloutSection(Section):
    """Episodes in bulk."""

    tasks: int = Field(16, ge=1, description="tasks per training step")
    concurrency: int = Field(1024, ge=1, description="episodes in flight at once")
    max_episode_tokens: int = Field(100_000, ge=1, description="sampled tokens after which an episode is truncated")
    max_episode_seconds: float = Field(600.0, gt=0, description="wall-clock limit; past it the episode is an error")


class TrainSection(Section):
    """Gradients."""

    steps: int = Field(100, ge=0)
    update: Literal["together", "alternating"] = Field(
        "together", description="every policy at every step, or one after another while the others stay as they are"
    )
    update_period: int = Field(1, ge=1, description="alternating: steps before it is the next one's turn")
    optimizer: Optimizer = Field("adamw", description="8-bit: its state in a quarter; paged: in the host's memory")
    lr: float = Field(1e-6, gt=0)
    schedule: Schedule = "constant"
    warmup_steps: int = Field(0, ge=0)
    final_lr: float = Field(0.1, ge=0, le=1, description="share of lr that the schedule ends at")
    weight_decay: float = Field(0.0, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    grad_clip: float = Field(1.0, gt=0)
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(1, ge=1)
    micro_batch_tokens: int = Field(16_384, ge=1, description="padded tokens in one forward pass")
    gap_warn: float = Field(1e-4, gt=0, description="largest engine-learner log-prob gap before a warning")
    gap_stop: float = Field(1e-2, gt=0, description="engine-learner log-prob gap that stops the run")
    gap_mean_warn: float = Field(0.02, gt=0, description="the same of the mean over tokens, for bf16: a warning")
    gap_mean_stop: float = Field(0.1, gt=0, description="the same of the mean over tokens, for bf16: stops the run")
    guard_grad_spike: float = Field(20.0, gt=1, description="times its running mean that a gradient norm may reach")
    guard_entropy: float = Field(0.0, ge=0, description="nats a token under which the policy has collapsed; 0 is off")
    guard_zero_share: float = Field(1.0, ge=0, le=1, description="share of zero advantages of a role; 1 is off")
    stop_on_guard: bool = Field(False, description="stop the run where a guard would only warn")
    recompute: bool = Field(False, description="compute activations again in the backward pass: less memory, slower")


class CurriculumSection(Section):
    """Which levels are trained on. Without it every task is drawn with the options of [env]."""

    kind: Literal["staged", "self_paced", "replay"]
    success: str = Field("solved", description="the reward whose positive sum is a success")
    stages: list[dict[str, Any]] = Field([], description="staged: options over those of [env], easiest first")
    threshold: float = Field(0.8, gt=0, le=1, description="staged: share of success that ends a stage")
    window: int = Field(64, ge=1, description="staged: the episodes that count for it")
    review: float = Field(0.0, ge=0, lt=1, description="staged: share of the tasks from earlier stages")
    easy: dict[str, int | float] = Field({}, description="self_paced, replay: options at difficulty 0")
    hard: dict[str, int | float] = Field({}, description="self_paced, replay: the same options at difficulty 1")
    start: float = Field(0.0, ge=0, le=1, description="self_paced: the first difficulty")
    target: float = Field(0.5, gt=0, lt=1, description="self_paced: the share of success to hold")
    rate: float = Field(0.1, gt=0, le=1, description="self_paced: how far one step moves the difficulty")
    score: Literal["learnability", "regret"] = Field("learnability", description="replay: p(1-p), or value loss")
    replay: float = Field(0.5, ge=0, le=1, description="replay: share of the tasks that were played before")
    staleness: float = Field(0.1, ge=0, le=1, description="replay: weight of levels long not played")
    temperature: float = Field(0.1, gt=0, description="replay: lower prefers the highest scores more")
    capacity: int = Field(512, ge=1, description="replay: levels remembered")

    @model_validator(mode="after")
    def _has_its_levels(self) -> CurriculumSection:
        if self.kind == "staged" and not self.stages:
            raise ConfigError("curriculum.stages is empty; expected a list of option tables, easiest first.")
        if self.kind == "self_paced" and not self.easy:
            raise ConfigError("curriculum.easy is empty; expected options with their values at difficulty 0.")
        if self.easy.keys() != self.hard.keys():
            raise ConfigError(
                f"curriculum.easy has {', '.join(self.easy) or 'nothing'} and curriculum.hard "
                f"{', '.join(self.hard) or 'nothing'}; expected the same options in both."
            )
        return self


class WarmstartSection(Section):
    """A short imitation of a bot, or of recorded play, before reinforcement learning begins."""

    bot: str | None = Field(None, description="who is imitated, in every seat; or")
    records: str | None = Field(None, description="an episodes.jsonl, or a run folder that holds one")
    min_reward: float | None = Field(None, description="records: only roles whose reward was at least this")
    base: bool = Field(
        False, description="for adapters: the model under them learns it, once for all roles, and stays with the run"
    )
    episodes: int = Field(500, ge=1, description="how many are imitated; of records, at most")
    epochs: int = Field(1, ge=1)
    lr: float = Field(1e-3, gt=0)
    batch: int = Field(256, ge=1, description="turns per gradient step")

    @model_validator(mode="after")
    def _one_source(self) -> WarmstartSection:
        if (self.bot is None) == (self.records is None):
            raise ConfigError("warmstart has neither or both of bot and records; expected one: who is imitated.")
        if self.min_reward is not None and self.bot is not None:
            raise ConfigError("warmstart.min_reward is set with warmstart.bot; expected it with warmstart.records.")
        return self


class SingleSection(Section):
    """The one agent that a team is measured against at the same budget."""

    options: dict[str, Any] = Field(
        description="options over those of [env] that leave one role, such as team = single"
    )
    policy: str | None = Field(None, description="who plays it; default whoever [seats] has in that role")


class EvalSection(Section):
    """Measured before and after training, and in short form while it runs; without masking unless `legal` asks for it.

    Every policy plays the roles that [seats] gives it. An opponent is a bot or a policy in all other seats; "team"
    seats the recipe's own policies together, and `success` names the reward that says whether they made it. What
    stands under `samples` is for `interplay eval` alone."""

    opponents: list[str] = ["bot:random"]
    success: str | None = Field(None, description='with "team" among opponents: the reward that says so')
    goal: float = Field(1.0, description="what that reward must add up to in an episode")
    games: int = Field(500, ge=1, description="tasks per seat before and after training")
    chunk: int = Field(512, ge=1, description="tasks that are played, and kept on disk, together")
    every: int = Field(0, ge=0, description="steps between short evaluations; 0 turns them off")
    short_games: int = Field(32, ge=1, description="games per seat of a short evaluation")
    exploitability: bool = Field(False, description="also what best responses would win: small games for two")
    temperature: float = Field(1.0, ge=0, description="0 plays the most likely reply")
    legal: bool = Field(False, description="policies can give only replies that are listed as legal: tables say so")
    before: bool = True
    after: bool = True
    samples: int = Field(1, ge=1, description="games of each task; pass@k for k up to this")
    seeds: list[int] = Field([], description="each with its own tasks and sampling; none: the recipe's seed")
    ablations: list[Literal["budget", "swap", "without"]] = Field(
        [], description="one agent at the team's budget; policies in each other's roles; each agent replaced in turn"
    )
    substitute: str = Field(
        "base", description="who replaces an agent: base (its weights before training), start, bot:NAME or a policy"
    )
    single: SingleSection | None = None


class CheckpointSection(Section):
    every: int = Field(1, ge=1, description="steps between checkpoints; a kill loses at most that many")
    keep: int = Field(2, ge=1, description="how many of the latest are kept")
    best: str | None = Field(
        None, description="also keep the one with the best of this metric, such as eval/win_rate/bot:random"
    )
    best_is: Literal["highest", "lowest"] = "highest"


class RecordSection(Section):
    playouts: bool = Field(False, description="also record the turns that only estimated a candidate's return")
    episodes_per_step: int = Field(16, ge=0, description="episodes per step written to episodes.jsonl and the logs")
    tensorboard: Literal["auto", "on", "off"] = Field("auto", description="auto: where it is installed")


class Recipe(Section):
    """Everything a run is made from."""

    name: str
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = Field("auto", description="auto: bfloat16 on a GPU, else float32")
    env: Open
    policies: dict[str, PolicySection]
    seats: str | dict[str, str]
    matchups: list[MatchupSection] = []
    algorithm: Open
    reward: RewardSection = RewardSection()
    sampling: SamplingSection = SamplingSection()
    tools: ToolSection = ToolSection()
    rollout: RolloutSection = RolloutSection()
    train: TrainSection = TrainSection()
    warmstart: WarmstartSection | None = None
    curriculum: CurriculumSection | None = None
    league: LeagueSection | None = None
    eval: EvalSection = EvalSection()
    checkpoint: CheckpointSection = CheckpointSection()
    records: RecordSection = RecordSection()

    @model_validator(mode="after")
    def _seats_name_policies(self) -> Recipe:
        if not self.policies:
            raise ConfigError('policies is empty; expected at least one, for example [policies.player] base = "tiny".')
        for name, section in self.policies.items():
            _refuse_half_remote(name, section)
        if not self.seats:
            raise ConfigError("seats is empty; expected a policy name, or a table of role = policy.")
        for name in self.policies:
            if not _POLICY_NAME.fullmatch(name):
                raise ConfigError(f"policies has '{name}'; expected a name of letters, digits, '_', '-' and '.'.")
        for table in [self.seats, *(m.seats for m in self.matchups)]:
            for key in table if isinstance(table, dict) else ():
                split_seat(key)
        named = {"seats": self.seats} if isinstance(self.seats, str) else _keyed("seats", self.seats)
        for i, matchup in enumerate(self.matchups):
            named |= {f"matchups.{i}.{key}": name for key, name in matchup.named.items()}
        for key, name in named.items():
            policy, mark, which = name.partition("@") if key.startswith("matchups") else (name, "", "")
            if mark and mark + which not in (START, NOW, LEAGUE):
                raise ConfigError(f"{key} is '{name}'; {did_you_mean(which, ('start', 'now', 'league'))}")
            if mark + which == LEAGUE and self.league is None:
                raise ConfigError(f"{key} is '{name}', but there is no [league]; add one, or name another player.")
            if not name.startswith("bot:") and name != LEAGUE and policy not in self.policies:
                raise ConfigError(
                    f"{key} names policy '{name}', which is not in [policies]; {did_you_mean(policy, self.policies)}"
                )
        if any(sum(m.share_at(step) for m in self.matchups) > 1 + 1e-9 for step in self._turning_points()):
            raise ConfigError("the shares of [[matchups]] add up to more than 1; what is left is played with [seats].")
        if self.league is not None:
            _check_league(self.league, self.policies, set(named.values()))
        for name in self.policies:
            if name not in named.values() and name not in self.eval.opponents:
                raise ConfigError(
                    f"policies.{name} sits in no seat; expected seats to name it (or remove it), "
                    f"seats hold: {', '.join(sorted(set(named.values())))}."
                )
        return self

    def _turning_points(self) -> set[int]:
        """Steps at which the sum of the shares can be largest: where one of them turns, and right before."""
        points = {0}
        for matchup in self.matchups:
            if isinstance(matchup.share, list):
                again = range(0, self.train.steps if matchup.period else 1, matchup.period or 1)
                turns = [int(first + at) for first in again for at, _ in matchup.share]
                points |= {step for turn in turns for step in (turn, max(0, turn - 1))}
                points |= {max(0, first - 1) for first in again}
        return points


def _check_league(league: LeagueSection, policies: Mapping[str, PolicySection], named: set[str]) -> None:
    if not any(name.endswith(LEAGUE) for name in named) and league.alarm is None:
        raise ConfigError(
            'league is set, but no matchup plays against it; expected [[matchups]] with a player such as "@league".'
        )
    for name in league.exploiters:
        if name not in policies:
            raise ConfigError(f"league.exploiters.{name} is no policy; {did_you_mean(name, policies)}")
        if name not in named or not policies[name].trainable:
            raise ConfigError(f"league.exploiters.{name} must be trainable and sit in a matchup, in which it learns.")
    panel = [] if league.alarm is None else league.alarm.panel
    if league.alarm is not None and not panel:
        raise ConfigError("league.alarm.panel is empty; expected bots, or policies as they began: policy@start.")
    for key, name in [*(("bots", n) for n in league.bots), *(("alarm.panel", n) for n in panel)]:
        start = key == "alarm.panel" and name.endswith(START) and name.removesuffix(START) in policies
        if not name.startswith("bot:") and not start:
            more = " or policy@start" if key == "alarm.panel" else ""
            raise ConfigError(f"league.{key} has '{name}'; expected bot:NAME{more}.")


_POLICY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # the name of a folder in every checkpoint


def split_seat(key: str) -> tuple[str, int | None]:
    """The role and the turn of a seat's key: `role`, or `role@turn`, the first turn being 1."""
    role, at, turn = key.rpartition("@")
    if not at:
        return key, None
    if not turn.isdecimal() or int(turn) < 1:
        raise ConfigError(f"seat '{key}' has the turn '{turn}'; expected role@turn, turns counted from 1.")
    return role, int(turn)


def _refuse_half_remote(name: str, policy: PolicySection) -> None:
    if policy.is_remote and policy.trainable:
        raise ConfigError(
            f"policies.{name} is the remote model '{policy.base}', which gives neither token ids nor log-probs, so it "
            f"cannot be trained; set policies.{name}.trainable = false."
        )
    if policy.is_remote and policy.adapter is not None:
        raise ConfigError(f"policies.{name}.adapter cannot be added to the remote model '{policy.base}'; remove it.")
    if policy.remote is not None and not policy.is_remote:
        raise ConfigError(
            f"policies.{name}.remote is set, but base is '{policy.base}'; expected a base such as '{REMOTE}NAME'."
        )


def _keyed(prefix: str, table: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}.{role}": name for role, name in table.items()}


def load(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply `a.b=c` overrides. `path` is a TOML file, or a run folder, whose run.json holds it."""
    file = Path(path) / "run.json" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        near = [str(p) for p in sorted(Path("recipes").glob("*/*.toml"))]
        raise ConfigError(f"recipe '{path}' does not exist; expected a TOML file, {did_you_mean(str(path), near)}")
    try:
        if file.suffix == ".json":  # the resolved recipe that a run keeps
            data = json.loads(file.read_text(encoding="utf-8"))["recipe"]
        else:
            data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, KeyError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe '{path}' is not a valid recipe file: {error}.") from None
    return parse(data, overrides)


def parse(data: Mapping[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    try:
        tree: dict[str, Any] = json.loads(json.dumps(data))  # a private copy
    except TypeError:
        raise ConfigError("a recipe holds a date or time; expected strings, numbers, lists and tables.") from None
    for text in overrides:
        _override(tree, text)
    return validate(Recipe, tree)


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """`a=b` texts as a table."""
    tree: dict[str, Any] = {}
    for text in texts:
        _override(tree, text)
    return tree


def _override(tree: dict[str, Any], text: str) -> None:
    key, eq, raw = text.partition("=")
    if not eq or not key.strip():
        raise ConfigError(f"override '{text}' has no key and value; expected a.b=c, for example train.steps=10.")
    try:
        value = tomllib.loads(f"v = {raw}")["v"]
    except tomllib.TOMLDecodeError:
        value = raw.strip()  # bare words are strings: policies.player.base=tiny
    *path, last = key.strip().split(".")
    node = tree
    for i, part in enumerate(path):
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(f"override '{text}' goes below {'.'.join(path[: i + 1])}, which is not a table.")
        node = child
    node[last] = value


def validate(model: type[M], data: Mapping[str, Any], prefix: str = "") -> M:
    """`model` from `data`, any mistake as one `ConfigError` sentence with keys under `prefix`."""
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(_sentence(model, error, prefix)) from None


def _sentence(model: type[BaseModel], error: ValidationError, prefix: str) -> str:
    # An unknown key explains more than the missing key it was meant to be.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    above = [prefix] if prefix else []
    named, wanted = _reach(model, [str(p) for p in first["loc"]])
    kind, key = first["type"], ".".join(above + named)
    if kind == "extra_forbidden":
        where = ".".join(above + named[:-1])
        owner = _reach(model, named[:-1])[1]
        known = owner.model_fields if _is_model(owner) else {}
        return (
            f"unknown key '{named[-1]}' in {'[' + where + ']' if where else 'the recipe'}; "
            f"{did_you_mean(named[-1], known)}"
        )
    if kind == "missing":
        return f"{key} is missing; expected {_described(wanted)}."
    bound = first["msg"].removeprefix("Input should be") if kind.startswith(("greater", "less")) else ""
    return f"{key} is {first.get('input')!r}; expected {_described(wanted)}{bound}."


def _reach(model: type[BaseModel], loc: Sequence[str]) -> tuple[list[str], Any]:
    """The keys of the recipe in `loc` (pydantic also names the member of a union), and the type expected there."""
    current: Any = model
    named: list[str] = []
    for part in loc:
        if _is_model(current):
            info = current.model_fields.get(part)
            current = _unwrap(info.annotation) if info else None
        elif typing.get_origin(current) in (dict, list):
            current = _unwrap(typing.get_args(current)[-1])
        else:
            break
        named.append(part)
    return named, current


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _unwrap(annotation: Any) -> Any:
    """The type itself where it is only optional."""
    members = [a for a in typing.get_args(annotation) if a is not type(None)]
    return members[0] if _is_union(annotation) and len(members) == 1 else annotation


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


_ONE = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
_MANY = {int: "whole numbers", float: "numbers", str: "strings"}


def _described(annotation: Any) -> str:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(repr(a) for a in parts)
    if _is_union(annotation):
        return " or ".join(_described(a) for a in parts)
    if origin in (dict, list):
        kind = "a table" if origin is dict else "a list"
        return f"{kind} of {_MANY[parts[-1]]}" if parts[-1] in _MANY else kind
    return "a table" if _is_model(annotation) else _ONE.get(annotation, "a value of the right type")
