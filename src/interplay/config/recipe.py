"""The recipe as a whole: its sections together, read from TOML with `a.b=c` overrides."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from interplay.config.channels import ChannelSection
from interplay.config.cluster import ClusterSection
from interplay.config.engine import EngineSection
from interplay.config.evaluation import EvalSection
from interplay.config.evolve import EvolveSection
from interplay.config.judges import JudgeSection
from interplay.config.league import LeagueSection
from interplay.config.memory import MemorySection
from interplay.config.policies import PolicySection
from interplay.config.rollout import (
    CurriculumSection,
    RewardSection,
    RolloutSection,
    SamplingSection,
    StreamSection,
    ToolSection,
)
from interplay.config.seats import MatchupSection, keyed, split_seat
from interplay.config.section import Open, Section, validate
from interplay.config.training import CheckpointSection, RecordSection, TrainSection, WarmstartSection
from interplay.errors import ConfigError, did_you_mean
from interplay.types import FromLeague, Policy, Remote, Scripted, Snapshot
from interplay.types.occupant import BOT, parse_one

_PACKAGED = Path(__file__).parents[1] / "recipes"  # a link to the repository's folder, and files in the wheel
_WITH_PASSWORD = re.compile(r"\w+://[^/\s\"]*@")
_POLICY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # it is also the name of a folder in every checkpoint


class EnvSection(Open):
    """The environment, and its options."""

    name: str = Field(
        description="the environment: a name that `interplay envs` lists, or package.module:Class; the environment's "
        "options are further keys of [env]"
    )


class AlgorithmSection(Open):
    """The algorithm, and its options."""

    name: str = Field(
        description="the algorithm: a name that `interplay algorithms` lists, or package.module:Class; the algorithm's "
        "options are further keys of [algorithm]"
    )


class Recipe(Section):
    """Everything a run is made from."""

    name: str = Field(description="name of the run; its folder is runs/NAME-DATE")
    seed: int = Field(0, description="seed of all random numbers: new weights, tasks, sampling and order")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where the run computes; auto uses the GPU if there is one"
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="number format of the weights; auto is bfloat16 on a GPU and float32 elsewhere"
    )
    env: EnvSection
    policies: dict[str, PolicySection]
    seats: str | dict[str, str] = Field(
        description="who plays which role: one policy for all roles, or a table with a policy or bot:NAME for each "
        "role or role@turn"
    )
    matchups: list[MatchupSection] = Field(
        [], description="other line-ups for a share of the episodes; the remaining episodes are played with [seats]"
    )
    algorithm: AlgorithmSection
    reward: RewardSection = RewardSection()
    sampling: SamplingSection = SamplingSection()
    tools: ToolSection = ToolSection()
    rollout: RolloutSection = RolloutSection()
    engine: EngineSection = EngineSection()
    memory: MemorySection = MemorySection()
    stream: StreamSection = StreamSection()
    train: TrainSection = TrainSection()
    warmstart: WarmstartSection | None = None
    curriculum: CurriculumSection | None = None
    evolve: EvolveSection | None = None
    league: LeagueSection | None = None
    judges: dict[str, JudgeSection] = Field({}, description="judges, by the names of the rewards that they give")
    channels: dict[str, ChannelSection] = Field({}, description="soft channels between agents, by name")
    eval: EvalSection = EvalSection()
    checkpoint: CheckpointSection = CheckpointSection()
    records: RecordSection = RecordSection()
    cluster: ClusterSection = ClusterSection()

    @model_validator(mode="before")
    @classmethod
    def _workflow_is_an_option_of_the_environment(cls, data: Any) -> Any:
        """In a recipe, [workflow] is a section of its own. It becomes an option of [env]."""
        if isinstance(data, dict) and "workflow" in data and isinstance(data.get("env"), dict):
            name = str(data["env"].get("name", ""))
            if name and not name.startswith("workflow:"):
                raise ConfigError(
                    f"env.name is '{name}', and only a workflow has a section [workflow]; expected env.name = "
                    f"'workflow:{name}', or no [workflow]."
                )
            rest = {key: value for key, value in data.items() if key != "workflow"}
            return {**rest, "env": {**data["env"], "workflow": data["workflow"]}}
        return data

    @model_validator(mode="after")
    def _seats_name_policies(self) -> Recipe:
        if not self.policies:
            raise ConfigError('policies is empty; expected at least one, for example [policies.player] base = "tiny".')
        for name, section in self.policies.items():
            section.refuse_half_remote(name)
        if not self.seats:
            raise ConfigError("seats is empty; expected a policy name, or a table of role = policy.")
        for key, name in [*(("policies", n) for n in self.policies), *(("channels", n) for n in self.channels)]:
            if not _POLICY_NAME.fullmatch(name):
                raise ConfigError(f"{key} has '{name}'; expected a name of letters, digits, '_', '-' and '.'.")
        for table in [self.seats, *(m.seats for m in self.matchups)]:
            for key in table if isinstance(table, dict) else ():
                split_seat(key)
        named = self._named
        for key, name in named.items():
            self._check_occupant(key, name)
        if any(sum(m.share_at(step) for m in self.matchups) > 1 + 1e-9 for step in self._turning_points()):
            raise ConfigError(
                "the shares of [[matchups]] add up to more than 1; expected at most 1, since [seats] play the "
                "remaining episodes."
            )
        if self._designer and self._designer not in self.policies:
            known = did_you_mean(self._designer, self.policies)
            raise ConfigError(f"evolve.designer is '{self._designer}', which is not a policy; {known}")
        if self.league is not None:
            self.league.check(self.policies, set(named.values()))
        return self

    @property
    def keeps_gathered(self) -> bool:
        """Whether each process of a sharded learner keeps whole weights until they change. A single process has nothing
        to gain from freeing them, since its part is the whole."""
        return self.train.shard == "fsdp" and (self.train.gather == "step" or self.cluster.learners == 1)

    @property
    def _named(self) -> dict[str, str]:
        """Every name of a player in [seats], a matchup or a judge, by its key."""
        named = {"seats": self.seats} if isinstance(self.seats, str) else keyed("seats", self.seats)
        for i, matchup in enumerate(self.matchups):
            named |= {f"matchups.{i}.{key}": name for key, name in matchup.named.items()}
        for key, judge in self.judges.items():
            players = {"who": judge.policy, "against": judge.against}
            named |= {f"judges.{key}.{k}": v for k, v in players.items() if v and v not in ("group", "reference")}
        return named

    def refuse_unseated(self) -> None:
        """Raise if a policy sits nowhere: nothing could train it."""
        named = set(self._named.values())
        for name in self.policies:
            if name not in {*named, *self.eval.opponents, self._designer}:
                raise ConfigError(
                    f"policies.{name} sits in no seat; expected seats to name it (or remove it), "
                    f"seats hold: {', '.join(sorted(named))}."
                )

    @property
    def _designer(self) -> str:
        return self.evolve.designer if self.evolve is not None else ""

    def _check_occupant(self, key: str, name: str) -> None:
        """Check a name in a seat. [seats] may name policies and bots; matchups and judges also snapshots and the
        league."""
        who = parse_one(name) if key.startswith(("matchups", "judges")) or name.startswith(BOT) else Policy(name)
        if isinstance(who, Snapshot) and who.at not in ("start", "now"):
            raise ConfigError(f"{key} is '{name}'; {did_you_mean(who.at, ('start', 'now', 'league'))}")
        if isinstance(who, FromLeague) and self.league is None:
            raise ConfigError(f"{key} is '{name}', but there is no [league]; add one, or name another player.")
        policy = who.name if isinstance(who, Policy | Remote) else "" if isinstance(who, Scripted) else who.policy
        if policy not in self.policies and not isinstance(who, Scripted) and who != FromLeague():
            raise ConfigError(
                f"{key} names policy '{name}', which is not in [policies]; {did_you_mean(policy, self.policies)}"
            )

    def _turning_points(self) -> set[int]:
        """The steps at which the sum of the shares can be largest: those where the schedule of a share has a point, and
        the steps right before them."""
        points = {0}
        for matchup in self.matchups:
            if isinstance(matchup.share, list):
                again = range(0, self.train.steps if matchup.period else 1, matchup.period or 1)
                turns = [int(first + at) for first in again for at, _ in matchup.share]
                points |= {step for turn in turns for step in (turn, max(0, turn - 1))}
                points |= {max(0, first - 1) for first in again}
        return points


def packaged() -> dict[str, Path]:
    """The recipes that come with the package, by the name under which `load` finds them in any folder. Studies, which
    are files without policies, are left out."""
    files = sorted(_PACKAGED.rglob("*.toml"))
    return {
        str("recipes" / file.relative_to(_PACKAGED)): file
        for file in files
        if "policies" in tomllib.loads(file.read_text(encoding="utf-8"))
    }


def load(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply `a.b=c` overrides. `path` is as in `values_in`."""
    return parse(values_in(path), overrides)


def values_in(path: str | Path) -> dict[str, Any]:
    """The values that a recipe file sets, without defaults. `path` is a TOML file, or a run folder with the recipe in
    run.json. The recipes that come with the package are found as `recipes/ENV/NAME.toml` in any folder."""
    file = Path(path) / "run.json" if Path(path).is_dir() else Path(path)
    if not file.exists() and file.parts[:1] == ("recipes",):
        file = _PACKAGED.joinpath(*file.parts[1:])
    if not file.is_file():
        if Path(path).is_dir():
            raise ConfigError(
                f"folder '{path}' has no run.json; expected the folder of a run that interplay train started."
            )
        near = _near(str(path), file.parent)
        raise ConfigError(
            f"recipe '{path}' does not exist; expected a TOML file or a run folder, {did_you_mean(str(path), near)}"
        )
    try:
        if file.suffix == ".json":  # the resolved recipe that a run stores
            data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["recipe"]
            return data
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, KeyError, TypeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if file.suffix == ".json":
            raise ConfigError(
                f"'{file}' is damaged ({type(error).__name__}: {error}); expected the run.json that interplay train "
                "has written: restore it, for example from a copy of the run."
            ) from None
        raise ConfigError(f"recipe '{path}' is not a valid recipe file: {error}.") from None


def _short(file: Path) -> str:
    """The name under which a recipe is found: one of the package is `recipes/ENV/NAME.toml` in any folder."""
    return str("recipes" / file.relative_to(_PACKAGED) if file.is_relative_to(_PACKAGED) else file)


def _near(path: str, folder: Path) -> list[str]:
    """The recipes and runs that somebody may have meant by a path that does not exist."""
    packaged = [*_PACKAGED.glob("*/*.toml")]
    beside = [*folder.glob("*.toml"), *(p.parent for p in folder.glob("*/run.json"))]
    found = beside or [*Path("recipes").glob("*/*.toml")] or packaged
    names = [_short(p) for p in found]
    ends = {name for name in map(_short, found + packaged) if name.endswith(f"/{path.removesuffix('.toml')}.toml")}
    if ends:
        return sorted(ends)
    return names if len(names) < 20 else difflib.get_close_matches(path, names, n=8, cutoff=0)


def parse(data: Mapping[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    try:
        tree: dict[str, Any] = json.loads(json.dumps(data))  # a private copy
    except TypeError:
        raise ConfigError("a recipe contains a date or time; expected strings, numbers, lists and tables.") from None
    before = {table: _name_in(tree, table) for table in ("env", "algorithm")}
    for text in overrides:
        _override(tree, text)
    recipe = validate(Recipe, tree)
    _refuse_passwords(tree)
    replaced = {text.partition("=")[0].strip() for text in overrides}
    for table, section in (("env", recipe.env), ("algorithm", recipe.algorithm)):
        named = before[table]
        if named is not None and named != section.name and table not in replaced:
            section.renamed(named)
    return recipe


def _refuse_passwords(value: Any, path: str = "") -> None:
    """Refuse URLs with a user name or a password, because a run folder keeps its recipe. Their text is not shown."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_passwords(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for inner in value:
            _refuse_passwords(inner, path)
    elif isinstance(value, str) and _WITH_PASSWORD.match(value):
        raise ConfigError(
            f"{path} is a URL with a user name or a password in it, which the run folder would keep; expected the URL "
            "without them."
        )


def _name_in(tree: Mapping[str, Any], table: str) -> str | None:
    found = tree.get(table)
    return found.get("name") if isinstance(found, dict) else None


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Parse texts of the form `a=b` into a table."""
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
            raise ConfigError(
                f"override '{text}' sets a key below {'.'.join(path[: i + 1])}, which is not a table; expected the key "
                "of a table."
            )
        node = child
    node[last] = value
