"""One row about each episode, for lists; and the filters of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from interplay.algorithms import credit
from interplay.config import RewardSection
from interplay.types import Level, Policy, Reward, Rewards
from interplay.types.occupant import everyone, parse


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """What a list shows of an episode. `reward` has each role's total, with the weights of the recipe."""

    number: int
    step: int
    id: str
    task: str
    seats: dict[str, str]
    policies: tuple[str, ...]
    reward: dict[str, float]
    turns: int
    tokens: int
    tools: int
    candidates: int
    statuses: tuple[str, ...]
    truncated: bool
    error: str | None
    seconds: float
    ended: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def rewards_of(rows: Sequence[Sequence[Any]]) -> Rewards:
    """The rewards of a record."""
    return Rewards(tuple(Reward(row[0], Level(row[1]), *row[2:]) for row in rows))


def summarise(number: int, step: int, episode: Mapping[str, Any], weights: RewardSection) -> EpisodeSummary:
    line = [t for t in episode["turns"] if t["kept"] and t["playout"] is None]
    rewards = rewards_of(episode["rewards"])
    statuses = {t["status"] for t in line} | ({"illegal"} if any(was_illegal(t) for t in line) else set())
    return EpisodeSummary(
        number, step, episode["id"], episode["task"]["id"],
        {role: seat_name(who) for role, who in episode["seats"].items()},
        tuple(sorted({t["policy"] for t in line})),
        {role: credit.mix(rewards, role, weights) for role in episode["seats"]},
        len(line), sum(len(s["action"]) or s["used"] for t in line for s in t["samples"]),
        sum(max(0, len(t["samples"]) - 1) for t in line),
        max((t["candidate"] + 1 for t in episode["turns"] if t["playout"] is None), default=0),
        tuple(sorted(statuses)), episode["truncated"], episode["error"], episode["seconds"],
        episode["final_state"][-80:],
    )  # fmt: skip


def seat_name(who: Any) -> str:
    """The occupant of a seat. A remote model is stored as a table, and so is a list of players with one in it."""
    if isinstance(who, str):
        return who
    if "turns" not in who:
        return str(who["remote"])
    *first, last = map(seat_name, who["turns"])
    return ", ".join([*first, f"then {last}"] if who["always"] else [*first, last, "then no one"])


def was_illegal(turn: Mapping[str, Any]) -> bool:
    """Whether the environment refused a turn. A candidate that a tree rejected has only an outlook."""
    rejected = not turn["kept"] and (turn["outlook"] or {}).get("refused", False)
    return rejected or any(row[0] == "illegal" for row in turn["rewards"])


def wanted(query: Mapping[str, str]) -> Callable[[EpisodeSummary], bool]:
    """The filter that a query asks for. Every key is optional, and all must hold."""
    role, least, most = query.get("role"), _number(query.get("min")), _number(query.get("max"))

    def passes(row: EpisodeSummary) -> bool:
        values = [v for r, v in row.reward.items() if role is None or r == role]
        seated = [w for r, w in row.seats.items() if role is None or r == role]
        return (
            ("step" not in query or str(row.step) == query["step"])
            and ("task" not in query or row.task == query["task"])
            and (role is None or role in row.seats)
            and ("policy" not in query or query["policy"] in {*seated, *(row.policies if role is None else ())})
            and _has(row, query.get("status"))
            and (least is None or any(v >= least for v in values))
            and (most is None or any(v <= most for v in values))
        )

    return passes


def _has(row: EpisodeSummary, status: str | None) -> bool:
    if status is None:
        return True
    if status == "error":
        return row.error is not None
    return row.truncated if status == "truncated" else status in row.statuses


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def sorting(query: Mapping[str, str]) -> Callable[[EpisodeSummary], float]:
    """The order that a query asks for. `best` and `worst` are by the reward of its role, or as `goodness` says."""
    role = query.get("role")
    return {
        "new": lambda row: -row.number,
        "old": lambda row: row.number,
        "worst": lambda row: goodness(row, role),
        "best": lambda row: -goodness(row, role),
        "long": lambda row: -row.tokens,
    }[query.get("sort", "new")]


def goodness(row: EpisodeSummary, role: str | None = None) -> float:
    """How good an episode was: the reward of a role, or the mean over the roles that policies played. In a game against
    a bot or a snapshot, the opponent's reward would cancel that of the policy. If no policy plays, all roles count."""
    played = [r for r, who in row.seats.items() if any(isinstance(one, Policy) for one in everyone(parse(who)))]
    roles = [role] if role is not None else played or list(row.seats)
    return sum(row.reward.get(r, 0.0) for r in roles) / max(1, len(roles))
