"""Where an advantage comes from: rewards → return → baseline → advantage, with the numbers of the record.

The group that shares a baseline is read from the records, and the algorithm's own rule is applied to it again. The page
says whether that gives the recorded advantage. It does not if episodes of the group were not recorded, or if the
algorithm does more than its rule.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interplay.algorithms import Algorithm, credit
from interplay.algorithms.compare import CompareEpisodes, CompareReplies
from interplay.config import RewardSection
from interplay.rollout import episode_json
from interplay.rollout.media import MediaFolder
from interplay.types import Credit, Episode, Media, MediaKind, Role, Turn
from interplay.viewer.episode import reward_rows


@dataclass(frozen=True)
class Recorded:
    """An episode of a record and its credit."""

    step: int
    episode: Episode
    credit: Credit

    def turn(self, name: str) -> Turn | None:
        return next((t for t in self.episode.turns if t.id == name), None)


def recorded(step: int, data: Mapping[str, Any]) -> Recorded:
    """The episode of a record. Playouts and what judges were asked have no advantage, and are left out."""
    known = {k: v for k, v in data.items() if k != "judged"}
    known["turns"] = [t for t in data["turns"] if t["playout"] is None]
    return Recorded(step, *episode_json.from_json(known, _Unread(Path())))


class _Unread(MediaFolder):
    """Media by digest only: no file is read."""

    def get(self, kind: MediaKind, digest: str) -> Media:
        return Media(kind, b"", digest)


def explain(
    played: Recorded, turn: Turn, siblings: Sequence[Recorded], algorithm: Algorithm | None, weights: RewardSection
) -> dict[str, Any]:
    """`siblings` are the recorded episodes of the same task and step, the turn's own among them."""
    given = played.credit.advantage(turn)
    base: dict[str, Any] = {
        "turn": turn.id,
        "algorithm": _name(algorithm),
        "about": _about(algorithm),
        "advantage": given,
        "per_token": bool(turn.samples) and isinstance(played.credit.advantages.get(turn.last.id), tuple),
        "gamma": weights.gamma,
    }
    if isinstance(algorithm, CompareReplies) and turn.outlook is not None:
        return base | _of_replies(played, turn, algorithm, weights)
    line = played.episode.line(turn.role)
    if isinstance(algorithm, CompareEpisodes):
        base["rewards"] = _discounted(line, turn.role, weights)
        return base | _of_episodes(turn, siblings, algorithm, weights)
    start = next((i for i, t in enumerate(line) if t.id == turn.id), len(line))
    base["rewards"] = _discounted(line[start:], turn.role, weights)
    ahead = {t.id: value for t, value in zip(line, credit.returns(line, weights), strict=True)}
    base |= {"kind": "value" if played.credit.value(turn) is not None else "other", "return": ahead.get(turn.id)}
    return base | {"value": played.credit.value(turn), "target": played.credit.target(turn), "members": []}


def _about(algorithm: Algorithm | None) -> str:
    """The first two paragraphs of an algorithm's page: its title, and what it does."""
    if algorithm is None:
        return ""
    text = sys.modules[type(algorithm).__module__].__doc__ or type(algorithm).__doc__ or ""
    return "\n\n".join(text.strip().split("\n\n")[:2])


def _of_replies(played: Recorded, turn: Turn, algorithm: CompareReplies, weights: RewardSection) -> dict[str, Any]:
    turns = [
        t
        for t in credit.candidates([played.episode])
        if (t.decision, t.role) == (turn.decision, turn.role) and t.outlook is not None
    ]
    outlook = turn.outlook
    assert outlook is not None
    rows = [[r.name, r.level.value, r.role, r.value] for r in outlook.rewards.of(turn.role)]
    found = _compared([credit.candidate_return(t, weights) for t in turns], algorithm, turns.index(turn))
    members = [_member(played, t, value) for t, value in zip(turns, found["returns"], strict=True)]
    # A tree does not play out candidates that are all equal, because their advantages are 0 whatever they would earn.
    scored = any(t.outlook is not None and t.outlook.rewards.of(t.role) for t in turns)
    return {
        "kind": "replies", "rewards": reward_rows(rows, weights), "members": members, "expected": None,
        "unplayed": len(turns) > 1 and len({t.words for t in turns}) == 1 and not scored, **found,
    }  # fmt: skip


def _name(algorithm: Algorithm | None) -> str | None:
    """The name that a recipe gives; of an algorithm from outside the package, its class."""
    if algorithm is None:
        return None
    package, _, module = type(algorithm).__module__.rpartition(".")
    return module if package == "interplay.algorithms" else type(algorithm).__name__


def _of_episodes(
    turn: Turn, siblings: Sequence[Recorded], algorithm: CompareEpisodes, weights: RewardSection
) -> dict[str, Any]:
    lines = [(s, line) for s in siblings if (line := s.episode.line(turn.role)) and any(t.is_model for t in line)]
    at = next((i for i, (_, line) in enumerate(lines) if any(t.id == turn.id for t in line)), None)
    found = _compared([credit.returns(line, weights)[0] for _, line in lines], algorithm, at)
    members = []
    for (own, line), value in zip(lines, found["returns"], strict=True):
        shown = next((t for t in line if t.decision == turn.decision), line[-1])
        members.append(_member(own, shown, value))
    return {"kind": "episodes", "members": members, "expected": algorithm.settings.group, **found}


def _member(played: Recorded, turn: Turn, value: float) -> dict[str, Any]:
    return {
        "turn": turn.id, "episode": played.episode.id, "step": played.step, "candidate": turn.candidate,
        "kept": turn.kept, "text": turn.text, "status": turn.status.value, "policy": turn.policy,
        "tokens": turn.sampled, "return": value, "advantage": played.credit.advantage(turn),
    }  # fmt: skip


def _compared(returns: list[float], algorithm: CompareReplies | CompareEpisodes, at: int | None) -> dict[str, Any]:
    """The statistics of a group, the algorithm's rule applied to it, and the formula that describes the rule."""
    mean = math.fsum(returns) / len(returns) if returns else 0.0
    deviation = math.sqrt(math.fsum((r - mean) ** 2 for r in returns) / max(1, len(returns)))
    ruled = algorithm.rule(returns) if returns else []
    others = credit.leave_one_out(returns) if returns else []
    formula = "rule"
    for name, guess in (
        ("centred", credit.centred(returns, False) if returns else []),
        ("scaled", credit.centred(returns, True) if returns else []),
        ("leave_one_out", others),
    ):
        if all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in zip(ruled, guess, strict=True)):
            formula = name
            break
    own = returns[at] if at is not None else None
    return {
        "returns": returns,
        "return": own,
        "mean": mean,
        "deviation": deviation,
        "baseline": None if own is None or at is None else own - others[at] if formula == "leave_one_out" else mean,
        "formula": formula,
        "recomputed": ruled[at] if at is not None else None,
    }


def _discounted(line: Sequence[Turn], role: Role, weights: RewardSection) -> list[dict[str, Any]]:
    """The rewards of a role in these turns, each with its discount. Their products add up to the return of the first
    turn."""
    out = []
    for i, t in enumerate(line):
        rows = [[r.name, r.level.value, r.role, r.value] for r in t.rewards.of(role)]
        out += [row | {"decision": t.decision, "discount": weights.gamma**i} for row in reward_rows(rows, weights)]
    return out
